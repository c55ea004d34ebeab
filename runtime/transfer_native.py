"""Transfers by native loops: which layouts they know, and how an array is described to them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.hlo.shape import ArrayShape
from runtime.transfer_kernels import ArgumentField, kernels
from tpu_sim.isa.geometry import LANES

HostArray = npt.NDArray[np.generic]


@dataclass(frozen=True)
class _Tiling:
    """A layout as granules of 128 words; `dims` is in physical order, major first.

    A vector is one row (32 bits), or rows of 128 of which each has 128 columns fewer.
    """

    dims: tuple[int, ...]
    rows: int
    columns: int
    row_tiles: int
    column_tiles: int
    granules: int
    skew: int


def write_native(
    host: HostArray, shape: ArrayShape, target: npt.NDArray[np.uint8], *, use_cache: bool
) -> bool:
    """Lay `host` out in `target` (contiguous bytes); False when this layout is not known here."""
    return _transfer(host, shape, target, is_write=True, use_cache=use_cache)


def read_native(
    source: npt.NDArray[np.uint8], shape: ArrayShape, host: HostArray, *, use_cache: bool
) -> bool:
    """Fill `host` from `source` (contiguous bytes); False when this layout is not known here."""
    return _transfer(host, shape, source, is_write=False, use_cache=use_cache)


def _transfer(
    host: HostArray,
    shape: ArrayShape,
    device: npt.NDArray[np.uint8],
    *,
    is_write: bool,
    use_cache: bool,
) -> bool:
    loops = _loops(shape, host.strides, is_write, use_cache)
    if loops is None:
        return False
    run, arguments = loops
    run(_address(host), _address(device), arguments.address)
    return True


def read_addresses(shape: ArrayShape) -> tuple[int, int] | None:
    """Host addresses of the native loops that fill an array in C order, ``loops(host, device, arguments)``,
    and of their arguments; both stay where they are. None when this layout is not known here."""
    strides = np.empty(shape.dims, shape.dtype.numpy).strides
    found = _loops(shape, strides, is_write=False, use_cache=True)
    if found is None:
        return None
    run, arguments = found
    _kept.append(found)
    return ctypes.cast(run, ctypes.c_void_p).value or 0, arguments.address  # type: ignore[arg-type]


_kept: list[object] = []


class _Arguments:
    """What native loops are told, at an address where it stays."""

    def __init__(self, words: npt.NDArray[np.int64]) -> None:
        self._words = words
        self.address = _address(words)


def _address(array: npt.NDArray[Any]) -> int:
    """Where the first element lies: less work than ``array.ctypes.data``."""
    address: int = array.__array_interface__["data"][0]
    return address


@lru_cache(maxsize=4096)
def _loops(
    shape: ArrayShape, host_strides: tuple[int, ...], is_write: bool, use_cache: bool
) -> tuple[Callable[[int, int, int], object], _Arguments] | None:
    """The native loops for arrays of that shape and those strides, with their arguments."""
    tiling = _tiling(shape)
    if tiling is None:
        return None
    itemsize = shape.dtype.numpy.itemsize
    strides = [host_strides[d] for d in reversed(shape.minor_to_major)]
    row_stride, column_stride = _inner_strides(strides, tiling)
    is_dense = column_stride == itemsize or tiling.columns == 1
    loops = kernels(itemsize, is_dense=is_dense, use_cache=use_cache)
    if loops is None:
        return None
    majors = _majors(tiling.dims, strides)
    arguments = np.empty(len(ArgumentField) + 2 * len(majors), np.int64)
    arguments[: len(ArgumentField)] = (
        prod(extent for extent, _ in majors),
        len(majors),
        tiling.row_tiles,
        tiling.column_tiles,
        tiling.granules,
        tiling.rows,
        tiling.columns,
        tiling.skew,
        row_stride,
        column_stride,
    )
    arguments[len(ArgumentField) :] = [number for major in majors for number in major]
    return loops.write if is_write else loops.read, _Arguments(arguments)


def _inner_strides(strides: Sequence[int], tiling: _Tiling) -> tuple[int, int]:
    """Bytes from row to row and from column to column."""
    if len(strides) > 1:
        return strides[-2], strides[-1]
    element = strides[0] if strides else 0
    return element * LANES, element


def _majors(dims: tuple[int, ...], strides: Sequence[int]) -> list[tuple[int, int]]:
    """(extent, stride) of the dimensions above the matrix, fastest first, joined where possible."""
    joined: list[tuple[int, int]] = []
    for extent, stride in reversed(list(zip(dims[:-2], strides[:-2], strict=True))):
        if extent == 1:
            continue
        if joined and stride == joined[-1][0] * joined[-1][1]:
            joined[-1] = (joined[-1][0] * extent, joined[-1][1])
        else:
            joined.append((extent, stride))
    return joined or [(1, 0)]


def _tiling(shape: ArrayShape) -> _Tiling | None:
    width = shape.dtype.numpy.itemsize
    layout = shape.layout
    if width not in (1, 2, 4) or layout is None or not layout.tiles or not shape.element_count:
        return None
    packing = 4 // width
    dims = tuple(shape.dims[d] for d in reversed(layout.minor_to_major))
    first, rest = layout.tiles[0].dims, tuple(tile.dims for tile in layout.tiles[1:])
    packed = ((packing, 1),) if packing > 1 else ()
    if len(first) == 2 and len(dims) >= 2 and rest == packed:
        return _matrix(dims, first, packing)
    if len(first) == 1 and len(dims) <= 1:
        return _vector(dims, first[0], packing, rest)
    return None


def _matrix(dims: tuple[int, ...], tile: tuple[int, ...], packing: int) -> _Tiling | None:
    tile_rows, tile_columns = tile
    if tile_columns != LANES or tile_rows % packing:
        return None
    rows, columns = dims[-2:]
    return _Tiling(
        dims, rows, columns, -(-rows // tile_rows), -(-columns // LANES), tile_rows // packing, 0
    )


def _vector(
    dims: tuple[int, ...], tile: int, packing: int, rest: tuple[tuple[int, ...], ...]
) -> _Tiling | None:
    if tile % (LANES * packing):
        return None
    length = dims[0] if dims else 1
    lane_rows = -(-length // tile) * (tile // LANES)
    if packing == 1 and not rest:
        return _Tiling(dims, 1, length, 1, lane_rows, 1, 0)
    if packing > 1 and rest == ((LANES,), (packing, 1)):
        return _Tiling(dims, lane_rows, length, lane_rows // packing, 1, 1, LANES)
    return None
