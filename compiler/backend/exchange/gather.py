"""all-gather of whole slots: round one ring, or along all axes of a box at once."""

from __future__ import annotations

from itertools import chain

from compiler.analysis.async_flags import GATHER_FLAGS
from compiler.backend.custom import CustomKernel
from compiler.backend.exchange.box import box_of
from compiler.backend.exchange.box_gather import BoxGather
from compiler.backend.exchange.kernels import (
    BACKWARD,
    FORWARD,
    LOCAL,
    STEP_FLAGS,
    ExchangeKernel,
)
from compiler.backend.exchange.plan import FIRST_DATA_FLAG
from compiler.backend.exchange.ways import by_core
from compiler.hlo.replica_groups import Groups
from compiler.llo.ir import SReg
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import NO_ROUTE
from tpu_sim.isa.timing import route_cost
from tpu_sim.isa.torus import Slice

_PORTS = (FORWARD, BACKWARD)


def emit_all_gather(kernel: CustomKernel) -> None:
    """Emit an all-gather ``[1, ..] -> [n, ..]``, by what takes least."""
    x = ExchangeKernel(kernel)
    groups, cores = x.groups(), x.plan.cores
    box = box_of(cores, groups) if len(groups[0]) > 1 else None
    if box is not None:
        gather = BoxGather(box, x.granules(), kernel.chip)
        if gather.fits and gather.cycles < _ring_cycles(x, groups):
            gather.emit(x)
            return
    emit_ring_gather(x, groups)


