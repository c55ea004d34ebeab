"""LU, QR and symmetric eigenvalues, as loops of whole-matrix steps over a batch ``[.., m, n]``."""

from __future__ import annotations

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.passes.expanders.linear_algebra import (
    along_columns,
    along_rows,
    column,
    element,
    is_at,
    per_batch,
    row,
)
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction


def lu_decomposition(e: Emitter, matrix: Instr) -> list[Instr]:
    """Packed L and U with partial pivoting, the pivots ``[.., min(m, n)]``, the rows' order."""
    dims = matrix.array.dims
    batch, rows, steps = dims[:-2], dims[-2], min(dims[-2:])
    order = e.positions((*batch, rows), -1)
    pivots = e.full(S32, (*batch, steps), 0)

    def step(b: Emitter, k: Instr, state: list[Instr]) -> list[Instr]:
        a, pivots, order = state
        best = _largest_below(b, column(b, a, k), k)
        pivots = b.select(
            is_at(b, pivots.array.dims, -1, k), per_batch(b, best, pivots.array.dims), pivots
        )
        a = _exchanged_rows(b, a, k, best)
        order = _exchanged(b, order, k, best)
        return [_eliminated(b, a, k), pivots, order]

    return e.loop(steps, [matrix, pivots, order], step)


def _largest_below(b: Emitter, vector: Instr, k: Instr) -> Instr:
    """The first position at or after k of the largest magnitude: ``s32[..]``."""
    dims = vector.array.dims
    size = b.squared(vector) if vector.array.dtype.is_complex else b.unary("abs", vector)
    size = b.select(is_at(b, dims, -1, k, "GE"), size, b.like(size, -1))
    best = per_batch(b, b.total(size, -1, kind="maximum"), dims)
    place = b.positions(dims, -1)
    # A NaN is the largest of all and equals nothing: its own place counts.
    hit = b.or_(b.compare(size, best, "EQ"), b.compare(size, size, "NE"))
    first = b.select(hit, place, b.like(place, dims[-1]))
    return b.total(first, -1, kind="minimum")


def _exchanged(b: Emitter, vector: Instr, i: Instr, other: Instr) -> Instr:
    """Elements i (one for all) and `other` (one a batch element) exchanged."""
    dims = vector.array.dims
    there = b.compare(b.positions(dims, -1), per_batch(b, other, dims), "EQ")
    first = element(b, vector, i)
    second = b.total(b.select(there, vector, b.like(vector, 0)), -1)
    moved = b.select(there, per_batch(b, first, dims), vector)
    return b.select(is_at(b, dims, -1, i), per_batch(b, second, dims), moved)


def _exchanged_rows(b: Emitter, a: Instr, i: Instr, other: Instr) -> Instr:
    dims = a.array.dims
    there = b.compare(b.positions(dims, -2), per_batch(b, other, dims), "EQ")
    first = row(b, a, i)
    second = b.total(b.select(there, a, b.like(a, 0)), -2)
    moved = b.select(there, along_columns(b, first, dims), a)
    return b.select(is_at(b, dims, -2, i), along_columns(b, second, dims), moved)


def _eliminated(b: Emitter, a: Instr, k: Instr) -> Instr:
    """Divide column k below the diagonal by the pivot, and take it out of what is right of it."""
    dims = a.array.dims
    current, pivot_row = column(b, a, k), row(b, a, k)
    pivot = element(b, current, k)
    safe = b.select(b.compare(pivot, b.like(pivot, 0), "EQ"), b.like(pivot, 1), pivot)
    below = is_at(b, current.array.dims, -1, k, "GT")
    factors = b.divide(current, per_batch(b, safe, current.array.dims))
    factors = b.select(below, factors, b.like(factors, 0))
    right = is_at(b, pivot_row.array.dims, -1, k, "GT")
    rest = b.select(right, pivot_row, b.like(pivot_row, 0))
    update = b.multiply(along_rows(b, factors, dims), along_columns(b, rest, dims))
    here = b.and_(is_at(b, dims, -1, k), is_at(b, dims, -2, k, "GT"))
    return b.select(here, along_rows(b, factors, dims), b.subtract(a, update))


