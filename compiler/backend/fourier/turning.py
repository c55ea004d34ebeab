"""Rows into columns and back: blocks of a batch by points through the transpose units.

In a window an array lies in tiles of 8 rows by 128 columns, row tiles outermost. A *unit* is 128
rows of it; turned, it is a row of 128 lanes for each column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.backend.column_blocks import ColumnPart
from compiler.backend.vector.ops import Ops
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import UNIT_DIM

_TILES = 16
_TOGETHER = 2
"""Column blocks turned in one body, so that one has operations while the other waits (assumed)."""


@dataclass(frozen=True)
class Turned:
    """`units` units of `row_tiles` row tiles (16 where all are there) and `columns` columns."""

    units: int
    row_tiles: int
    columns: int

    @property
    def col_tiles(self) -> int:
        """Tiles across."""
        return -(-self.columns // UNIT_DIM)

    @property
    def unit_rows(self) -> int:
        """Rows of a turned unit."""
        return -(-self.columns // 8) * 8


class Turner:
    """Emits the transposes of arrays of one size."""

    def __init__(self, builder: LloBuilder, turned: Turned) -> None:
        self._builder = builder
        self._ops = Ops(builder)
        self._turned = turned
        self._transpose = 0

    def to_columns(self, source: Sequence[ColumnPart], target: Sequence[ColumnPart]) -> None:
        """From tiles of the window to turned units."""

        def block(unit: SReg, tile: SReg, vregs: int, number: int) -> None:
            first = self._tile_row(source[number], unit, tile)
            step = self._turned.col_tiles * 8
            self._push(source[number], first, step, self._turned.row_tiles)
            self._take(target[number], self._unit_row(target[number], unit, tile), 8, vregs)

        self._all(len(source), block)

    def to_rows(self, source: Sequence[ColumnPart], target: Sequence[ColumnPart]) -> None:
        """From turned units to tiles of the window."""

        def block(unit: SReg, tile: SReg, vregs: int, number: int) -> None:
            first = self._unit_row(source[number], unit, tile)
            self._push(source[number], first, 8, vregs)
            row = self._tile_row(target[number], unit, tile)
            step = self._turned.col_tiles * 8
            self._take(target[number], row, step, self._turned.row_tiles)

        self._all(len(source), block)

    def _all(self, parts: int, block: Callable[[SReg, SReg, int, int], None]) -> None:
        b, turned = self._builder, self._turned
        whole, rest = divmod(turned.columns, UNIT_DIM)
        with b.loop(turned.units, "turn", parallel=True) as unit:
            for count in (_TOGETHER, 1):
                first = whole - whole % _TOGETHER if count == 1 else 0
                trip = whole % _TOGETHER if count == 1 else whole // _TOGETHER
                with b.loop(trip, "turn", parallel=True) as index:
                    start = b.saddi(b.smuli(index, count), first)
                    for tile in range(count):
                        for number in range(parts):
                            block(unit, b.saddi(start, tile), _TILES, number)
            if rest:
                b.new_block()
                for number in range(parts):
                    block(unit, b.sconst(whole), -(-rest // 8), number)
        b.new_block()

    def _tile_row(self, part: ColumnPart, unit: SReg, tile: SReg) -> SReg:
        b = self._builder
        step = _TILES * self._turned.col_tiles * 8
        return b.sadd(part.base, b.sadd(b.smuli(unit, step), b.smuli(tile, 8)))

    def _unit_row(self, part: ColumnPart, unit: SReg, tile: SReg) -> SReg:
        b = self._builder
        inside = b.sadd(b.smuli(unit, self._turned.unit_rows), b.smuli(tile, UNIT_DIM))
        return b.sadd(part.base, inside)

    def _push(self, part: ColumnPart, row: SReg, step: int, count: int) -> None:
        ops = self._ops
        self._transpose = (self._transpose + 1) % self._builder.chip.transpose_units
        for tile in range(_TILES):
            word = ops.emit("vld", part.window, row, tile * step, 1) if tile < count else None
            word = ops.integer(0) if word is None else word
            ops.emit("vxpose.push", self._transpose, word, tile)
        ops.emit("vxpose.swap", self._transpose)

    def _take(self, part: ColumnPart, row: SReg, step: int, count: int) -> None:
        for tile in range(count):
            word = self._ops.emit("vxpose.read", self._transpose, tile)
            self._ops.emit("vst", part.window, row, tile * step, 1, word)
