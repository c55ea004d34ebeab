"""Values that share a buffer, joined one by one where no two of them are needed at once.

    classes = BufferClasses(values, planner)
    classes.join(a, b)          one buffer for both if that is safe; says whether it is

Two values disturb each other when they are live together in one computation, or when one is live
across a call of the computation that the other is live in. At the very position where one value is
read for the last time and the other is made, it depends on the instruction (`may_overwrite`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis.aliasing import Slot, leaf_count
from compiler.analysis.buffer_values import BufferValues, Span
from compiler.analysis.in_place import may_overwrite
from compiler.analysis.window_planner import WindowPlanner
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait

Spans = dict[HloComputation, list[tuple[Slot, Span]]]


def output_place(root: HloInstruction, leaf: int) -> Slot:
    """A stand-in for the place where the caller of the module finds a result."""
    return root, -1 - leaf


def is_output_place(value: Slot) -> bool:
    """Whether a value is no instruction's, but an `output_place`."""
    return value[1] < 0


@dataclass
class _Class:
    spans: Spans


class BufferClasses:
    """A union-find over values, with the spans of every class by computation."""

    def __init__(self, values: BufferValues, planner: WindowPlanner) -> None:
        self.values = values
        self.planner = planner
        self._class: dict[Slot, _Class] = {}
        self._at: dict[tuple[HloComputation, float], HloInstruction] = {
            (c, values.position[i]): i for c in values.ends for i in c
        }

    def find(self, value: Slot) -> _Class:
        """The class of a value; two values share a buffer when it is the same object."""
        found = self._class.get(value)
        if found is None:
            spans = self.values.spans.get(value, {})
            found = self._class[value] = _Class({c: [(value, s)] for c, s in spans.items()})
        return found

    def join(self, a: Slot, b: Slot) -> bool:
        """Put two values into one buffer unless they disturb each other; whether they share one."""
        first, second = self.find(a), self.find(b)
        if first is second:
            return True
        if self._disturb(first, second):
            return False
        self.force(a, b)
        return True

    def force(self, a: Slot, b: Slot) -> None:
        """Put two values into one buffer that are known not to disturb each other."""
        first, second = self.find(a), self.find(b)
        if first is second:
            return
        if len(first.spans) < len(second.spans):
            first, second = second, first
        for computation, spans in second.spans.items():
            first.spans.setdefault(computation, []).extend(spans)
            for value, _ in spans:
                self._class[value] = first

    def _disturb(self, a: _Class, b: _Class) -> bool:
        return (
            any(
                self._meet(computation, x, y)
                for computation, spans in a.spans.items()
                for x in spans
                for y in b.spans.get(computation, ())
            )
            or self._crosses(a, b)
            or self._crosses(b, a)
        )

    def _crosses(self, outer: _Class, inner: _Class) -> bool:
        """Whether a value of `outer` is live across a call that leads to a value of `inner`."""
        return any(
            span.start < position < span.end
            for computation in inner.spans
            for caller, position in self._callers(computation)
            for _, span in outer.spans.get(caller, ())
        )

    def _callers(self, computation: HloComputation) -> Iterator[tuple[HloComputation, float]]:
        call = self.values.calls.get(computation)
        while call is not None:
            caller = call.instr.home
            yield caller, call.position
            call = self.values.calls.get(caller)

    def _meet(
        self, computation: HloComputation, a: tuple[Slot, Span], b: tuple[Slot, Span]
    ) -> bool:
        """Whether two values are needed at one time of a computation."""
        if (b[1].start, b[1].end) < (a[1].start, a[1].end):
            a, b = b, a
        (old, first), (new, second) = a, b
        if second.start == first.start or second.start < first.end:
            return True
        if second.start > first.end:
            return False
        if is_output_place(new):
            return False
        instr = self._at.get((computation, second.start))
        return instr is None or not self._may_replace(instr, old, new)

    def _may_replace(self, instr: HloInstruction, old: Slot, new: Slot) -> bool:
        """Whether an instruction that reads `old` last may write its result `new` over it."""
        if new[0] is not instr:
            return False
        if OPCODES[instr.opcode].has(Trait.HANDS_STATE):
            return True
        read = [
            index
            for index, operand in enumerate(instr.operands)
            for leaf in range(leaf_count(operand.shape))
            if self.values.value((operand, leaf)) == old
        ]
        return all(may_overwrite(instr, index, new[1], self.planner) for index in read)
