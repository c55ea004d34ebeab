"""Scheduling: the order in which a computation's instructions run, chosen to keep little alive.

A list scheduler over the data dependences. Among the ready instructions it runs first one that
frees more bytes than it allocates (the most first), and otherwise the one that stood first.
The chosen order is the order of `HloComputation.instructions`; the module is marked
``is_scheduled=true``.
"""

from __future__ import annotations

import heapq

from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import leaves
from compiler.passes.context import PassContext

_NO_BUFFER = with_any(Trait.GIVEN | Trait.FORWARDS)


def schedule(module: HloModule, context: PassContext) -> bool:
    """Order every computation of the control flow."""
    for computation in control_computations(module):
        before = list(computation)
        order = _ListScheduler(computation).order()
        assert len(order) == len(before), f"%{computation.name} has a cycle"
        computation.instructions = dict.fromkeys(order)
        context.counts["moved"] += sum(a is not b for a, b in zip(before, order, strict=True))
    was_scheduled = module.attrs.get("is_scheduled") is True
    module.attrs["is_scheduled"] = True
    return bool(context.counts["moved"]) or not was_scheduled


class _ListScheduler:
    """Orders one computation. Bytes of a value count until all who read its buffer ran."""

    def __init__(self, computation: HloComputation) -> None:
        self.position = {instr: i for i, instr in enumerate(computation)}
        self.buffers = _buffers(computation)
        self.waiting = {i: len(_needs(i)) for i in computation}
        self.readers = self._count_readers()
        self.heap: list[tuple[int, int, int, HloInstruction]] = []
        self.users = self._users()

    def _users(self) -> dict[HloInstruction, list[HloInstruction]]:
        users: dict[HloInstruction, list[HloInstruction]] = {i: [] for i in self.position}
        for instr in self.position:
            for needed in _needs(instr):
                users[needed].append(instr)
        return users

    def _count_readers(self) -> dict[HloInstruction, set[HloInstruction]]:
        readers: dict[HloInstruction, set[HloInstruction]] = {}
        for instr in self.position:
            if instr.opcode in _NO_BUFFER:
                continue
            for source in self._read(instr):
                readers.setdefault(source, set()).add(instr)
        return readers

    def _read(self, instr: HloInstruction) -> set[HloInstruction]:
        return {b for o in instr.operands for b in self.buffers[o]}

    def order(self) -> list[HloInstruction]:
        """The schedule."""
        for instr, count in self.waiting.items():
            if count == 0:
                self._push(instr)
        done: dict[HloInstruction, None] = {}
        while self.heap:
            instr = heapq.heappop(self.heap)[3]
            if instr in done:
                continue
            done[instr] = None
            self._release(instr, done)
        return list(done)

    def _release(self, instr: HloInstruction, done: dict[HloInstruction, None]) -> None:
        for user in self.users[instr]:
            self.waiting[user] -= 1
            if self.waiting[user] == 0:
                self._push(user)
        if instr.opcode in _NO_BUFFER:
            return
        for source in self._read(instr):
            left = self.readers[source]
            left.discard(instr)
            if len(left) == 1:
                last = next(iter(left))
                if self.waiting[last] == 0 and last not in done:
                    self._push(last)

    def _push(self, instr: HloInstruction) -> None:
        growth = self._growth(instr)
        position = self.position[instr]
        heapq.heappush(self.heap, (min(growth, 0), position, position, instr))

    def _growth(self, instr: HloInstruction) -> int:
        """Bytes allocated minus bytes freed by running the instruction now."""
        if instr.opcode in _NO_BUFFER:
            return -(1 << 60)
        freed = sum(
            _bytes(b)
            for b in self._read(instr)
            if len(self.readers[b]) == 1 and not OPCODES[b.opcode].has(Trait.GIVEN)
        )
        return _bytes(instr) - freed


def _needs(instr: HloInstruction) -> set[HloInstruction]:
    return {*instr.operands, *instr.control_predecessors()}


def _bytes(instr: HloInstruction) -> int:
    return sum(byte_size(leaf) for leaf in leaves(instr.shape))


def _buffers(computation: HloComputation) -> dict[HloInstruction, tuple[HloInstruction, ...]]:
    """For each instruction, those whose buffers hold its value (looking through tuples)."""
    found: dict[HloInstruction, tuple[HloInstruction, ...]] = {}
    for instr in computation:
        match instr.opcode:
            case "tuple":
                found[instr] = tuple({b: None for o in instr.operands for b in found[o]})
            case "bitcast" | "get-tuple-element":
                found[instr] = found[instr.operands[0]]
            case _:
                found[instr] = (instr,)
    return found
