"""Runs a table of expansions, opcode by opcode, over a whole module."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from compiler.hlo.call_graph import drop_unreachable, reachable
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.rewrite.graph import replace

Expansion = Callable[[HloInstruction], HloInstruction | None]


def expand(module: HloModule, context: PassContext, table: Mapping[str, Expansion]) -> bool:
    """Replace every instruction that has an expansion (and those of expansions themselves).

    An expansion builds next to its instruction and returns what replaces it, or None to leave
    it. Returns whether anything changed.
    """
    refused: set[HloInstruction] = set()
    while _expand_once(module, context, table, refused):
        pass
    changed = sum(context.counts.values()) > 0
    if changed:
        drop_unreachable(module)
    return changed


def _expand_once(
    module: HloModule,
    context: PassContext,
    table: Mapping[str, Expansion],
    refused: set[HloInstruction],
) -> bool:
    has_expanded = False
    for computation in reachable(module):
        found = [i for i in computation if i.opcode in table and i not in refused]
        for instr in found:
            result = table[instr.opcode](instr)
            if result is None:
                refused.add(instr)
                continue
            context.counts[instr.opcode] += 1
            replace(instr, result)
            if instr.computation is not None:  # it has a side effect, so it is not dead
                computation.remove(instr)
            has_expanded = True
        if found:
            computation.sort()
    return has_expanded
