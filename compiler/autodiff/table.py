"""The table of derivatives: one rule for each opcode of `compiler.hlo.opcodes`.

What is always made of others has their derivatives, unless its family's table has a rule of its own.
"""

from __future__ import annotations

from compiler.autodiff.collective import COLLECTIVE_RULES
from compiler.autodiff.contraction import CONTRACTION_RULES
from compiler.autodiff.control import CONTROL_RULES
from compiler.autodiff.elementwise import ELEMENTWISE_RULES
from compiler.autodiff.expansion import Expansion
from compiler.autodiff.indexing import INDEXING_RULES
from compiler.autodiff.linear_algebra import LINEAR_ALGEBRA_RULES
from compiler.autodiff.loops import LOOP_RULES
from compiler.autodiff.movement import MOVEMENT_RULES
from compiler.autodiff.reduction import REDUCTION_RULES
from compiler.autodiff.rule import DerivativeRule
from compiler.passes.expanders.simple_expansions import COMPOSED

DERIVATIVES: dict[str, DerivativeRule] = {
    **{name: Expansion(composed) for name, composed in COMPOSED.items()},
    **COLLECTIVE_RULES,
    **CONTRACTION_RULES,
    **CONTROL_RULES,
    **ELEMENTWISE_RULES,
    **INDEXING_RULES,
    **LINEAR_ALGEBRA_RULES,
    **LOOP_RULES,
    **MOVEMENT_RULES,
    **REDUCTION_RULES,
}