def emit_gather_phase(kernel: CustomKernel, first_flag: int, phase: int, phases: int) -> None:
    """Emit one of the kernels of a gather in halves, whose flags are those from `first_flag` on.

    What waits for nothing is in the first one; the rest is spread over `phases` others.
    """
    x = ExchangeKernel(kernel)
    groups = x.groups()
    x.flag_offset = first_flag - FIRST_DATA_FLAG
    local = first_flag + GATHER_FLAGS - 1
    gather = _gather(x, groups, kernel.chip)
    parts = gather.parts()
    bounds = [0, *(1 + (len(parts) - 1) * number // phases for number in range(phases + 1))]
    wanted = slice(bounds[phase], bounds[phase + 1])
    if phase == 0:
        gather.begin(x, local)
    elif any(is_start for is_start, _ in chain.from_iterable(parts[wanted])):
        x.start_table(gather.rows)
        x.await_table()
    gather.emit_parts(x, wanted, local)
    if phase == phases:
        x.wait(local)


def _gather(x: ExchangeKernel, groups: Groups, chip: Chip) -> BoxGather | RingGather:
    """The quicker way for which there are flags."""
    box = box_of(x.plan.cores, groups)
    if box is not None:
        gather = BoxGather(box, x.granules(), chip)
        if gather.flags < GATHER_FLAGS and gather.cycles < _ring_cycles(x, groups):
            return gather
    return RingGather(x, groups)


def _ring_cycles(x: ExchangeKernel, groups: Groups) -> int:
    return ring_cycles(x.plan.cores, groups, x.granules(), x.kernel.chip)


def ring_cycles(cores: Slice, groups: Groups, granules: int, chip: Chip) -> int:
    """About what slots of that many granules take that go round one ring, half of them each way."""
    rings: Groups = tuple(tuple(cores.ring(group)) for group in groups)
    count, size = len(cores.chips), len(groups[0])
    ways = [by_core(count, rings, 1), by_core(count, rings, -1)]
    route = cores.route(ways[0], ways if size > 2 else ways[:1], FORWARD)
    cost = route_cost(route, chip, is_flag=False)
    sent = granules * GRANULE_BYTES
    rest = cost.cycles(sent if size == 2 else sent // 2) + cost.latency
    return (size - 1) // 2 * (cost.cycles(sent) + cost.latency) + (rest if size % 2 == 0 else 0)


Part = tuple[int, int, int, int]
"""Of a step: the direction, and what is sent of a slot: step, first granule, granules."""


class RingGather:
    """Slots go round a ring, half of them each way."""

    def __init__(self, x: ExchangeKernel, groups: Groups) -> None:
        rings: Groups = tuple(tuple(x.plan.cores.ring(group)) for group in groups)
        self.size, self.granules = len(groups[0]), x.granules()
        ways = [by_core(x.cores, rings, 1), by_core(x.cores, rings, -1)]
        beside = ways if self.size > 2 else ways[:1]
        self.routes = [
            x.plan.route(way, beside, port) for way, port in zip(ways, _PORTS, strict=True)
        ]
        self.directions = _PORTS if self.size > 2 else (FORWARD,)
        self.steps = self.size // 2
        self.whole = (self.size - 1) // 2
        """Steps in which both directions bring whole slots; of an even number one more brings halves."""
        self.rows: list[list[int]] = [[] for _ in range(x.cores)]
        for group, ring in zip(groups, rings, strict=True):
            rank = {core: number for number, core in enumerate(group)}
            for place, core in enumerate(ring):
                onward = [rank[ring[(place - s) % self.size]] for s in range(self.steps)]
                back = [rank[ring[(place + s) % self.size]] for s in range(self.steps)]
                self.rows[core] = [rank[core], *onward, *back]

    def begin(self, x: ExchangeKernel, local: int) -> None:
        """Tell the neighbours, hear of them, and bring this core's own slot to its place."""
        x.start_table(self.rows)
        for direction in self.directions:
            x.signal(self.routes[1 - direction], x.ready + direction)
        x.await_table()
        own = x.slot(x.target, x.word(0), self.granules)
        x.start(NO_ROUTE, x.source, own, x.builder.sconst(local), self.granules)
        for direction in self.directions:
            x.wait(x.ready + direction)

    def parts(self) -> list[list[tuple[bool, Part]]]:
        """Starts (True) and ends of transfers in parts, each of which waits and then sends."""
        steps = [self.step(number) for number in range(self.steps)]
        starts = [[(True, part) for part in step] for step in steps]
        ends = [[(False, part) for part in step] for step in steps]
        return [a + b for a, b in zip([[], *ends], [*starts, []], strict=True)]

    def step(self, number: int) -> list[Part]:
        """What goes each way in a step."""
        if number < self.whole:
            return [(direction, number, 0, self.granules) for direction in self.directions]
        half = self.granules if self.size == 2 else -(-self.granules // 2)
        parts = [(FORWARD, number, 0, half), (BACKWARD, number, half, self.granules - half)]
        return [part for part in parts if part[3]]

    def emit_parts(self, x: ExchangeKernel, wanted: slice, _local: int) -> None:
        """Wait for transfers and send, some of `parts`."""
        events = chain.from_iterable(self.parts()[wanted])
        for is_start, (direction, step, first, count) in events:
            flag = FIRST_DATA_FLAG + x.flag_offset + step + direction * self.steps
            if is_start:
                self.send(x, direction, 0, step, (first, count), x.builder.sconst(flag))
            else:
                x.wait(flag)

    def send(
        self,
        x: ExchangeKernel,
        direction: int,
        step: SReg,
        at: int,
        part: tuple[int, int],
        flag: SReg,
    ) -> None:
        """Pass a slot on, or a part of it; the first one comes from the operand itself."""
        b, (first, count) = x.builder, part
        slot = x.slot(x.target, x.word(1 + at + direction * self.steps, step), self.granules)
        slot = b.saddi(slot, first) if first else slot
        source = slot if at or step else (b.saddi(x.source, first) if first else x.source)
        x.start(self.routes[direction], source, slot, flag, count)


def emit_ring_gather(x: ExchangeKernel, groups: Groups) -> None:
    """Slots go round a ring, half of them each way; whole steps are a loop."""
    b, ring = x.builder, RingGather(x, groups)
    ring.begin(x, LOCAL)

    def send(direction: int, step: SReg, at: int, part: tuple[int, int]) -> None:
        number = FIRST_DATA_FLAG + at + direction * STEP_FLAGS
        flag = b.saddi(step, number) if step else b.sconst(number)
        ring.send(x, direction, step, at, part, flag)

    def receive(direction: int, step: SReg, at: int) -> None:
        x.wait(FIRST_DATA_FLAG + at + direction * STEP_FLAGS, step)

    whole = ring.whole
    for first, trips in ((0, min(whole, 1)), (1, whole - 1)):
        if trips > 0:
            with b.loop(trips, "step") as step:
                for direction in _PORTS:
                    send(direction, step, first, (0, ring.granules))
                for direction in _PORTS:
                    receive(direction, step, first)
    if ring.size % 2 == 0:
        parts = [(way, (start, count)) for way, _, start, count in ring.step(whole)]
        for direction, part in parts:
            send(direction, 0, whole, part)
        for direction, _ in parts:
            receive(direction, 0, whole)
    x.wait(LOCAL)
