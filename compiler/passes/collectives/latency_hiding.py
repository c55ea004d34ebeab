"""Latency hiding: exchanges become starts and dones, and what does not need them runs between.

A list scheduler that knows how long kernels and transfers take. A start runs as soon as its operands
are there, little that leads to it as well. A done runs when its data have come, or when nothing else is
left to do, that of the exchange that stood first before others; all other instructions keep their order.
An exchange that makes all no quicker stays one kernel. Where the order would need more HBM than there
is, nothing changes.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence

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
from compiler.backend.exchange.cost import exchange_cost, network_of
from compiler.backend.exchange.ports import permute_ports
from compiler.hlo.call_graph import control_computations, loop_bodies
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule, depends_on
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import leaves
from compiler.passes.collectives.halves import Halves, can_split, join, remove, split
from compiler.passes.context import PassContext

_MOST, _MOST_FLAGS = 8, 80
"""Exchanges under way in one computation, and their flags; those of its callers may be as many each."""
_MOST_TRIALS = 64
"""Exchanges, those that hide least, that are tried as one kernel."""
_NO_TIME = with_any(Trait.GIVEN | Trait.FORWARDS)


def hide_latency(module: HloModule, context: PassContext) -> bool:
    """Split exchanges of a scheduled module where that hides them."""
    times = running_times(module, context)
    bodies = loop_bodies(module)
    changed = [
        _Overlap(computation, times, is_body=computation in bodies)
        for computation in control_computations(module)
        if _has_exchanges(computation)
    ]
    if not changed:
        return False
    before = peak_bytes(module)
    for overlap in changed:
        overlap.apply()
    after = peak_bytes(module)
    if after > max(before, context.chip.hbm_bytes):
        context.remarks.append(f"{after} bytes would be live, so exchanges hide behind nothing")
    elif _number_flags(module):
        context.counts["split"] = sum(len(overlap.kept) for overlap in changed)
        return sum(overlap.finish() for overlap in changed) > 0
    for overlap in changed:
        overlap.undo()
    return False


def running_times(module: HloModule, context: PassContext) -> RunningTimes:
    """Of the module's instructions on the chip and slice that it is compiled for."""
    chip = context.chip
    cores = network_of(module, context.cores)
    ports = permute_ports(module, cores)
    return RunningTimes(chip, lambda root: exchange_cost(root, cores, chip), ports)


def turn_cycles(body: HloComputation, times: RunningTimes) -> float:
    """About how long a turn of a loop takes in the order that hides most, all exchanges in halves."""
    overlap = _Overlap(body, times, is_body=True)
    cycles = overlap.apply(trials=0)
    overlap.undo()
    return cycles


def _has_exchanges(computation: HloComputation) -> bool:
    """Whether there is anything to split or to move, and nothing else says what runs when."""
    is_bound = any(instr.control_predecessors() for instr in computation)
    return not is_bound and any(can_split(i) or i.opcode.endswith("-start") for i in computation)


def peak_bytes(module: HloModule) -> int:
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

    def __init__(
        self, computation: HloComputation, times: RunningTimes, *, is_body: bool = False
    ) -> None:
        self.computation = computation
        self.times = times
        self.is_body = is_body
        self.before = list(computation)
        self.pairs: list[Halves] = []
        self.kept: list[Halves] = []
        self.unused: list[HloInstruction] = []

    def apply(self, trials: int = _MOST_TRIALS) -> float:
        """Split what can be split, order all, join again what hides too little of so many; about how long
        it takes."""
        self.pairs = [split(instr, self.times.chip) for instr in self.before if can_split(instr)]
        self.kept = list(self.pairs)
        order, cycles = self._ordered()
        for pair in sorted(self.pairs, key=lambda pair: self._hidden(pair, order))[:trials]:
            join(pair)
            self.kept.remove(pair)
            found, without = self._ordered()
            if without <= cycles:
                order, cycles = found, without
            else:
                pair.whole.replace_all_uses_with(pair.done)
                self.kept.append(pair)
        has_halves = bool(self.kept) or any(i.opcode.endswith("-start") for i in self.before)
        self.unused = [i for p in self.pairs if p not in self.kept for i in reversed(p.chain)]
        self.unused += [p.whole for p in self.kept]
        self.computation.instructions = dict.fromkeys(order if has_halves else self.before)
        return cycles

    def _ordered(self) -> tuple[list[HloInstruction], float]:
        """The order, with those halves that are kept, and about how long it takes."""
        halves = {pair.whole: pair.chain for pair in self.kept}
        instrs = [i for old in self.before for i in halves.get(old, (old,))]
        late = _places_to_wait_for(self.computation.root_instruction) if self.is_body else {}
        scheduler = _Scheduler(instrs, self.times, late)
        return scheduler.order(), scheduler.now

    def _hidden(self, pair: Halves, order: Sequence[HloInstruction]) -> float:
        """Cycles that run between start and done, less what the kernels behind the first one cost."""
        first, last = order.index(pair.start), order.index(pair.done)
        costs = sum(map(self.times.of, pair.chain[1:]))
        return sum(map(self.times.of, order[first + 1 : last])) - 2 * costs

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


