"""Read-modify-write of one row of arrays in VMEM, from any lane on.

A row's words are loaded into all sublanes, combined with the updates' values lane by lane, and
stored back to the one row under a mask of lanes. Packed types change only their own part of a word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

from compiler.analysis.indexing import Expr, Var, const, var
from compiler.analysis.indexing_maps import Index
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import LANE
from compiler.backend.vector.ops import Ops, value_class
from compiler.backend.vector.reducers import State
from compiler.backend.vector.unpack import element_bits, unpack
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.ir import HloInstruction
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import LANES

_UNROLLED = 4
"""Segments of a row that code is made for one by one, where each may be missing."""
_TOGETHER = 16
"""Segments in the body of a loop, where none is."""
IndexOf = Callable[[Expr], Index]
"""The updates' index of a position in the row."""


class Combiner(Protocol):
    """What becomes of old and new elements."""

    def combine(self, ops: Ops, a: State, b: State) -> State:
        """The state after `b` meets `a`."""

    def finish(self, ops: Ops, state: State) -> State:
        """The state as it is stored."""


class RowReplacement:
    """New elements take the place of old ones."""

    def combine(self, ops: Ops, a: State, b: State) -> State:
        """The new one."""
        return b

    def finish(self, ops: Ops, state: State) -> State:
        """As it is."""
        return state


@dataclass(frozen=True)
class _HeldRow:
    """Where the row of one array lies: word row and part of the word of segment 0, the number of
    the segment that holds its first position, and how many segments are held.

    A segment is 128 lanes: a column tile, or a row of a vector.
    """

    array: VmemArray
    word_row: SReg
    phase: SReg
    first: SReg
    held: int


