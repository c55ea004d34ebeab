"""How arrays lie in device memory: default tiles, padded sizes, reshapes that move no bytes.

The last two dimensions are tiled; a tile is 8 rows of 128 lanes (32 rows of an 8-bit type) and
fewer rows where the array has fewer: the next power of two. Vectors lie in rows of 1024. A
type narrower than 32 bits packs consecutive rows into words, the second tile: ``(2,1)``.

    f32[256,128]  T(8,128)         bf16[256,128]  T(8,128)(2,1)       s8[256,128]  T(32,128)(4,1)
    f32[3,128]    T(4,128)         f32[2000]      T(1024)             f32[]        T(128)
"""

from __future__ import annotations

import math

from compiler.hlo.dtypes import DType
from compiler.hlo.shape import ArrayShape, Layout, Tile
from compiler.rewrite.dims import reshape_groups
from tpu_sim.isa.geometry import LANES, SUBLANES
from tpu_sim.isa.program import HBM, SMEM


def memory_space(shape: ArrayShape) -> int:
    """Where an array lies; HBM as long as no layout says otherwise."""
    return HBM if shape.layout is None else shape.layout.memory_space


def next_power_of_two(value: int) -> int:
    """The least power of two that is not smaller (1 for 0)."""
    return 1 << max(0, value - 1).bit_length()


def tile_rows(dtype: DType, rows: int) -> int:
    """Rows of a default tile for an array with so many second-minor elements."""
    most = 32 if dtype.bits <= 8 and dtype.kind != "pred" else SUBLANES
    return min(most, max(next_power_of_two(rows), 1))


def default_tiles(dtype: DType, dims: tuple[int, ...]) -> tuple[Tile, ...]:
    """The tiles of an array in descending layout."""
    packing = dtype.packing
    if len(dims) < 2:
        length = dims[0] if dims else 1
        granule = LANES * packing
        first = Tile((min(1024, max(granule, next_power_of_two(length))),))
        if packing == 1 or not dims:
            return (first,)
        return (first, Tile((LANES,)), Tile((packing, 1)))
    rows = tile_rows(dtype, dims[-2])
    if packing == 1:
        return (Tile((rows, LANES)),)
    if rows < packing:
        rows = packing
    return (Tile((rows, LANES)), Tile((packing, 1)))


def default_layout(shape: ArrayShape) -> Layout:
    """Descending order with default tiles."""
    order = tuple(reversed(range(shape.rank)))
    return Layout(order, default_tiles(shape.dtype, shape.dims), HBM)


def padded_dims(shape: ArrayShape) -> tuple[int, ...]:
    """Dimensions in physical order (major to minor), rounded up to whole first tiles."""
    layout = shape.layout or default_layout(shape)
    physical = [shape.dims[d] for d in reversed(layout.minor_to_major)]
    tile = layout.tiles[0].dims if layout.tiles else ()
    if not physical and tile:
        return (tile[-1],)
    offset = len(physical) - len(tile)
    for position, size in enumerate(tile):
        dim = offset + position
        if dim >= 0:
            physical[dim] = -(-physical[dim] // size) * size
    return tuple(physical)


def byte_size(shape: ArrayShape) -> int:
    """Bytes an array occupies in its layout (the default one when it has none), padding included.

    SMEM scalars take one 32-bit word each.
    """
    if shape.layout is not None and shape.layout.memory_space == SMEM:
        return 4 * shape.element_count * max(1, shape.dtype.bits // 32)
    if 0 in shape.dims:
        return 0
    return -(-math.prod(padded_dims(shape)) * shape.dtype.bits // 8)


def is_bitcast(source: ArrayShape, target: ArrayShape) -> bool:
    """Whether a reshape between default layouts moves no bytes.

    True when both have the same padded size and every group of merged or split dimensions
    touches only untiled dimensions, or the row dimension in whole tiles.
    """
    if source.dtype != target.dtype or source.element_count != target.element_count:
        return False
    if source.dims == target.dims:
        return True
    if 0 in source.dims:
        return True
    if byte_size(source.with_layout(None)) != byte_size(target.with_layout(None)):
        return False
    if source.element_count == 1:
        return True
    if source.rank == 1 or target.rank == 1:
        return _is_vector_bitcast(source, target)
    if default_tiles(source.dtype, source.dims) != default_tiles(target.dtype, target.dims):
        return False
    if source.dims[-1] != target.dims[-1]:
        return False
    rows = default_tiles(source.dtype, source.dims)[0].dims[0]
    same_rows = source.dims[-2] == target.dims[-2]
    return same_rows or (source.dims[-2] % rows == 0 and target.dims[-2] % rows == 0)


def _is_vector_bitcast(source: ArrayShape, target: ArrayShape) -> bool:
    """A vector against ``[1,..,1,n]``, or against whole 128-lane rows in whole tiles (32-bit)."""
    matrix = target if source.rank == 1 else source
    length = matrix.element_count
    if source.rank == target.rank:
        return True
    if source.dtype.packing != 1:
        return False
    is_row = matrix.dims[-1] == length and length % 128 == 0
    is_lane_rows = matrix.dims[-1] == LANES and matrix.dims[-2] % SUBLANES == 0
    return is_row or is_lane_rows


def is_cheap_regroup(shape: ArrayShape, dims: tuple[int, ...]) -> bool:
    """Whether reshaping to `dims` moves no bytes, or only drops or adds dimensions of size 1."""
    if is_bitcast(shape, shape.with_dims(dims)):
        return True
    groups = reshape_groups(shape.dims, dims)
    return all(len(a) <= 1 and len(b) <= 1 for a, b in groups)
