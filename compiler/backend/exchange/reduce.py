"""reduce-scatter of whole slots: round one ring, or along all axes of a box at once."""

from __future__ import annotations

from compiler.backend.custom import CustomKernel
from compiler.backend.exchange.box import box_of
from compiler.backend.exchange.box_reduce import BoxReduce
from compiler.backend.exchange.kernels import BACKWARD, FORWARD, Exchange, by_core
from compiler.backend.exchange.ring_reduce import RingReduce
from compiler.hlo.replica_groups import Groups
from tpu_sim.isa.timing import GRANULE_BYTES, route_cost


def emit_reduce_scatter(kernel: CustomKernel) -> None:
    """Emit a reduce-scatter of slots ``[n, ..] -> [1, ..]``, by what takes least."""
    x = Exchange(kernel)
    groups = x.groups()
    box = box_of(x.plan.cores, groups)
    if box is not None:
        reduce = BoxReduce(box, x.granules(len(groups[0])), kernel.chip)
        if reduce.fits and reduce.cycles < ring_cycles(x, groups):
            reduce.emit(x)
            return
    RingReduce(x, groups).emit()


def ring_cycles(x: Exchange, groups: Groups) -> int:
    """About what it takes round one ring, half of each slot each way."""
    rings: Groups = tuple(tuple(x.plan.cores.ring(group)) for group in groups)
    ways, size = [by_core(x.cores, rings, 1), by_core(x.cores, rings, -1)], len(groups[0])
    both = (FORWARD, BACKWARD) if size > 2 else (FORWARD,)
    route = x.plan.cores.route(ways[0], ways[: len(both)], FORWARD)
    cost = route_cost(route, x.kernel.chip, is_flag=False)
    sent = x.granules(size) * GRANULE_BYTES // len(both)
    return (size - 1) * (cost.cycles(sent) + cost.latency)
