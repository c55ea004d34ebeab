"""What is known of index vectors, component by component: the same for all, or the vector's number.

x[arange(n), labels]    component 0 counts: index vector k starts at k
x.at[i, i + 1]          component 1 counts from 1
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from compiler.analysis.known_values import known_value
from compiler.hlo.ir import HloInstruction
from compiler.rewrite import make

Dims = tuple[int, ...]


@dataclass(frozen=True)
class Column:
    """One component of all index vectors, which dimensions `numbers` number.

    `first` is the start of vector 0 where all starts are known: they are the same, or count from
    there along dimension `along`.
    """

    indices: HloInstruction
    vector_dim: int
    component: int
    numbers: Dims
    first: int | None = None
    along: int | None = None

    def node(self) -> HloInstruction:
        """The component as an array of dimensions `numbers`."""
        source, dim, component = _piece(self.indices, self.vector_dim, self.component)
        if dim < source.array.rank and source.array.dims[dim] > 1:
            bounds = [(0, n, 1) for n in source.array.dims]
            bounds[dim] = (component, component + 1, 1)
            source = make.slice_(source, tuple(bounds))
        return make.reshape(source, self.numbers)


def index_columns(indices: HloInstruction, vector_dim: int) -> list[Column]:
    """The components of an index array, in order."""
    dims = indices.array.dims
    if vector_dim >= len(dims):
        return [_column(indices, vector_dim, 0, dims)]
    numbers = (*dims[:vector_dim], *dims[vector_dim + 1 :])
    return [_column(indices, vector_dim, c, numbers) for c in range(dims[vector_dim])]


def _piece(
    indices: HloInstruction, vector_dim: int, component: int
) -> tuple[HloInstruction, int, int]:
    """The array that a component comes from, and which one of it it is."""
    while indices.opcode == "concatenate" and indices.dimensions == (vector_dim,):
        for piece in indices.operands:
            size = piece.array.dims[vector_dim]
            if component < size:
                break
            component -= size
        indices = piece
    return indices, vector_dim, component


def _column(indices: HloInstruction, vector_dim: int, component: int, numbers: Dims) -> Column:
    column = Column(indices, vector_dim, component, numbers)
    source, dim, number = _piece(indices, vector_dim, component)
    if not source.array.dtype.is_integer or not source.array.element_count:
        return column
    if dim < source.array.rank and source.array.dims[dim] > 1:
        values = known_value(source)
        found = None if values is None else _count(np.take(values, [number], dim))
    else:
        found = counting(source)
    if found is None:
        found = _clamped(source, dim, number, numbers)
    if found is None:
        return column
    first, along = found
    return replace(column, first=first, along=along if along is None else along - (along > dim))


def _clamped(
    source: HloInstruction, dim: int, component: int, numbers: Dims
) -> tuple[int, None] | None:
    """The one place that the bounds of a clamp leave a component, as of a slice of a whole dimension."""
    if source.opcode != "clamp" or source.operands[0].array.dims != source.operands[2].array.dims:
        return None
    if source.operands[0].array.dims != source.array.dims:
        return None
    low, high = (_column(source.operands[n], dim, component, numbers) for n in (0, 2))
    is_one = low.first == high.first is not None and low.along is high.along is None
    return (low.first, None) if is_one and low.first is not None else None


def counting(source: HloInstruction) -> tuple[int, int | None] | None:
    """The first of an array's integers and the dimension along which they count, None where all are
    equal; None for arrays that are not known to do either."""
    if source.opcode == "broadcast":
        found = counting(source.operands[0])
        moved = list(source.dimensions)
    elif source.opcode == "reshape" and _many(source.operands[0]) == _many(source):
        found = counting(source.operands[0])
        moved = _moved(source.operands[0].array.dims, source.array.dims)
    else:
        values = known_value(source)
        return None if values is None or not values.size else _count(values)
    if found is None or found[1] is None:
        return found
    return found[0], moved[found[1]]


def _many(array: HloInstruction) -> list[int]:
    return [n for n in array.array.dims if n > 1]


def _moved(before: Dims, after: Dims) -> list[int]:
    """Where dimensions lie after a reshape that adds or takes some of one element; -1 for those."""
    places = iter([d for d, n in enumerate(after) if n > 1])
    return [next(places) if n > 1 else -1 for n in before]


def _count(values: npt.NDArray[np.generic]) -> tuple[int, int | None] | None:
    starts = values.astype(np.int64)
    first = int(starts.reshape(-1)[0])
    if (starts == first).all():
        return first, None
    for along, size in enumerate(starts.shape):
        count = np.arange(first, first + size)
        spread = count.reshape([-1 if d == along else 1 for d in range(starts.ndim)])
        if (starts == spread).all():
            return first, along
    return None
