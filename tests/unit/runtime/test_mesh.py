"""Meshes, shardings and arrays in pieces; `tpuc.jit` over a slice, against NumPy."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tpuc
from runtime.mesh import sharding_of
from runtime.slice_executable import SliceExecutable
from tpuc import NamedSharding
from tpuc import PartitionSpec as P

TARGET = "v5e:2x2"


@pytest.fixture
def mesh() -> tpuc.Mesh:
    return tpuc.make_mesh((2, 2), ("data", "model"), TARGET)


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize(
    ("spec", "part"),
    [
        (P("data"), (4, 6)),
        (P(None, "model"), (8, 3)),
        (P("model", "data"), (4, 3)),
        (P(("model", "data")), (2, 6)),
        (P(), (8, 6)),
    ],
)
def test_pieces_and_the_whole(mesh: tpuc.Mesh, spec: P, part: tuple[int, ...]) -> None:
    (x,) = arrays((8, 6))
    sharding = NamedSharding(mesh, spec)
    put = tpuc.device_put(x, sharding)
    assert sharding.shard_shape(x.shape) == part
    assert put.sharding is not None
    assert put.sharding.to_hlo(2) == sharding.to_hlo(2)
    for shard in put.addressable_shards:
        np.testing.assert_array_equal(shard.data.numpy(), x[shard.index])
        assert shard.data.shape == part
        assert shard.data.device is shard.device
    firsts = {str(s.index) for s in put.addressable_shards if s.replica_id == 0}
    assert len(firsts) == sum(s.replica_id == 0 for s in put.addressable_shards)
    np.testing.assert_array_equal(put.numpy(), x)


def test_uneven_cut_is_padded(mesh: tpuc.Mesh) -> None:
    (x,) = arrays((5, 3))
    put = tpuc.device_put(x, NamedSharding(mesh, P(("data", "model"))))
    np.testing.assert_array_equal(put.numpy(), x)
    assert [shard.index[0] for shard in put.addressable_shards] == [
        slice(0, 2), slice(2, 4), slice(4, 5), slice(5, 5),
    ]  # fmt: skip


def test_a_sharding_that_is_no_product_of_whole_axes_has_no_name(mesh: tpuc.Mesh) -> None:
    one = tpuc.make_mesh((4,), ("x",), TARGET)
    (x,) = arrays((4, 4))
    rows = tpuc.device_put(x, NamedSharding(mesh, P("data")))
    assert sharding_of(rows.spread, mesh) is not None
    assert sharding_of(rows.spread, one) is None


def test_bad_meshes_and_specs(mesh: tpuc.Mesh) -> None:
    with pytest.raises(ValueError, match="axis 'rows' is none of it"):
        NamedSharding(mesh, P("rows"))
    with pytest.raises(ValueError, match="an axis is there twice"):
        NamedSharding(mesh, P("data", "data"))
    with pytest.raises(ValueError, match="3x2 devices, v5e:2x2 has 4"):
        tpuc.make_mesh((3, 2), ("a", "b"), TARGET)
    with pytest.raises(ValueError, match="different ones of one slice"):
        tpuc.Mesh([tpuc.devices(TARGET)[0], tpuc.devices("v5e")[0]], "x")
    with pytest.raises(tpuc.CompileError, match="for an array of 1 dimensions"):
        tpuc.device_put(np.zeros(4, np.float32), NamedSharding(mesh, P("data", "model")))


def layer(x: np.ndarray, w: np.ndarray, v: np.ndarray) -> np.ndarray:
    return np.maximum(x @ w, 0) @ v


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_jit_over_a_mesh_of_any_order(order: list[int]) -> None:
    devices = np.array(tpuc.devices(TARGET), object)[order].reshape(2, 2)
    mesh = tpuc.Mesh(devices, ("data", "model"))
    rows, columns, inner = (
        NamedSharding(mesh, s) for s in (P("data"), P(None, "model"), P("model"))
    )
    x, w, v = arrays((16, 8), (8, 32), (32, 8))
    step = tpuc.jit(layer, in_shardings=(rows, columns, inner), out_shardings=rows)
    np.testing.assert_array_equal(step(x, w, v), layer(x, w, v))
    assert isinstance(step.executable, SliceExecutable)
    assert [c["kind"] for c in step.executable.collectives] == ["all-reduce"]
    assert step.executable.slice.chips == tuple(order)
    placed = [tpuc.device_put(a, s) for a, s in zip((x, w, v), (rows, columns, inner), strict=True)]
    found = step(*placed)
    assert isinstance(found, tpuc.ShardedArray)
    assert found.sharding is not None
    assert found.sharding.to_hlo(2) == rows.to_hlo(2)
    assert [shard.device for shard in found.addressable_shards] == list(devices.flat)
    np.testing.assert_array_equal(found.numpy(), layer(x, w, v))


def test_a_mesh_of_some_of_a_slices_chips() -> None:
    devices = tpuc.devices("v5e:4x2")
    mesh = tpuc.Mesh([devices[5], devices[2]], "x")
    x, w, v = arrays((6, 8), (8, 16), (16, 8))
    step = tpuc.jit(
        layer, in_shardings=NamedSharding(mesh, P()), out_shardings=NamedSharding(mesh, P("x"))
    )
    np.testing.assert_array_equal(step(x, w, v), layer(x, w, v))


def test_arguments_say_where_a_function_runs_and_how(mesh: tpuc.Mesh) -> None:
    @tpuc.jit
    def total(tree: dict[str, np.ndarray]) -> np.ndarray:
        both = tpuc.with_sharding_constraint(
            tree["a"] + tree["b"], NamedSharding(mesh, P(P.UNCONSTRAINED, "model"))
        )
        return np.sum(both, axis=0)

    a, b = arrays((8, 4), (8, 4))
    for spec in (P("data"), P()):
        placed = {"a": tpuc.device_put(a, NamedSharding(mesh, spec)), "b": b}
        np.testing.assert_array_equal(np.asarray(total(placed)), (a + b).sum(0))
        assert isinstance(total.executable, SliceExecutable)
        kinds = [c["kind"] for c in total.executable.collectives]
        assert ("all-reduce" in kinds) == (spec == P("data"))


def test_an_array_that_lies_otherwise_is_cut_anew(mesh: tpuc.Mesh) -> None:
    rows, columns = NamedSharding(mesh, P("data")), NamedSharding(mesh, P(None, "data"))
    (x,) = arrays((4, 4))
    double = tpuc.jit(lambda x: x * 2, in_shardings=(rows,), out_shardings=columns)
    found = double(tpuc.device_put(x, columns))
    np.testing.assert_array_equal(found.numpy(), x * 2)
    assert found.sharding is not None
    assert found.sharding.to_hlo(2) == columns.to_hlo(2)


def test_refusals(mesh: tpuc.Mesh) -> None:
    rows = NamedSharding(mesh, P("data"))
    other = NamedSharding(tpuc.make_mesh((2,), ("x",), "v5e:2x1"), P())
    (x,) = arrays((4, 4))
    with pytest.raises(tpuc.CompileError, match="2 entries for 1 arguments"):
        tpuc.jit(lambda x: x, in_shardings=(rows, rows))(x)
    with pytest.raises(tpuc.CompileError, match="meshes of the same devices"):
        tpuc.jit(lambda x: x, in_shardings=rows, out_shardings=other)(x)
    with pytest.raises(tpuc.CompileError, match=re.escape("the target is v5e:4x2")):
        tpuc.jit(lambda x: x, in_shardings=rows, target="v5e:4x2")(x)
    with pytest.raises(tpuc.CompileError, match="want a NamedSharding, None or a tree"):
        tpuc.jit(lambda x: x, in_shardings=("data",))(x)


def test_pieces_of_a_compiled_text_stay_on_their_devices(mesh: tpuc.Mesh) -> None:
    exe = tpuc.compile(
        "HloModule m, num_partitions=4\nENTRY e {\n x = f32[8,6] parameter(0), "
        "sharding={devices=[4,1]<=[4]}\n ROOT r = f32[8,6] negate(x)\n}\n",
        target=TARGET,
    )
    (x,) = arrays((8, 6))
    (found,) = exe(tpuc.device_put(x, NamedSharding(mesh, P(("data", "model")))))
    assert isinstance(found, tpuc.ShardedArray)
    np.testing.assert_array_equal(found.numpy(), -x)


def test_gradients_through_a_constraint_lie_as_it_says(mesh: tpuc.Mesh) -> None:
    rows, whole = NamedSharding(mesh, P(("data", "model"))), NamedSharding(mesh, P())

    def loss(w: np.ndarray, x: np.ndarray) -> np.ndarray:
        return np.sum(np.square(tpuc.with_sharding_constraint(x @ w, rows)))

    x, w = arrays((16, 8), (8, 4))
    step = tpuc.jit(tpuc.grad(loss), in_shardings=(whole, rows), out_shardings=whole)
    np.testing.assert_array_equal(step(w, x), 2 * x.T @ (x @ w))
    assert isinstance(step.executable, SliceExecutable)
    assert [c["kind"] for c in step.executable.collectives] == ["all-reduce"]
