"""reduce-scatter of whole slots: round one ring, or along all axes of a box at once."""

from __future__ import annotations

from compiler.analysis.async_flags import REDUCE_FLAGS
from compiler.backend.custom import CustomKernel
from compiler.backend.exchange.box import box_of
from compiler.backend.exchange.box_reduce import PHASE_GRANULES, BoxReduce
from compiler.backend.exchange.kernels import BACKWARD, FORWARD, ExchangeKernel
from compiler.backend.exchange.ring_reduce import RingReduce
from compiler.backend.exchange.ways import by_core
from compiler.hlo.replica_groups import Groups
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.timing import route_cost
from tpu_sim.isa.torus import Slice


def emit_reduce_scatter(kernel: CustomKernel) -> None:
    """Emit a reduce-scatter of slots ``[n, ..] -> [1, ..]``, by what takes least."""
    x = ExchangeKernel(kernel)
    groups = x.groups()
    box = box_of(x.plan.cores, groups)
    if box is not None:
        reduce = BoxReduce(box, x.granules(len(groups[0])), kernel.chip)
        if reduce.fits and reduce.cycles < _ring_cycles(x, groups):
            reduce.emit(x)
            return
    RingReduce(x, groups).emit()


def emit_reduce_phase(kernel: CustomKernel, first_flag: int, phase: int, phases: int) -> None:
    """Emit one of the kernels of a reduction in phases, whose flags are those from `first_flag` on.

    What waits for nothing is in the first one; the rest is spread over `phases` others.
    """
    x = ExchangeKernel(kernel)
    groups = x.groups()
    box = box_of(x.plan.cores, groups)
    if box is not None:
        flags = range(first_flag, first_flag + REDUCE_FLAGS)
        granules = x.granules(len(groups[0]))
        reduce = BoxReduce(box, granules, kernel.chip, flags, PHASE_GRANULES)
        if reduce.fits and reduce.cycles < _ring_cycles(x, groups):
            reduce.emit_phase(x, phase, phases)
            return
    RingReduce(x, groups, first_flag).emit_phase(phase, phases)


def _ring_cycles(x: ExchangeKernel, groups: Groups) -> int:
    return ring_cycles(x.plan.cores, groups, x.granules(len(groups[0])), x.kernel.chip)


def ring_cycles(cores: Slice, groups: Groups, granules: int, chip: Chip) -> int:
    """About what it takes round one ring, half of each slot of that many granules each way."""
    rings: Groups = tuple(tuple(cores.ring(group)) for group in groups)
    count, size = len(cores.chips), len(groups[0])
    ways = [by_core(count, rings, 1), by_core(count, rings, -1)]
    both = (FORWARD, BACKWARD) if size > 2 else (FORWARD,)
    route = cores.route(ways[0], ways[: len(both)], FORWARD)
    cost = route_cost(route, chip, is_flag=False)
    return (size - 1) * (cost.cycles(granules * GRANULE_BYTES // len(both)) + cost.latency)
