"""Fusion: instructions that can share one pass over memory become one kernel.

    kLoop     elementwise and shape operations, row reductions and what uses them (a softmax or
              a layer norm is one kernel), several results of the same dimensions
    kOutput   a dot with its prologue (index arithmetic and cheap elementwise work on operands)
              and its epilogue (anything kLoop may hold, on the dot's result)
    kInput    reductions over other dimensions with the elementwise work that feeds them
    kCustom   one operation with a kernel of its own (left to `wrap-fusions` when it is alone)

`fusion_nodes` decides what is recomputed rather than stored, `fusion_decision` what is legal,
`fusion_planner` in which order merges are tried, `fusion_builder` makes the instructions.
"""

from __future__ import annotations

from collections import Counter

from compiler.hlo.call_graph import control_computations, drop_unreachable
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.fusion_builder import FusionBuilder
from compiler.passes.fusion_groups import FusionKind, Group
from compiler.passes.fusion_planner import FusionPlan
from compiler.passes.fusion_pruning import OutputPruner


def fuse(module: HloModule, context: PassContext) -> bool:
    """Fuse every computation of the program's control flow."""
    is_changed = False
    for computation in control_computations(module):
        is_changed |= _fuse_computation(computation, context)
    drop_unreachable(module)
    return is_changed


def _fuse_computation(computation: HloComputation, context: PassContext) -> bool:
    """Returns whether a fusion or a bitcast was made."""
    plan = FusionPlan(computation, context.chip)
    groups = plan.build()
    pruner = OutputPruner(plan.graph, plan.nodes, plan.legality)
    context.counts["pruned outputs"] += pruner.prune(groups)
    outputs = _live_outputs(plan, groups)
    kept = [g for g in groups if outputs[g.index] or g.kind is FusionKind.CUSTOM]
    for group in kept:
        if group.kind is FusionKind.CUSTOM and not outputs[group.index]:
            outputs[group.index] = [next(iter(group.nodes))]
    builder = FusionBuilder(
        computation, plan.nodes, plan.graph, pruner.recomputed, pruner.repeated_in
    )
    builder.build(kept, outputs)
    counts: Counter[str] = Counter(g.kind.value for g in kept)
    context.counts.update(counts)
    context.remarks.extend(plan.remarks)
    context.counts["fusions"] += len(kept)
    return bool(builder.values)


def _live_outputs(plan: FusionPlan, groups: list[Group]) -> dict[int, list[HloInstruction]]:
    return {g.index: plan.legality.outputs(g) for g in groups}
