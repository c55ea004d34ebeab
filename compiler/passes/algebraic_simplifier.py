"""Algebraic simplifier: rewrites every computation with the laws in ``rules_*.py``.

It ends because each law's right side is cheaper (fewer or smaller operations), or equally
cheap with its shape operations nearer the root (reshapes that split, broadcasts) or nearer the
leaf (reshapes of a broadcast's operand, slices); no law undoes another.
"""

from __future__ import annotations

from compiler.hlo.call_graph import drop_unreachable, reachable
from compiler.hlo.ir import HloModule
from compiler.passes.context import PassContext
from compiler.passes.rules_arithmetic import ARITHMETIC_RULES
from compiler.passes.rules_indexing import INDEXING_RULES
from compiler.passes.rules_motion import MOTION_RULES
from compiler.passes.rules_peeling import PEELING_RULES
from compiler.passes.rules_pooling import POOLING_RULES
from compiler.passes.rules_reduction import REDUCTION_RULES
from compiler.passes.rules_scatter import SCATTER_RULES
from compiler.passes.rules_shape import SHAPE_RULES
from compiler.passes.rules_update import UPDATE_RULES
from compiler.rewrite.rewriter import RuleSet, rewrite_computation

RULES = RuleSet(
    (
        *SHAPE_RULES,
        *ARITHMETIC_RULES,
        *REDUCTION_RULES,
        *POOLING_RULES,
        *PEELING_RULES,
        *INDEXING_RULES,
        *SCATTER_RULES,
        *UPDATE_RULES,
        *MOTION_RULES,
    )
)


def simplify_algebra(module: HloModule, context: PassContext) -> bool:
    """Rewrite all computations until no law applies."""
    for computation in reachable(module):
        context.counts.update(rewrite_computation(computation, RULES))
    drop_unreachable(module)
    return bool(context.counts)
