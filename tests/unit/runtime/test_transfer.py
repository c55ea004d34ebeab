"""Tiled layouts: bytes where XLA puts them, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.analysis.tiled_layout import default_tiles
from compiler.hlo import dtypes
from compiler.hlo.dtypes import DType
from compiler.hlo.shape import ArrayShape, Layout, Tile
from runtime.transfer import device_bytes, from_device, read_device, to_device, write_device
from runtime.transfer_native import read_native, write_native


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


@settings(max_examples=60, deadline=None)
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


# --- native loops against NumPy ---------------------------------------------------------------

PLAIN = ["f32", "s32", "u32", "bf16", "f16", "s16", "u16", "s8", "u8", "pred", "f8e5m2"]
EXTENTS = st.one_of(st.integers(1, 9), st.sampled_from([31, 32, 33, 64, 127, 128, 129, 200, 256]))


@st.composite
def tiled_shapes(draw: st.DrawFn) -> ArrayShape:
    """Any dtype of 8 to 32 bits, in its default tiles, in any dimension order."""
    dtype = dtypes.BY_NAME[draw(st.sampled_from(PLAIN))]
    rank = draw(st.integers(0, 4))
    if rank == 1:
        dims: tuple[int, ...] = (draw(st.integers(1, 5000)),)
    else:
        major = [draw(st.integers(1, 3)) for _ in range(rank - 2)]
        dims = tuple(draw(st.permutations([*major, *(draw(EXTENTS) for _ in range(rank)[-2:])])))
    order = tuple(draw(st.permutations(range(rank))))
    physical = tuple(dims[d] for d in reversed(order))
    return ArrayShape(dtype, dims, Layout(order, default_tiles(dtype, physical)))


def random_bits(shape: ArrayShape, seed: int) -> np.ndarray:
    bits = np.random.default_rng(seed).bytes(shape.element_count * shape.dtype.numpy.itemsize)
    return np.frombuffer(bits, shape.dtype.numpy).reshape(shape.dims)


def is_native(shape: ArrayShape) -> bool:
    """Everything but narrow scalars, whose one tile is not packed."""
    return bool(shape.dims) or shape.dtype.bits == 32


@settings(max_examples=60, deadline=None)
@given(tiled_shapes(), st.integers(0, 99))
def test_native_loops_write_what_numpy_writes(shape: ArrayShape, seed: int) -> None:
    values = random_bits(shape, seed)
    target = np.full(device_bytes(shape) + 64, 0xA5, np.uint8)
    done = write_native(values, shape, target[: device_bytes(shape)], use_cache=True)
    assert done == is_native(shape)
    if done:
        assert target[: device_bytes(shape)].tobytes() == to_device(values, shape).tobytes()
    assert (target[device_bytes(shape) :] == 0xA5).all()


@settings(max_examples=60, deadline=None)
@given(tiled_shapes(), st.integers(0, 99))
def test_native_loops_read_what_numpy_reads(shape: ArrayShape, seed: int) -> None:
    data = np.frombuffer(np.random.default_rng(seed).bytes(device_bytes(shape)), np.uint8)
    guarded = np.full((shape.element_count + 8), 0x5A, np.uint8).repeat(shape.dtype.numpy.itemsize)
    count = shape.element_count * shape.dtype.numpy.itemsize
    host = guarded[:count].view(shape.dtype.numpy).reshape(shape.dims)
    done = read_native(data, shape, host, use_cache=True)
    assert done == is_native(shape)
    if done:
        assert host.tobytes() == from_device(data, shape).tobytes()
    assert (guarded[count:] == 0x5A).all()


@settings(max_examples=60, deadline=None)
@given(tiled_shapes(), st.data())
def test_host_strides_of_any_kind(shape: ArrayShape, data: st.DataObject) -> None:
    if not shape.dims:
        return
    steps = [data.draw(st.sampled_from([1, 2, -1, -3])) for _ in shape.dims]
    base = random_bits(
        ArrayShape(shape.dtype, tuple(n * abs(s) for n, s in zip(shape.dims, steps, strict=True))),
        1,
    )
    values = base[tuple(slice(None, None, s) for s in steps)]
    target = np.empty(device_bytes(shape), np.uint8)
    write_device(values, shape, target)
    assert target.tobytes() == to_device(np.ascontiguousarray(values), shape).tobytes()
    out = np.empty(base.shape, base.dtype)[tuple(slice(None, None, s) for s in steps)]
    assert read_device(target, shape, out).tobytes() == values.tobytes()


def test_a_broadcast_host_array_is_laid_out() -> None:
    shape = shaped(dtypes.F32, (3, 20, 130), (8, 128))
    row = np.arange(130, dtype=np.float32)
    target = np.empty(device_bytes(shape), np.uint8)
    write_device(np.broadcast_to(row, shape.dims), shape, target)
    assert (read_device(target, shape) == row).all()


@pytest.mark.parametrize("name", ["c64", "s64", "f64"])
def test_layouts_without_loops_go_through_numpy(name: str) -> None:
    shape = shaped(dtypes.BY_NAME[name], (9, 130), (8, 128))
    target = np.empty(device_bytes(shape), np.uint8)
    assert not write_native(counting(shape), shape, target, use_cache=True)
    write_device(counting(shape), shape, target)
    assert (read_device(target, shape) == counting(shape)).all()


def test_sizes_are_checked_before_native_code_runs() -> None:
    shape = shaped(dtypes.F32, (8, 128), (8, 128))
    with pytest.raises(ValueError, match="4000 bytes of device memory for 4096"):
        write_device(counting(shape), shape, np.empty(4000, np.uint8))
    with pytest.raises(ValueError, match="is no f32"):
        write_device(np.zeros((8, 127), np.float32), shape, np.empty(4096, np.uint8))
    with pytest.raises(ValueError, match="is no f32"):
        read_device(np.empty(4096, np.uint8), shape, np.empty((8, 128), np.float16))


def test_what_is_read_is_no_view_of_device_memory() -> None:
    shape = shaped(dtypes.F32, (1024,), (1024,))
    data = np.zeros(4096, np.uint8)
    for host in (read_device(data, shape), from_device(data, shape)):
        data[:] = 255
        assert not np.isnan(host).any()
        data[:] = 0
