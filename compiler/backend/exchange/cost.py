"""About how long the kernel of an exchange takes on the network of a slice."""

from __future__ import annotations

from compiler.analysis.running_time import ExchangeCost
from compiler.backend.exchange import gather, reduce
from compiler.backend.exchange.box import ExchangeBox, box_of
from compiler.backend.exchange.box_gather import BoxGather
from compiler.backend.exchange.box_reduce import BoxReduce
from compiler.backend.exchange.ways import by_core, farthest_route
from compiler.backend.transfer import hbm_tiling
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.replica_groups import (
    DeviceCounts,
    Groups,
    device_counts,
    device_groups,
    device_pairs,
)
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import Route
from tpu_sim.isa.timing import route_cost
from tpu_sim.isa.torus import Slice, Torus


def network_of(module: HloModule, cores: Slice | None) -> Slice:
    """The slice that runs a program, or a ring where nobody knows."""
    count = device_counts(module).devices
    return cores or Slice(Torus((count, 1, 1), (True, False, False)), tuple(range(count)))


def exchange_cost(root: HloInstruction, cores: Slice, chip: Chip) -> ExchangeCost:
    """The cost of a collective of whole slots, or of a permute."""
    counts = DeviceCounts(1, len(cores.chips))
    granules = sum(hbm_tiling(operand.array).total_granules for operand in root.operands)
    if root.opcode.startswith("collective-permute"):
        targets = [-1] * counts.devices
        for source, target in device_pairs(root, counts):
            targets[source] = target
        return _together(cores.farthest([targets], 0), granules, chip)
    groups = device_groups(root, counts)
    size = len(groups[0])
    if size == 1:
        return ExchangeCost(0, 0)
    if root.opcode == "all-to-all":
        return _together(farthest_route(cores, groups), granules // size, chip)
    return _round(root.opcode, groups, granules, cores, chip)


def _together(farthest: Route, granules: int, chip: Chip) -> ExchangeCost:
    """Transfers that are all under way at once, by the longest of their routes."""
    cost = route_cost(farthest, chip, is_flag=False)
    ready = route_cost(farthest, chip, is_flag=True).latency
    return ExchangeCost(ready, cost.cycles(granules * GRANULE_BYTES) + cost.latency)


def _round(opcode: str, groups: Groups, granules: int, cores: Slice, chip: Chip) -> ExchangeCost:
    """A gather or reduction: round a ring, or along all axes of a box."""
    box = box_of(cores, groups)
    if opcode == "all-gather":
        ring = gather.ring_cycles(cores, groups, granules, chip)
        boxed = BoxGather(box, granules, chip).cycles if box is not None else ring
    else:
        slot = granules // len(groups[0])
        ring = reduce.ring_cycles(cores, groups, slot, chip)
        plan = BoxReduce(box, slot, chip) if box is not None else None
        boxed = plan.cycles if plan is not None and plan.fits else ring
    way_round = box if boxed < ring else None
    return ExchangeCost(_ready(way_round, groups, cores, chip), min(ring, boxed))


def _ready(box: ExchangeBox | None, groups: Groups, cores: Slice, chip: Chip) -> int:
    """Neighbours of a ring, or of all rings of a box."""
    if box is not None:
        return max(route_cost(axis.routes[0], chip, is_flag=True).latency for axis in box.axes)
    rings: Groups = tuple(tuple(cores.ring(group)) for group in groups)
    way = by_core(len(cores.chips), rings, 1)
    return route_cost(cores.route(way, [way], 0), chip, is_flag=True).latency
