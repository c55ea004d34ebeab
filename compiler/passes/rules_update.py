"""Laws of dynamic-update-slice: an update that is made of what it overwrites.

A stencil writes the inner part of an array from its neighbourhood. As an update it would be
computed into memory of its own and then be moved; as a select it is one pass over the array.
"""

from __future__ import annotations

from compiler.hlo.dtypes import PRED
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.fusion_roles import is_index_or_elementwise
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op, clamped_starts
from compiler.rewrite.rewriter import rule

_LEAST_SHARE = 2  # an update of at least one element in so many
_MAX_CONE = 64
"""Operations between an array and its update that are looked at: each question walks through them
(assumed)."""


# dynamic-update-slice(x, f(x), constants) == inside ? pad(f(x)) : x
@rule("update-of-its-own-neighbours", Op("dynamic-update-slice"))
def update_of_its_own_neighbours(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Compute old and new elements in one pass where the update covers much of the array."""
    operand, update = instr.operands[:2]
    dims, sizes = operand.array.dims, update.array.dims
    is_small = update.array.element_count * _LEAST_SHARE < operand.array.element_count
    if is_small or sizes == dims:
        return None
    starts = clamped_starts(instr.operands[2:], dims, sizes)
    if starts is None or len(update.users) != 1 or not _is_made_of(update, operand):
        return None
    padding = tuple(
        (start, dim - start - size, 0) for start, dim, size in zip(starts, dims, sizes, strict=True)
    )
    zero = make.constant(instr, operand.array.dtype, 0)
    padded = emit(instr, "pad", operand.array, (update, zero), {"padding": padding})
    true = make.splat(instr, ArrayShape(PRED, sizes), value=True)
    false = make.constant(instr, PRED, value=False)
    mask = emit(instr, "pad", ArrayShape(PRED, dims), (true, false), {"padding": padding})
    return emit(instr, "select", instr.array, (mask, padded, operand))


def _is_made_of(value: HloInstruction, source: HloInstruction) -> bool:
    """Whether `value` comes from `source` by elementwise work and index arithmetic alone."""
    seen, pending, is_reached = {value}, [value], False
    while pending:
        node = pending.pop()
        if node is source:
            is_reached = True
        elif is_index_or_elementwise(node):
            found = [o for o in dict.fromkeys(node.operands) if o not in seen]
            seen.update(found)
            pending.extend(found)
        if len(seen) > _MAX_CONE:
            return False
    return is_reached
