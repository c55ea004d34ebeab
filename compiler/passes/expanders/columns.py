"""Cholesky and substitution a column at a time, over a batch that comes first or last.

Each turn reads one row of the loop's state and takes a product of a column and a row out of all of
it, in place: what is finished is what later turns do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
Dims = tuple[int, ...]

TOGETHER = 4
"""Columns that a turn of the Cholesky loop finishes: it passes once over the state for all."""


@dataclass(frozen=True)
class MatrixDims:
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

    def corner(self, b: Emitter, matrix: Instr, i: Instr, size: int) -> Instr:
        """The block of `size` rows and columns whose first are row and column i."""
        starts = [b.constant(S32, 0)] * matrix.array.rank
        starts[self.rows] = starts[self.rows + 1] = i
        dims = matrix.array.dims
        sizes = (*dims[: self.rows], size, size, *dims[self.rows + 2 :])
        return b.dynamic_slice(matrix, starts, sizes)

    def at(self, b: Emitter, matrix: Instr, row: int, column: int) -> Instr:
        """One element of each matrix: the batch's dimensions."""
        part = b.part(b.part(matrix, self.rows, row, row + 1), self.rows + 1, column, column + 1)
        dims = matrix.array.dims
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


def cholesky_columns(e: Emitter, source: Instr, layout: MatrixDims) -> Instr:
    """The lower factor, zero above; only the source's lower triangle is read.

    The loop keeps a Hermitian matrix, so that a row is the conjugate of a column, and leaves
    column j of ``L D`` (D the squared pivots): the roots are taken once, after it.
    """
    n = source.array.dims[layout.rows]
    extra = -n % TOGETHER
    source = e.pad_dim(e.pad_dim(source, layout.rows, 0, extra), layout.rows + 1, 0, extra)
    dims = source.array.dims
    rows, columns = e.positions(dims, layout.rows), e.positions(dims, layout.rows + 1)
    lower = e.compare(rows, columns, "GE")
    start = e.select(lower, source, e.conj(layout.swapped(e, source)))
    if extra:  # What is added is an identity.
        added = e.and_(e.compare(rows, columns, "EQ"), e.compare_to(rows, n, "GE"))
        start = e.select(added, e.like(start, 1), start)
    (done,) = e.loop(dims[layout.rows] // TOGETHER, [start], partial(_columns_step, layout))
    diagonal = e.select(e.compare(rows, columns, "EQ"), done, e.like(done, 0))
    pivots = e.unary("sqrt", e.real(e.total(diagonal, layout.rows)))
    wide = layout.along_columns(e, e.as_type(pivots, done.array.dtype), dims)
    factor = e.select(lower, e.divide(done, wide), e.like(done, 0))
    return e.part(e.part(factor, layout.rows, 0, n), layout.rows + 1, 0, n)


def _columns_step(layout: MatrixDims, b: Emitter, turn: Instr, state: list[Instr]) -> list[Instr]:
    """Take the next columns out of the rest, each row brought up to date with those before it."""
    rest = state[0]
    dims, dtype = rest.array.dims, rest.array.dtype
    first = b.multiply(turn, b.constant(S32, TOGETHER))
    places = [b.add(first, b.constant(S32, k)) for k in range(TOGETHER)]
    corner = _Corner(b, layout, layout.corner(b, rest, first, TOGETHER))
    result = rest
    done: list[tuple[Instr, Instr]] = []
    for k, place in enumerate(places):
        current = layout.row(b, rest, place)
        for d, (_, scaled) in enumerate(done):
            factor = layout.over_row(b, b.conj(corner.at(d, k)), current.array.dims)
            current = b.subtract(current, b.multiply(factor, scaled))
        ahead = layout.after(b, current, place)
        pivot = b.as_type(b.real(corner.at(k, k)), dtype)
        scaled = b.divide(ahead, layout.over_row(b, pivot, current.array.dims))
        left = layout.along_rows(b, b.conj(ahead), dims)
        result = b.subtract(result, b.multiply(left, layout.along_columns(b, scaled, dims)))
        done.append((ahead, scaled))
    return [result]


class _Corner:
    """The elements where the rows of a turn meet its columns, each up to date with rows above."""

    def __init__(self, b: Emitter, layout: MatrixDims, block: Instr) -> None:
        self._made: dict[tuple[int, int], Instr] = {}
        for k in range(TOGETHER):
            for c in range(k, TOGETHER):
                self._made[k, c] = self._element(b, layout.at(b, block, k, c), k, c)

    def at(self, row: int, column: int) -> Instr:
        """An element on or above the diagonal: the batch's dimensions."""
        return self._made[row, column]

    def _element(self, b: Emitter, value: Instr, k: int, c: int) -> Instr:
        for d in range(k):
            pivot = b.as_type(b.real(self.at(d, d)), value.array.dtype)
            factor = b.divide(self.at(d, c), pivot)
            value = b.subtract(value, b.multiply(b.conj(self.at(d, k)), factor))
        return value


def substitution(
    e: Emitter, a: Instr, b: Instr, layout: MatrixDims, *, is_lower: bool, is_unit: bool
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
