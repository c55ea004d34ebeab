"""Latency hiding: exchanges become starts and dones, and what does not need them runs between.

A list scheduler that knows how long kernels and transfers take. A start runs as soon as its operands
are there, little that leads to it as well. A done runs when its data have come, or when nothing else is
left to do; all other instructions keep their order. An exchange that would hide less than its second
kernel costs stays one kernel. Where the order would need more HBM than there is, nothing changes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from compiler.analysis.aliasing import shared_slots
from compiler.analysis.async_flags import MOST_UNDER_WAY, set_exchange_flag
from compiler.analysis.liveness import Liveness
from compiler.analysis.running_time import RunningTimes
from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import leaves
from compiler.passes.collectives.halves import Halves, can_split, join, remove, split
from compiler.passes.context import PassContext

_MOST = 8
"""Exchanges under way in one computation; those of its callers may be as many each."""
_NO_TIME = with_any(Trait.GIVEN | Trait.FORWARDS)


def hide_latency(module: HloModule, context: PassContext) -> bool:
    """Split exchanges of a scheduled module where that hides them."""
    if context.planner is None:
        return False
    times = RunningTimes(context.planner.chip)
    changed = [
        _Overlap(computation, times)
        for computation in control_computations(module)
        if _has_exchanges(computation)
    ]
    if not changed:
        return False
    before = _peak_bytes(module)
    for overlap in changed:
        overlap.apply()
    after = _peak_bytes(module)
    if after > max(before, context.chip.hbm_bytes):
        context.remarks.append(f"{after} bytes would be live, so exchanges hide behind nothing")
    elif _number_flags(module):
        context.counts["split"] = sum(len(overlap.kept) for overlap in changed)
        return sum(overlap.finish() for overlap in changed) > 0
    for overlap in changed:
        overlap.undo()
    return False


def _has_exchanges(computation: HloComputation) -> bool:
    """Whether there is anything to split or to move, and nothing else says what runs when."""
    is_bound = any(instr.control_predecessors() for instr in computation)
    return not is_bound and any(can_split(i) or i.opcode.endswith("-start") for i in computation)


def _peak_bytes(module: HloModule) -> int:
    """Bytes of arrays that are live together at most, in the order as it is."""
    sets = shared_slots(module)
    liveness = Liveness(module, sets)
    sizes: dict[object, int] = {}
    for computation in control_computations(module):
        for instr in computation:
            for leaf, shape in enumerate(leaves(instr.shape)):
                root = sets.find((instr, leaf))
                sizes[root] = max(sizes.get(root, 0), byte_size(shape))
    change = [0] * (liveness.length + 2)
    for slot, live in liveness.ranges.items():
        change[live.start] += sizes.get(slot, 0)
        change[live.end + 1] -= sizes.get(slot, 0)
    most = now = 0
    for step in change:
        now += step
        most = max(most, now)
    return most


def _number_flags(module: HloModule) -> bool:
    """Give each pair a flag that no other pair has while it is under way; False where there are too few."""
    taken: dict[HloComputation, frozenset[int]] = {module.entry: frozenset()}
    for computation in reversed(control_computations(module)):  # callers first
        busy = taken[computation]
        free = deque(flag for flag in range(MOST_UNDER_WAY) if flag not in busy)
        flags: dict[HloInstruction, int] = {}
        for instr in computation:
            if instr.opcode.endswith("-start"):
                if not free:
                    return False
                flags[instr] = free.popleft()
                set_exchange_flag(instr, flags[instr])
            elif instr.opcode.endswith("-done"):
                flag = flags.pop(instr.operands[0])
                set_exchange_flag(instr, flag)
                free.append(flag)
            elif OPCODES[instr.opcode].has(Trait.HANDS_STATE):
                taken |= dict.fromkeys(instr.called_computations(), busy | {*flags.values()})
    return True


class _Overlap:
    """One computation: the order before, and the order with exchanges in halves."""

    def __init__(self, computation: HloComputation, times: RunningTimes) -> None:
        self.computation = computation
        self.times = times
        self.before = list(computation)
        self.pairs: list[Halves] = []
        self.kept: list[Halves] = []
        self.unused: list[HloInstruction] = []

    def apply(self) -> None:
        """Split what can be split, order all, and join again what hides too little."""
        self.pairs = [split(instr) for instr in self.before if can_split(instr)]
        wholes = {pair.whole for pair in self.pairs}
        instrs = [i for i in self._in_places() if i not in wholes]
        order = _Scheduler(instrs, self.times).order()
        position = {instr: number for number, instr in enumerate(order)}
        joined: dict[HloInstruction, Halves] = {}
        for pair in self.pairs:
            between = order[position[pair.start] + 1 : position[pair.done]]
            if sum(map(self.times.of, between)) > self.times.of(pair.done):
                self.kept.append(pair)
            else:
                join(pair)
                joined[pair.start] = pair
        halves = {half for pair in joined.values() for half in (pair.start, pair.done)}
        has_halves = bool(self.kept) or any(i.opcode.endswith("-start") for i in self.before)
        final = [joined[i].whole if i in joined else i for i in order]
        self.unused = [i for p in joined.values() for i in (p.done, p.start)]
        self.unused += [p.whole for p in self.kept]
        final = [i for i in final if i not in halves] if has_halves else self.before
        self.computation.instructions = dict.fromkeys(final)

    def _in_places(self) -> list[HloInstruction]:
        """The order before, with halves where their kernels stand."""
        halves = {pair.whole: (pair.start, pair.done) for pair in self.pairs}
        return [i for old in self.before for i in halves.get(old, (old,))]

    def undo(self) -> None:
        """Put everything back."""
        for pair in self.kept:
            join(pair)
        halves = [half for pair in self.pairs for half in (pair.done, pair.start)]
        self._take_out(halves, self.before)

    def finish(self) -> bool:
        """Drop what is not in use; whether anything changed."""
        order = list(self.computation)
        self._take_out(self.unused, order)
        return order != self.before

    def _take_out(self, unused: Sequence[HloInstruction], order: list[HloInstruction]) -> None:
        self.computation.instructions = dict.fromkeys([*order, *unused])
        remove(self.computation, *unused)


class _Scheduler:
    """Orders instructions, whose halves stand in pairs, by the times that they take."""

    def __init__(self, instrs: Sequence[HloInstruction], times: RunningTimes) -> None:
        self.instrs = instrs
        self.times = times
        self.position = {instr: number for number, instr in enumerate(instrs)}
        self.waiting = {i: len(set(i.operands)) for i in instrs}
        self.early = self._leads_to_a_start()
        self.now = 0.0
        self.under_way = 0
        self.arrival: dict[HloInstruction, float] = {}
        self.links: dict[object, float] = {}
        self.ready: list[tuple[int, HloInstruction]] = []
        self.first: list[tuple[int, HloInstruction]] = []
        self.starts: deque[HloInstruction] = deque()
        self.dones: list[tuple[float, int, HloInstruction]] = []

    def _leads_to_a_start(self) -> set[HloInstruction]:
        """What only some starts' operands take, and no longer than half of the transfer."""
        found: set[HloInstruction] = set()
        for start in self.instrs:
            if not start.opcode.endswith("-start"):
                continue
            cone: set[HloInstruction] = set()
            left = list(start.operands)
            while left:
                instr = left.pop()
                if instr not in cone:
                    cone.add(instr)
                    left += instr.operands
            if sum(map(self.times.of, cone)) <= self.times.transfer(start) / 2:
                found |= cone
        return found

    def order(self) -> list[HloInstruction]:
        """The schedule."""
        for instr in self.instrs:
            if not self.waiting[instr]:
                self._push(instr)
        done: list[HloInstruction] = []
        while len(done) < len(self.instrs):
            instr = self._next()
            done.append(instr)
            self._run(instr)
            for user in instr.users:
                if user in self.waiting:
                    self.waiting[user] -= 1
                    if not self.waiting[user]:
                        self._push(user)
        return done

    def _push(self, instr: HloInstruction) -> None:
        place = self.position[instr]
        if instr.opcode.endswith("-start"):
            self.starts.append(instr)
        elif instr.opcode.endswith("-done"):
            heapq.heappush(self.dones, (self.arrival[instr.operands[0]], place, instr))
        else:
            is_first = instr in self.early or instr.opcode in _NO_TIME
            heapq.heappush(self.first if is_first else self.ready, (place, instr))

    def _next(self) -> HloInstruction:
        if self.first:
            return heapq.heappop(self.first)[1]
        if self.starts and self.under_way < _MOST:
            return self.starts.popleft()
        has_come = bool(self.dones) and self.dones[0][0] <= self.now
        if has_come or not self.ready:
            return heapq.heappop(self.dones)[2]
        return heapq.heappop(self.ready)[1]

    def _run(self, instr: HloInstruction) -> None:
        if instr.opcode.endswith("-done"):
            self.now = max(self.now, self.arrival[instr.operands[0]])
            self.under_way -= 1
        self.now += self.times.of(instr)
        if instr.opcode.endswith("-start"):
            self.under_way += 1
            way = instr.attrs.get("source_target_pairs")
            begin = max(self.now, self.links.get(way, 0.0))
            self.arrival[instr] = begin + self.times.transfer(instr)
            self.links[way] = self.arrival[instr] - self.times.hop
