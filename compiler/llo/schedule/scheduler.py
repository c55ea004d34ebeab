"""List scheduling of one block into bundles, assigning vregs and vmasks on the way.

Cycle by cycle, each slot class takes its ready operation of the least key. That is the longest path to the
block's end, or, where slots and not one chain bound a block, how far the operation's turn in source order
lies before it: of many independent chains, the first are then well ahead of the last, so that
latencies of one are filled by others and few registers are live. The shorter schedule is taken.
Candidates are the next `window` operations in source order, which bounds register pressure; when
all candidates wait for registers, scheduling starts over with a narrower window. Window 1 is source
order, which spilling has made fit, so scheduling always ends. In a long block a much wider window may let
chains of several tiles run side by side; blocks that wait for the MXU's results, whose waits
bundles do not show, have none.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from compiler.llo.op_table import MXU_CLASS, Code, OpInfo, class_capacities
from compiler.llo.schedule.dependences import BlockGraph
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Instr

WINDOWS = (384, 96, 24, 6, 1)
"""Candidate windows, in the order they are tried."""
_FAR = 1536
"""What a long block is tried with that is not near what slots and latencies allow."""

_CLOSE = 1.03
"""A schedule this near to what slots and latencies allow is good enough."""
_RESERVE_SHARE = 12
"""With fewer than 1/12 of a file free, only operations near the oldest one may take more."""
_NEAR = 24
_MAX_TRIES = 12
"""Blocked candidates looked past per class and cycle."""


@dataclass
class Schedule:
    """`bundles` of op indices; physical `vregs` and `masks` by virtual number."""

    bundles: list[list[int]]
    vregs: dict[int, int]
    masks: dict[int, int]
    window: int


def schedule_block(
    ops: list[Instr], infos: list[OpInfo], graph: BlockGraph, chip: Chip
) -> Schedule:
    """Schedule a block whose source order fits the register files."""
    resources = _resources(ops, infos, chip)
    heights = _heights(graph)
    race = _Race(heights, *_busiest(resources, infos, chip))
    slots = -(-race.work // race.capacity)
    longest = max(heights, default=0)
    enough = _CLOSE * max(slots, longest)
    longest_first = _keys([-h for h in heights])
    best = _schedule(ops, infos, graph, chip, resources, longest_first, race)
    assert best is not None, "source order does not fit the register files: spilling is wrong"
    if len(best.bundles) <= enough:
        return best
    race.most = len(best.bundles)
    by_turn = _keys([slots * i // len(ops) - height for i, height in enumerate(heights)])
    best = _schedule(ops, infos, graph, chip, resources, by_turn, race) or best
    is_long = len(ops) > WINDOWS[0] and all(info.resource != MXU_CLASS for info in infos)
    for keys in (by_turn, longest_first) if is_long else ():
        race.most = len(best.bundles)
        if race.most > enough:
            attempt = _Attempt(ops, infos, graph, chip, resources, keys, _FAR, race)
            if attempt.run():
                best = attempt.schedule
    return best


def _schedule(
    ops: list[Instr],
    infos: list[OpInfo],
    graph: BlockGraph,
    chip: Chip,
    resources: list[int],
    priorities: list[int],
    race: _Race,
) -> Schedule | None:
    """The schedule by the given keys, with the widest window that does not get stuck.

    None where it would not win the race.
    """
    for window in WINDOWS:
        attempt = _Attempt(ops, infos, graph, chip, resources, priorities, window, race)
        if attempt.run():
            return attempt.schedule
        if attempt.is_late:
            break
    return None


@dataclass
class _Race:
    """What tells before its end that a schedule will be no shorter than the best one, of `most` bundles.

    `heights` are the longest paths from each operation to the block's end; `resource` is the slot
    class that is busiest, for `work` cycles in all, and has `capacity` slots. Its operations hold one
    for `longest` cycles at most, the last ones beyond the block's end.
    """

    heights: list[int]
    resource: int
    work: int
    capacity: int
    longest: int
    most: int = 0
    """0: there is none yet."""


def _resources(ops: list[Instr], infos: list[OpInfo], chip: Chip) -> list[int]:
    """The slot class of each operation; every MXU is one of its own."""
    resources = [info.resource for info in infos]
    for index, resource in enumerate(resources):
        if resource == MXU_CLASS:
            unit = ops[index].operands[infos[index].unit]
            resources[index] += unit // chip.units_per_mxu
    return resources


def _busiest(resources: list[int], infos: list[OpInfo], chip: Chip) -> tuple[int, int, int, int]:
    """The slot class that needs most cycles, its work in cycles of one slot, its slots, and for how
    long an operation holds one at most."""
    capacities = [max(1, slots) for slots in class_capacities(chip)]
    work, longest = [0] * len(capacities), [1] * len(capacities)
    for resource, info in zip(resources, infos, strict=True):
        work[resource] += info.occupies
        longest[resource] = max(longest[resource], info.occupies)
    busiest = max(range(len(work)), key=lambda r: -(-work[r] // capacities[r]))
    return busiest, work[busiest], capacities[busiest], longest[busiest]


def _heights(graph: BlockGraph) -> list[int]:
    """The longest path from each operation to the block's end, in cycles."""
    count = len(graph.predecessors)
    heights = [0] * count
    for index in range(count - 1, -1, -1):
        height = 1
        for after, distance in graph.successors[index]:
            through = heights[after] + distance
            if through > height:
                height = through
        heights[index] = height
    return heights


