"""Reductions of predicates as reductions of numbers.

A kernel keeps a partial sum of predicates in mask registers, which have no place in memory: it must
hold all that is reduced at once. As numbers the sums are cut like any others.
"""

from __future__ import annotations

from compiler.analysis.reducers import reducer_kind
from compiler.hlo.dtypes import PRED, S32
from compiler.hlo.identities import MONOIDS
from compiler.hlo.ir import HloInstruction
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction

MOST_WHOLE = 1 << 20
"""Elements that a kernel holds at once on any chip: fewer are cheaper as predicates."""
_AS_NUMBERS = {
    **dict.fromkeys(("or", "maximum", "add"), "maximum"),
    **dict.fromkeys(("and", "minimum", "multiply"), "minimum"),
    "xor": "xor",
}
"""Reducers of predicates, and what they are on 0 and 1."""


def reduced_as_numbers(e: Emitter, reduce: Instr) -> Instr | None:
    """A reduction of one array of predicates in s32; None for reducers that are no single operation."""
    kind = _AS_NUMBERS.get(reducer_kind(reduce.to_apply, MONOIDS) or "")
    if len(reduce.operands) != 2 or reduce.array.dtype != PRED or kind is None:
        return None
    value, init = (e.cast(operand, S32) for operand in reduce.operands)
    number = e.reduce(value, init, reduce.dimensions, e.scalar(kind, S32))
    return e.compare(number, e.like(number, 0), "NE")


def large_as_numbers(reduce: Instr) -> Instr | None:
    """The same for more elements than every chip can hold at once."""
    if reduce.operands[0].array.element_count <= MOST_WHOLE:
        return None
    return reduced_as_numbers(Emitter.at(reduce), reduce)
