"""Tiled layouts: bytes where XLA puts them, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.hlo import dtypes
from compiler.hlo.dtypes import DType
from compiler.hlo.shape import ArrayShape, Layout, Tile
from runtime.transfer import device_bytes, from_device, to_device


def shaped(
    dtype: DType, dims: tuple[int, ...], *tiles: tuple[int, ...], order: tuple[int, ...] = ()
) -> ArrayShape:
    minor_to_major = order or tuple(reversed(range(len(dims))))
    return ArrayShape(dtype, dims, Layout(minor_to_major, tuple(Tile(t) for t in tiles)))


def counting(shape: ArrayShape) -> np.ndarray:
    values = np.arange(shape.element_count) % 120
    return values.astype(shape.dtype.numpy).reshape(shape.dims)


def test_f32_tiles_are_rows_of_tiles() -> None:
    shape = shaped(dtypes.F32, (16, 256), (8, 128))
    words = to_device(counting(shape), shape).view(np.float32).reshape(2, 2, 8, 128)
    assert words[1, 0, 3, 5] == counting(shape)[8 + 3, 5]
    assert words[0, 1, 3, 5] == counting(shape)[3, 128 + 5]


def test_bf16_words_hold_two_rows() -> None:
    shape = shaped(dtypes.BF16, (16, 128), (8, 128), (2, 1))
    words = to_device(counting(shape), shape).view(np.uint32).reshape(2, 4, 128)
    raw = counting(shape).view(np.uint16)
    assert words[1, 2, 5] & 0xFFFF == raw[8 + 4, 5]
    assert words[1, 2, 5] >> 16 == raw[8 + 5, 5]


def test_a_bf16_vector_packs_consecutive_rows_of_128() -> None:
    shape = shaped(dtypes.BF16, (3000,), (1024,), (128,), (2, 1))
    words = to_device(counting(shape), shape).view(np.uint32).reshape(-1, 128)
    raw = counting(shape).view(np.uint16)
    assert words[1, 3] & 0xFFFF == raw[256 + 3]
    assert words[1, 3] >> 16 == raw[384 + 3]


def test_padding_is_counted() -> None:
    assert device_bytes(shaped(dtypes.F32, (9, 129), (8, 128))) == 16 * 256 * 4
    assert device_bytes(shaped(dtypes.F32, (), (128,))) == 512


def test_a_tile_of_too_high_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="more dimensions"):
        device_bytes(shaped(dtypes.F32, (9,), (8, 128)))


CASES = [
    (dtypes.F32, ((8, 128),)),
    (dtypes.BF16, ((8, 128), (2, 1))),
    (dtypes.PRED, ((32, 128), (4, 1))),
    (dtypes.S32, ((2, 128),)),
    (dtypes.F32, ()),
]


@given(st.data())
def test_there_and_back(data: st.DataObject) -> None:
    dtype, tiles = data.draw(st.sampled_from(CASES))
    dims = tuple(data.draw(st.lists(st.integers(1, 19), min_size=2, max_size=4)))
    order = tuple(data.draw(st.permutations(range(len(dims)))))
    shape = shaped(dtype, dims, *tiles, order=order)
    values = counting(shape)
    device = to_device(values, shape)
    assert device.nbytes == device_bytes(shape)
    back = from_device(device, shape)
    assert back.dtype == values.dtype
    assert back.tobytes() == values.tobytes()
