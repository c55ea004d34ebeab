"""How a box of an HBM array moves to and from a VMEM window: DMA descriptors and address strides.

HBM holds XLA's tiles: ``tile_rows`` x 128 elements in ``granules`` units of 512 bytes. VMEM holds
vreg tiles: 8 * packing rows x 128 lanes in 8 rows of 512 bytes. A vreg tile is thus `ratio` HBM row
tiles one below the other (bf16: 2 x T(8,128)(2,1); f32: 1), or the first rows of one when the array
has few rows. The strides of a descriptor translate between the two.

    HBM    [majors][row tile h = r * ratio + j][column tile c][granule]
    VMEM   [majors of the box][r][c][8 rows: row tile j at rows j * granules]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from compiler.analysis.indexing import Expr
from compiler.analysis.tiled_layout import default_layout
from compiler.diagnostics import UnsupportedError
from compiler.hlo.shape import ArrayShape
from compiler.hlo.shape_text import print_shape
from tpu_sim.isa.geometry import LANES, SUBLANES
from tpu_sim.isa.program import HBM, VMEM, DmaDescriptor, DmaDim


@dataclass(frozen=True)
class HbmTiling:
    """An array's tiles in HBM. Majors are all dimensions but the last two, outermost first.

    A vector is one row tile of `cols` "column tiles" of 128 * packing elements, one granule each,
    8 of which make a vreg tile; a scalar is one granule.
    """

    majors: tuple[int, ...]
    row_tiles: int  # HBM row tiles
    col_tiles: int
    granules: int  # per HBM tile
    ratio: int  # HBM row tiles in a vreg tile
    row_unit: int  # logical rows in a vreg tile
    packing: int

    @property
    def vreg_rows(self) -> int:
        """Vreg tiles along the row dimension."""
        return -(-self.row_tiles // self.ratio)

    @property
    def total_granules(self) -> int:
        """Granules of the whole array."""
        return math.prod(self.majors) * self.row_tiles * self.col_tiles * self.granules

    @property
    def row_stride(self) -> int:
        """Granules from one row tile to the next."""
        return self.col_tiles * self.granules

    def major_strides(self) -> tuple[int, ...]:
        """Granules from one index of each major dimension to the next."""
        strides: list[int] = []
        step = self.row_tiles * self.row_stride
        for size in reversed(self.majors):
            strides.append(step)
            step *= size
        return tuple(reversed(strides))


def hbm_tiling(shape: ArrayShape) -> HbmTiling:
    """The HBM tiles of an array in its layout (the default one when it has none).

    Raises UnsupportedError for layouts whose dimensions are not in descending order and for
    elements wider than 32 bits.
    """
    layout = (
        shape.layout if shape.layout is not None and shape.layout.tiles else default_layout(shape)
    )
    if layout.minor_to_major != tuple(reversed(range(shape.rank))):
        raise UnsupportedError(
            f"{print_shape(shape)}: kernels read arrays in descending layout only"
        )
    if shape.dtype.bits > 32:
        raise UnsupportedError(
            f"{print_shape(shape)}: kernels compute on elements of at most 32 bits; convert it"
        )
    packing = shape.dtype.packing
    unit = SUBLANES * packing
    if shape.rank < 2:
        length = shape.dims[0] if shape.rank else 1
        tile = layout.tiles[0].dims[-1]
        padded = -(-max(length, 1) // tile) * tile
        rows = -(-padded // (LANES * packing))
        return HbmTiling((), rows, 1, 1, SUBLANES, unit, packing)
    tile_rows = layout.tiles[0].dims[0]
    rows = -(-shape.dims[-2] // tile_rows)
    cols = -(-shape.dims[-1] // LANES)
    granules = tile_rows // packing
    ratio = max(1, unit // tile_rows)
    return HbmTiling(shape.dims[:-2], rows, cols, granules, ratio, unit, packing)


@dataclass(frozen=True)
class BoxTiles:
    """A box in tiles: extents of majors, and of the row and column dimensions in vreg tiles."""

    majors: tuple[int, ...]
    rows: int
    cols: int

    @property
    def tiles(self) -> int:
        """Vreg tiles held."""
        return math.prod(self.majors) * self.rows * self.cols

    @property
    def vmem_rows(self) -> int:
        """VMEM rows of 512 bytes held."""
        return self.tiles * SUBLANES


def box_tiles(shape: ArrayShape, extent: tuple[int, ...]) -> BoxTiles:
    """Tiles of a box whose `extent` per logical dimension is whole vreg tiles in the tiled ones."""
    unit = SUBLANES * shape.dtype.packing
    if shape.rank == 0:
        return BoxTiles((), 1, 1)
    if shape.rank == 1:
        return BoxTiles((), -(-extent[0] // (unit * LANES)), 1)
    return BoxTiles(extent[:-2], -(-extent[-2] // unit), -(-extent[-1] // LANES))


@dataclass(frozen=True)
class TransferPiece:
    """One transfer of a box: a descriptor, offsets to add to both addresses, a dynamic count.

    `dynamic_limit` is -1, or the number of vreg row tiles of the array that have this piece: then
    count c0 is ``min(box rows, dynamic_limit - first row tile of the box)``.
    """

    descriptor: DmaDescriptor
    hbm_offset: int
    vmem_offset: int
    dynamic_limit: int = -1


class PieceMaker(Protocol):
    """Says which transfers move a box to or from a window, and thus how it lies there."""

    def __call__(
        self, tiling: HbmTiling, box: BoxTiles, window: int, *, to_vmem: bool
    ) -> list[TransferPiece]:
        """The transfers."""


def box_pieces(
    tiling: HbmTiling, box: BoxTiles, window: int, *, to_vmem: bool
) -> list[TransferPiece]:
    """The transfers that move a box between HBM and `window`.

    A vreg tile at the array's lower edge may have fewer HBM row tiles than the others; these
    are moved by a piece of their own, so that nothing outside the array is touched.
    """
    remainder = tiling.row_tiles % tiling.ratio
    if remainder == 0:
        return [_piece(tiling, box, window, (0, tiling.ratio), box.rows, to_vmem)]
    pieces = [_piece(tiling, box, window, (0, remainder), box.rows, to_vmem)]
    full_rows = tiling.row_tiles // tiling.ratio
    if box.rows == tiling.vreg_rows:
        if full_rows:
            part = (remainder, tiling.ratio)
            pieces.append(_piece(tiling, box, window, part, full_rows, to_vmem))
        return pieces
    dynamic = _piece(tiling, box, window, (remainder, tiling.ratio), -1, to_vmem)
    piece = TransferPiece(dynamic.descriptor, dynamic.hbm_offset, dynamic.vmem_offset, full_rows)
    return [*pieces, piece]


def row_pieces(tiling: HbmTiling, box: BoxTiles, window: int) -> list[TransferPiece]:
    """The transfer to `window` of one granule of every tile of a box one tile high.

    Addresses of the granule within its tile are added when it starts (`granule_of_row`).
    """
    assert box.rows == 1
    g = tiling.granules
    majors = list(zip(box.majors, tiling.major_strides(), strict=True))
    dims: list[tuple[int, int, int]] = [(box.cols, g, SUBLANES)]
    step = box.cols * SUBLANES
    for extent, stride in reversed(majors):
        dims.insert(0, (extent, stride, step))
        step *= extent
    merged, chunk = _merge(dims, 1)
    counts = tuple(DmaDim(*dim) for dim in merged)
    return [TransferPiece(DmaDescriptor(HBM, VMEM, chunk, counts, window), 0, 0)]


def granule_of_row(tiling: HbmTiling, row: Expr) -> tuple[Expr, Expr]:
    """Where the granule of a logical row is: granules from its tile's start, rows of a vreg tile."""
    place = (row % tiling.row_unit) // tiling.packing
    tile = place // tiling.granules
    return tile * tiling.row_stride + place % tiling.granules, place


