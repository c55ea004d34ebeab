"""JAX on a slice of eight emulated chips."""

from __future__ import annotations

from functools import partial
from tempfile import TemporaryDirectory

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import io_callback, topologies
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.support.jax_programs.harness import raises, run_checks

MESH = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
A = np.arange(64, dtype=np.float32).reshape(8, 8) / 64


def sharded(array: np.ndarray, *spec: object) -> jax.Array:
    return jax.device_put(array, NamedSharding(MESH, P(*spec)))


def check_devices_stand_in_the_torus() -> None:
    places = [tuple(device.coords) for device in jax.devices()]
    assert places == [(x, y, 0) for y in range(2) for x in range(4)]
    assert MESH.devices.shape == (4, 2)


def check_arrays_are_cut_and_put_together() -> None:
    x = sharded(A, "x", "y")
    assert len(x.addressable_shards) == 8
    for shard in x.addressable_shards:
        np.testing.assert_array_equal(shard.data, A[shard.index])
    np.testing.assert_array_equal(np.asarray(x), A)
    np.testing.assert_array_equal(np.asarray(sharded(x, None, ("x", "y"))), A)


def check_results_say_the_sharding_that_the_compiler_chose() -> None:
    x, w = sharded(A, "x", "y"), sharded(A, "y", None)
    with jax.default_matmul_precision("highest"):
        got = jax.jit(lambda x, w: jnp.sin(x) @ w)(x, w)
    assert got.sharding.is_equivalent_to(NamedSharding(MESH, P("x", None)), 2), got.sharding
    np.testing.assert_allclose(got, np.sin(A) @ A, rtol=1e-5)


def check_a_kept_program_says_it_too() -> None:
    compiled = [jax.jit(lambda x: x * 2).lower(sharded(A, "x")).compile() for _ in range(2)]
    for one in compiled:
        (spec,) = jax.tree.leaves(one.output_shardings)
        assert spec.is_equivalent_to(NamedSharding(MESH, P("x")), 2)
        assert "num_partitions=8" in one.as_text()


def check_constraints_and_wanted_shardings() -> None:
    wanted = NamedSharding(MESH, P("y", "x"))
    inner = jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, wanted) + 1)
    outer = jax.jit(lambda x: x.T, out_shardings=wanted)
    x = sharded(A, "x", "y")
    np.testing.assert_array_equal(inner(x), A * 2 + 1)
    assert outer(x).sharding.is_equivalent_to(wanted, 2)
    np.testing.assert_array_equal(outer(x), A.T)


def check_uneven_constraints_leave_even_borders() -> None:
    def function(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        cut = jax.lax.with_sharding_constraint(x, NamedSharding(MESH, P("x", "y")))
        long = jax.lax.with_sharding_constraint(x[:, 0], NamedSharding(MESH, P(("y", "x"))))
        return cut, long

    given = np.arange(28, dtype=np.float32).reshape(14, 2)
    x, long = jax.jit(function)(given)
    assert (x.sharding.spec, long.sharding.spec) == (P(None, "y"), P("y"))
    np.testing.assert_array_equal(x, given)
    np.testing.assert_array_equal(long, given[:, 0])


def check_shard_map() -> None:
    def body(a: jax.Array) -> jax.Array:
        total = jax.lax.psum(a, "x")
        row = jax.lax.all_gather(a, "y", axis=1, tiled=True)
        mine = jax.lax.psum_scatter(row, "y", scatter_dimension=1, tiled=True)
        right = jax.lax.ppermute(a, "x", [(i, (i + 1) % 4) for i in range(4)])
        return total + mine + right + jax.lax.axis_index("y")

    cut = P("x", "y")
    call = jax.shard_map(body, mesh=MESH, in_specs=cut, out_specs=cut, check_vma=False)
    total = np.tile(A.reshape(4, 2, 8).sum(0), (4, 1))
    right = np.roll(A.reshape(4, 2, 8), 1, axis=0).reshape(8, 8)
    want = total + 2 * A + right + np.repeat([0, 1], 4)
    np.testing.assert_allclose(jax.jit(call)(sharded(A, *cut)), want, rtol=1e-6)


def check_data_parallel_gradient() -> None:
    x = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)

    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.mean(jnp.tanh(x @ w) ** 2)

    with jax.default_matmul_precision("highest"):
        got = jax.jit(jax.grad(loss))(sharded(A), sharded(x, ("x", "y")))
        with jax.default_device(jax.devices("cpu")[0]):
            want = jax.grad(loss)(A, x)
    assert got.sharding.is_fully_replicated
    np.testing.assert_allclose(got, np.asarray(want), rtol=1e-4, atol=1e-6)


