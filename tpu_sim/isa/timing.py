"""Cost equations: pure functions of a chip, used alike by the scheduler and the machines.

The model, in issue order (`now` is the cycle at which the next bundle would issue):

- a bundle issues at `now`, or later if one of its instructions must wait; then ``now += 1``;
- ``vpop.mrf`` waits until the oldest result of its MXU is ready (`result_ready_cycles`);
- ``vmatmul`` waits until its unit is free: `Chip.matmul_cycles` after the previous one issued, and
  over many passes those divided by `Chip.mxu_sustained` (`unit_free`);
- ``dma.wait`` waits until its flag is done, and then `Chip.dma_wait_cycles`;
- a DMA goes through one engine in order (`dma_times`), which it holds for its set-up and for its
  bytes at the rate of HBM, which one from HBM to HBM pays twice, at `Chip.hbm_copy_efficiency`; its
  flag is done a latency later (two from HBM to HBM), not before earlier transfers on the flag;
- a transfer over a route holds a port of the core's ICI instead (`route_cost`), and raises the flag
  at the core that it goes to when it arrives; at its own, the flag is done when it has left. A flag
  without bytes is a packet between those of other transfers: it waits for no port (`exchange_times`);
- each iteration of a `Loop` or `While` adds `Chip.loop_overhead_cycles` after its body;
- a `Call` adds `Chip.call_overhead_cycles` before the kernel's first bundle. Cores of a device that share
  the kernel begin together; it ends `Chip.core_sync_cycles` after the slowest of them.

Nothing else takes time: no cycle depends on data except through control flow and DMA counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import GRANULE_BYTES, WORD_BYTES
from tpu_sim.isa.instruction import Instr, Row
from tpu_sim.isa.program import HBM, SMEM, DmaDescriptor, Route

FRACTION_BITS = 24
PASS_BITS = 8


def occupancy_cycles(row: Row, chip: Chip) -> int:
    """Cycles an instruction holds its issue slot (1 for all but indexed accesses and DMA issue)."""
    return max(1, getattr(chip, row.held)) if row.held else 1


def result_ready_cycles(chip: Chip) -> tuple[int, int]:
    """Cycles from the issue of a ``vmatmul`` until its first and second result can be popped."""
    first = chip.latencies["mxu_result"]
    return first, first + chip.matmul_cycles // 2


def pass_occupancy(chip: Chip) -> int:
    """Cycles a pass takes of its unit's time, with `PASS_BITS` fraction bits."""
    return round((chip.matmul_cycles << PASS_BITS) / chip.mxu_sustained)


def unit_free(free: int, now: int, chip: Chip) -> int:
    """When a unit is free again after a pass issued at `now`; fixed point with `PASS_BITS`.

    `free` is what it was before. The next pass issues at its whole cycles or later; fractions add
    up while passes follow each other.
    """
    return occupied_until(free, now, pass_occupancy(chip))


def occupied_until(free: int, now: int, occupancy: int) -> int:
    """`unit_free` of a pass that takes `occupancy` of a unit's time."""
    return max(free, now << PASS_BITS) + occupancy


def unit_issue(free: int) -> int:
    """When a unit that is free at `free` (fixed point with `PASS_BITS`) may take a pass."""
    return free >> PASS_BITS


def wait_end(issue: int, flag_done: int, wait_cycles: int) -> int:
    """When a ``dma.wait`` that could issue at `issue` does; it takes `wait_cycles` itself."""
    return max(issue, flag_done) + wait_cycles


def result_latency(instr: Instr, chip: Chip) -> int:
    """Cycles from issue until the destination register or queue entry may be read."""
    return chip.latencies[instr.row.latency]


@dataclass(frozen=True)
class DmaCost:
    """What transfers of one kind cost: engine cycles per byte as a fixed-point number with
    `FRACTION_BITS` fraction bits, engine cycles of each, and cycles from engine to flag."""

    factor: int
    setup: int
    latency: int

    def cycles(self, transfer_bytes: int) -> int:
        """Cycles a transfer keeps the engine busy, rounded up."""
        return engine_cycles(transfer_bytes, self.factor, self.setup)


def engine_cycles(transfer_bytes: int, factor: int, setup: int) -> int:
    """`DmaCost.cycles`, of a cost's numbers."""
    return setup + ((transfer_bytes * factor + (1 << FRACTION_BITS) - 1) >> FRACTION_BITS)


def dma_cost(source: int, target: int, chip: Chip) -> DmaCost:
    """The cost of transfers between two memory spaces: twice where both are HBM."""
    factor, latency = (1 << FRACTION_BITS) / chip.hbm_bytes_per_cycle, chip.dma_latency_cycles
    if source == target == HBM:
        factor, latency = 2 * factor / chip.hbm_copy_efficiency, 2 * latency
    return DmaCost(round(factor), chip.dma_setup_cycles, latency)


def route_cost(route: Route, chip: Chip, *, is_flag: bool) -> DmaCost:
    """The cost of a core's transfers over a route, of those without bytes (`is_flag`) or with.

    The port is busy for the bytes at the route's part of a link's rate; the last byte arrives as many
    hops later as the longest way has.
    """
    factor = (1 << FRACTION_BITS) * route.load / chip.ici_bytes_per_cycle
    first = chip.ici_sync_cycles if is_flag else chip.ici_hop_cycles
    latency = first + (route.hops - 1) * chip.ici_hop_cycles if route.hops else 0
    return DmaCost(round(factor), chip.ici_setup_cycles, latency)


def dma_times(now: int, engine_free: int, transfer_bytes: int, cost: DmaCost) -> tuple[int, int]:
    """When the engine is free again and when the flag is done, for a transfer issued at `now`."""
    engine_free = max(now, engine_free) + cost.cycles(transfer_bytes)
    return engine_free, engine_free + cost.latency


def exchange_times(
    now: int, port_free: int, transfer_bytes: int, cost: DmaCost
) -> tuple[int, int, int]:
    """When the port is free again, when what a transfer over a route sends has left, and has arrived.

    A flag alone is a packet that goes between those of other transfers: it waits for no port.
    """
    if not transfer_bytes:
        left, arrived = dma_times(now, now, 0, cost)
        return port_free, left, arrived
    left, arrived = dma_times(now, port_free, transfer_bytes, cost)
    return left, left, arrived


def descriptor_unit_bytes(descriptor: DmaDescriptor) -> int:
    """Bytes of one unit of the descriptor's chunk: a word if a side is SMEM, else a granule."""
    spaces = (descriptor.src_space, descriptor.dst_space)
    return WORD_BYTES if SMEM in spaces else GRANULE_BYTES


def descriptor_bytes(descriptor: DmaDescriptor, c0: int, c1: int) -> int:
    """Bytes a transfer moves; `c0`, `c1` replace the counts -1 and -2."""
    total = descriptor.chunk * descriptor_unit_bytes(descriptor)
    for dim in descriptor.dims:
        total *= dimension_count(dim.count, c0, c1)
    return total


def dimension_count(count: int, c0: int, c1: int) -> int:
    """The steps of one descriptor dimension: `count`, or the dynamic count it names."""
    if count == -1:
        return c0
    return c1 if count == -2 else count
