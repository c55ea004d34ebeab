"""Algebraic simplifier: rewrites every computation with the laws in ``rules_*.py``.

It ends because each law's right side is cheaper (fewer or smaller operations), or equally
cheap with its shape operations nearer the root (reshapes that split, broadcasts) or nearer the
leaf (reshapes of a broadcast's operand, slices); no law undoes another.
"""

from __future__ import annotations

from functools import lru_cache

from compiler.hlo.call_graph import drop_unreachable, reachable
from compiler.hlo.ir import HloModule
from compiler.passes import (
    rules_affine_places,
    rules_arithmetic,
    rules_indexing,
    rules_interleaving,
    rules_known_places,
    rules_motion,
    rules_pads,
    rules_peeling,
    rules_pooling,
    rules_reduction,
    rules_reshaped_sums,
    rules_row_slices,
    rules_scatter,
    rules_shape,
    rules_split_pools,
    rules_turned_back,
    rules_update,
    rules_windows,
)
from compiler.passes.context import PassContext
from compiler.rewrite.rewriter import RuleSet, rewrite_computation, rules_of
from tpu_sim.isa.chips import Chip

_FILES = (
    rules_shape,
    rules_arithmetic,
    rules_reduction,
    rules_reshaped_sums,
    rules_pooling,
    rules_peeling,
    rules_indexing,
    rules_row_slices,
    rules_interleaving,
    rules_known_places,
    rules_affine_places,
    rules_scatter,
    rules_update,
    rules_motion,
    rules_pads,
    rules_turned_back,
    rules_split_pools,
    rules_windows,
)


@lru_cache(maxsize=64)
def rules_on(chip: Chip) -> RuleSet:
    """The laws, as they pay on a chip."""
    return RuleSet(rules_of(chip, *_FILES))


def simplify_algebra(module: HloModule, context: PassContext) -> bool:
    """Rewrite all computations until no law applies."""
    for computation in reachable(module):
        context.counts.update(rewrite_computation(computation, rules_on(context.chip)))
    drop_unreachable(module)
    return bool(context.counts)
