"""Read-modify-write of one row of arrays in VMEM, from any lane on.

A row's words are loaded into all sublanes, combined with the updates' values lane by lane, and
stored back to the one row under a mask of lanes. Packed types change only their own part of a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.analysis.indexing import Expr, Var, const, var
from compiler.analysis.indexing_maps import Index
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import LANE
from compiler.backend.vector.ops import value_class
from compiler.backend.vector.reducers import Reducer
from compiler.backend.vector.unpack import element_bits, unpack
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.ir import HloInstruction
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg

LANES = 128
IndexOf = Callable[[Expr], Index]
"""The updates' index of a position in the row."""


@dataclass(frozen=True)
class _HeldRow:
    """Where the row of one array lies: word row of column tile 0, part of the word, first column.

    Rank 1 is one long row whose 128 elements of tile t are row t of the physical view: from there
    the word row and the part follow tile by tile.
    """

    array: VmemArray
    word_row: SReg
    phase: SReg
    column: SReg

    @property
    def tiles(self) -> int:
        """Column tiles of the row."""
        return self.array.rows if self.array.shape.rank == 1 else max(1, self.array.col_tiles)

    def tile(self, b: LloBuilder, number: SReg) -> tuple[SReg, SReg]:
        """Word row and part of the word of a column tile."""
        if self.array.shape.rank != 1:
            return b.sadd(self.word_row, b.smuli(number, 8)), self.phase
        p = self.array.packing
        return b.sadd(self.word_row, b.sshri(number, p.bit_length() - 1)), b.sandi(number, p - 1)


class RowUpdate:
    """One row of each of `targets`: `places` are its coordinates in the held boxes, the last one
    the first lane."""

    def __init__(
        self,
        emitter: VectorEmitter,
        reducer: Reducer,
        targets: Sequence[VmemArray],
        places: Sequence[SReg],
    ) -> None:
        self._emitter = emitter
        self._ops = emitter.ops
        self._b = emitter.builder
        self._reducer = reducer
        self._rows = [self._held(array, places) for array in targets]

    def _held(self, array: VmemArray, places: Sequence[SReg]) -> _HeldRow:
        b = self._b
        p = array.packing
        if array.shape.rank == 0:
            return _HeldRow(array, array.base, 0, 0)
        if array.shape.rank == 1:
            return _HeldRow(array, array.base, 0, places[0])
        *majors, row, column = places
        tile: SReg = 0
        for place, size in zip(majors, array.majors, strict=True):
            tile = b.sadd(b.smuli(tile, size), place)
        unit = 8 * p
        tile = b.sadd(b.smuli(tile, array.row_tiles), b.sshri(row, unit.bit_length() - 1))
        inner = b.sandi(row, unit - 1)
        word = b.sadd(b.smuli(tile, array.col_tiles * 8), b.sshri(inner, p.bit_length() - 1))
        return _HeldRow(array, b.sadd(array.base, word), b.sandi(inner, p - 1), column)

    def emit(self, updates: Sequence[HloInstruction], index: IndexOf, width: int) -> None:
        """Combine `width` elements of every target with its updates."""
        first = self._rows[0]
        shape = first.array.shape
        covers = shape.rank > 0 and width == shape.dims[-1] > 1  # then it starts at column 0
        if covers or self._b.constant(first.column) == 0:
            for tile in range(-(-width // LANES)):
                base = const(tile * LANES)
                self._tile(updates, index, width, self._b.sconst(tile), base)
            return
        self._shifted(updates, index, width)

    def _shifted(self, updates: Sequence[HloInstruction], index: IndexOf, width: int) -> None:
        """From any lane on: the tiles that the row may touch, each if it is in the array."""
        b = self._b
        column = self._rows[0].column
        first = b.sshri(column, 7)
        count = (width + LANES - 2) // LANES + 1
        limit = self._rows[0].tiles
        for number in range(min(count, limit)):
            tile = b.saddi(first, number)
            position = b.ssub(b.sshli(tile, 7), column)
            variable = Var(f"lane_base{tile}", 1 - LANES, count * LANES)
            self._emitter.sregs[variable] = position
            if number == 0:
                self._tile(updates, index, width, tile, var(variable))
                continue
            with b.if_(b.scmp("lt", "s32", tile, b.sconst(limit))):
                self._tile(updates, index, width, tile, var(variable))

    def _tile(
        self,
        updates: Sequence[HloInstruction],
        index: IndexOf,
        width: int,
        tile: SReg,
        base: Expr,
    ) -> None:
        """One column tile: lane l holds position ``base + l`` of the updates' row."""
        ops, b = self._ops, self._b
        position = base + var(LANE)
        at = index(const(0) if width == 1 else position)
        new = [self._as_integer(node, self._emitter.emit(node, at)) for node in updates]
        at_tile = [row.tile(b, tile) for row in self._rows]
        words = [
            ops.emit("vld", row.array.window, place, 0, 0)
            for row, (place, _) in zip(self._rows, at_tile, strict=True)
        ]
        old = [
            self._unpacked(row, word, phase)
            for row, word, (_, phase) in zip(self._rows, words, at_tile, strict=True)
        ]
        state = self._reducer.finish(ops, self._reducer.combine(ops, old, new))
        mask = self._emitter.index_values.within(position, 0, width - 1)
        parts = zip(self._rows, at_tile, words, state, strict=True)
        for row, (place, phase), word, value in parts:
            packed = self._packed(row, word, value, phase)
            ops.emit("vst.msk", row.array.window, place, 0, 0, packed, mask)

    def _as_integer(self, node: HloInstruction, value: int) -> int:
        is_mask = value_class(node.array.dtype) == "m"
        return self._ops.mask_to_integer(value) if is_mask else value

    def _unpacked(self, row: _HeldRow, word: int, phase: SReg) -> int:
        """The row's own part of its words, pred as 0 or 1."""
        ops, dtype = self._ops, row.array.shape.dtype
        if row.array.packing > 1:
            shift = ops.splat(self._b.smuli(phase, dtype.bits))
            word = ops.emit("vshr", word, shift)
        value = unpack(ops, self._emitter.index_values, word, const(0), dtype)
        return ops.mask_to_integer(value) if value_class(dtype) == "m" else value

    def _packed(self, row: _HeldRow, word: int, value: int, phase: SReg) -> int:
        """The words with the row's part replaced."""
        ops, dtype = self._ops, row.array.shape.dtype
        if row.array.packing == 1:
            return value
        is_mask = value_class(dtype) == "m"
        bits = value if is_mask else element_bits(ops, value, dtype)
        field = (1 << dtype.bits) - 1
        shift = self._b.smuli(phase, dtype.bits)
        moved = ops.emit("vshl", ops.emit("vandi", bits, field), ops.splat(shift))
        hole = ops.emit("vshl", ops.integer(field), ops.splat(shift))
        kept = ops.emit("vand", word, ops.emit("vxori", hole, -1))
        return ops.emit("vor", kept, moved)