def column_pieces(
    tiling: HbmTiling, box: BoxTiles, window: int, *, to_vmem: bool
) -> list[TransferPiece]:
    """`box_pieces` for a window whose column tiles lie one after the other, each with all its rows.

    The box has all rows of the array, whose elements are of 32 bits.
    """
    assert tiling.packing == 1
    assert box.rows == tiling.vreg_rows
    part = (0, min(tiling.ratio, tiling.row_tiles))
    return [_piece(tiling, box, window, part, box.rows, to_vmem, is_by_columns=True)]


def _piece(
    tiling: HbmTiling,
    box: BoxTiles,
    window: int,
    part: tuple[int, int],
    rows: int,
    to_vmem: bool,
    is_by_columns: bool = False,
) -> TransferPiece:
    """Row tiles j in ``part`` of every vreg tile of the box; `rows` -1 means the count c0."""
    g = tiling.granules
    first, last = part
    dims: list[tuple[int, int, int]] = []  # (count, HBM stride, VMEM stride), outermost first
    vmem_step = box.rows * box.cols * SUBLANES
    major_dims: list[tuple[int, int, int]] = []
    for extent, stride in zip(reversed(box.majors), reversed(tiling.major_strides()), strict=True):
        major_dims.append((extent, stride, vmem_step))
        vmem_step *= extent
    dims.extend(reversed(major_dims))
    row_step, col_step = box.cols * SUBLANES, SUBLANES
    if is_by_columns:
        row_step, col_step = SUBLANES, box.rows * SUBLANES
    dims.append((rows, tiling.row_stride * tiling.ratio, row_step))
    dims.append((last - first, tiling.row_stride, g))
    dims.append((box.cols, g, col_step))
    merged, chunk = _merge(dims, g)
    sides = [(d[1], d[2]) if to_vmem else (d[2], d[1]) for d in merged]
    descriptor = DmaDescriptor(
        HBM if to_vmem else VMEM,
        VMEM if to_vmem else HBM,
        chunk,
        tuple(DmaDim(d[0], s[0], s[1]) for d, s in zip(merged, sides, strict=True)),
        window,
    )
    return TransferPiece(descriptor, first * tiling.row_stride, first * g)


def _merge(dims: list[tuple[int, int, int]], chunk: int) -> tuple[list[tuple[int, int, int]], int]:
    """Drop dimensions of count 1 and join those that continue each other or the chunk."""
    kept: list[tuple[int, int, int]] = []  # innermost first
    for count, hbm, vmem in reversed(dims):
        if count == 1:
            continue
        if count > 1 and not kept and hbm == vmem == chunk:
            chunk *= count
        elif count > 1 and kept and kept[-1][0] > 0 and _continues(kept[-1], hbm, vmem):
            kept[-1] = (kept[-1][0] * count, kept[-1][1], kept[-1][2])
        else:
            kept.append((count, hbm, vmem))
    return kept[::-1], chunk


def _continues(inner: tuple[int, int, int], hbm: int, vmem: int) -> bool:
    return hbm == inner[0] * inner[1] and vmem == inner[0] * inner[2]
