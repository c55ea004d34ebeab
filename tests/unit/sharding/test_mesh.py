from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.hlo.sharding_text import parse_sharding
from compiler.sharding.mesh import Axes, Axis, DimSharding, Mesh, TensorSharding, merged_axes
from compiler.sharding.placement import is_equal_placement
from compiler.sharding.shardy_text import (
    mesh_text,
    parse_manual_axes,
    parse_mesh,
    parse_meshes,
    parse_shardings,
    parse_tensor_sharding,
    tensor_sharding_text,
)

MESHES = parse_meshes('{mesh = #sdy.mesh<["x"=4, "y"=2]>, one = #sdy.mesh<[], device_ids=[3]>}')


@st.composite
def tensor_shardings(draw: st.DrawFn) -> TensorSharding:
    """A random sharding of a rank-3 array, parts of axes and permuted devices included."""
    sizes = draw(st.lists(st.sampled_from([2, 3, 4, 6, 8]), min_size=1, max_size=3))
    axes = tuple(zip("abc", sizes, strict=False))
    count = math.prod(sizes)
    ids = tuple(draw(st.permutations(range(count)))) if draw(st.booleans()) else ()
    mesh = Mesh(axes, () if ids == tuple(range(count)) else ids)
    parts: list[Axis] = []
    for name, size in axes:
        cut = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
        parts += [p for p in (Axis(name, 1, cut), Axis(name, cut, size // cut)) if p.size > 1]
    parts = draw(st.permutations(parts))
    places = draw(st.lists(st.integers(0, 4), min_size=len(parts), max_size=len(parts)))
    groups: list[list[Axis]] = [[], [], [], [], []]
    for part, place in zip(parts, places, strict=True):
        groups[place].append(part)
    dims = tuple(DimSharding(merged_axes(group)) for group in groups[:3])
    return TensorSharding(mesh, dims, manual=merged_axes(sorted(groups[3])))


@given(tensor_shardings())
def test_tiles_say_the_same_as_axes(sharding: TensorSharding) -> None:
    made = sharding.to_hlo()
    assert parse_sharding(made.text()) == made
    count = sharding.mesh.device_count
    back = TensorSharding.from_hlo(made, sharding.mesh, 3)
    assert back is not None
    assert is_equal_placement(back.to_hlo(), made, 3, count)
    assert [dim.count for dim in back.dims] == [dim.count for dim in sharding.dims]


@given(tensor_shardings())
def test_text_reads_back(sharding: TensorSharding) -> None:
    text = tensor_sharding_text(TensorSharding(sharding.mesh, sharding.dims))
    mesh = parse_mesh(mesh_text(sharding.mesh))
    assert mesh == sharding.mesh
    read = parse_tensor_sharding(text, {"mesh": mesh})
    assert read.dims == sharding.dims
    assert tensor_sharding_text(read) == text


@given(tensor_shardings())
def test_what_is_used_and_the_rest_are_the_whole_mesh(sharding: TensorSharding) -> None:
    used = sharding.used()
    rest = sharding.mesh.rest(used)
    both: Axes = (*used, *rest)
    assert math.prod(axis.size for axis in both) == sharding.mesh.device_count
    assert not any(a.overlaps(b) for a, b in itertools.combinations(both, 2))


@pytest.mark.parametrize(
    ("text", "hlo"),
    [
        ('<@mesh, [{"x"}, {}]>', "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"),
        ('<@mesh, [{}, {"y"}]>', "{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"),
        ('<@mesh, [{"x", "y"}, {}]>', "{devices=[8,1]<=[8]}"),
        ('<@mesh, [{"y", "x"}, {}]>', "{devices=[8,1]<=[4,2]T(1,0)}"),
        ('<@mesh, [{?}, {"x":(2)2, ?}p2]>', "{devices=[1,2,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}"),
        ('<@mesh, [{}, {}], replicated={"x"}>', "{replicated}"),
        ('<@one, []>', "{maximal device=3}"),
    ],
)  # fmt: skip
def test_shardy_becomes_tiles_as_in_xla(text: str, hlo: str) -> None:
    sharding = parse_tensor_sharding(f"#sdy.sharding{text}", MESHES)
    assert sharding.to_hlo().text() == hlo
    assert tensor_sharding_text(sharding) == f"#sdy.sharding{text}"


@pytest.mark.parametrize(
    ("part", "other", "left"),
    [
        ((1, 12), (2, 3), (1, 2)),  # all before the other
        ((1, 6), (4, 3), (1, 2)),  # of its parts the first 3 do not divide 4
        ((1, 2), (3, 2), None),
        ((3, 2), (1, 2), None),
        ((3, 4), (1, 3), (3, 4)),
    ],
)
def test_parts_of_an_axis_exclude_each_other_unless_a_grid_has_both(
    part: tuple[int, int], other: tuple[int, int], left: tuple[int, int] | None
) -> None:
    found = Axis("x", *part).without(Axis("x", *other))
    assert found == (None if left is None else Axis("x", *left))


def test_manual_axes_become_a_subgroup() -> None:
    mesh = MESHES["mesh"]
    dims = (DimSharding((mesh.axis("y"),)), DimSharding())
    partly = TensorSharding(mesh, dims, manual=(mesh.axis("x"),))
    assert partly.to_hlo().text() == "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dims={manual}}"
    whole = TensorSharding(mesh, (DimSharding(),) * 2, manual=mesh.all_axes())
    assert whole.to_hlo().text() == "{manual}"
    assert TensorSharding.from_hlo(whole.to_hlo(), mesh, 2) == whole


def test_a_mesh_cannot_express_every_assignment() -> None:
    other = parse_sharding("{devices=[2,4]0,3,1,2,4,5,6,7}")
    assert TensorSharding.from_hlo(other, MESHES["mesh"], 2) is None


def test_lists_of_shardings_and_manual_axes_are_read() -> None:
    text = '#sdy.sharding_per_value<[<@mesh, [{"x"}]>, <@mesh, []>]>'
    assert [len(s.dims) for s in parse_shardings(text, MESHES)] == [1, 0]
    assert parse_manual_axes('#sdy<manual_axes{"x", "y"}>') == ("x", "y")
    assert parse_manual_axes('{"x"}') == ("x",)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<@nowhere, [{"x"}]>', "not defined"),
        ('<@mesh, [{"z"}]>', "axis z is not in mesh"),
        ('<@mesh, [{"x", "x"}]>', "used twice"),
        ('<@mesh, [{"x"}, {"x":(2)2}]>', "used twice"),
        ('<@mesh, [{"x":(3)2}]>', "no part of axis"),
        ('<@mesh, [{"x"]>', "not expected"),
    ],
)
def test_malformed_shardings_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_tensor_sharding(text, MESHES)
