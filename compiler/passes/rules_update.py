"""Laws of dynamic-update-slice: an update that is made of what it overwrites, and one that is added.

A stencil writes the inner part of an array from its neighbourhood. As an update it would be
computed into memory of its own and then be moved; as a select it is one pass over the array.

The gradient of a slice at a computed place is an array of zeros with the slice's gradient in it. A loop
that adds it to what it has so far would pass over all of it in each turn.
"""

from __future__ import annotations

from compiler.hlo.dtypes import PRED
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.fusion_roles import is_index_or_elementwise
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op, clamped_starts, equals_exactly, splat_value
from compiler.rewrite.rewriter import ANY_ORDER, rule

_LEAST_SHARE = 2  # an update of at least one element in so many
_LEAST_PASS = 8
"""How many times the elements of all updates an array has from which they are added one by one: each is a
kernel of its own (assumed)."""
_LEAST_ELEMENTS = 1024
"""Of an array that is worth it: a register."""
_STORES = Trait.TUPLE_ONLY, Trait.CONTROL_FLOW, Trait.TAKES_PART, Trait.UPDATES
"""What reads an array as it lies, or in part."""
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


# x + dynamic-update-slice(0, u, starts) == dynamic-update-slice(x, dynamic-slice(x, starts) + u, starts)
@rule("sum-with-placed-updates", Op("add"), freedom=ANY_ORDER)
def sum_with_placed_updates(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Add small updates of zeros where they lie, if nothing else is computed of the sum's elements."""
    left, right = (_placed(operand) for operand in instr.operands)
    if not (left or right) or not _is_kept(instr):
        return None
    if right:
        array, updates = instr.operands[0], right
    else:
        array, updates = instr.operands[1], left
    if _is_added(instr) and left and right:
        return None  # the sum that this is part of has an array to begin with
    count = instr.array.element_count
    covered = sum(update.operands[1].array.element_count for update in updates)
    if count < _LEAST_ELEMENTS or covered * _LEAST_PASS > count:
        return None
    for update in updates:
        array = _added_in_place(instr, array, update)
    return array


def _placed(value: HloInstruction) -> list[HloInstruction]:
    """The updates of zeros whose sum `value` is, if nothing else reads any of them, else none."""
    if len(value.users) != 1:
        return []
    if value.opcode == "add":
        left, right = (_placed(operand) for operand in value.operands)
        return left + right if left and right else []
    if value.opcode != "dynamic-update-slice":
        return []
    start = splat_value(value.operands[0])
    return [value] if start is not None and equals_exactly(start, 0.0) else []


def _is_kept(value: HloInstruction) -> bool:
    """Whether a sum is stored as it is: handed on, updated, cut, or added to another one that is."""
    if not value.users:
        return True  # the root
    return all(
        any(map(OPCODES[user.opcode].has, _STORES))
        or (user.opcode == "add" and any(map(_placed, user.operands)))
        for user in value.users
    )


def _is_added(value: HloInstruction) -> bool:
    return any(user.opcode == "add" for user in value.users)


def _added_in_place(
    near: HloInstruction, array: HloInstruction, update: HloInstruction
) -> HloInstruction:
    """`array` with the slice of an update of zeros added where it lies."""
    part, starts = update.operands[1], update.operands[2:]
    sizes = part.array.dims
    old = emit(near, "dynamic-slice", part.array, (array, *starts), {"dynamic_slice_sizes": sizes})
    new = emit(near, "add", part.array, (old, part))
    return emit(near, "dynamic-update-slice", near.array, (array, new, *starts))
