"""Read-modify-write of one row of an array in VMEM, from any lane on.

The row's words are loaded into all sublanes, combined with the update's values lane by lane, and
stored back to the one row under a mask of lanes. Packed types change only their own part of a word.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.analysis.indexing import Expr, Var, const, var
from compiler.analysis.indexing_maps import Index
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import LANE
from compiler.backend.vector.ops import value_class
from compiler.backend.vector.reducers import Reducer
from compiler.backend.vector.unpack import element_bits, unpack
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.ir import HloInstruction
from compiler.llo.ir import SReg

LANES = 128


class RowUpdate:
    """One row: `places` are its coordinates in the held box, the last one the first lane."""

    def __init__(
        self,
        emitter: VectorEmitter,
        reducer: Reducer,
        target: VmemArray,
        places: list[SReg],
    ) -> None:
        self._emitter = emitter
        self._ops = emitter.ops
        self._b = emitter.builder
        self._reducer = reducer
        self._target = target
        self._row, self._phase, self._column = self._address(places)

    def _address(self, places: list[SReg]) -> tuple[SReg, SReg, SReg]:
        """Word row of column tile 0, the part of the word, and the first column."""
        b, array = self._b, self._target
        p = array.packing
        if array.shape.rank == 0:
            return array.base, 0, 0
        if array.shape.rank == 1:  # 128 elements a row: the row follows from the place
            row = b.sshri(places[0], 7)
            word = b.sshri(row, p.bit_length() - 1)
            return b.sadd(array.base, word), b.sandi(row, p - 1), b.sandi(places[0], LANES - 1)
        *majors, row, column = places
        tile: SReg = 0
        for place, size in zip(majors, array.majors, strict=True):
            tile = b.sadd(b.smuli(tile, size), place)
        unit = 8 * p
        tile = b.sadd(b.smuli(tile, array.row_tiles), b.sshri(row, unit.bit_length() - 1))
        inner = b.sandi(row, unit - 1)
        word = b.sadd(b.smuli(tile, array.col_tiles * 8), b.sshri(inner, p.bit_length() - 1))
        return b.sadd(array.base, word), b.sandi(inner, p - 1), column

    def emit(
        self, updates: HloInstruction, index: Callable[[Expr], Index], width: int
    ) -> None:
        """Combine `width` elements; `index` gives the update's index of a position in the row."""
        whole = self._b.constant(self._column) == 0 or self._covers(width)
        tiles = -(-width // LANES)
        if whole:
            for tile in range(tiles):
                self._tile(updates, index, width, self._b.sconst(tile), const(tile * LANES))
            return
        self._shifted(updates, index, width)

    def _covers(self, width: int) -> bool:
        """Whether the update is as wide as the array: then it starts at column 0."""
        return self._target.shape.rank > 1 and width == self._target.shape.dims[-1] > 1

    def _shifted(
        self, updates: HloInstruction, index: Callable[[Expr], Index], width: int
    ) -> None:
        """From any lane on: the tiles that the row may touch, each if it is in the array."""
        b = self._b
        first = b.sshri(self._column, 7)
        count = (width + LANES - 2) // LANES + 1
        limit = max(1, self._target.col_tiles)
        low = -(LANES - 1)
        high = count * LANES
        for number in range(min(count, limit)):
            tile = b.saddi(first, number)
            position = b.ssub(b.sshli(tile, 7), self._column)
            variable = Var(f"lane_base{tile}", low, high)
            self._emitter.sregs[variable] = position
            if number == 0:
                self._tile(updates, index, width, tile, var(variable))
                continue
            with b.if_(b.scmp("lt", "s32", tile, b.sconst(limit))):
                self._tile(updates, index, width, tile, var(variable))

    def _tile(
        self,
        updates: HloInstruction,
        index: Callable[[Expr], Index],
        width: int,
        tile: SReg,
        base: Expr,
    ) -> None:
        """One column tile: lane l holds position ``base + l`` of the update's row."""
        ops, b, array = self._ops, self._b, self._target
        position = base + var(LANE)
        if width == 1:
            update = self._emitter.emit(updates, index(const(0)))
        else:
            update = self._emitter.emit(updates, index(position))
        if value_class(updates.array.dtype) == "m":
            update = ops.mask_to_integer(update)
        row = b.sadd(self._row, b.smuli(tile, 8))
        word = ops.emit("vld", array.window, row, 0, 0)
        old = self._unpacked(word)
        state = self._reducer.combine(ops, [old], [update])
        (new,) = self._reducer.finish(ops, state)
        mask = self._emitter.index_values.within(position, 0, width - 1)
        ops.emit("vst.msk", array.window, row, 0, 0, self._packed(word, new), mask)

    def _unpacked(self, word: int) -> int:
        """The row's own part of its words, pred as 0 or 1."""
        ops, dtype = self._ops, self._target.shape.dtype
        if self._target.packing > 1:
            shift = ops.splat(self._b.smuli(self._phase, dtype.bits))
            word = ops.emit("vshr", word, shift)
        value = unpack(ops, self._emitter.index_values, word, const(0), dtype)
        return ops.mask_to_integer(value) if value_class(dtype) == "m" else value

    def _packed(self, word: int, value: int) -> int:
        """The words with the row's part replaced."""
        ops, dtype = self._ops, self._target.shape.dtype
        if self._target.packing == 1:
            return value
        is_mask = value_class(dtype) == "m"
        bits = value if is_mask else element_bits(ops, value, dtype)
        field = (1 << dtype.bits) - 1
        shift = self._b.smuli(self._phase, dtype.bits)
        moved = ops.emit("vshl", ops.emit("vandi", bits, field), ops.splat(shift))
        hole = ops.emit("vshl", ops.integer(field), ops.splat(shift))
        kept = ops.emit("vand", word, ops.emit("vxori", hole, -1))
        return ops.emit("vor", kept, moved)
