"""Cholesky and substitution a column at a time, over a batch that comes first or last.

Each turn reads one row of the loop's state and takes a product of a column and a row out of all of
it, in place: what is finished is what later turns do not change.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.passes.expanders.emitter import Emitter

Instr = HloInstruction
Dims = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Where rows and columns are: dimensions `rows` and ``rows + 1``; all others are a batch.

    A batch of many small matrices comes last (`rows` 0), which puts it in the lanes.
    """

    rows: int

    def row(self, b: Emitter, matrix: Instr, i: Instr) -> Instr:
        """Row i, without the dimension of rows."""
        zero = b.constant(S32, 0)
        starts = [zero] * matrix.array.rank
        starts[self.rows] = i
        sizes = list(matrix.array.dims)
        sizes[self.rows] = 1
        part = b.dynamic_slice(matrix, starts, tuple(sizes))
        return b.reshape(part, self._without(matrix.array.dims, self.rows))

    def element(self, b: Emitter, vector: Instr, i: Instr) -> Instr:
        """Element i of a row: the batch's dimensions."""
        mask = b.compare(b.positions(vector.array.dims, self.rows), self._same(b, vector, i), "EQ")
        return b.total(b.select(mask, vector, b.like(vector, 0)), self.rows)

    def pivot(self, b: Emitter, matrix: Instr, i: Instr) -> Instr:
        """Element i of the diagonal: the batch's dimensions."""
        starts = [b.constant(S32, 0)] * matrix.array.rank
        starts[self.rows] = starts[self.rows + 1] = i
        dims = matrix.array.dims
        sizes = (*dims[: self.rows], 1, 1, *dims[self.rows + 2 :])
        part = b.dynamic_slice(matrix, starts, sizes)
        return b.reshape(part, (*dims[: self.rows], *dims[self.rows + 2 :]))

    def over_row(self, b: Emitter, value: Instr, dims: Dims) -> Instr:
        """One number of each batch element for every element of a row."""
        kept = [d for d in range(len(dims)) if d != self.rows]
        return b.broadcast(value, dims, tuple(kept))

    def along_rows(self, b: Emitter, vector: Instr, dims: Dims) -> Instr:
        """``[r, c] = v[r]``."""
        kept = [d for d in range(len(dims)) if d != self.rows + 1]
        return b.broadcast(vector, dims, tuple(kept))

    def along_columns(self, b: Emitter, vector: Instr, dims: Dims) -> Instr:
        """``[r, c] = v[c]``."""
        kept = [d for d in range(len(dims)) if d != self.rows]
        return b.broadcast(vector, dims, tuple(kept))

    def after(self, b: Emitter, vector: Instr, i: Instr) -> Instr:
        """The vector with zeros at the positions up to and with i."""
        place = b.positions(vector.array.dims, self.rows)
        ahead = b.compare(place, self._same(b, vector, i), "GT")
        return b.select(ahead, vector, b.like(vector, 0))

    def swapped(self, b: Emitter, matrix: Instr) -> Instr:
        """Rows for columns."""
        order = list(range(matrix.array.rank))
        order[self.rows], order[self.rows + 1] = self.rows + 1, self.rows
        return b.transpose(matrix, tuple(order))

    @staticmethod
    def _same(b: Emitter, vector: Instr, i: Instr) -> Instr:
        return b.broadcast(i, vector.array.dims)

    @staticmethod
    def _without(dims: Dims, dim: int) -> Dims:
        return (*dims[:dim], *dims[dim + 1 :])


def cholesky_columns(e: Emitter, source: Instr, layout: Layout) -> Instr:
    """The lower factor, zero above; only the source's lower triangle is read.

    The loop keeps a Hermitian matrix, so that a row is the conjugate of a column, and leaves
    column j of ``L D`` (D the squared pivots): the roots are taken once, after it.
    """
    dims = source.array.dims
    rows, columns = e.positions(dims, layout.rows), e.positions(dims, layout.rows + 1)
    lower = e.compare(rows, columns, "GE")
    start = e.select(lower, source, e.conj(layout.swapped(e, source)))

    def step(b: Emitter, j: Instr, state: list[Instr]) -> list[Instr]:
        current = layout.row(b, state[0], j)
        pivot = b.as_type(b.real(layout.pivot(b, state[0], j)), current.array.dtype)
        ahead = layout.after(b, current, j)
        scaled = b.divide(ahead, layout.over_row(b, pivot, current.array.dims))
        left = layout.along_rows(b, b.conj(ahead), dims)
        update = b.multiply(left, layout.along_columns(b, scaled, dims))
        return [b.subtract(state[0], update)]

    (done,) = e.loop(dims[layout.rows], [start], step)
    diagonal = e.select(e.compare(rows, columns, "EQ"), done, e.like(done, 0))
    pivots = e.unary("sqrt", e.real(e.total(diagonal, layout.rows)))
    wide = layout.along_columns(e, e.as_type(pivots, done.array.dtype), dims)
    return e.select(lower, e.divide(done, wide), e.like(done, 0))


def substitution(
    e: Emitter, a: Instr, b: Instr, layout: Layout, *, is_lower: bool, is_unit: bool
) -> Instr:
    """x of ``a x = b`` for triangles whose other part is zero, a row of x at a time."""
    dims = b.array.dims
    count = dims[layout.rows]
    columns = layout.swapped(e, a)

    def step(e: Emitter, turn: Instr, state: list[Instr]) -> list[Instr]:
        matrix, rest = state
        i = turn if is_lower else e.subtract(e.constant(S32, count - 1), turn)
        coefficients = layout.row(e, matrix, i)
        value = layout.row(e, rest, i)
        if not is_unit:
            pivot = layout.element(e, coefficients, i)
            value = e.divide(value, layout.over_row(e, pivot, value.array.dims))
        spread = layout.along_columns(e, value, dims)
        update = e.multiply(layout.along_rows(e, coefficients, dims), spread)
        here = e.compare(e.positions(dims, layout.rows), e.broadcast(i, dims), "EQ")
        return [matrix, e.select(here, spread, e.subtract(rest, update))]

    return e.loop(count, [columns, b], step)[1]
