"""Where a wait for another core may stand.

A machine goes on with another core between blocks alone: a wait in a block's first bundle is looked at
before the block begins, one behind it counts cycles and waits for nobody. So a wait that may be for
what another core raises begins its block. A wait behind other bundles is for a transfer of the kernel's
own, and none of these goes by a route.
"""

from __future__ import annotations

from tpu_sim.isa.errors import HazardError
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import NO_ROUTE, Block, Kernel, Node, Program, blocks_of
from tpu_sim.isa.resources import FLAG
from tpu_sim.isa.text import format_bundle

Wait = tuple[Block, int, Instr]


def check_waits(program: Program) -> None:
    """Raise `HazardError` on the first wait of a program with routes that may miss another core."""
    if not program.routes:
        return
    looked_at: set[tuple[int, bool]] = set()
    for kernel in program.kernels.values():
        has_routes = any(d.route != NO_ROUTE for d in kernel.descriptors)
        if (id(kernel.body), has_routes) not in looked_at:
            _check_kernel(kernel, has_routes)
            looked_at.add((id(kernel.body), has_routes))


def _check_kernel(kernel: Kernel, has_routes: bool) -> None:
    waits, own = _waits_behind(kernel.body)
    for block, cycle, instr in waits:
        flag = instr.operands[instr.row.flag_index]
        if not has_routes and flag in own:
            continue
        why = (
            "the kernel sends by a route" if has_routes else f"the kernel starts nothing on f{flag}"
        )
        raise HazardError(
            f"a wait that may be for another core ({why}) stands behind other bundles of its block",
            f"kernel {kernel.name}, block {block.name!r}, bundle {cycle}",
            format_bundle(block.bundles[cycle]),
        )


def _waits_behind(body: list[Node]) -> tuple[list[Wait], set[int]]:
    """The waits that do not begin their blocks, and the flags on which the body counts transfers."""
    waits: list[Wait] = []
    own: set[int] = set()
    for block in blocks_of(body):
        for cycle, bundle in enumerate(block.bundles):
            for instr in bundle:
                row = instr.row
                if row.flag_index < 0:
                    continue
                if FLAG in row.defines:
                    own.add(instr.operands[row.flag_index])
                if cycle and FLAG in row.uses:
                    waits.append((block, cycle, instr))
    return waits, own
