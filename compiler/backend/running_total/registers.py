"""Running totals within a register, and from one register to the next.

A register holds eight rows of 128 lanes. What runs along

    lanes       doubles its reach seven times: 1, 2, 4 .. 64 lanes back
    rows        three times: 1, 2 and 4 sublanes
    both        rows of 128 elements each, then what the rows before hold (arrays of rank 1)
    registers   not at all: each element follows that of another register (dimensions before the last two)

`within` gives a register's own totals, `end` the last of them in all the lanes that go on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.backend.vector.ops import Ops
from compiler.backend.vector.reducers import identity_bits, monoid_row
from compiler.hlo.dtypes import DType
from compiler.llo.ir import MReg, VReg
from tpu_sim.isa.geometry import LANES, SUBLANES

LANE, ROW = "lane", "slane"
"""Directions, as the rotations of the ISA name them."""
SIZES = {LANE: LANES, ROW: SUBLANES}
"""Elements of a register along each."""


@dataclass(frozen=True)
class Combination:
    """The operation, what it combines, whether from the end, and over how many elements."""

    kind: str
    dtype: DType
    is_reverse: bool
    size: int


class RegisterTotals:
    """Emits code for registers of one array; `along`: the directions in which elements follow each other
    within a register, the fastest first."""

    def __init__(self, ops: Ops, combination: Combination, along: Sequence[str]) -> None:
        self._ops = ops
        self._of = combination
        self._row = f"v{monoid_row(combination.kind, combination.dtype)}"
        self._along = tuple(along)

    def identity(self) -> VReg:
        """What changes nothing, in every lane."""
        return self._ops.integer(identity_bits(self._of.kind, self._of.dtype))

    def combine(self, earlier: VReg, later: VReg) -> VReg:
        """Both, lane by lane."""
        return self._ops.emit(self._row, earlier, later)

    def within(self, value: VReg) -> VReg:
        """Each element with those before it in its register."""
        for number, direction in enumerate(self._along):
            value = self._outer(value, direction) if number else self._doubled(value, direction)
        return value

    def end(self, totals: VReg) -> VReg:
        """The last of a register's totals, wherever elements of the next register go on from it."""
        for direction in self._along:
            last = 0 if self._of.is_reverse else SIZES[direction] - 1
            totals = self._ops.emit(f"vbcast.{direction}", totals, 0, last)
        return totals

    def kept(self, value: VReg, elements: VReg) -> VReg:
        """The identity in place of what is not among the first `elements` along the directions."""
        ops = self._ops
        place = ops.lane() if self._along[0] == LANE else ops.sublane()
        if len(self._along) > 1:
            place = ops.emit("vadd.s32", ops.emit("vshli", ops.sublane(), 7), place)
        inside = ops.emit("vcmp.lt.s32", place, elements)
        return ops.select(inside, value, self.identity())

    def _doubled(self, value: VReg, direction: str) -> VReg:
        """Totals along one direction: of two neighbours, of four, .."""
        distance = 1
        while distance < min(SIZES[direction], self._of.size):
            moved = self._moved(value, direction, distance)
            total = self.combine(moved, value)
            value = self._ops.select(self._reaches(direction, distance), total, value)
            distance *= 2
        return value

    def _outer(self, value: VReg, direction: str) -> VReg:
        """Totals that go on in `direction` from the ends of those along the direction before it."""
        (inner,) = self._along[: self._along.index(direction)]
        last = 0 if self._of.is_reverse else SIZES[inner] - 1
        ends = self._doubled(self._ops.emit(f"vbcast.{inner}", value, 0, last), direction)
        before = self._moved(ends, direction, 1)
        total = self.combine(before, value)
        return self._ops.select(self._reaches(direction, 1), total, value)

    def _moved(self, value: VReg, direction: str, distance: int) -> VReg:
        """The elements so far before each one."""
        by = SIZES[direction] - distance if self._of.is_reverse else distance
        return self._ops.emit(f"vrot.{direction}", value, 0, by)

    def _reaches(self, direction: str, distance: int) -> MReg:
        """Where there are elements so far before."""
        ops = self._ops
        place = ops.lane() if direction == LANE else ops.sublane()
        if self._of.is_reverse:
            return ops.emit("vcmp.lt.s32", place, ops.integer(SIZES[direction] - distance))
        return ops.emit("vcmp.ge.s32", place, ops.integer(distance))
