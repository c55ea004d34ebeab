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
from compiler.analysis.async_flags import (
    MOST_FLAGS_UNDER_WAY,
    flag_count,
    set_exchange_flag,
    start_of,
)
from compiler.analysis.liveness import Liveness
from compiler.analysis.running_time import RunningTimes
from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import leaves
from compiler.passes.collectives.halves import Halves, can_split, join, remove, split
from compiler.passes.context import PassContext
from tpu_sim.isa.chips import Chip

_MOST, _MOST_FLAGS = 8, 80
"""Exchanges under way in one computation, and their flags; those of its callers may be as many each."""
_NO_TIME = with_any(Trait.GIVEN | Trait.FORWARDS)


def hide_latency(module: HloModule, context: PassContext) -> bool:
    """Split exchanges of a scheduled module where that hides them."""
    if context.planner is None:
        return False
    times = RunningTimes(context.planner.chip)
    changed = [
        _Overlap(computation, times, context.planner.chip)
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
    """Give each exchange flags that no other one has while it is under way; False where there are too few."""
    taken: dict[HloComputation, frozenset[int]] = {module.entry: frozenset()}
    for computation in reversed(control_computations(module)):  # callers first
        flags: dict[HloInstruction, range] = {}
        for instr in computation:
            busy = taken[computation].union(*flags.values())
            if OPCODES[instr.opcode].has(Trait.HANDS_STATE):
                taken |= dict.fromkeys(instr.called_computations(), busy)
            elif OPCODES[instr.opcode].has(Trait.ASYNC):
                start = start_of(instr)
                found = flags[start] if start in flags else _free_flags(flag_count(instr), busy)
                if found is None:
                    return False
                flags[start] = found
                set_exchange_flag(instr, found.start)
                if instr.opcode.endswith("-done"):
                    del flags[start]
    return True


def _free_flags(count: int, busy: frozenset[int]) -> range | None:
    for first in range(MOST_FLAGS_UNDER_WAY - count + 1):
        if busy.isdisjoint(range(first, first + count)):
            return range(first, first + count)
    return None


class _Overlap:
    """One computation: the order before, and the order with exchanges in halves."""

    def __init__(self, computation: HloComputation, times: RunningTimes, chip: Chip) -> None:
        self.computation = computation
        self.times = times
        self.chip = chip
        self.before = list(computation)
        self.pairs: list[Halves] = []
        self.kept: list[Halves] = []
        self.unused: list[HloInstruction] = []

    def apply(self) -> None:
        """Split what can be split, order all, and join again what hides too little."""
        self.pairs = [split(instr, self.chip) for instr in self.before if can_split(instr)]
        wholes = {pair.whole for pair in self.pairs}
        instrs = [i for i in self._in_places() if i not in wholes]
        order = _Scheduler(instrs, self.times).order()
        position = {instr: number for number, instr in enumerate(order)}
        joined: dict[HloInstruction, Halves] = {}
        for pair in self.pairs:
            between = order[position[pair.start] + 1 : position[pair.done]]
            if self._is_worth_it(pair, between):
                self.kept.append(pair)
            else:
                join(pair)
                joined[pair.start] = pair
        has_halves = bool(self.kept) or any(i.opcode.endswith("-start") for i in self.before)
        gone = {half for pair in joined.values() for half in pair.chain[1:]}
        final = [joined[i].whole if i in joined else i for i in order if i not in gone]
        self.unused = [i for p in joined.values() for i in reversed(p.chain)]
        self.unused += [p.whole for p in self.kept]
        self.computation.instructions = dict.fromkeys(final if has_halves else self.before)

    def _is_worth_it(self, pair: Halves, between: Sequence[HloInstruction]) -> bool:
        """Whether what runs meanwhile hides more than the kernels behind the first one cost."""
        later = pair.chain[1:]
        costs = sum(map(self.times.of, later))
        runs = sum(self.times.of(instr) for instr in between if instr not in later)
        return min(runs, sum(map(self.times.transfer, pair.chain[:-1]))) > costs

    def _in_places(self) -> list[HloInstruction]:
        """The order before, with halves where their kernels stand."""
        halves = {pair.whole: pair.chain for pair in self.pairs}
        return [i for old in self.before for i in halves.get(old, (old,))]

    def undo(self) -> None:
        """Put everything back."""
        for pair in self.kept:
            join(pair)
        halves = [half for pair in self.pairs for half in reversed(pair.chain)]
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
        self.under_way = self.flags = 0
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
        elif OPCODES[instr.opcode].has(Trait.ASYNC):
            heapq.heappush(self.dones, (self.arrival[instr.operands[0]], place, instr))
        else:
            is_first = instr in self.early or instr.opcode in _NO_TIME
            heapq.heappush(self.first if is_first else self.ready, (place, instr))

    def _next(self) -> HloInstruction:
        if self.first:
            return heapq.heappop(self.first)[1]
        if self.starts and self._has_room(self.starts[0]):
            return self.starts.popleft()
        has_come = bool(self.dones) and self.dones[0][0] <= self.now
        if has_come or not self.ready:
            return heapq.heappop(self.dones)[2]
        return heapq.heappop(self.ready)[1]

    def _has_room(self, start: HloInstruction) -> bool:
        return self.under_way < _MOST and self.flags + flag_count(start) <= _MOST_FLAGS

    def _run(self, instr: HloInstruction) -> None:
        is_half = OPCODES[instr.opcode].has(Trait.ASYNC)
        is_start, is_done = (
            is_half and instr.opcode.endswith("-start"),
            instr.opcode.endswith("-done"),
        )
        if is_half and not is_start:
            self.now = max(self.now, self.arrival[instr.operands[0]])
        self.now += self.times.of(instr)
        if not is_half:
            return
        change = is_start - is_done
        self.under_way += change
        self.flags += change * flag_count(instr)
        if not is_done:
            start = start_of(instr)
            way = start.attrs.get("source_target_pairs")
            begin = max(self.now, self.links.get(way, 0.0))
            self.arrival[instr] = begin + self.times.transfer(instr)
            self.links[way] = self.arrival[instr] - self.times.hop