def check_partial_sums_between_programs() -> None:
    mesh = jax.make_mesh((4, 2), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh), jax.default_matmul_precision("highest"):
        x, w = jax.device_put(A, P(None, "b")), jax.device_put(A, P("b", None))
        spec = P(None, None, unreduced={"b"})
        partial_sums = jax.jit(lambda x, w: jnp.einsum("ij,jk->ik", x, w, out_sharding=spec))(x, w)
        assert partial_sums.sharding.spec == spec
        whole = jax.jit(lambda y: jax.sharding.reshard(y, P("a", None)))(partial_sums)
    np.testing.assert_allclose(whole, A @ A, rtol=1e-6)


def check_serialised_executables() -> None:
    x = sharded(A, "x", "y")
    compiled = jax.jit(lambda x: {"y": jnp.sin(x).sum(0), "z": x * 2}).lower(x).compile()
    devices = list(MESH.devices.flat)
    loaded = deserialize_and_load(*serialize(compiled), execution_devices=devices)
    for name, want in compiled(x).items():
        found = loaded(x)[name]
        assert found.sharding.is_equivalent_to(want.sharding, want.ndim)
        np.testing.assert_array_equal(found, want)


def check_programs_compiled_for_a_topology_are_loaded() -> None:
    for platform in ("tpuc", "tpu"):
        topology = topologies.get_topology_desc("v5e:4x2", platform)
        mesh = topologies.make_mesh(topology, (4, 2), ("x", "y"))
        shape = jax.ShapeDtypeStruct(A.shape, A.dtype, sharding=NamedSharding(mesh, P("x", "y")))
        compiled = jax.jit(lambda x: jnp.sin(x).sum(0)).lower(shape).compile()
        devices = [jax.devices()[device.id] for device in mesh.devices.flat]
        loaded = deserialize_and_load(*serialize(compiled), execution_devices=devices)
        x = jax.device_put(
            A, NamedSharding(Mesh(np.reshape(devices, (4, 2)), ("x", "y")), P("x", "y"))
        )
        np.testing.assert_allclose(loaded(x), np.sin(A).sum(0), rtol=1e-5)


def check_the_persistent_cache() -> None:
    hits: list[str] = []
    jax.monitoring.register_event_listener(lambda event, **_: hits.append(event))
    x = sharded(A, "x", "y")
    with TemporaryDirectory() as folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        for _ in range(2):
            got = jax.jit(lambda x: jnp.cos(x) * 3)(x)
            np.testing.assert_allclose(got, np.cos(A) * 3, rtol=1e-6)
            jax.clear_caches()
        jax.config.update("jax_compilation_cache_dir", None)
    assert "/jax/compilation_cache/cache_hits" in hits


def check_a_callback_of_the_whole_program_is_one_devices() -> None:
    seen: list[tuple[int, float]] = []

    def body(i: jax.Array, x: jax.Array) -> jax.Array:
        jax.debug.callback(lambda i, total: seen.append((int(i), float(total))), i, x.sum())
        return x + jax.pure_callback(
            lambda v: np.asarray(v), jax.ShapeDtypeStruct(x.shape, x.dtype), x
        )

    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    got = jax.jit(lambda x: jax.lax.fori_loop(0, 3, body, x))(sharded(x, "x"))
    jax.effects_barrier()
    np.testing.assert_array_equal(got, 8 * x)
    assert seen == [(0, 496), (1, 992), (2, 1984)]


def check_a_callback_of_a_device_is_each_ones() -> None:
    def function(x: jax.Array) -> jax.Array:
        number = jax.lax.axis_index("x")
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)

        def body(c: jax.Array, i: jax.Array) -> tuple[jax.Array, jax.Array]:
            c = c + jax.pure_callback(
                lambda n, i: np.full((2, 4), n * i, np.float32), shape, number, i
            )
            return jax.lax.ppermute(c, "x", [(j, (j + 1) % 4) for j in range(4)]), i

        return jax.lax.scan(body, x, jnp.arange(4))[0]

    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    spec = P("x")
    got = jax.jit(
        jax.shard_map(function, mesh=MESH, in_specs=spec, out_specs=spec, check_vma=False)
    )(sharded(x, "x"))
    want = x.reshape(4, 2, 4)
    for i in range(4):
        want = np.roll(want + np.arange(4)[:, None, None] * i, 1, axis=0)
    np.testing.assert_array_equal(got, want.reshape(8, 4))


def check_a_loop_around_a_callback_goes_on_alike_everywhere() -> None:
    def function(x: jax.Array) -> jax.Array:
        def body(c: jax.Array) -> jax.Array:
            jax.debug.callback(lambda v: None, c)
            return c + 1

        return jax.lax.while_loop(lambda c: c.sum() < 100, body, x)

    spec = P("x")
    call = jax.jit(jax.shard_map(function, mesh=MESH, in_specs=spec, out_specs=spec))
    x = sharded(np.arange(32, dtype=np.float32).reshape(8, 4), "x")
    raises(jax.errors.JaxRuntimeError, "differently on several devices", lambda: call(x))


