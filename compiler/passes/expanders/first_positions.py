"""argmax and argmin of several NaN: the position of the first one, whatever the order of the tree.

JAX's reducer takes (a, i) before (b, j) where a is better or NaN, or where both are equal and i comes
first. Of two NaN it takes the one on the left, which is the first only where elements are combined
one after another. Here they are combined by folding registers, so two NaN are compared by position:

    the value       a where a > b or a is NaN, else b; either NaN will do
    the position    the lesser of i and j where a = b or both are NaN, else that of the value
"""

from __future__ import annotations

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.scalar_computations import position_reducer
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.pattern import Match, Op, Var, match

Instr = HloInstruction
_A, _B, _I, _J = (Var(name) for name in "abij")
_TAKES = Op("or", Op("compare", _A, _B, name="better"), Op("compare", _A, _A, name="is_nan"))
_SAME = Op("and", Op("compare", _A, _B, name="same"), Op("compare", _I, _J, name="earlier"))
_REDUCER = Op(
    "tuple",
    Op("select", _TAKES, _A, _B),
    Op("select", Op("or", _TAKES, _SAME), _I, _J),
)


def first_of_several_nan(reduce: Instr) -> Instr | None:
    """A reduction by JAX's argmax or argmin, with a reducer for any order; None for other reductions."""
    if len(reduce.operands) != 4 or not reduce.operands[0].array.dtype.is_float:
        return None
    body = reduce.to_apply
    found = match(_REDUCER, body.root_instruction)
    if found is None or not _is_position(found, body):
        return None
    direction = str(found["better"].attrs["direction"])
    value, place = (operand.array.dtype for operand in reduce.operands[:2])
    reducer = position_reducer(body.owner, f"{body.name}_first", value, place, direction)
    e = Emitter.at(reduce)
    return e.reduce(reduce.operands[:2], reduce.operands[2:], reduce.dimensions, reducer)


def _is_position(found: Match, body: HloComputation) -> bool:
    """Whether the comparisons are those of argmax or argmin, in the order of the parameters."""
    directions = [found[name].attrs["direction"] for name in ("is_nan", "same", "earlier")]
    is_ordered = [found[name] for name in "aibj"] == list(body.parameters)
    is_best = found["better"].attrs["direction"] in ("GT", "LT")
    return is_ordered and is_best and directions == ["NE", "EQ", "LT"]
