"""One pass of a merge network over blocks in VMEM: loops around exchanges in registers.

A block holds units of `rows` rows, one after the other; a row has an element of each lane's line. The
sublanes of a vreg are eight elements of different lines, or of different pairs of one: rows that lie evenly
apart. Blocks of the level that are to fall are sorted by code of their own where a vreg has only such, else
their keys are complemented meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.backend.column_blocks import ColumnPart
from compiler.backend.sorting.exchanges import Element, Exchanger
from compiler.backend.vector.ops import Ops
from compiler.hlo.network import NetworkPass
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg, VReg
from tpu_sim.isa.geometry import SUBLANES

_LANE_REGISTERS = 8
"""Registers whose lanes are exchanged in one turn of a loop."""


@dataclass(frozen=True)
class Neighbours:
    """So many neighbours, `stride` rows apart."""

    extent: int
    stride: int


@dataclass(frozen=True)
class BlockLines:
    """Units of a block: `rows` rows, of lines that take `lanes` neighbouring lanes each."""

    units: int
    rows: int
    lanes: int

    @property
    def row_bits(self) -> int:
        """Bits of a row of a line."""
        return self.rows.bit_length() - 1

    @property
    def levels(self) -> int:
        """Bits of a position."""
        return self.row_bits + self.lanes.bit_length() - 1


class PassLoops:
    """Emits passes over arrays of which the first `keys` are compared.

    An array without a source is the places of elements in their lines.
    """

    def __init__(self, builder: LloBuilder, lines: BlockLines, keys: int) -> None:
        self._builder = builder
        self._ops = Ops(builder)
        self._lines = lines
        self._keys = keys
        self._exchanger = Exchanger(self._ops, keys)

    def emit(
        self,
        one: NetworkPass,
        source: Sequence[ColumnPart | None],
        target: Sequence[ColumnPart | None],
    ) -> None:
        """A pass from one block to another; places have no source at first, some arrays no target."""
        if one.is_of_lanes:
            self._lanes(one, source, target)
        else:
            self._rows(one, source, target)
        self._builder.new_block()

    # rows

    def _rows(
        self,
        one: NetworkPass,
        source: Sequence[ColumnPart | None],
        target: Sequence[ColumnPart | None],
    ) -> None:
        lines, level = self._lines, one.level
        within = Neighbours(1 << one.low, 1)
        if level >= lines.row_bits:
            across = [within, Neighbours(lines.units << (lines.row_bits - one.high), 1 << one.high)]
            self._pairs(one, source, target, across, falls=False)
            return
        equal = Neighbours(1 << (level - one.high), 1 << one.high)
        blocks = Neighbours(lines.units << (lines.row_bits - level - 1), 2 << level)
        axes = [within, equal, blocks]
        if any(axis.extent % SUBLANES == 0 for axis in axes):
            for falls in (False, True):
                self._pairs(one, source, target, axes, falls=falls)
            return
        mixed = Neighbours(lines.units << (lines.row_bits - one.high), 1 << one.high)
        self._pairs(one, source, target, [within, mixed], falls=None)

    def _pairs(
        self,
        one: NetworkPass,
        source: Sequence[ColumnPart | None],
        target: Sequence[ColumnPart | None],
        axes: list[Neighbours],
        falls: bool | None,
    ) -> None:
        """All pairs along the axes; blocks fall, or rise, or (None) do one or the other."""
        along = next(axis for axis in axes if axis.extent % SUBLANES == 0)
        others = [axis for axis in axes if axis is not along]
        loops = [*others, Neighbours(along.extent // SUBLANES, along.stride * SUBLANES)]
        first = (1 << one.level) if falls else 0

        def body(row: SReg) -> None:
            self._one(one, source, target, row, along.stride, falls)

        self._nest(loops, self._builder.sconst(first), body)

    def _nest(self, axes: list[Neighbours], row: SReg, body: Callable[[SReg], None]) -> None:
        b = self._builder
        if not axes:
            body(row)
            return
        with b.loop(axes[0].extent, "exchanges", parallel=True) as index:
            place = b.sadd(row, b.smuli(index, axes[0].stride))
            self._nest(axes[1:], place, body)

    def _one(
        self,
        one: NetworkPass,
        source: Sequence[ColumnPart | None],
        target: Sequence[ColumnPart | None],
        row: SReg,
        stride: int,
        falls: bool | None,
    ) -> None:
        """Eight times all exchanges of a pass, in the sublanes of registers that lie `stride` apart."""
        count, step = 1 << (one.high - one.low), 1 << one.low
        flip = self._flip(one, row, stride) if self._turns(one, falls) else None
        elements = [
            self._flipped(self._load(source, row, t * step, stride), flip) for t in range(count)
        ]
        for exchange in one.exchanges:
            distance = 1 << (exchange.bit - one.low)
            for t in range(count):
                if t & distance:
                    continue
                low, high = self._exchanger.ordered(elements[t], elements[t | distance])
                falls_here = bool(falls)
                if exchange.level < one.high:
                    falls_here = bool(t << one.low >> exchange.level & 1)
                if falls_here:
                    low, high = high, low
                elements[t], elements[t | distance] = low, high
        for t, element in enumerate(elements):
            self._store(target, row, t * step, stride, self._flipped(element, flip))

    def _turns(self, one: NetworkPass, falls: bool | None) -> bool:
        """Whether keys are complemented in some sublanes or lanes."""
        return falls is None or self._lines.row_bits <= one.level < self._lines.levels

    def _flip(self, one: NetworkPass, row: SReg, stride: int) -> VReg:
        """All bits, or none, by the number of the block of the level that an element is of."""
        ops, bits = self._ops, self._lines.row_bits
        if one.level >= bits:
            place = ops.emit("vshri", ops.lane(), one.level - bits)
        else:
            rows = ops.emit("vmuli.s32", ops.sublane(), stride)
            place = ops.emit("vadd.s32", ops.splat(row), rows)
            place = ops.emit("vshri", place, one.level)
        return ops.emit("vsub.s32", ops.integer(0), ops.emit("vandi", place, 1))

    def _flipped(self, element: Element, flip: VReg | None) -> Element:
        if flip is None:
            return element
        keys = [self._ops.emit("vxor", word, flip) for word in element[: self._keys]]
        return [*keys, *element[self._keys :]]

    # lanes

    def _lanes(
        self,
        one: NetworkPass,
        source: Sequence[ColumnPart | None],
        target: Sequence[ColumnPart | None],
    ) -> None:
        def body(row: SReg) -> None:
            ops = self._ops
            flip = self._flip(one, row, 1) if self._turns(one, falls=False) else None
            for number in range(_LANE_REGISTERS):
                offset = number * SUBLANES
                element = self._flipped(self._load(source, row, offset, 1), flip)
                for exchange in one.exchanges:
                    distance = 1 << (exchange.bit - self._lines.row_bits)
                    partner = ops.emit("vxori", ops.lane(), distance)
                    bit = ops.emit("vandi", ops.lane(), distance)
                    is_upper = ops.emit("vcmp.ne.s32", bit, ops.integer(0))
                    element = self._exchanger.across(element, partner, is_upper)
                self._store(target, row, offset, 1, self._flipped(element, flip))

        step = _LANE_REGISTERS * SUBLANES
        rows = self._lines.units * self._lines.rows
        self._nest([Neighbours(rows // step, step)], self._builder.sconst(0), body)

    # loads and stores

    def _load(
        self, blocks: Sequence[ColumnPart | None], row: SReg, offset: int, stride: int
    ) -> Element:
        b = self._builder
        return [
            self._places(row, offset, stride)
            if block is None
            else self._ops.emit("vld", block.window, b.sadd(block.base, row), offset, stride)
            for block in blocks
        ]

    def _places(self, row: SReg, offset: int, stride: int) -> VReg:
        """The place of each element in its line, by its row and lane."""
        ops, lines = self._ops, self._lines
        along = ops.emit("vmuli.s32", ops.sublane(), stride)
        place = ops.emit("vadd.s32", along, ops.splat(self._builder.saddi(row, offset)))
        place = ops.emit("vandi", place, lines.rows - 1)
        if lines.lanes == 1:
            return place
        lane = ops.emit("vandi", ops.lane(), lines.lanes - 1)
        return ops.emit("vor", place, ops.emit("vshli", lane, lines.row_bits))

    def _store(
        self,
        blocks: Sequence[ColumnPart | None],
        row: SReg,
        offset: int,
        stride: int,
        element: Element,
    ) -> None:
        b = self._builder
        for block, word in zip(blocks, element, strict=True):
            if block is not None:
                base = b.sadd(block.base, row)
                self._ops.emit("vst", block.window, base, offset, stride, word)