class RowUpdate:
    """One row of each of `targets`: `places[i]` are its coordinates in the box of target i, the
    last one the first lane (negative where the row starts before the box)."""

    def __init__(
        self,
        emitter: VectorEmitter,
        reducer: Combiner,
        targets: Sequence[VmemArray],
        places: Sequence[Sequence[SReg]],
        when: SReg = -1,
    ) -> None:
        """`when`: an sreg; the row stays as it is where that is 0."""
        self._when = when
        self._emitter = emitter
        self._ops = emitter.ops
        self._b = emitter.builder
        self._reducer = reducer
        pairs = zip(targets, places, strict=True)
        self._rows = [self._held(array, where) for array, where in pairs]
        self._lane = self._b.sandi(places[0][-1], LANES - 1)
        self._column = self._b.constant(places[0][-1])

    def _held(self, array: VmemArray, places: Sequence[SReg]) -> _HeldRow:
        b = self._b
        p = array.packing
        segment = b.ssrai(places[-1], 7)
        if array.shape.rank == 1:
            return _HeldRow(array, array.base, 0, segment, -(-array.extent[0] // LANES))
        *majors, row, _ = places
        tile: SReg = 0
        for place, size in zip(majors, array.major_pitch, strict=True):
            tile = b.sadd(b.smuli(tile, size), place)
        unit = 8 * p
        tile = b.sadd(b.smuli(tile, array.row_pitch), b.sshri(row, unit.bit_length() - 1))
        inner = b.sandi(row, unit - 1)
        word = b.sadd(b.smuli(tile, array.col_pitch * 8), b.sshri(inner, p.bit_length() - 1))
        base = b.sadd(array.base, word)
        return _HeldRow(array, base, b.sandi(inner, p - 1), segment, array.col_tiles)

    def emit(
        self,
        updates: Sequence[HloInstruction],
        index: IndexOf,
        width: int,
        *,
        beyond: tuple[Expr, int] | None = None,
        is_cut: bool = False,
    ) -> None:
        """Combine `width` elements of every target with its updates.

        `beyond`: (the row's position of element 0, size of the whole row) where there may be fewer
        than `width` left. `is_cut`: the row may reach out of the box.
        """
        self._updates, self._index, self._width, self._beyond = updates, index, width, beyond
        is_cut = is_cut or beyond is not None
        most = (width + LANES - 2) // LANES + 1
        covers = not is_cut and self._rows[0].array.shape.rank > 1
        if covers and 1 < width == self._rows[0].array.shape.dims[-1]:
            self._column = self._lane = 0  # it cannot start elsewhere
            self._rows = [replace(row, first=0) for row in self._rows]
        if self._column == 0:
            most = -(-width // LANES)
        if not is_cut:
            most = min(most, self._rows[0].held)
        if self._column == 0 and not is_cut:
            self._whole_segments(most)
            return
        if most <= _UNROLLED:
            for number in range(most):
                self._segment(number, is_cut=is_cut)
            return
        self._loop(most, is_cut=is_cut)

    def _whole_segments(self, count: int) -> None:
        """Segments that are all there, several in a body."""
        b = self._b
        looped = count // _TOGETHER if count > 2 * _TOGETHER else 0
        if looped:
            with b.loop(looped, "segments") as counter:
                first = b.smuli(counter, _TOGETHER)
                for number in range(_TOGETHER):
                    self._tile(b.saddi(first, number), count)
        for number in range(looped * _TOGETHER, count):
            self._tile(b.sconst(number), number)

    def _loop(self, most: int, *, is_cut: bool) -> None:
        """A loop over the segments of a wide row, in the box alone."""
        b, row = self._b, self._rows[0]
        first: SReg = 0
        last = b.sconst(most)
        if self._column != 0:  # the last position's segment
            last = b.saddi(b.sshri(b.saddi(self._lane, self._width - 1), 7), 1)
        if is_cut:
            first = b.smax(b.ssub(0, row.first), 0)
            last = b.smin(last, b.ssub(b.sconst(row.held), row.first))
        with b.loop_dynamic(b.ssub(last, first), "segments") as counter:
            self._tile(b.sadd(first, counter), most)

    def _segment(self, number: int, *, is_cut: bool) -> None:
        """Segment `number` of the row, if the row reaches it and it is held."""
        b, row = self._b, self._rows[0]
        is_there = b.sconst(1)
        if number > 0 and self._column != 0:
            reached = b.scmp(
                "lt", "s32", b.ssub(b.sconst(number * LANES), self._lane), b.sconst(self._width)
            )
            is_there = b.sand(is_there, reached)
        if is_cut:
            at = b.saddi(row.first, number)
            is_there = b.sand(is_there, b.emit("scmp.lt.u32", at, b.sconst(row.held)))
        with ExitStack() as scope:
            if b.constant(is_there) != 1:
                scope.enter_context(b.if_(is_there))
            self._tile(b.sconst(number), number)

    def _place(self, row: _HeldRow, number: SReg) -> tuple[SReg, SReg]:
        """Word row and part of the word of a segment."""
        b = self._b
        segment = b.sadd(row.first, number)
        if row.array.shape.rank > 1:
            return b.sadd(row.word_row, b.smuli(segment, 8)), row.phase
        p = row.array.packing
        word = b.sadd(row.word_row, b.sshri(segment, p.bit_length() - 1))
        return word, b.sandi(segment, p - 1)

    def _position(self, number: SReg, most: int) -> Expr:
        """The row's position of lane 0 of segment `number`."""
        b = self._b
        known = b.constant(number)
        if self._column == 0 and known is not None:
            return const(known * LANES)
        low = 0 if self._column == 0 else 1 - LANES
        variable = Var(f"lane_base{number}.{self._lane}", low, most * LANES)
        self._emitter.sregs[variable] = b.ssub(b.sshli(number, 7), self._lane)
        return var(variable)

    def _tile(self, number: SReg, most: int) -> None:
        """One segment: lane l holds position ``base + l`` of the updates' row."""
        ops, values = self._ops, self._emitter.index_values
        position = self._position(number, most) + var(LANE)
        at = self._index(const(0) if self._width == 1 else position)
        new = [self._as_integer(node, self._emitter.emit(node, at)) for node in self._updates]
        places = [self._place(row, number) for row in self._rows]
        words = [
            ops.emit("vld", row.array.window, place, 0, 0)
            for row, (place, _) in zip(self._rows, places, strict=True)
        ]
        old = [
            self._unpacked(row, word, phase)
            for row, word, (_, phase) in zip(self._rows, words, places, strict=True)
        ]
        state = self._reducer.finish(ops, self._reducer.combine(ops, old, new))
        mask = values.within(position, 0, self._width - 1)
        if self._when >= 0:
            mask = ops.both(mask, ops.compare_integer("ne", ops.splat(self._when), 0))
        if self._beyond is not None:
            column, size = self._beyond
            mask = ops.both(mask, values.within(column + position, 0, size - 1))
        stored = zip(self._rows, places, words, state, strict=True)
        for row, (place, phase), word, value in stored:
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
