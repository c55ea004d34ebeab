"""Arrays that a kernel brings from HBM to VMEM for later ones, beside its own work.

One engine takes transfers in order, so an array comes in parts, one in each step of the grid: a whole
one would keep the next step's windows waiting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.analysis.kernel_vmem import held_rows
from compiler.backend.kernel_calls import Argument
from compiler.backend.transfer import TransferPiece, box_pieces, box_tiles, hbm_tiling
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.program import DmaDescriptor, DmaDim

_LEAST_GRANULES = 16
"""Of a part: setting a transfer up takes the engine as long as eight."""
_MOST_JOINED = 8
"""Granules that a run is counted in."""


@dataclass(frozen=True)
class _Parts:
    """A transfer in `count` parts of `units` steps of its outermost dimension, the last one of what is left.

    `piece` moves all `total` units.
    """

    argument: int
    piece: TransferPiece
    outer: DmaDim
    units: int

    @property
    def count(self) -> int:
        """Parts in all."""
        return -(-self.outer.count // self.units)

    @property
    def is_even(self) -> bool:
        """Whether the last part is like the others."""
        return self.outer.count % self.units == 0

    @property
    def descriptor(self) -> DmaDescriptor:
        """The transfer of a part; where parts differ, count c0 says of how many units."""
        whole = self.piece.descriptor
        if not self.is_even:
            chunk = whole.chunk if whole.dims else self.outer.src_stride
            dims = (replace(self.outer, count=-1), *whole.dims[1:])
            return replace(whole, chunk=chunk, dims=dims)
        if not whole.dims:
            return replace(whole, chunk=self.units * self.outer.src_stride)
        outer = (replace(self.outer, count=self.units),) if self.units > 1 else ()
        return replace(whole, dims=(*outer, *whole.dims[1:]))


class CarriedArrays:
    """Brings arrays in during a grid of so many `steps`; `pairs` are where each lies and where it goes."""

    def __init__(
        self, builder: LloBuilder, pairs: Sequence[tuple[Argument, Argument]], steps: int
    ) -> None:
        self._builder = builder
        self._steps = steps
        self._parts = [part for source, kept in pairs for part in self._cut(source, kept)]
        self._flag = builder.flag() if self._parts else -1

    def _cut(self, source: Argument, kept: Argument) -> list[_Parts]:
        shape = kept.shape
        window = self._builder.window_at(kept.row, "carried", held_rows(shape, shape.dims))
        tiles = box_tiles(shape, shape.dims)
        pieces = box_pieces(hbm_tiling(shape), tiles, window, to_vmem=True)
        return [_parts(source.index, piece, self._steps) for piece in pieces]

    def start(self, step: SReg) -> None:
        """Start what is due in the step of that number."""
        b = self._builder
        for parts in self._parts:
            if parts.count == self._steps:
                self._start_part(parts, step)
                continue
            with b.if_(b.scmp("lt", "s32", step, b.sconst(parts.count))):
                self._start_part(parts, step)

    def _start_part(self, parts: _Parts, step: SReg) -> None:
        b, outer = self._builder, parts.outer
        first = b.smuli(step, parts.units)
        hbm = b.sadd(b.argument(parts.argument), b.smuli(first, outer.src_stride))
        vmem = b.smuli(first, outer.dst_stride)
        count = 0
        if not parts.is_even:
            count = b.smin(b.sconst(parts.units), b.ssub(b.sconst(outer.count), first))
        ends = b.saddi(hbm, parts.piece.hbm_offset), b.saddi(vmem, parts.piece.vmem_offset)
        b.emit("dma.start", b.descriptor(parts.descriptor), *ends, self._flag, 0, count, 0)

    def wait(self) -> None:
        """Wait for all that was started."""
        if self._parts:
            self._builder.emit("dma.wait", self._flag, 0)


def _parts(argument: int, piece: TransferPiece, steps: int) -> _Parts:
    """A transfer cut for a grid of so many steps."""
    whole = piece.descriptor
    if whole.dims:
        outer = whole.dims[0]
        granules = whole.chunk * math.prod(d.count for d in whole.dims[1:])
    else:
        granules = math.gcd(whole.chunk, _MOST_JOINED)
        outer = DmaDim(whole.chunk // granules, granules, granules)
    units = max(-(-outer.count // steps), -(-_LEAST_GRANULES // granules))
    return _Parts(argument, piece, outer, min(units, outer.count))
