"""Default tiles, padded sizes, and reshapes that move no bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.analysis.tiled_layout import (
    byte_size,
    default_layout,
    default_tiles,
    is_bitcast,
    padded_dims,
)
from compiler.hlo.dtypes import BF16, F32, PRED, S8, DType
from compiler.hlo.shape import ArrayShape, array


@pytest.mark.parametrize(
    ("dtype", "dims", "size"),
    [
        (F32, (256, 128), 256 * 128 * 4),
        (F32, (3, 130), 4 * 256 * 4),
        (BF16, (9, 128), 16 * 128 * 2),
        (BF16, (1, 128), 2 * 128 * 2),
        (S8, (33, 1), 64 * 128),
        (PRED, (9, 1), 16 * 128),
        (F32, (5, 2, 2), 5 * 2 * 128 * 4),
        (F32, (1,), 512),
        (F32, (1025,), 2048 * 4),
        (BF16, (100,), 512),
        (F32, (), 512),
        (F32, (0, 4), 0),
    ],
)
def test_byte_size_counts_padding(dtype: DType, dims: tuple[int, ...], size: int) -> None:
    assert byte_size(array(dtype, *dims)) == size


def _linear_order(shape: ArrayShape) -> list[int]:
    """Element numbers (-1 is padding) in the order of memory, by the definition of f32 tiles."""
    tiles = default_tiles(shape.dtype, shape.dims)
    assert len(tiles) == 1
    padded = padded_dims(shape)
    numbers = np.full(padded, -1)
    numbers[tuple(slice(0, d) for d in shape.dims)] = np.arange(shape.element_count).reshape(
        shape.dims
    )
    tile = tiles[0].dims
    if len(tile) == 1:
        return [int(v) for v in numbers.reshape(-1)]
    rows, lanes = tile
    major = padded[:-2]
    cut = numbers.reshape(*major, padded[-2] // rows, rows, padded[-1] // lanes, lanes)
    return [int(v) for v in np.moveaxis(cut, -3, -2).reshape(-1)]


DIMS = st.lists(st.sampled_from((1, 2, 3, 8, 16, 64, 128, 256)), min_size=1, max_size=4)


@settings(deadline=None)
@given(DIMS, DIMS)
def test_a_bitcast_keeps_every_element_where_it_is(source: list[int], target: list[int]) -> None:
    a, b = array(F32, *source), array(F32, *target)
    if a.element_count != b.element_count or byte_size(a) + byte_size(b) > 1 << 20:
        return
    if is_bitcast(a, b):
        assert _linear_order(a) == _linear_order(b)


@pytest.mark.parametrize(
    ("source", "target", "is_free"),
    [
        ((8, 1024, 768), (8192, 768), True),
        ((32, 197, 768), (6304, 768), False),
        ((1, 1, 1024), (1024,), True),
        ((64, 128), (128, 64), False),
        ((4, 3, 128), (12, 128), False),
        ((2, 8, 128), (16, 128), True),
        ((1, 1), (), True),
    ],
)
def test_is_bitcast(source: tuple[int, ...], target: tuple[int, ...], is_free: bool) -> None:
    assert is_bitcast(array(F32, *source), array(F32, *target)) is is_free


def test_default_layout_is_descending() -> None:
    assert default_layout(array(F32, 2, 3, 4)).minor_to_major == (2, 1, 0)