def qr_decomposition(e: Emitter, matrix: Instr) -> list[Instr]:
    """R on and above the diagonal, Householder vectors below it, and their scales."""
    dims = matrix.array.dims
    scales = e.full(matrix.array.dtype, (*dims[:-2], min(dims[-2:])), 0)

    def step(b: Emitter, k: Instr, state: list[Instr]) -> list[Instr]:
        a, scales = state
        current = column(b, a, k)
        vector, tau, diagonal = _reflector(b, current, k)
        spread = along_rows(b, vector, dims)
        projected = b.total(b.multiply(b.conj(spread), a), -2)
        factor = b.multiply(along_rows(b, vector, dims), along_columns(b, projected, dims))
        factor = b.multiply(factor, per_batch(b, b.conj(tau), dims))
        right = is_at(b, dims, -1, k, "GT")
        a = b.select(right, b.subtract(a, factor), a)
        place = current.array.dims
        packed = b.select(is_at(b, place, -1, k, "GT"), vector, current)
        packed = b.select(is_at(b, place, -1, k), per_batch(b, diagonal, place), packed)
        a = b.select(is_at(b, dims, -1, k), along_rows(b, packed, dims), a)
        wide = scales.array.dims
        return [a, b.select(is_at(b, wide, -1, k), per_batch(b, tau, wide), scales)]

    return e.loop(min(dims[-2:]), [matrix, scales], step)


def _reflector(b: Emitter, current: Instr, k: Instr) -> tuple[Instr, Instr, Instr]:
    """v (1 at k, 0 before), tau and the new diagonal of ``I - tau v v^H`` for a column."""
    dims = current.array.dims
    dtype = current.array.dtype
    below = is_at(b, dims, -1, k, "GT")
    tail = b.select(below, current, b.like(current, 0))
    head = element(b, current, k)
    tail_size = b.total(b.squared(tail), -1)
    size = b.unary("sqrt", b.add(b.squared(head), tail_size))
    real = b.real(head)
    diagonal = b.select(b.compare_to(real, 0, "LT"), size, b.negate(size))
    is_done = b.compare_to(tail_size, 0, "EQ")
    if dtype.is_complex:
        is_done = b.and_(is_done, b.compare_to(b.unary("imag", head), 0, "EQ"))
    wide = b.as_type(diagonal, dtype)
    one = b.like(head, 1)
    divisor = b.select(is_done, one, b.subtract(head, wide))
    tau = b.divide(b.subtract(wide, head), b.select(is_done, one, wide))
    tau = b.select(is_done, b.like(tau, 0), tau)
    vector = b.divide(tail, per_batch(b, divisor, dims))
    vector = b.select(is_at(b, dims, -1, k), b.like(vector, 1), vector)
    return vector, tau, b.select(is_done, head, wide)


def product_of_reflectors(e: Emitter, packed: Instr, scales: Instr) -> list[Instr]:
    """The matrix Q of Householder vectors and their scales."""
    dims = packed.array.dims
    count = scales.array.dims[-1]
    diagonal = e.compare(e.positions(dims, -2), e.positions(dims, -1), "EQ")
    start = e.select(diagonal, e.like(packed, 1), e.like(packed, 0))

    def step(b: Emitter, turn: Instr, state: list[Instr]) -> list[Instr]:
        packed, scales, q = state
        k = b.subtract(b.constant(S32, count - 1), turn)
        vector = column(b, packed, k)
        place = vector.array.dims
        vector = b.select(is_at(b, place, -1, k, "GT"), vector, b.like(vector, 0))
        vector = b.select(is_at(b, place, -1, k), b.like(vector, 1), vector)
        tau = element(b, scales, k)
        spread = along_rows(b, vector, dims)
        projected = b.total(b.multiply(b.conj(spread), q), -2)
        update = b.multiply(spread, along_columns(b, projected, dims))
        return [packed, scales, b.subtract(q, b.multiply(update, per_batch(b, tau, dims)))]

    return [e.loop(count, [packed, scales, start], step)[2]]
