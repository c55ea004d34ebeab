"""Transfers of boxes of an array at places known only at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.analysis.indexing import Expr, Var, const
from compiler.analysis.windows import OperandWindow
from compiler.backend.index_scalars import emit_index
from compiler.backend.transfer import (
    BoxTiles,
    HbmTiling,
    TransferPiece,
    box_pieces,
    box_tiles,
    granule_of_row,
    hbm_tiling,
)
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import LANES, SUBLANES


class BoxTransfer:
    """Moves the box of `window` between HBM and the VMEM window `window_id`."""

    def __init__(
        self, window: OperandWindow, argument: int, window_id: int, *, to_vmem: bool
    ) -> None:
        self.tiling = hbm_tiling(window.shape)
        self.box = box_tiles(window.shape, window.extent)
        self.pieces = box_pieces(self.tiling, self.box, window_id, to_vmem=to_vmem)
        self.window = window
        self.argument = argument
        self.to_vmem = to_vmem

    def start(
        self,
        builder: LloBuilder,
        sregs: Mapping[Var, SReg],
        buffer: SReg,
        flag: int,
        slot: SReg = 0,
    ) -> None:
        """Start the transfers; `sregs` has the variables of the box's origin, `buffer` the first
        row in VMEM."""
        start_pieces(
            builder,
            self.window,
            (self.tiling, self.box),
            self.pieces,
            builder.argument(self.argument),
            sregs,
            buffer,
            (flag, slot),
            to_vmem=self.to_vmem,
        )


def start_pieces(
    builder: LloBuilder,
    window: OperandWindow,
    tiles: tuple[HbmTiling, BoxTiles],
    pieces: Sequence[TransferPiece],
    array: SReg,
    sregs: Mapping[Var, SReg],
    buffer: SReg,
    signal: tuple[int, SReg],
    *,
    to_vmem: bool,
) -> None:
    """Start the transfers of a window's box: of the array at granule `array`, signalling a flag
    (number and slot)."""
    b = builder
    tiling, box = tiles
    offset, first_row = granule_offset(window, tiling)
    if window.row is not None and to_vmem:
        within, row = granule_of_row(tiling, window.row)
        offset, buffer = offset + within, b.sadd(buffer, emit_index(b, row, sregs))
    address = b.sadd(array, emit_index(b, offset, sregs))
    for piece in pieces:
        hbm = b.saddi(address, piece.hbm_offset)
        vmem = b.saddi(buffer, piece.vmem_offset)
        count = 0
        if piece.dynamic_limit >= 0:
            left = b.ssub(b.sconst(piece.dynamic_limit), emit_index(b, first_row, sregs))
            count = b.smin(left, b.sconst(box.rows))
        ends = (hbm, vmem) if to_vmem else (vmem, hbm)
        b.emit("dma.start", b.descriptor(piece.descriptor), *ends, *signal, count, 0)


def start_whole(
    builder: LloBuilder,
    shape: ArrayShape,
    array: SReg,
    window_id: int,
    flag: int,
    *,
    to_vmem: bool,
) -> None:
    """Start the transfers of an array between granule `array` of HBM and the start of a window."""
    b = builder
    tiles = box_tiles(shape, shape.dims)
    for piece in box_pieces(hbm_tiling(shape), tiles, window_id, to_vmem=to_vmem):
        ends = b.saddi(array, piece.hbm_offset), b.sconst(piece.vmem_offset)
        limit = piece.dynamic_limit
        count = b.sconst(min(limit, tiles.rows)) if limit >= 0 else 0
        descriptor = b.descriptor(piece.descriptor)
        b.emit("dma.start", descriptor, *(ends if to_vmem else ends[::-1]), flag, 0, count, 0)


def granule_offset(window: OperandWindow, tiling: HbmTiling) -> tuple[Expr, Expr]:
    """Granules from the array's start to the block, and the block's first vreg row tile."""
    origin = window.origin
    rank = window.shape.rank
    if rank == 0:
        return const(0), const(0)
    if rank == 1:
        row = origin[0] // (tiling.row_unit * LANES)
        return row * SUBLANES, row
    row = origin[-2] // tiling.row_unit
    offset = row * (tiling.ratio * tiling.row_stride)
    offset = offset + (origin[-1] // LANES) * tiling.granules
    for index, stride in zip(origin[:-2], tiling.major_strides(), strict=True):
        offset = offset + index * stride
    return offset, row