def _places_to_wait_for(root: HloInstruction) -> dict[HloInstruction, list[HloInstruction]]:
    """For what reads an element of a loop's state the starts that bring its next value and do not need it:
    they come to the same place if they wait for those that read it. Two that bring each other's do not."""
    found: dict[HloInstruction, list[HloInstruction]] = {}
    for index, value in enumerate(root.operands):
        if not value.opcode.endswith("-done") or len(value.users) > 1:
            continue
        start = start_of(value)
        elements = [
            user
            for user in root.home.parameters[0].users
            if user.opcode == "get-tuple-element" and user.index == index
        ]
        if any(depends_on(start, element) for element in elements):
            continue
        readers = [r for element in elements for r in _readers(element) if r is not root]
        if _behind(start, found).isdisjoint(readers):
            for reader in readers:
                found.setdefault(reader, []).append(start)
    return found


def _behind(
    start: HloInstruction, late: Mapping[HloInstruction, Sequence[HloInstruction]]
) -> set[HloInstruction]:
    """What can run after an instruction only, itself too: its users, and the starts that are `late`."""
    found, pending = {start}, [start]
    while pending:
        instr = pending.pop()
        for other in (*instr.users, *late.get(instr, ())):
            if other not in found:
                found.add(other)
                pending.append(other)
    return found


def _readers(value: HloInstruction) -> list[HloInstruction]:
    """The instructions that take time and read a value, or hand it on as the root does."""
    found: dict[HloInstruction, None] = {}
    for user in value.users:
        is_root = user.computation is not None and user.computation.root is user
        is_free = user.opcode in _NO_TIME and not is_root
        found |= dict.fromkeys(_readers(user) if is_free else (user,))
    return list(found)


def _places_by_turns(instrs: Sequence[HloInstruction]) -> dict[HloInstruction, int]:
    """The place of each instruction in the order. What is sent by permutes has the places of all that is,
    first that which most permutes follow: streams round a ring go on by turns, not one after another."""
    position = {instr: number for number, instr in enumerate(instrs)}
    following: dict[HloInstruction, int] = {}
    sent: dict[HloInstruction, None] = {}
    for instr in reversed(instrs):
        is_start = instr.opcode == "collective-permute-start"
        following[instr] = is_start + max((following.get(u, 0) for u in instr.users), default=0)
        if is_start:
            sent |= dict.fromkeys(source for o in instr.operands if (source := _made_by(o)))
    wanted = sorted((i for i in sent if i in position), key=lambda i: (-following[i], position[i]))
    places = sorted(position[i] for i in wanted)
    return position | dict(zip(wanted, places, strict=True))


def _made_by(value: HloInstruction) -> HloInstruction | None:
    """The kernel that makes a value, of which it may be a part or another view."""
    while value.opcode in _NO_TIME and value.operands:
        value = value.operands[0]
    return None if value.opcode in _NO_TIME or value.opcode.endswith("-done") else value


