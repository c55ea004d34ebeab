"""Dead code elimination: instructions and computations that nothing needs."""

from __future__ import annotations

from compiler.hlo.call_graph import drop_unreachable, reachable
from compiler.hlo.ir import HloModule
from compiler.passes.context import PassContext
from compiler.rewrite.graph import remove_dead


def eliminate_dead_code(module: HloModule, context: PassContext) -> bool:
    """Remove dead instructions, users before operands, then unreachable computations."""
    removed = 0
    for computation in reachable(module):
        for instr in reversed(list(computation)):
            if instr.computation is computation:
                removed += remove_dead(instr)
    dropped = drop_unreachable(module)
    context.counts["instructions"] = removed
    context.counts["computations"] = dropped
    return bool(removed or dropped)
