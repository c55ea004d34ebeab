"""all-gather of whole slots: round one ring, or along all axes of a box at once."""

from __future__ import annotations

from compiler.backend.custom import CustomKernel
from compiler.backend.exchange.box import box_of
from compiler.backend.exchange.box_gather import BoxGather
from compiler.backend.exchange.kernels import (
    BACKWARD,
    FORWARD,
    LOCAL,
    STEP_FLAGS,
    Exchange,
    by_core,
)
from compiler.backend.exchange.plan import FIRST_DATA_FLAG
from compiler.hlo.replica_groups import Groups
from compiler.llo.ir import SReg
from tpu_sim.isa.program import NO_ROUTE
from tpu_sim.isa.timing import GRANULE_BYTES, route_cost

_PORTS = (FORWARD, BACKWARD)


def emit_all_gather(kernel: CustomKernel) -> None:
    """Emit an all-gather ``[1, ..] -> [n, ..]``, by what takes least."""
    x = Exchange(kernel)
    groups, cores = x.groups(), x.plan.cores
    box = box_of(cores, groups) if len(groups[0]) > 1 else None
    if box is not None:
        gather = BoxGather(box, x.granules(), kernel.chip)
        if gather.fits and gather.cycles < ring_cycles(x, groups):
            gather.emit(x)
            return
    emit_ring_gather(x, groups)


def ring_cycles(x: Exchange, groups: Groups) -> int:
    """About what slots take that go round one ring, half of them each way."""
    rings: Groups = tuple(tuple(x.plan.cores.ring(group)) for group in groups)
    ways, size = [by_core(x.cores, rings, 1), by_core(x.cores, rings, -1)], len(groups[0])
    route = x.plan.cores.route(ways[0], ways if size > 2 else ways[:1], FORWARD)
    cost = route_cost(route, x.kernel.chip, is_flag=False)
    sent = x.granules() * GRANULE_BYTES
    rest = cost.cycles(sent if size == 2 else sent // 2) + cost.latency
    return (size - 1) // 2 * (cost.cycles(sent) + cost.latency) + (rest if size % 2 == 0 else 0)


def emit_ring_gather(x: Exchange, groups: Groups) -> None:
    """Slots go round a ring, half of them each way."""
    rings: Groups = tuple(tuple(x.plan.cores.ring(group)) for group in groups)
    size, granules = len(groups[0]), x.granules()
    ways = [by_core(x.cores, rings, 1), by_core(x.cores, rings, -1)]
    beside = ways if size > 2 else ways[:1]
    routes = [x.plan.route(way, beside, port) for way, port in zip(ways, _PORTS, strict=True)]
    steps = size // 2
    rows: list[list[int]] = [[] for _ in range(x.cores)]
    for group, ring in zip(groups, rings, strict=True):
        rank = {core: number for number, core in enumerate(group)}
        for place, core in enumerate(ring):
            onward = [rank[ring[(place - s) % size]] for s in range(steps)]
            back = [rank[ring[(place + s) % size]] for s in range(steps)]
            rows[core] = [rank[core], *onward, *back]
    b = x.builder
    x.start_table(rows)
    for direction in (FORWARD, BACKWARD) if size > 2 else (FORWARD,):
        x.signal(routes[1 - direction], x.ready + direction)
    x.await_table()
    own = x.slot(x.target, x.word(0), granules)
    x.start(NO_ROUTE, x.source, own, b.sconst(LOCAL), granules)
    for direction in (FORWARD, BACKWARD) if size > 2 else (FORWARD,):
        x.wait(x.ready + direction)

    def send(direction: int, step: SReg, at: int, first: int, count: int) -> None:
        """Pass a slot on, or a part of it; the first one comes from the operand itself."""
        slot = x.slot(x.target, x.word(1 + at + direction * steps, step), granules)
        slot = b.saddi(slot, first) if first else slot
        source = slot if at or step else (b.saddi(x.source, first) if first else x.source)
        flag = FIRST_DATA_FLAG + at + direction * STEP_FLAGS
        number = b.saddi(step, flag) if step else b.sconst(flag)
        x.start(routes[direction], source, slot, number, count)

    def receive(direction: int, step: SReg, at: int) -> None:
        x.wait(FIRST_DATA_FLAG + at + direction * STEP_FLAGS, step)

    whole = (size - 1) // 2
    for first, trips in ((0, min(whole, 1)), (1, whole - 1)):
        if trips > 0:
            with b.loop(trips, "step") as step:
                for direction in (FORWARD, BACKWARD):
                    send(direction, step, first, 0, granules)
                for direction in (FORWARD, BACKWARD):
                    receive(direction, step, first)
    if size % 2 == 0:
        half = granules if size == 2 else -(-granules // 2)
        parts = [(FORWARD, 0, half), (BACKWARD, half, granules - half)]
        parts = [part for part in parts if part[2]]
        for direction, start, count in parts:
            send(direction, 0, whole, start, count)
        for direction, _, _ in parts:
            receive(direction, 0, whole)
    x.wait(LOCAL)
