"""Which values a scheduled program has outside of its kernels, and when each must still be there.

A *slot* is one array of an instruction's result (`compiler.analysis.aliasing`). Instructions that
only hand an array on make no value: tuples, bitcasts, an element that a loop leaves as it is, what
a branch is given. So a *value* is a slot that something writes, or that holds what nobody in
sight wrote: a parameter of the module, or an element of a loop's state that changes from trip to
trip (one value in the body, one in the condition).

Time within a computation is the position in its schedule:

    -1                     it starts; what it was given is there
    0, 1, ...              its instructions; copies inserted before number i run at i - 0.5
    n, n + 1               copies inserted at its end read, and write
    n + 2                  it returns; its results must be there
    n + 3                  whatever is kept beyond

A value is live in every computation it is made or read in from a first to a last position; in
those called in between it must not be disturbed either (`Span`, `Place`).

Every computation of the control flow has one caller (`compiler.hlo.call_graph`).
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.aliasing import Slot, donated_slots, forwarded, leaf_count
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.hlo.shape import leaves
from tpu_sim.isa.program import SMEM

FORWARDS = with_trait(Trait.FORWARDS)
START = -1.0


@dataclass
class Span:
    """First and last position, both included, at which a value is live in a computation."""

    start: float
    end: float


class Ends:
    """The positions at the end of a computation of `count` instructions."""

    def __init__(self, count: int) -> None:
        self.reading = float(count)
        self.writing = count + 1.0
        self.returning = count + 2.0
        self.beyond = count + 3.0


@dataclass(frozen=True)
class CallSite:
    """Where a computation is called: the instruction and its position in the caller."""

    instr: HloInstruction
    position: float


class BufferValues:
    """Values and live spans of a scheduled module.

    Public: `spans[value][computation]`, `position[instr]`, `ends[computation]`,
    `calls[computation]`, and `value(slot)`.
    """

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.position: dict[HloInstruction, float] = {}
        self.ends: dict[HloComputation, Ends] = {}
        self.calls: dict[HloComputation, CallSite] = {}
        self.spans: dict[Slot, dict[HloComputation, Span]] = {}
        self._origin: dict[Slot, Slot] = {}
        self._values: dict[Slot, Slot] = {}
        computations = control_computations(module)
        for computation in computations:
            self._number(computation)
        for computation in reversed(computations):
            self._find_uses(computation)
        self._keep_what_outlives_the_run(computations)

    # Values.

    def value(self, slot: Slot) -> Slot:
        """The value that an instruction's array holds."""
        found = self._values.get(slot)
        if found is None:
            found = self._values[slot] = self._resolve(slot)
        return found

    def add(self, instr: HloInstruction, start: float, end: float) -> None:
        """Note a new instruction, which makes one array at `start` that is read last at `end`."""
        slot = (instr, 0)
        self.position[instr] = start
        self._origin[slot] = slot
        self.spans[slot] = {instr.home: Span(start, end)}

    def is_unchanged(self, loop: HloInstruction, leaf: int) -> bool:
        """Whether a loop's body hands an element of the state on as it is."""
        body = loop.body
        return self._local(body.root_instruction, leaf) == (body.parameters[0], leaf)

    def _resolve(self, slot: Slot) -> Slot:
        """Follow a slot out of the computations it was handed into."""
        while True:
            instr, leaf = slot = self._local(*slot)
            computation = instr.home
            call = self.calls.get(computation)
            if instr.opcode != "parameter" or call is None:
                return slot
            caller = call.instr
            if caller.opcode == "while":
                if not self.is_unchanged(caller, leaf):
                    return slot
                slot = (caller.operands[0], leaf)
            else:
                slot = (_branch_operand(caller, computation), leaf)

    def _local(self, instr: HloInstruction, leaf: int) -> Slot:
        """What a slot holds, in terms of its own computation."""
        return self._origin[instr, leaf]

    def _number(self, computation: HloComputation) -> None:
        """Number a computation's instructions and find what each hands on; callees come first."""
        count = 0
        for number, instr in enumerate(computation):
            self.position[instr] = float(number)
            count += 1
            for leaf in range(leaf_count(instr.shape)):
                self._origin[instr, leaf] = (instr, leaf)
            for source, target in forwarded(instr):
                self._origin[target] = self._origin[source]
            if OPCODES[instr.opcode].has(Trait.HANDS_STATE):
                for callee in instr.called_computations():
                    assert callee not in self.calls, f"%{callee.name} is called twice"
                    self.calls[callee] = CallSite(instr, float(number))
            if instr.opcode == "while":
                for leaf in range(leaf_count(instr.shape)):
                    if self.is_unchanged(instr, leaf):
                        self._origin[instr, leaf] = self._origin[instr.operands[0], leaf]
        self.ends[computation] = Ends(count)

    # Spans.

    def use(self, value: Slot, computation: HloComputation, position: float) -> None:
        """Note that a value is there at a position of a computation (from its start if it was given)."""
        spans = self.spans.setdefault(value, {})
        span = spans.get(computation)
        if span is None:
            is_made_here = value[0].computation is computation and value[0].opcode != "parameter"
            start = min(self.position[value[0]], position) if is_made_here else START
            spans[computation] = Span(start, max(position, start))
        else:
            span.start, span.end = min(span.start, position), max(span.end, position)

    def _find_uses(self, computation: HloComputation) -> None:
        for instr in computation:
            at = self.position[instr]
            for leaf in range(leaf_count(instr.shape)):
                if self._local(instr, leaf) == (instr, leaf) == self.value((instr, leaf)):
                    self.use(
                        (instr, leaf), computation, at if instr.opcode != "parameter" else START
                    )
            if instr.opcode in FORWARDS:
                continue
            for operand in instr.operands:
                for leaf in range(leaf_count(operand.shape)):
                    self.use(self.value((operand, leaf)), computation, at)
            if instr.opcode == "while":
                self._keep_state(instr)
        root = computation.root_instruction
        for leaf in range(leaf_count(root.shape)):
            self.use(self.value((root, leaf)), computation, self.ends[computation].returning)

    def _keep_state(self, loop: HloInstruction) -> None:
        """The condition leaves the state as it is; what the loop does not change lives throughout."""
        condition, body = loop.condition, loop.body
        for leaf in range(leaf_count(loop.shape)):
            kept = (condition, body) if self.is_unchanged(loop, leaf) else (condition,)
            for computation in kept:
                value = self.value((computation.parameters[0], leaf))
                self.use(value, computation, START)
                self.use(value, computation, self.ends[computation].beyond)

    def _keep_what_outlives_the_run(self, computations: list[HloComputation]) -> None:
        """Parameters that are not donated, and constants that are loaded with the program."""
        entry = self.module.entry
        donated = donated_slots(self.module)
        kept: list[Slot] = []
        for parameter in entry.parameters:
            slots = [(parameter, leaf) for leaf in range(leaf_count(parameter.shape))]
            kept += [slot for slot in slots if slot not in donated]
        for computation in computations:
            kept += [
                (i, 0) for i in computation if i.opcode == "constant" and not is_in_smem((i, 0))
            ]
        for value in kept:
            self.use(value, entry, START)
            self.use(value, entry, self.ends[entry].beyond)


def is_in_smem(slot: Slot) -> bool:
    """Whether an array is a scalar in SMEM."""
    layout = leaves(slot[0].shape)[slot[1]].layout
    return layout is not None and layout.memory_space == SMEM


def _branch_operand(conditional: HloInstruction, branch: HloComputation) -> HloInstruction:
    return conditional.operands[conditional.called_computations().index(branch) + 1]