def check_ordered_callbacks_on_several_devices() -> None:
    seen: list[int] = []

    def told(x: jax.Array) -> jax.Array:
        for add in (0, 1):
            io_callback(lambda y: seen.append(int(y.sum())), None, x + add, ordered=True)
        return x + 1

    given, made = (NamedSharding(MESH, spec) for spec in (P("x"), P()))
    f = jax.jit(told, in_shardings=given, out_shardings=made)
    for _ in range(2):
        np.testing.assert_array_equal(f(np.arange(8)), np.arange(8) + 1)
    jax.effects_barrier()
    assert seen == [28, 36, 28, 36]


def check_pmap() -> None:
    got = jax.pmap(lambda x: jax.lax.psum(x, "i"), axis_name="i")(jnp.arange(8.0))
    np.testing.assert_array_equal(got, np.full(8, 28.0))


def check_some_devices_in_another_order() -> None:
    chosen = np.array(jax.devices())[[5, 2, 7, 0]]
    mesh = jax.sharding.Mesh(chosen, ("i",))
    x = jax.device_put(A, NamedSharding(mesh, P("i")))

    @partial(jax.shard_map, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    def shifted(a: jax.Array) -> jax.Array:
        return jax.lax.ppermute(a, "i", [(0, 1), (1, 2), (2, 3), (3, 0)])

    got = jax.jit(shifted)(x)
    np.testing.assert_array_equal(got, np.roll(A, 2, axis=0))
    assert [shard.device for shard in got.addressable_shards] == list(chosen)


def check_devices_with_others_between_them() -> None:
    for numbers in ((0, 7), (3, 4, 1)):
        mesh = jax.sharding.Mesh(np.array([jax.devices()[n] for n in numbers]), ("x",))
        x = np.arange(2 * len(numbers), dtype=np.float32)
        made = jax.jit(lambda x: x + x.sum())(jax.device_put(x, NamedSharding(mesh, P("x"))))
        np.testing.assert_array_equal(made, x + x.sum())


def check_programs_with_operations_that_xla_does_not_know() -> None:
    f = jax.shard_map(
        lambda x: jax.lax.psum(x + 1j * x, "x").imag, mesh=MESH, in_specs=P("x"), out_specs=P()
    )
    compiled = jax.jit(f).lower(A).compile()
    assert not compiled.input_shardings[0][0].is_fully_replicated
    assert "tpuc." in compiled.as_text()
    np.testing.assert_allclose(jax.jit(f)(A), A.reshape(4, 2, 8).sum(0), rtol=1e-6)


def check_one_device_among_several() -> None:
    device = jax.devices()[3]
    x = jax.device_put(A, device)
    got = x + 1
    assert got.devices() == {device}
    np.testing.assert_array_equal(got, A + 1)
    moved = jax.device_put(got, jax.devices()[6])
    np.testing.assert_array_equal(moved, A + 1)


def check_donated_pieces_are_gone() -> None:
    x = sharded(A, "x")
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    raises(RuntimeError, "deleted", lambda: np.asarray(x))
    np.testing.assert_array_equal(y, A + 1)


def check_memory_of_the_host() -> None:
    mesh, x = jax.make_mesh((8,), ("x",)), A[:, :6]
    own, host = (
        NamedSharding(mesh, P("x"), memory_kind=kind) for kind in ("device", "pinned_host")
    )
    away = jax.device_put(x, host)
    step = jax.jit(lambda a: jax.device_put(a, own) + 1, out_shardings=host)
    np.testing.assert_array_equal(step(away), x + 1)
    assert {shard.data.sharding.memory_kind for shard in step(away).addressable_shards} == {
        "pinned_host"
    }


def check_explicit_axes() -> None:
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Explicit,) * 2)
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.ones((4, 8)), P("a", "b"))
        y = jax.jit(lambda x: jax.nn.softmax(x) * 2)(x)
    assert jax.typeof(y).sharding.spec == P("a", "b")
    np.testing.assert_allclose(y, np.full((4, 8), 0.25))


def check_random_bits_do_not_depend_on_the_sharding() -> None:
    place = NamedSharding(MESH, P("x", "y"))
    cut = jax.jit(lambda key: jax.random.normal(key, (8, 8)), out_shardings=place)(
        jax.random.key(0)
    )
    whole = jax.random.normal(jax.random.key(0), (8, 8))
    np.testing.assert_array_equal(np.asarray(cut), np.asarray(whole))


if __name__ == "__main__":
    run_checks(dict(globals()))