class _Scheduler:
    """Orders instructions, whose halves stand in pairs, by the times that they take; `followers` are those
    that wait for an instruction beside its users."""

    def __init__(
        self,
        instrs: Sequence[HloInstruction],
        times: RunningTimes,
        followers: Mapping[HloInstruction, Sequence[HloInstruction]],
    ) -> None:
        self.instrs = instrs
        self.times = times
        self.followers = followers
        self.position = _places_by_turns(instrs)
        self.waiting = {i: len(set(i.operands)) for i in instrs}
        for reader, late in followers.items():
            for instr in late if reader in self.position else ():
                self.waiting[instr] += 1
        self.early = self._leads_to_a_start()
        self.now = 0.0
        self.under_way = self.flags = 0
        self.arrival: dict[HloInstruction, tuple[float, float]] = {}
        """When the first and when the last piece of what a half waits for is there."""
        self.links: dict[int | None, float] = {}
        self.ready: list[tuple[int, HloInstruction]] = []
        self.first: list[tuple[int, HloInstruction]] = []
        self.starts: deque[HloInstruction] = deque()
        self.dones: list[tuple[int, float, HloInstruction]] = []

    def _leads_to_a_start(self) -> set[HloInstruction]:
        """What only some starts' operands take, and no longer than half of the transfer."""
        found: set[HloInstruction] = set()
        for start in self.instrs:
            if not start.opcode.endswith("-start"):
                continue
            cone: set[HloInstruction] = set()
            left, room = list(start.operands), self.times.transfer(start) / 2
            while left and room >= 0:  # most cones are large: only those that fit are walked whole
                instr = left.pop()
                if instr not in cone:
                    cone.add(instr)
                    room -= self.times.of(instr)
                    left += instr.operands
            if room >= 0:
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
            for user in (*instr.users, *self.followers.get(instr, ())):
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
            first = self.position[start_of(instr)]
            self.dones.append((first, self.arrival[instr.operands[0]][0], instr))
        else:
            is_first = instr in self.early or instr.opcode in _NO_TIME
            heapq.heappush(self.first if is_first else self.ready, (place, instr))

    def _next(self) -> HloInstruction:
        if self.first:
            return heapq.heappop(self.first)[1]
        if self.starts and self._has_room(self.starts[0]):
            return self.starts.popleft()
        come = [entry for entry in self.dones if entry[1] <= self.now or not self.ready]
        if not come:
            return heapq.heappop(self.ready)[1]
        entry = min(come, key=lambda entry: entry[0])
        self.dones.remove(entry)
        return entry[2]

    def _has_room(self, start: HloInstruction) -> bool:
        return self.under_way < _MOST and self.flags + flag_count(start) <= _MOST_FLAGS

    def _run(self, instr: HloInstruction) -> None:
        is_half = OPCODES[instr.opcode].has(Trait.ASYNC)
        is_start, is_done = (
            is_half and instr.opcode.endswith("-start"),
            instr.opcode.endswith("-done"),
        )
        came = 0.0
        if is_half and not is_start:
            first, came = self.arrival[instr.operands[0]]
            self.now = max(self.now, first)
        took = self.times.of(instr)
        if self.times.is_exchange(instr):
            port = self.times.port(instr)
            self.now = max(self.now, self._free(port)) + took
            self._hold(port, self.now)
            return
        if not is_half:
            self.now += took
            return
        begun = self.now + took - self.times.lap(instr)
        self.now = max(self.now, came - self.times.lap(instr)) + took
        change = is_start - is_done
        self.under_way += change
        self.flags += change * flag_count(instr)
        if not is_done:
            start = start_of(instr)
            port = self.times.port(start)
            begin = max(begun, self._free(port))
            sent = self.times.transfer(instr) - self.times.hop
            self._hold(port, begin + sent)
            first = begin + sent / self.times.pieces(instr)
            self.arrival[instr] = first + self.times.hop, begin + sent + self.times.hop

    def _free(self, port: int | None) -> float:
        """When a port has nothing to send any more; None: all of them."""
        if port is None:
            return max(self.links.values(), default=0.0)
        return max(self.links.get(port, 0.0), self.links.get(None, 0.0))

    def _hold(self, port: int | None, until: float) -> None:
        if port is None:
            self.links.clear()
        self.links[port] = until
