"""The order in which a loop's trips go over the slices of a stack: 0, 1, .. or the last one first."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.loop_invariants import state_reads
from compiler.analysis.trip_count import counts_up
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import splat_value


@dataclass(frozen=True)
class Order:
    """Trip i of `n` has slice i, or slice n - 1 - i."""

    forward: bool

    def place(self, counter: HloInstruction, trips: int) -> HloInstruction:
        """The slice of the trip that `counter` numbers from 0 on, an s32 as `counter` is."""
        if self.forward:
            return counter
        last = make.constant(counter, S32, trips - 1)
        return emit(counter, "subtract", counter.array, (last, counter))


def trip_counter(loop: HloInstruction) -> HloInstruction | None:
    """Where a loop's body reads the number of its trip, from 0 on; None if the state has none."""
    for index, value in enumerate(loop.operands[0].operands):
        is_number = isinstance(value.shape, ArrayShape) and value.array == ArrayShape(S32, ())
        read = state_reads(loop.body, index)
        if is_number and read and counts_up(loop, index):
            return read[0]
    return None


def order_of(place: HloInstruction, counter: HloInstruction, trips: int) -> Order | None:
    """The order in which `place`, made of the trip's number `counter`, goes over all of `trips` slices."""
    found = _line(place, counter, trips)
    return {(1, 0): Order(forward=True), (-1, trips - 1): Order(forward=False)}.get(found or (0, 0))


def _line(value: HloInstruction, counter: HloInstruction, trips: int) -> tuple[int, int] | None:
    """Factor and summand that make `value` of the counter; None if it is made in another way, or may wrap."""
    if value is counter:
        return 1, 0
    if value.opcode == "get-tuple-element":  # the same element, read once more
        is_same = value.index == counter.index and value.operands[0] is counter.operands[0]
        return (1, 0) if is_same else None
    if value.array.dtype.is_integer and value.array.dtype.bits >= S32.bits:
        number = splat_value(value)
        if number is not None:
            return 0, int(number)
        if value.opcode == "add":
            return _sum(value, counter, trips, 1)
        if value.opcode == "subtract":
            return _sum(value, counter, trips, -1)
        if value.opcode == "convert" or value.opcode in with_trait(Trait.REARRANGES):
            return _line(value.operands[0], counter, trips)
        if value.opcode == "select":
            return _chosen(value, counter, trips)
    return None


def _sum(
    value: HloInstruction, counter: HloInstruction, trips: int, sign: int
) -> tuple[int, int] | None:
    """Of an operand and `sign` times another."""
    left, right = (_line(operand, counter, trips) for operand in value.operands)
    if left is None or right is None:
        return None
    return left[0] + sign * right[0], left[1] + sign * right[1]


def _chosen(value: HloInstruction, counter: HloInstruction, trips: int) -> tuple[int, int] | None:
    """NumPy's index, which counts from the end where it is negative: of one that is not, itself."""
    mask, _, kept = value.operands
    line = _line(kept, counter, trips)
    if mask.opcode != "compare" or mask.direction != "LT" or mask.operands[0] is not kept:
        return None
    if line is None or splat_value(mask.operands[1]) != 0:
        return None
    factor, summand = line
    return line if min(summand, factor * (trips - 1) + summand) >= 0 else None
