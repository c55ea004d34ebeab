"""Values of the global program as a device holds them: one or several cuts of the same array."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.partitioner.grid import Cut, Dims
from compiler.partitioner.local import Local
from compiler.partitioner.moves import Router

_CONVERSION = 1.0
"""What it has to save in bytes to be converted once more: a cut of what is there saves nothing."""


@dataclass
class PartitionedValue:
    """An array of global `dims`; every cut of it that was needed so far is kept.

    `combiner` adds up what a cut with partial sums holds. `hint` is the cut that the program asks
    for, and None where it leaves that open. `narrow` is the array of fewer bytes of which it is a
    conversion, which may be moved in its place.
    """

    dims: Dims
    dtype: DType
    cuts: dict[Cut, HloInstruction]
    combiner: HloComputation | None = None
    hint: Cut | None = None
    narrow: PartitionedValue | None = None

    @property
    def first(self) -> Cut:
        """The cut in which it was computed."""
        return next(iter(self.cuts))


@dataclass(frozen=True)
class Whole:
    """What is no array, the same in both programs: a token."""

    instr: HloInstruction


@dataclass
class Several:
    """A tuple's elements."""

    elements: list[Held] = field(default_factory=list)


Held = PartitionedValue | Whole | Several


def width(dtype: DType) -> int:
    """Bytes of an element; those of less than a byte count as one."""
    return max(1, dtype.bits // 8)


def cost_of(router: Router, value: PartitionedValue, goal: Cut, most: float = math.inf) -> float:
    """What it takes to have the value in a cut; where that is more than `most`, any number that is more."""
    found = router.cost(value.dims, width(value.dtype), tuple(value.cuts), goal, most)
    if found and value.narrow is not None and not goal.partial:
        return min(found, cost_of(router, value.narrow, goal, most))
    return found


def in_cut(b: Local, router: Router, value: PartitionedValue, goal: Cut) -> HloInstruction:
    """The value in a cut: the one that is there, or moved, each step of the way kept.

    Partial results of a goal are addends, whatever combines those of the value.
    """
    if _is_moved_narrow(router, value, goal):
        assert value.narrow is not None
        return value.cuts.setdefault(
            goal, b.cast(in_cut(b, router, value.narrow, goal), value.dtype)
        )
    if goal.partial and not _is_sum(value.combiner):
        in_cut(b, router, value, goal.summed())
        starts = tuple(cut for cut in value.cuts if not cut.partial)
    else:
        starts = tuple(value.cuts)
    _, start, moves = router.route(value.dims, width(value.dtype), starts, goal)
    cut = starts[start]
    instr = value.cuts[cut]
    for move in moves:
        instr = b.move(instr, value.dims, cut, move, value.combiner)
        cut = move.after
        if not cut.partial:
            value.cuts.setdefault(cut, instr)
    return instr


def _is_moved_narrow(router: Router, value: PartitionedValue, goal: Cut) -> bool:
    """Whether it takes less to move what the value is a conversion of."""
    if value.narrow is None or goal.partial or goal in value.cuts:
        return False
    own = router.cost(value.dims, width(value.dtype), tuple(value.cuts), goal)
    return cost_of(router, value.narrow, goal, own) < own - _CONVERSION


def _is_sum(combiner: HloComputation | None) -> bool:
    return combiner is not None and combiner.root_instruction.opcode == "add"


def leaves_of(held: Held) -> Sequence[PartitionedValue]:
    """The arrays of a value, depth first."""
    if isinstance(held, Several):
        return [leaf for element in held.elements for leaf in leaves_of(element)]
    return [held] if isinstance(held, PartitionedValue) else []
