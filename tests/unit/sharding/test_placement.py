from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.hlo.dtypes import F32
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.hlo.sharding import REPLICATED, HloSharding, Tiles
from compiler.sharding.mesh import DimSharding, Mesh, TensorSharding
from compiler.sharding.placement import (
    is_equal_placement,
    local_dims,
    local_shape,
    parse_sharding,
    tile_counts,
    tile_of,
)


@st.composite
def shardings(draw: st.DrawFn) -> tuple[HloSharding, int]:
    """A sharding of a rank-2 array over all devices of a random mesh, and their number."""
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=2, max_size=4))
    perm = tuple(draw(st.permutations(range(len(sizes)))))
    ordered = [sizes[d] for d in perm]
    cuts = sorted(draw(st.lists(st.integers(0, len(sizes)), min_size=2, max_size=2)))
    parts = [ordered[: cuts[0]], ordered[cuts[0] : cuts[1]], ordered[cuts[1] :]]
    dims = tuple(math.prod(part) for part in parts)
    tiles = Tiles(dims, tuple(sizes), perm)
    if draw(st.booleans()):
        tiles = Tiles(dims, devices=tuple(tiles.array().reshape(-1).tolist()))
    text = HloSharding.tiled(tiles, ("replicated",)).text()
    if math.prod(sizes) < 2:
        return REPLICATED, 1
    return parse_sharding(text), math.prod(sizes)


@given(shardings(), st.tuples(st.integers(1, 9), st.integers(1, 9)))
def test_tiles_cover_the_array_each_element_equally_often(
    drawn: tuple[HloSharding, int], dims: tuple[int, int]
) -> None:
    sharding, count = drawn
    owners = np.zeros(dims, int)
    for device in range(count):
        tile = tile_of(sharding, dims, device)
        sizes = local_dims(sharding, dims)
        assert all(h - low <= size for (low, h), size in zip(tile, sizes, strict=True))
        owners[tuple(slice(low, high) for low, high in tile)] += 1
    assert (owners == count // math.prod(tile_counts(sharding, 2))).all()


@given(shardings())
def test_text_reads_back_as_the_same_object(drawn: tuple[HloSharding, int]) -> None:
    sharding, count = drawn
    assert parse_sharding(sharding.text()) == sharding
    assert is_equal_placement(sharding, parse_sharding(sharding.text()), 2, count)


@given(shardings())
def test_lists_and_iotas_place_alike(drawn: tuple[HloSharding, int]) -> None:
    sharding, count = drawn
    if sharding.tiles is None:
        return
    listed = Tiles(sharding.tiles.dims, devices=tuple(sharding.tiles.array().reshape(-1).tolist()))
    assert is_equal_placement(sharding, HloSharding.tiled(listed, sharding.subgroups), 2, count)


def test_different_placements_are_told_apart() -> None:
    texts = [
        "{replicated}",
        "{manual}",
        "{devices=[2,1,2]<=[4] last_tile_dim_replicate}",
        "{devices=[2,1,2]<=[2,2]T(1,0) last_tile_dim_replicate}",
        "{devices=[2,1,2]<=[4] last_tile_dims={manual}}",
        "{devices=[1,2,2]<=[4] last_tile_dim_replicate}",
        "{maximal device=0}",
        "{maximal device=1}",
    ]
    for a in texts:
        for b in texts:
            equal = is_equal_placement(parse_sharding(a), parse_sharding(b), 2, 4)
            assert equal == (a == b), (a, b)


def test_what_cuts_nothing_is_replicated() -> None:
    trivial = HloSharding.tiled(Tiles((1, 1, 4), (4,), (0,)), ("replicated",))
    assert is_equal_placement(trivial, REPLICATED, 2, 4)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("{mesh['x'=2,'y'=4], [{'y'}, {}]}", (4, 1)),
        ("{mesh['x'=2,'y'=4], device_ids=([4,2]T(1,0)), [{'x', 'y'}, {}]}", (8, 1)),
        ("{mesh['x'=2,'y'=4], [{}, {'y':(2)2}], manual={'x'}}", (1, 2)),
        ("{mesh['x'=2,'y'=4], replicated}", (1, 1)),
        ("{maximal_mesh[device_id=3]}", (1, 1)),
    ],
)
def test_shardings_over_a_mesh_have_tiles(text: str, counts: tuple[int, int]) -> None:
    assert tile_counts(parse_sharding(text), 2) == counts


def test_permuted_device_ids_are_followed() -> None:
    sharding = parse_sharding("{mesh['x'=2,'y'=2], device_ids=([2,2]T(1,0)), [{'x'}, {'y'}]}")
    assert tile_of(sharding, (4, 4), 1) == ((2, 4), (0, 2))


def test_tuples_go_leaf_by_leaf() -> None:
    array = ArrayShape(F32, (8, 6))
    nested = TupleShape((array, TupleShape((array, array))))
    sharding = parse_sharding("{{devices=[4,1]<=[4]}, {replicated}, {devices=[1,4]<=[4]}}")
    local = local_shape(sharding, nested)
    assert local == TupleShape(
        (
            ArrayShape(F32, (2, 6)),
            TupleShape((ArrayShape(F32, (8, 6)), ArrayShape(F32, (8, 2)))),
        )
    )
    with pytest.raises(ValueError, match="for 3 arrays"):
        local_shape(sharding, array)


def test_a_sharding_of_another_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="cuts 1 dimensions"):
        local_dims(parse_sharding("{devices=[4]<=[4]}"), (4, 4))


def test_mesh_axes_without_a_cut_replicate() -> None:
    mesh = Mesh((("x", 2), ("y", 4)))
    assert TensorSharding(mesh, (DimSharding(),)).to_hlo() == REPLICATED
