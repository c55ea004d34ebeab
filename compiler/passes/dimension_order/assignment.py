"""Dimension order: arrays whose last dimensions are small are stored with larger ones last.

Tiles of 8x128 round the last two dimensions up: f32[1000,8,3] takes 43 times its bytes, f32[3,8,1000]
hardly more than them. The planner chooses an order for every array by estimated cycles, in regions
that agree (`planner`), the rewriter lists dimensions so (`rewriter`). See docs/layouts.md.
"""

from __future__ import annotations

from compiler.hlo.ir import HloModule
from compiler.passes.algebraic_simplifier import simplify_algebra
from compiler.passes.context import PassContext
from compiler.passes.dimension_order.planner import OrderPlan
from compiler.passes.dimension_order.rewriter import OrderRewriter


def order_dimensions(module: HloModule, context: PassContext) -> bool:
    """Choose orders and rewrite into them."""
    plan = OrderPlan(module, context.chip)
    if not plan.improve():
        return False
    context.counts["arrays"] += len(plan.orders)
    context.counts["instructions"] += OrderRewriter(plan).run()
    simplify_algebra(module, context)
    return True
