"""Where the cycles of one call of a kernel are spent, bundle by bundle, and what is under way when.

`profile_kernel` goes through a kernel's bundles with values off: scalar code and control flow, the clock,
transfers, the queues of the matrix units, by the equations of both machines (`tpu_sim.isa.timing`). What
comes from vector code, HBM or arguments is 0, as in an estimate. A call of such a kernel takes as many
cycles as on a machine, for the same causes, wherever control flow does not depend on data. Of a kernel that
cores of a device share it is the first one's part.

It stops after `most_cycles`; `is_whole` says whether it came to the end. Intervals are kept up to
`MOST_EVENTS` of a kind; counts of bundles go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tpu_sim.isa.causes import LOWERED, Cause, IssueCauses, transfer_cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.instruction import Instr, Kind, Slot
from tpu_sim.isa.program import NO_ROUTE, Block, Bundle, Kernel, Node, Route
from tpu_sim.isa.resources import CORE_NUMBER, FLAG, MRF
from tpu_sim.isa.timing import (
    descriptor_bytes,
    dma_cost,
    dma_times,
    exchange_times,
    occupied_until,
    pass_occupancy,
    result_ready_cycles,
    route_cost,
    unit_issue,
    wait_end,
)
from tpu_sim.machine.int_lanes import IntLanes, signed

MOST_CYCLES = 400_000
MOST_EVENTS = 20_000
MOST_TRIPS = 10
"""Iterations of a loop whose trip count depends on data, and which states none."""
_BURST_GAP = 4
"""Occupancies of a unit without a pass that do not yet end a burst."""


@dataclass
class BundleUse:
    """How often a bundle issued, and the cycles it stalled by cause."""

    runs: int = 0
    stalls: dict[Cause, int] = field(default_factory=dict)


@dataclass(frozen=True)
class TransferSpan:
    """A transfer: in the engine from `start` to `end`, its flag done at `done`; `source` asked for it."""

    issue: int
    start: int
    end: int
    done: int
    size: int
    cause: Cause
    descriptor: int
    source: str


@dataclass(frozen=True)
class CycleSpan:
    """Something from one cycle to another."""

    start: int
    end: int
    what: str = ""
    transfers: tuple[int, ...] = ()
    """Of a wait: the numbers of those that were counted on its flag since the wait before."""


@dataclass
class KernelProfile:
    """What `profile_kernel` found; times are cycles since the call.

    `bundles` are in the order of the kernel's text. `bursts` are times of passes, by unit; `steps` the
    iterations of its outermost loops, `waits` the stalls in ``dma.wait``.
    """

    cycles: int = 0
    is_whole: bool = False
    causes: dict[Cause, int] = field(default_factory=dict)
    bundles: list[BundleUse] = field(default_factory=list)
    transfers: list[TransferSpan] = field(default_factory=list)
    bursts: dict[int, list[CycleSpan]] = field(default_factory=dict)
    steps: list[CycleSpan] = field(default_factory=list)
    waits: list[CycleSpan] = field(default_factory=list)


class _EnoughError(Exception):
    """The profile has as many cycles as were asked for."""


def profile_kernel(
    kernel: Kernel, chip: Chip, routes: Sequence[Route] = (), most_cycles: int = MOST_CYCLES
) -> KernelProfile:
    """Profile a call of a kernel; between chips, all are taken to send at the same time."""
    walk = _Walk(kernel, chip, routes, most_cycles)
    try:
        walk.nodes(kernel.body, 0)
        walk.join()
        walk.profile.is_whole = True
    except _EnoughError:
        pass
    walk.count_bundles()
    walk.profile.cycles = walk.now
    return walk.profile


_Step = Callable[[], Callable[[], None] | None]
"""An instruction: reads, and returns what it then writes."""
_PUSH = -1


class _Wait(NamedTuple):
    """What a bundle may wait for: a flag of `flagged`; else a matrix unit, its queue's entry `entry` of those
    that are left, or to be free (`_PUSH`)."""

    flagged: Instr | None
    unit: int
    entry: int


class _Event(NamedTuple):
    """A bundle that does more than pass a cycle: where in its block, what it waits for, scalar results with
    their registers, units that take a pass and those that give up a result, and all else."""

    offset: int
    waits: list[_Wait]
    scalars: list[tuple[int, Callable[[], int]]]
    pushes: list[int]
    pops: list[int]
    steps: list[_Step]


@dataclass
class _Code:
    """A block: its bundles that do more than pass a cycle, and how often it ran."""

    first: int
    length: int
    events: list[_Event]
    issued: list[tuple[Cause, int]]
    runs: int = 0


class _Walk:
    """The state of a core, as far as the clock needs it."""

    def __init__(
        self, kernel: Kernel, chip: Chip, routes: Sequence[Route], most_cycles: int
    ) -> None:
        self.profile = KernelProfile()
        self.now = chip.call_overhead_cycles
        self._kernel = kernel
        self._chip = chip
        self._routes = routes
        self._most = most_cycles
        self._causes = IssueCauses(kernel.body, chip)
        self._codes: dict[int, _Code] = {}
        self._sregs = [0] * max(64, chip.sregs)
        self._smem: dict[int, int] = {}
        self._lanes = IntLanes()
        self._flag_done: dict[int, int] = {}
        self._flag_cause: dict[int, Cause] = {}
        self._flag_counts: dict[int, list[int]] = {}
        self._engine = 0
        self._ports: dict[int, int] = {}
        self._unit_free = [0] * chip.mxu_units
        self._ready: list[list[int]] = [[] for _ in range(chip.mxu_units)]
        self._popped = [0] * chip.mxu_units
        self._ready_after = result_ready_cycles(chip)
        self._occupancy = pass_occupancy(chip)
        self._burst: dict[int, tuple[int, int]] = {}
        self._charge([(Cause.LAUNCH, chip.call_overhead_cycles)])
        self._number_blocks(kernel.body)

    def _number_blocks(self, nodes: list[Node]) -> None:
        for node in nodes:
            match node:
                case Block():
                    first = len(self.profile.bundles)
                    self.profile.bundles += [BundleUse() for _ in node.bundles]
                    self._codes[id(node)] = self._compile(node, first)
                case Loop():
                    self._number_blocks(node.body)
                case If():
                    self._number_blocks(node.then)
                    self._number_blocks(node.orelse)
                case While():
                    self._number_blocks(node.test)
                    self._number_blocks(node.body)

    # Control flow.

    def nodes(self, nodes: list[Node], depth: int) -> None:
        """Run nodes; `depth` loops are around them."""
        for node in nodes:
            match node:
                case Block():
                    self._block(self._codes[id(node)])
                case Loop():
                    trip = node.trip if node.trip >= 0 else signed(self._sregs[node.trip_sreg])
                    for index in range(trip):
                        self._sregs[node.index] = index
                        self._iteration(node, node.body, depth)
                case If():
                    taken = self._sregs[node.condition] != 0
                    self.nodes(node.then if taken else node.orelse, depth)
                case While():
                    self._while(node, depth)
        if not depth:
            self._end_bursts()

    def join(self) -> None:
        """The end of a kernel that cores share: until all are known to be through."""
        if self._kernel.cores > 1:
            self.now += self._chip.core_sync_cycles
            self._charge([(Cause.LATENCY, self._chip.core_sync_cycles)])

    def _while(self, node: While[Block], depth: int) -> None:
        trips = node.expected_trips if node.expected_trips >= 0 else MOST_TRIPS
        for _ in range(trips):
            self.nodes(node.test, depth + 1)
            self._iteration(node, node.body, depth)
        self.nodes(node.test, depth + 1)

    def _iteration(self, loop: Loop[Block] | While[Block], body: list[Node], depth: int) -> None:
        start = self.now
        self.nodes(body, depth + 1)
        self.now += self._chip.loop_overhead_cycles
        self._charge(self._causes.of_iteration(loop))
        if not depth and len(self.profile.steps) < MOST_EVENTS:
            self.profile.steps.append(CycleSpan(start, self.now, loop.name))

    def _charge(self, counts: list[tuple[Cause, int]]) -> None:
        causes = self.profile.causes
        for cause, count in counts:
            causes[cause] = causes.get(cause, 0) + count

    # Bundles.

    def _block(self, code: _Code) -> None:
        start, stalled = self.now, 0
        for offset, waits, scalars, pushes, pops, steps in code.events:
            self.now = start + stalled + offset
            if waits:
                self._stall(waits, code.first + offset)
                stalled = self.now - start - offset
            if scalars or steps:
                self._read_and_write(scalars, steps)
            for unit in pushes:
                self._multiply(unit)
            for unit in pops:
                self._popped[unit] += 1
        self.now = start + stalled + code.length
        code.runs += 1
        if self.now > self._most:
            self._end_bursts()
            raise _EnoughError

    def _read_and_write(
        self, scalars: list[tuple[int, Callable[[], int]]], steps: list[_Step]
    ) -> None:
        """All that a bundle's instructions read is from before it."""
        results = [(register, result()) for register, result in scalars]
        writes = [step() for step in steps] if steps else ()
        for register, value in results:
            self._sregs[register] = value
        for write in writes:
            if write is not None:
                write()

    def count_bundles(self) -> None:
        """Count what blocks issued, each as often as it ran."""
        for code in self._codes.values():
            for use in self.profile.bundles[code.first : code.first + code.length]:
                use.runs += code.runs
            self._charge([(cause, count * code.runs) for cause, count in code.issued if code.runs])

    def _compile(self, block: Block, first: int) -> _Code:
        events = (self._event(offset, bundle) for offset, bundle in enumerate(block.bundles))
        found = [event for event in events if any(event[1:])]
        return _Code(first, len(block.bundles), found, self._causes.of_block(block))

    def _event(self, offset: int, bundle: Bundle) -> _Event:
        event = _Event(offset, [], [], [], [], [])
        for instr in bundle:
            row, operands = instr.row, instr.operands
            if FLAG in row.uses:
                event.waits.append(_Wait(instr, 0, 0))
            elif row.pops == MRF:
                unit = operands[row.unit_index]
                event.waits.append(_Wait(None, unit, event.pops.count(unit)))
                event.pops.append(unit)
                continue
            elif row.pushes == MRF:
                unit = operands[row.unit_index]
                event.waits.append(_Wait(None, unit, _PUSH))
                event.pushes.append(unit)
                continue
            if (step := self._step(instr)) is not None:
                event.steps.append(step)
            elif row.slot is Slot.SCALAR and operands[0]:
                event.scalars.append((operands[0], self._scalar(instr)))
        return event

    def _stall(self, waits: list[_Wait], number: int) -> None:
        issue = self.now
        for instr, unit, entry in waits:
            if instr is not None:
                issue = self._wait_for_flag(instr, issue, number)
            elif entry == _PUSH:
                free = unit_issue(self._unit_free[unit])
                if free > issue:
                    issue = self._wait(issue, free, Cause.MXU, number)
            else:
                ready, oldest = self._ready[unit], self._popped[unit] + entry
                if oldest < len(ready) and ready[oldest] > issue:
                    issue = self._wait(issue, ready[oldest], Cause.MXU_RESULT, number)
        self.now = issue

    def _wait_for_flag(self, instr: Instr, issue: int, number: int) -> int:
        row, operands = instr.row, instr.operands
        flag = operands[row.flag_index] + signed(self._sregs[operands[row.flag_index + 1]])
        cause = self._flag_cause.get(flag, LOWERED)
        end = wait_end(issue, self._flag_done.get(flag, 0), self._chip.dma_wait_cycles)
        if len(self.profile.waits) < MOST_EVENTS:
            ended = tuple(self._flag_counts.pop(flag, ()))
            self.profile.waits.append(CycleSpan(issue, end, instr.source, ended))
        return self._wait(issue, end, cause, number)

    def _wait(self, issue: int, until: int, cause: Cause, number: int) -> int:
        if until <= issue:
            return issue
        stalls = self.profile.bundles[number].stalls
        stalls[cause] = stalls.get(cause, 0) + until - issue
        self._charge([(cause, until - issue)])
        return until

    # Instructions.

    def _step(self, instr: Instr) -> _Step | None:
        """What an instruction does that is neither of a matrix unit nor a result of scalars alone."""
        row, operands = instr.row, instr.operands
        if row.is_transfer:
            return lambda: self._transfer(instr)
        if FLAG in row.uses:
            return lambda: self._lower(instr)
        if row.name == "sst":
            return lambda: self._store(instr)
        if row.name == "sld":
            return lambda: self._load(instr)
        if CORE_NUMBER in row.uses:
            return lambda: lambda: self._set(operands[0], 0)
        is_of_vectors = row.slot is not Slot.SCALAR
        if is_of_vectors and row.write is not None and row.write.register_class == "s":
            return lambda: lambda: self._set(operands[0], 0)  # what vector code makes
        return None

    def _scalar(self, instr: Instr) -> Callable[[], int]:
        meaning, lanes, sregs = instr.row.does, self._lanes, self._sregs
        pairs = list(zip(instr.row.operands, instr.operands, strict=True))[1:]
        sources = [(o.kind is Kind.SS, value) for o, value in pairs]

        def result() -> int:
            values = [sregs[value] if is_register else value for is_register, value in sources]
            found = meaning(lanes, *values)
            assert isinstance(found, int)
            return found

        return result

    def _set(self, register: int, value: int) -> None:
        if register:
            self._sregs[register] = value

    def _load(self, instr: Instr) -> Callable[[], None]:
        target, base, offset = instr.operands
        value = self._smem.get(signed(self._sregs[base]) + offset, 0)
        return lambda: self._set(target, value)

    def _store(self, instr: Instr) -> Callable[[], None]:
        base, offset, register = instr.operands
        word, value = signed(self._sregs[base]) + offset, self._sregs[register]
        return lambda: self._smem.__setitem__(word, value)

    def _multiply(self, unit: int) -> None:
        now, occupied = self.now, self._chip.matmul_cycles
        first, second = self._ready_after
        self._ready[unit] += (now + first, now + second)
        self._unit_free[unit] = occupied_until(self._unit_free[unit], now, self._occupancy)
        start, end = self._burst.get(unit, (now, now))
        if now > end + _BURST_GAP * occupied:
            self._note_burst(unit, start, end)
            start = now
        self._burst[unit] = (start, now + occupied)

    def _note_burst(self, unit: int, start: int, end: int) -> None:
        spans = self.profile.bursts.setdefault(unit, [])
        if end > start and len(spans) < MOST_EVENTS:
            spans.append(CycleSpan(start, end))

    def _end_bursts(self) -> None:
        for unit, (start, end) in self._burst.items():
            self._note_burst(unit, start, end)
        self._burst.clear()

    def _lower(self, instr: Instr) -> Callable[[], None]:
        base, register = instr.operands[instr.row.flag_index : instr.row.flag_index + 2]
        flag = base + signed(self._sregs[register])
        return lambda: self._flag_cause.__setitem__(flag, LOWERED)

    def _transfer(self, instr: Instr) -> Callable[[], None]:
        number, _, _, base, *registers = instr.operands
        flag, c0, c1 = (signed(self._sregs[register]) for register in registers)
        return lambda: self._start(number, base + flag, (c0, c1), instr.source)

    def _start(self, number: int, flag: int, counts: tuple[int, int], source: str) -> None:
        descriptor, chip = self._kernel.descriptors[number], self._chip
        size, cause = descriptor_bytes(descriptor, *counts), transfer_cause(descriptor)
        if descriptor.route == NO_ROUTE:
            cost = dma_cost(descriptor.src_space, descriptor.dst_space, chip)
            start = max(self.now, self._engine)
            end, done = dma_times(self.now, self._engine, size, cost)
            self._engine = end
        else:
            route = self._routes[descriptor.route]
            cost = route_cost(route, chip, is_flag=not size)
            free = self._ports.get(route.port, 0)
            start = max(self.now, free) if size else self.now
            self._ports[route.port], end, done = exchange_times(self.now, free, size, cost)
        self._flag_done[flag] = max(self._flag_done.get(flag, 0), done)
        self._flag_cause[flag] = cause
        if len(self.profile.transfers) < MOST_EVENTS:
            span = TransferSpan(self.now, start, end, done, size, cause, number, source)
            self._flag_counts.setdefault(flag, []).append(len(self.profile.transfers))
            self.profile.transfers.append(span)
