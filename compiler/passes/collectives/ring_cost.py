"""What a product and an exchange take one after the other, and piece by piece round a ring.

In cycles, before kernels are made: of a product what the matrix units take or what its bytes do, of
a piece's transfer what its way through the network says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.analysis.dot_parts import dot_parts, is_integer_pass
from compiler.backend.exchange.ports import ports_of
from compiler.backend.exchange.ways import by_core
from compiler.backend.transfer import hbm_tiling
from compiler.hlo.ir import HloInstruction
from compiler.hlo.replica_groups import Groups, Pairs
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.timing import route_cost
from tpu_sim.isa.torus import Slice

Instr = HloInstruction
FORTH, BACK = 1, -1


@dataclass(frozen=True)
class Ring:
    """The groups of a collective as rings of the network."""

    groups: Groups
    cores: Slice
    chip: Chip

    @property
    def size(self) -> int:
        """How many devices a ring has."""
        return len(self.groups[0])

    @cached_property
    def rings(self) -> Groups:
        """Each group in an order in which neighbours are near."""
        return tuple(tuple(self.cores.ring(group)) for group in self.groups)

    def pairs(self, way: int) -> Pairs:
        """Each device and the one that it sends to, one way round."""
        return tuple(
            (device, ring[(place + way) % self.size])
            for ring in self.rings
            for place, device in enumerate(ring)
        )

    @cached_property
    def ways(self) -> tuple[int, ...]:
        """Both ways round where they have no link in common."""
        ports = ports_of((self.pairs(FORTH), self.pairs(BACK)), self.cores)
        return (FORTH, BACK) if len(set(ports.values())) > 1 else (FORTH,)

    def ranks(self, way: int, distance: int) -> list[int]:
        """For every device the rank, in its group, of the one that stands so far back on the way."""
        found = [0] * len(self.cores.chips)
        for group, ring in zip(self.groups, self.rings, strict=True):
            rank = {device: number for number, device in enumerate(group)}
            for place, device in enumerate(ring):
                found[device] = rank[ring[(place - way * distance) % self.size]]
        return found

    def transfer(self, shape: ArrayShape) -> float:
        """Cycles until an array is with the next device."""
        count = len(self.cores.chips)
        costs = []
        for way in self.ways:
            targets = by_core(count, self.rings, way)
            costs.append(
                route_cost(self.cores.route(targets, [targets], 0), self.chip, is_flag=False)
            )
        sent = hbm_tiling(shape).total_granules * GRANULE_BYTES
        return max(cost.cycles(sent) + cost.latency for cost in costs)


def can_estimate(dot: Instr) -> bool:
    """Whether it is a product for the matrix units as it is."""
    arrays = [o.array for o in (*dot.operands, dot)]
    if any(0 in a.dims or a.dtype.bits > 32 or a.dtype.is_complex for a in arrays):
        return False
    return is_integer_pass(dot) or all(a.dtype.is_float for a in arrays)


def dot_cycles(dot: Instr, chip: Chip, precision: str, parts: int = 1) -> float:
    """Cycles of a product, or of one of so many parts of it along a dimension of the result, which reads
    one side whole."""
    left, right = (operand.array for operand in dot.operands)
    depth = 1
    for d in dot.lhs_contracting_dims:
        depth *= left.dims[d]
    work = 2.0 * dot.array.element_count * depth * dot_parts(dot, precision).passes / parts
    rate = chip.peak_flops / chip.clock_hz * chip.mxu_sustained
    whole = min(left.byte_count, right.byte_count)
    cut = max(left.byte_count, right.byte_count) + dot.array.byte_count
    moved = (whole + cut / parts) / chip.hbm_bytes_per_cycle
    return max(work / rate, moved) / chip.cores_per_device + chip.call_overhead_cycles


def gather_in_parts(
    dots: Sequence[Instr], pieces: Iterable[ArrayShape], ring: Ring, precision: str
) -> float:
    """Cycles of products of an array of which a piece is there and the others come round the ring."""
    chip, size, ways = ring.chip, ring.size, len(ring.ways)
    transfer = sum(map(ring.transfer, pieces))
    cost = sum(dot_cycles(dot, chip, precision, size) + _placed(dot, size, chip) for dot in dots)
    now = sum(dot.array.byte_count for dot in dots) / chip.hbm_bytes_per_cycle  # first cleared
    arrivals = [-(-k // ways) * transfer for k in range(1, size)]
    now += cost
    for arrival in arrivals:
        now = max(now, arrival) + cost
    return now + (size - 1) * _OF_A_TRANSFER * chip.call_overhead_cycles


_OF_A_TRANSFER = 5
"""Kernels of a start, a done, and of the number of its piece, in launches of one that does nothing."""


def _placed(dot: Instr, size: int, chip: Chip) -> float:
    """Bringing a part of a product to its place."""
    return dot.array.byte_count / size / chip.hbm_bytes_per_cycle + chip.call_overhead_cycles


def scatter_in_parts(
    dots: Sequence[Instr], piece: ArrayShape, ring: Ring, precision: str, streams: int
) -> float:
    """Cycles of products whose sums go round the ring in so many streams while others are made; `piece`
    is what a stream sends."""
    chip, size, ways = ring.chip, ring.size, len(ring.ways)
    calls = (_OF_A_TRANSFER + 1) * chip.call_overhead_cycles
    cost = sum(dot_cycles(dot, chip, precision, size * streams) for dot in dots) + calls
    transfer = ring.transfer(piece)
    come = [0.0] * streams
    links = [0.0] * ways
    now = 0.0
    for step in range(size):
        for stream in range(streams):
            now = max(now, come[stream]) + cost
            if step < size - 1:
                way = stream % ways
                links[way] = max(links[way], now) + transfer
                come[stream] = links[way]
    return now
