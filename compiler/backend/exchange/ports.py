"""Which port of its core a permute's transfers hold.

Transfers over one port go one after another, those over two at the same time. So permutes whose ways
share a link have one port, as they share that link's rate; ways that have no link in common,
as forth and back round a ring, have ports of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.replica_groups import DeviceCounts, Groups, device_pairs
from tpu_sim.isa.torus import Slice

_PORTS = 6
"""As many as a chip has links."""


def permute_ports(module: HloModule, cores: Slice) -> Mapping[Groups, int]:
    """By the pairs of each permute of a module its port."""
    counts = DeviceCounts(1, len(cores.chips))
    return ports_of((device_pairs(root, counts) for root in _permutes(module)), cores)


def ports_of(ways: Iterable[Groups], cores: Slice) -> dict[Groups, int]:
    """Ports for ways, each the pairs of cores of one permute."""
    sets: list[tuple[set[int], list[Groups]]] = []
    for pairs in dict.fromkeys(ways):
        links = cores.links_of(pairs)
        members = [pairs]
        apart = []
        for other_links, others in sets:
            if links.isdisjoint(other_links):
                apart.append((other_links, others))
            else:
                links |= other_links
                members = [*others, *members]
        sets = [*apart, (links, members)]
    return {pairs: k % _PORTS for k, (_, members) in enumerate(sets) for pairs in members}


def _permutes(module: HloModule) -> Iterable[HloInstruction]:
    for computation in control_computations(module):
        for instr in computation:
            root = instr.calls.root_instruction if instr.opcode == "fusion" else instr
            if "source_target_pairs" in root.attrs and not root.opcode.endswith("-done"):
                yield root
