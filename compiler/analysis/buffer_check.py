"""Checks that no array is overwritten while somebody still needs it.

    check_buffers(module, assignment, planner)

The scheduled program runs on symbolic memory: every write puts a new token over its bytes, and
every read must find the token of the value it means. So whatever made the program so, rules of
sharing, copies, live ranges or packing, is checked by its outcome:

B1   An instruction finds its operands, a computation its results, the caller the module's results.
B2   A result lies on an operand only where the kernel allows it, and apart from other results.
B3   Parameters that are not donated, and constants, are as they were when the program ends.

Loops run twice: what the first trip overwrites, the second one misses. Every branch runs on a
memory of its own; afterwards memory holds what it holds after each of them.

Raises VerifyError: ``error[B1]: %fusion reads %copy, which %loop.2 has overwritten``.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler.analysis.aliasing import donated_slots, forwarded, leaf_count
from compiler.analysis.buffer_assignment import Allocation, BufferAssignment
from compiler.analysis.in_place import may_overwrite
from compiler.analysis.window_planner import WindowPlanner
from compiler.diagnostics import VerifyError
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.hlo.shape import leaves
from tpu_sim.isa.program import SMEM

_TRIPS = 2
"""What a trip overwrites too early is read by the next one; a third finds nothing that two did not."""
_FORWARDS = with_trait(Trait.FORWARDS)

Token = int
Values = dict[HloInstruction, list[Token]]


def check_buffers(module: HloModule, assignment: BufferAssignment, planner: WindowPlanner) -> None:
    """Raise VerifyError for the first array that is overwritten too early."""
    _Replay(module, assignment, planner).run()


@dataclass
class _Space:
    """Ranges of bytes that hold a token, by where they start; they do not overlap."""

    starts: list[int] = field(default_factory=list)
    held: dict[int, tuple[int, Token]] = field(default_factory=dict)

    def write(self, offset: int, end: int, token: Token) -> None:
        """Put a token over a range; ranges it overlaps lose theirs."""
        first = max(bisect.bisect_right(self.starts, offset) - 1, 0)
        last = bisect.bisect_left(self.starts, end)
        gone = [s for s in self.starts[first:last] if self.held[s][0] > offset]
        for start in gone:
            del self.held[start]
        low = bisect.bisect_left(self.starts, gone[0]) if gone else 0
        if gone:
            del self.starts[low : low + len(gone)]
        bisect.insort(self.starts, offset)
        self.held[offset] = (end, token)

    def keep_common(self, other: _Space) -> None:
        """Forget what the other memory does not hold too."""
        self.held = {s: h for s, h in self.held.items() if other.held.get(s) == h}
        self.starts = sorted(self.held)

    def copy(self) -> _Space:
        """A memory that changes by itself."""
        return _Space(list(self.starts), dict(self.held))


class _Replay:
    def __init__(
        self, module: HloModule, assignment: BufferAssignment, planner: WindowPlanner
    ) -> None:
        self.module = module
        self.assignment = assignment
        self.planner = planner
        self.memory: dict[int, _Space] = {}
        self.writers: dict[Token, HloInstruction] = {}
        self.constants: dict[HloInstruction, list[Token]] = {}
        self._allowed: dict[tuple[HloInstruction, int, int], bool] = {}
        self._tokens = itertools.count(1)

    def run(self) -> None:
        """Run the entry and look at what is left."""
        entry = self.module.entry
        for instr, leaf in self.assignment.slots:
            if instr.opcode == "constant" and leaf == 0 and not self._is_in_smem(instr):
                self.constants[instr] = self._written(instr)
        values = {p: self._written(p) for p in entry.parameters}
        result = self._run(entry, dict(values))
        self._expect(entry.root_instruction, result, "the caller")
        donated = donated_slots(self.module)
        for kept, tokens in [*values.items(), *self.constants.items()]:
            for leaf, token in enumerate(tokens):
                if (kept, leaf) not in donated:
                    self._expect_leaf(kept, leaf, token, "the next run", "B3")

    # Memory.

    def _is_in_smem(self, instr: HloInstruction) -> bool:
        return bool(leaves(instr.shape)) and self.assignment.of(instr).space == SMEM

    def _space(self, space: int) -> _Space:
        return self.memory.setdefault(space, _Space())

    def _written(self, instr: HloInstruction, places: Sequence[int] | None = None) -> list[Token]:
        """New tokens in the places of an instruction's results, of all or of some leaves."""
        written = range(leaf_count(instr.shape)) if places is None else places
        tokens = [next(self._tokens) for _ in written]
        for leaf, token in zip(written, tokens, strict=True):
            place = self.assignment.allocation(instr, leaf)
            self.writers[token] = instr
            if place.size_bytes:
                end = place.offset + place.size_bytes
                self._space(place.space).write(place.offset, end, token)
        return tokens

    def _expect(self, instr: HloInstruction, tokens: list[Token], reader: str) -> None:
        for leaf, token in enumerate(tokens):
            self._expect_leaf(instr, leaf, token, reader, "B1")

    def _expect_leaf(
        self, instr: HloInstruction, leaf: int, token: Token, reader: str, rule: str
    ) -> None:
        place = self.assignment.allocation(instr, leaf)
        found = self._space(place.space).held.get(place.offset)
        if not place.size_bytes or (found is not None and found[1] == token):
            return
        by = f"%{self.writers[found[1]].name}" if found is not None else "another value"
        raise VerifyError(
            f"error[{rule}]: {reader} needs array {leaf} of %{instr.name}, but finds {by} in its place",
            instr.span,
        )

    # Instructions.

    def _run(self, computation: HloComputation, values: Values) -> list[Token]:
        for instr in computation:
            if instr not in values:
                values[instr] = self._step(instr, values)
        return values[computation.root_instruction]

    def _step(self, instr: HloInstruction, values: Values) -> list[Token]:
        if instr in self.constants:
            return self.constants[instr]
        if instr.opcode in _FORWARDS:
            found = {b[1]: values[a[0]][a[1]] for a, b in forwarded(instr)}
            return [found[leaf] for leaf in range(len(found))]
        for operand in instr.operands:
            self._expect(operand, values[operand], f"%{instr.name}")
        if OPCODES[instr.opcode].has(Trait.ASYNC):
            return self._half(instr, values)
        if instr.opcode == "while":
            return self._loop(instr, values[instr.operands[0]])
        if instr.opcode == "conditional":
            return self._conditional(instr, values)
        self._check_overlap(instr)
        return self._written(instr)

    def _half(self, instr: HloInstruction, values: Values) -> list[Token]:
        """A start makes its results and keeps its operands; a done hands on what the start made."""
        kept = {b[1]: values[a[0]][a[1]] for a, b in forwarded(instr)}
        count = leaf_count(instr.shape)
        made = [leaf for leaf in range(count) if leaf not in kept]
        tokens = dict(zip(made, self._written(instr, made), strict=True)) | kept
        return [tokens[leaf] for leaf in range(count)]

    def _check_overlap(self, instr: HloInstruction) -> None:
        places = [self.assignment.allocation(instr, i) for i in range(leaf_count(instr.shape))]
        for leaf, place in enumerate(places):
            if any(_overlap(place, other) for other in places[:leaf]):
                raise VerifyError(f"error[B2]: %{instr.name}: two results in one place", instr.span)
            for index, operand in enumerate(instr.operands):
                is_shared = any(
                    _overlap(place, self.assignment.allocation(operand, i))
                    for i in range(leaf_count(operand.shape))
                )
                if is_shared and not self._may_overwrite(instr, index, leaf):
                    raise VerifyError(
                        f"error[B2]: %{instr.name} writes over its operand {index}, "
                        f"%{operand.name}, while it reads it",
                        instr.span,
                    )

    def _may_overwrite(self, instr: HloInstruction, index: int, leaf: int) -> bool:
        key = (instr, index, leaf)
        if key not in self._allowed:
            self._allowed[key] = may_overwrite(instr, index, leaf, self.planner)
        return self._allowed[key]

    def _loop(self, loop: HloInstruction, state: list[Token]) -> list[Token]:
        condition, body = loop.condition, loop.body
        for _ in range(_TRIPS):
            self._test(condition, state)
            state = self._run(body, {body.parameters[0]: state})
            self._expect(body.root_instruction, state, f"the next trip of %{loop.name}")
        self._test(condition, state)
        return state

    def _test(self, condition: HloComputation, state: list[Token]) -> None:
        result = self._run(condition, {condition.parameters[0]: state})
        self._expect(condition.root_instruction, result, f"the loop of %{condition.name}")

    def _conditional(self, instr: HloInstruction, values: Values) -> list[Token]:
        before = {number: space.copy() for number, space in self.memory.items()}
        merged: dict[int, _Space] | None = None
        results: list[list[Token]] = []
        for branch, operand in zip(instr.called_computations(), instr.operands[1:], strict=True):
            self.memory = {number: space.copy() for number, space in before.items()}
            results.append(self._run(branch, {branch.parameters[0]: values[operand]}))
            self._expect(branch.root_instruction, results[-1], f"%{instr.name}")
            if merged is None:
                merged = self.memory
                continue
            for number, space in merged.items():
                space.keep_common(self.memory.get(number, _Space()))
        assert merged is not None
        self.memory = merged
        if all(result == results[0] for result in results):
            return results[0]
        return self._written(instr)


def _overlap(a: Allocation, b: Allocation) -> bool:
    return (
        a.space == b.space
        and a.offset < b.offset + b.size_bytes
        and b.offset < a.offset + a.size_bytes
    )
