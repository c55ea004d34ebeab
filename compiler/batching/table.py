"""The table of batching: one rule for each opcode of `compiler.hlo.opcodes`."""

from __future__ import annotations

from compiler.batching.contraction import CONTRACTION_RULES
from compiler.batching.control import CONTROL_RULES
from compiler.batching.elementwise import ELEMENTWISE_RULES
from compiler.batching.indexing import INDEXING_RULES
from compiler.batching.loop import one_by_one
from compiler.batching.reduction import REDUCTION_RULES
from compiler.batching.step import Rule
from compiler.hlo.opcodes import OPCODES

_AT_ONCE: dict[str, Rule] = {
    **CONTRACTION_RULES,
    **CONTROL_RULES,
    **ELEMENTWISE_RULES,
    **INDEXING_RULES,
    **REDUCTION_RULES,
}
BATCHING: dict[str, Rule] = {name: _AT_ONCE.get(name, one_by_one) for name in OPCODES}
"""Those that have no form for many examples at once go one by one, or are refused by name."""
