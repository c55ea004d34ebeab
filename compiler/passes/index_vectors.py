"""Index vectors of gathers and scatters, flat: a row a component, a column a vector."""

from __future__ import annotations

import math

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import is_elementwise
from compiler.hlo.shape import ArrayShape
from compiler.rewrite import make
from compiler.rewrite.dims import reshape_groups
from compiler.rewrite.graph import emit
from tpu_sim.isa.geometry import LANES

Dims = tuple[int, ...]
_MANY = 1 << 17
"""Elements of which it matters how they lie."""
_MOST_AROUND = 32
"""Operations around a gather that are looked at (assumed)."""


def batch_place(vector_dim: int, indices_dim: int) -> int:
    """Which of the dimensions that number index vectors a dimension of the indices is."""
    return indices_dim - (1 if vector_dim < indices_dim else 0)


def numbering(near: HloInstruction, numbers: Dims, window: Dims) -> Dims:
    """The order in which slices are numbered: as they are, or with a long dimension last.

    `near` is a gather's result or what a scatter adds; `numbers` are its dimensions that number slices,
    `window` the others. Narrow slices lie along their numbers. Where those of the last
    dimension are put side by side, as features of an example, or added up, examples lie along the lanes.
    """
    dims, order = near.array.dims, tuple(range(len(numbers)))
    longest = max(order, key=lambda i: dims[numbers[i]], default=0)
    if not order or dims[numbers[longest]] < LANES or dims[numbers[-1]] >= LANES:
        return order
    is_narrow = math.prod(dims[i] for i in window) < LANES and near.array.element_count >= _MANY
    if not is_narrow or not _belong_together(near, numbers[-1], window):
        return order
    return (*(i for i in order if i != longest), longest)


def _belong_together(near: HloInstruction, number: int, window: Dims) -> bool:
    """Whether a reshape around makes one dimension of a numbering one and the window's, or a reduce adds
    up along it; operations on elements are looked through."""
    dims, merged = near.array.dims, {number, *window}
    found = {near: None}
    pending = [near]
    while pending and len(found) <= _MOST_AROUND:
        value = pending.pop()
        others = [user.array.dims for user in value.users if user.opcode == "reshape"]
        others += [value.operands[0].array.dims] if value.opcode == "reshape" else []
        if any(merged <= set(ours) for o in others for ours, _ in reshape_groups(dims, o)):
            return True
        if _is_repeated_along(value, number) or any(_adds_along(u, number) for u in value.users):
            return True
        around = list(value.users)
        around += value.operands if is_elementwise(value) else []
        for other in around:
            is_alike = isinstance(other.shape, ArrayShape) and other.array.dims == dims
            if (
                other not in found
                and is_alike
                and (other in value.operands or is_elementwise(other))
            ):
                found[other] = None
                pending.append(other)
    return False


def _adds_along(instr: HloInstruction, dim: int) -> bool:
    return instr.opcode == "reduce" and dim in instr.dimensions


def _is_repeated_along(instr: HloInstruction, dim: int) -> bool:
    """Whether an array, as the gradient of a sum, is the same all along a dimension."""
    return instr.opcode == "broadcast" and bool(instr.dimensions) and dim not in instr.dimensions


def flat_indices(
    near: HloInstruction,
    indices: HloInstruction,
    vector_dim: int,
    order: Dims,
    lead: Dims,
    components: int,
    iotas: Dims,
) -> HloInstruction:
    """s32 indices ``[components.., *lead]``; without the first dimension where it is 1.

    `order` is that of the dimensions that number vectors, `lead` what they become. `iotas` are
    dimensions (among those) whose own number is a further component. Vectors without components
    get one that is 0.
    """
    dims = indices.array.dims
    shape = ArrayShape(S32, (1, *lead))
    total = components + len(iotas)
    if not total:
        return make.splat(near, shape.with_dims(lead or (1,)), 0)
    index = make.convert(indices, S32)
    counts = [n for i, n in enumerate(dims) if i != vector_dim]
    if vector_dim < len(dims):
        others = [i for i in range(len(dims)) if i != vector_dim]
        index = make.transpose(index, (vector_dim, *(others[i] for i in order)))
    else:
        index = make.transpose(index, order)
    parts = [make.reshape(index, (components, *lead))] if components else []
    for place in iotas:
        sizes = ArrayShape(S32, tuple(counts))
        number = emit(near, "iota", sizes, (), {"iota_dimension": place})
        parts.append(make.reshape(number, shape.dims))
    whole = parts[0]
    if len(parts) > 1:
        joined = shape.with_dims((total, *lead))
        whole = emit(near, "concatenate", joined, parts, {"dimensions": (0,)})
    return make.reshape(whole, lead or (1,)) if total == 1 else whole
