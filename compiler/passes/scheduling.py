"""Scheduling: the order in which a computation's instructions run, chosen to keep little alive.

A list scheduler over the data dependences. Among the ready instructions it runs first one that
frees more bytes than it allocates (the most first), and otherwise the one that stood first. A few
that only together free a value count as one: a gradient of 82 MB that two products read is gone
after both, so that it can wait for them in VMEM, which a third kernel between them would need. What
only takes memory then moves to just before its first user: zeros that a loop starts with do not
lie in VMEM while others work. The chosen order is that of `HloComputation.instructions`; the module
is marked ``is_scheduled=true``.
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
_STAYS = with_any(
    Trait.GIVEN
    | Trait.ASYNC
    | Trait.COLLECTIVE
    | Trait.CONTROL_FLOW
    | Trait.SIDE_EFFECT
    | Trait.TUPLE_ONLY
)

_MOST_TOGETHER = 4
"""Instructions that only together free a value: more of them would each make a value first (assumed)."""


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
        return self._sunk(list(done))

    def _sunk(self, order: list[HloInstruction]) -> list[HloInstruction]:
        """The order with each instruction that frees nothing just before its first user.

        Those that come before the same one keep their order among themselves.
        """
        number = {instr: i for i, instr in enumerate(order)}
        place = dict(number)
        readers = self._count_readers()
        for instr in reversed(order):
            first = min((place[user] for user in self.users[instr]), default=None)
            if first is None or instr.opcode in _STAYS:
                continue
            if not self._frees(instr, first, place, readers):
                place[instr] = first
        return sorted(order, key=lambda instr: (place[instr], number[instr]))

    def _frees(
        self,
        instr: HloInstruction,
        first: int,
        place: dict[HloInstruction, int],
        readers: dict[HloInstruction, set[HloInstruction]],
    ) -> bool:
        """Whether something that an instruction reads would live until place `first` for it alone."""
        return instr.opcode not in _NO_BUFFER and any(
            all(place[reader] < first for reader in readers[source])
            for source in self._read(instr)
            if not OPCODES[source.opcode].has(Trait.GIVEN)
        )

    def _release(self, instr: HloInstruction, done: dict[HloInstruction, None]) -> None:
        for user in self.users[instr]:
            self.waiting[user] -= 1
            if self.waiting[user] == 0:
                self._push(user)
                for source in self._read(user):
                    self._push_together(source)
        if instr.opcode in _NO_BUFFER:
            return
        for source in self._read(instr):
            left = self.readers[source]
            left.discard(instr)
            if len(left) == 1:
                last = next(iter(left))
                if self.waiting[last] == 0 and last not in done:
                    self._push(last)
            else:
                self._push_together(source)

    def _push_together(self, source: HloInstruction) -> None:
        """Let a few instructions that only together free a value run one after the other."""
        left = self.readers.get(source, ())
        if not 1 < len(left) <= _MOST_TOGETHER or OPCODES[source.opcode].has(Trait.GIVEN):
            return
        if any(self.waiting[reader] for reader in left):
            return
        growth = sum(self._growth(reader) for reader in left) - _bytes(source)
        if growth < 0:
            for reader in left:
                position = self.position[reader]
                heapq.heappush(self.heap, (growth, position, position, reader))

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
