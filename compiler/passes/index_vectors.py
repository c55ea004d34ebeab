"""Index vectors of gathers and scatters, flat: a row a component, a column a vector."""

from __future__ import annotations

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.rewrite import make
from compiler.rewrite.graph import emit

Dims = tuple[int, ...]


def batch_place(vector_dim: int, indices_dim: int) -> int:
    """Which of the dimensions that number index vectors a dimension of the indices is."""
    return indices_dim - (1 if vector_dim < indices_dim else 0)


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
