"""Singular values by one-sided Jacobi rotations (Hestenes), n/2 pairs of columns at a time.

The columns of A turn until all are orthogonal: their lengths are the singular values, their
directions U, the product of the rotations V. Pairs meet as in `eigen`.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.hlo.ir import HloInstruction
from compiler.passes.expanders.eigen import (
    SWEEPS,
    moved_pair,
    ordered_rows,
    rotated_columns,
    rotations,
)
from compiler.passes.expanders.factorizations import product_of_reflectors, qr_decomposition
from compiler.passes.expanders.linear_algebra import along_columns, per_batch
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction


@dataclass(frozen=True)
class Svd:
    """``a = u diag(s) v^H``: u ``[.., m, m or n]``, s descending, v ``[.., n, m or n]``."""

    u: Instr
    s: Instr
    v: Instr


def singular_values(e: Emitter, a: Instr, *, is_full: bool) -> Svd:
    """The decomposition of ``[.., m, n]``; `is_full`: u and v are square."""
    rows, columns = a.array.dims[-2:]
    if rows < columns:
        other = _of_tall(e, e.conj(e.swap_last(a)), is_full=is_full)
        return Svd(other.v, other.s, other.u)
    return _of_tall(e, a, is_full=is_full)


def _of_tall(e: Emitter, a: Instr, *, is_full: bool) -> Svd:
    dims = a.array.dims
    size = e.unary("abs", a) if not a.array.dtype.is_complex else e.unary("sqrt", e.squared(a))
    largest = e.total(size, -2, -1, kind="maximum")
    is_zero = e.compare_to(largest, 0, "EQ")
    scale = e.select(is_zero, e.like(largest, 1), largest)
    scaled = e.divide(a, e.as_type(per_batch(e, scale, dims), a.array.dtype))
    columns, v = _orthogonal(e, scaled)
    lengths = e.unary("sqrt", e.total(e.squared(columns), -2))
    key = e.negate(lengths)
    _, turned = ordered_rows(e, key, lengths, e.swap_last(columns))
    lengths, v_rows = ordered_rows(e, key, lengths, e.swap_last(v))
    u = _basis(e, e.swap_last(turned), lengths, is_full=is_full)
    s = e.multiply(lengths, per_batch(e, scale, lengths.array.dims))
    return Svd(u, s, e.swap_last(v_rows))


def _orthogonal(e: Emitter, a: Instr) -> tuple[Instr, Instr]:
    """A times the rotations V that make its columns orthogonal, and V."""
    *batch, rows, count = a.array.dims
    square = (*batch, count, count)
    diagonal = e.compare(e.positions(square, -2), e.positions(square, -1), "EQ")
    one, zero = e.full(a.array.dtype, square, 1), e.full(a.array.dtype, square, 0)
    both = e.join((a, e.select(diagonal, one, zero)), -2)  # V turns with A
    if count == 1:
        return e.part(both, -2, 0, rows), e.part(both, -2, rows, rows + count)
    size = count + count % 2
    both = e.pad_dim(both, len(batch) + 1, 0, size - count)
    # With a column of zeros added, which never turns, its place is known: the ring ends as it began.
    halves = [e.part(both, -1, 0, size // 2), e.part(both, -1, size // 2, size)]

    def step(b: Emitter, _: Instr, state: list[Instr]) -> list[Instr]:
        left, right = state
        turned = _rotated(b, left, right, rows)
        return list(moved_pair(b, turned, -1))

    both = e.join(e.loop(SWEEPS * (size - 1), halves, step), -1)
    both = e.part(both, -1, 0, count)
    return e.part(both, -2, 0, rows), e.part(both, -2, rows, rows + count)


def _rotated(e: Emitter, left: Instr, right: Instr, rows: int) -> tuple[Instr, Instr]:
    """Make column i of `left` orthogonal to column i of `right` in their first `rows` rows."""
    upper, other = e.part(left, -2, 0, rows), e.part(right, -2, 0, rows)
    p, q = e.total(e.squared(upper), -2), e.total(e.squared(other), -2)
    w = e.total(e.multiply(e.conj(upper), other), -2)
    c, s, _, _ = rotations(e, p, q, w)
    return rotated_columns(e, left, right, c, s)


def _basis(e: Emitter, columns: Instr, lengths: Instr, *, is_full: bool) -> Instr:
    """Directions of orthogonal columns, the longest first, completed where a length is zero."""
    *batch, rows, count = columns.array.dims
    dims, dtype = columns.array.dims, columns.array.dtype
    limit = e.full(lengths.array.dtype, lengths.array.dims, 1e-30)
    is_short = e.compare(lengths, limit, "LT")
    safe = e.select(is_short, e.like(lengths, 1), lengths)
    unit = e.divide(columns, e.as_type(along_columns(e, safe, dims), dtype))
    wide = (*batch, rows, rows) if is_full else dims
    packed, scales = qr_decomposition(e, unit)
    missing = e.pad_dim(packed, len(batch) + 1, 0, wide[-1] - count)
    q = product_of_reflectors(e, missing, scales)[0]
    # Column k of q is that of `unit` but for its sign, unless there was none to begin with.
    own = e.pad_dim(unit, len(batch) + 1, 0, wide[-1] - count)
    known = e.pad_dim(e.cast(is_short, lengths.array.dtype), len(batch), 0, wide[-1] - count, 1)
    is_missing = e.compare_to(along_columns(e, known, wide), 0.5, "GT")
    return e.select(is_missing, q, own)