def _keys(ranks: list[int]) -> list[int]:
    """Heap keys in the order of ranks, then of source; the op index is key % len(ranks)."""
    least, count = min(ranks, default=0), len(ranks)
    return [(rank - least) * count + index for index, rank in enumerate(ranks)]


class _File:
    """A register file: free registers, and how many reads each live value still has."""

    __slots__ = ("assigned", "free", "reads_left", "reserve")

    def __init__(self, registers: int) -> None:
        self.free = list(range(registers - 1, -1, -1))
        self.reserve = registers // _RESERVE_SHARE
        self.assigned: dict[int, int] = {}
        self.reads_left: dict[int, int] = {}


class _Attempt:
    """One pass over a block with one window."""

    def __init__(
        self,
        ops: list[Instr],
        infos: list[OpInfo],
        graph: BlockGraph,
        chip: Chip,
        resources: list[int],
        priorities: list[int],
        window: int,
        race: _Race,
    ) -> None:
        self.ops = ops
        self.infos = infos
        self.graph = graph
        self.priorities = priorities
        self.window = window
        self.race = race
        self.work_left = race.work - (race.longest - 1) * race.capacity
        self.is_late = False
        self.capacities = class_capacities(chip)
        self.queue_entries = (chip.eup_entries, chip.xlu_entries)
        self.files = {"v": _File(chip.vregs), "m": _File(chip.vmasks)}
        self._count_reads()
        self.resources = resources
        self.waiting = list(graph.predecessors)
        self.earliest = [0] * len(ops)
        for index, cycle in graph.earliest.items():
            self.earliest[index] = cycle
        self.heaps: list[list[int]] = [[] for _ in self.capacities]
        self.beyond: list[int] = []  # ready, but outside the window
        self.parked: list[int] = []  # ready, but waiting for a register
        self.buckets: dict[int, list[int]] = {}  # cycle -> operations ready then
        self.releases: dict[int, list[int]] = {}  # cycle -> classes whose slot is free again
        self.queues: tuple[deque[int], deque[int]] = (deque(), deque())
        self.ready_pops: set[int] = set()
        self.issued = [False] * len(ops)
        self.oldest = 0
        self.end = 0  # when what was issued for later blocks is done
        self.dead: dict[int, list[tuple[str, int]]] = {}  # cycle -> registers nobody reads
        self.bundles: list[list[int]] = []

    def _count_reads(self) -> None:
        pairs = list(zip(self.ops, self.infos, strict=True))
        vector = [instr.operands[i] for instr, info in pairs for i in info.vregs]
        mask = [instr.operands[i] for instr, info in pairs for i in info.masks]
        self.files["v"].reads_left = dict(Counter(vector))
        self.files["m"].reads_left = dict(Counter(mask))

    @property
    def schedule(self) -> Schedule:
        """What `run` has found."""
        vregs, masks = self.files["v"].assigned, self.files["m"].assigned
        return Schedule(self.bundles, vregs, masks, self.window)

    def run(self) -> bool:
        """Schedule everything; False when all candidates wait for registers, or when it is late."""
        count = len(self.ops)
        for index, predecessors in enumerate(self.graph.predecessors):
            if not predecessors:
                self.buckets.setdefault(self.earliest[index], []).append(index)
        heaps = list(enumerate(self.heaps))
        capacities = self.capacities
        done = cycle = 0
        while done < count:
            for resource in self.releases.pop(cycle, ()):
                capacities[resource] += 1
            for letter, register in self.dead.pop(cycle, ()):
                self.files[letter].free.append(register)
            self._arrive(self.buckets.pop(cycle, ()))
            while self.beyond and self.beyond[0] < self.oldest + self.window:
                self._enter(heappop(self.beyond))
            if self.parked:
                self._unpark()
            bundle: list[int] = []
            for resource, heap in heaps:
                if heap and capacities[resource] > 0:
                    self._fill(resource, heap, cycle, bundle)
            if not bundle and not self._is_waiting() and not self._force(cycle, bundle):
                return False
            done += len(bundle)
            self.bundles.append(bundle)
            if self.race.most and self._is_late(cycle, bundle):
                return False
            cycle += 1
            while self.oldest < count and self.issued[self.oldest]:
                self.oldest += 1
        self.bundles.extend([] for _ in range(self.end - cycle))
        self.is_late = 0 < self.race.most <= len(self.bundles)
        return not self.is_late

    def _is_late(self, cycle: int, bundle: list[int]) -> bool:
        """Whether what follows this bundle takes too long to win the race."""
        race = self.race
        heights, resource, before = race.heights, race.resource, race.most - cycle
        for index in bundle:
            if heights[index] >= before:
                self.is_late = True
            if self.resources[index] == resource:
                self.work_left -= self.infos[index].occupies
        if -(-self.work_left // race.capacity) + 1 >= before:
            self.is_late = True
        return self.is_late

    def _is_waiting(self) -> bool:
        """Whether time alone will make something possible."""
        return bool(self.buckets or self.releases or self.dead)

    def _arrive(self, indices: Iterable[int]) -> None:
        """Operations that depend on nothing any more."""
        limit = self.oldest + self.window
        for index in indices:
            if index < limit:
                self._enter(index)
            else:
                heappush(self.beyond, index)

    def _enter(self, index: int) -> None:
        """Make an operation a candidate; a pop only when it is at its queue's head."""
        info = self.infos[index]
        if info.code is Code.POP and self.queues[info.queue][0] != index:
            self.ready_pops.add(index)
            return
        heappush(self.heaps[self.resources[index]], self.priorities[index])

    def _fill(self, resource: int, heap: list[int], cycle: int, bundle: list[int]) -> None:
        """Issue the best candidates of one class."""
        capacities = self.capacities
        count = len(self.ops)
        room = capacities[resource]
        full: list[int] = []
        while room and heap:
            key = heappop(heap)
            index = key % count
            info = self.infos[index]
            if info.code is Code.PUSH and self._queue_is_full(info.queue):
                full.append(key)
                if len(full) == _MAX_TRIES:
                    break
                continue
            if info.takes and self._lacks_register(index, info):
                heappush(self.parked, index)
                continue
            room -= 1
            self._issue(index, cycle, bundle)
        for key in full:
            heappush(heap, key)

    def _queue_is_full(self, queue: int) -> bool:
        return len(self.queues[queue]) >= self.queue_entries[queue]

    def _unpark(self) -> None:
        """Reconsider operations that waited for a register, the oldest first."""
        near = self.oldest + _NEAR
        tries = _MAX_TRIES if self._is_roomy() else 0
        again: list[int] = []
        while self.parked and (tries > 0 or self.parked[0] < near):
            again.append(heappop(self.parked))
            tries -= 1
        for index in again:
            self._enter(index)

    def _is_roomy(self) -> bool:
        vector, mask = self.files["v"], self.files["m"]
        in_queues = len(self.queues[0]) + len(self.queues[1])
        return len(vector.free) - in_queues > vector.reserve or len(mask.free) > mask.reserve

    def _force(self, cycle: int, bundle: list[int]) -> bool:
        """When all candidates wait for registers: let the oldest one that can have one go."""
        for index in sorted(self.parked):
            info = self.infos[index]
            if info.code is Code.PUSH and self._queue_is_full(info.queue):
                continue
            if self.capacities[self.resources[index]] <= 0:
                continue
            if not info.takes or not self._lacks_register(index, info, reserve=0):
                self.parked.remove(index)
                heapify(self.parked)
                self._issue(index, cycle, bundle)
                return True
        return False

    def _lacks_register(self, index: int, info: OpInfo, reserve: int = -1) -> bool:
        """Whether an operation that takes a register must wait for one.

        Every result in a queue has a register set aside, so that its pop never waits for one.
        The last `reserve` (-1: the file's usual) registers are for operations near the oldest.
        """
        file = self.files[info.takes]
        free = len(file.free)
        if info.takes == "v":
            free -= len(self.queues[0]) + len(self.queues[1])
        if free > (file.reserve if reserve < 0 else reserve):
            return False
        if free > 0 and index < self.oldest + _NEAR:
            return False
        return not self._ends_a_value(index, info, file)

    def _ends_a_value(self, index: int, info: OpInfo, file: _File) -> bool:
        """Whether an operation is the last reader of one of its sources."""
        operands = self.ops[index].operands
        positions = info.vregs if file is self.files["v"] else info.masks
        left = file.reads_left
        for i in positions:
            value = operands[i]
            if left[value] == 1 or left[value] == sum(operands[j] == value for j in positions):
                return True
        return False

    def _issue(self, index: int, cycle: int, bundle: list[int]) -> None:
        """Put an operation into this cycle's bundle: whatever it takes is taken here."""
        info = self.infos[index]
        bundle.append(index)
        self.issued[index] = True
        if info.occupies > 1:
            resource = self.resources[index]
            self.capacities[resource] -= 1
            self.releases.setdefault(cycle + info.occupies, []).append(resource)
        if cycle + info.tail > self.end:
            self.end = cycle + info.tail
        self._use_registers(self.ops[index].operands, info, cycle)
        if info.code is Code.PUSH:
            self.queues[info.queue].append(self.graph.pop_of[index])
        elif info.code is Code.POP:
            self._advance_queue(self.queues[info.queue])
        waiting, earliest, buckets = self.waiting, self.earliest, self.buckets
        for after, distance in self.graph.successors[index]:
            when = cycle + distance
            if when > earliest[after]:
                earliest[after] = when
            waiting[after] -= 1
            if not waiting[after]:
                when = earliest[after]
                if when <= cycle:
                    self._arrive((after,))
                elif when in buckets:
                    buckets[when].append(after)
                else:
                    buckets[when] = [after]

    def _advance_queue(self, queue: deque[int]) -> None:
        queue.popleft()
        if queue and queue[0] in self.ready_pops:
            self.ready_pops.discard(queue[0])
            self._enter(queue[0])

    def _use_registers(self, operands: tuple[int, ...], info: OpInfo, cycle: int) -> None:
        for letter, positions in info.reads:
            file = self.files[letter]
            left = file.reads_left
            for i in positions:
                value = operands[i]
                left[value] -= 1
                if not left[value]:
                    file.free.append(file.assigned[value])
        if info.defines and info.defines != "s":
            file = self.files[info.defines]
            register = file.free.pop()
            file.assigned[operands[0]] = register
            if operands[0] not in file.reads_left:
                self.dead.setdefault(cycle + info.latency, []).append((info.defines, register))
