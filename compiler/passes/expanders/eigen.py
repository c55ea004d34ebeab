"""Eigenvalues of Hermitian matrices by Jacobi rotations, n/2 at a time.

The matrix is kept as four quarters (Brent and Luk, 1985): rotation i works on rows and columns i
of the upper and of the lower half. After all rotations of a round the halves' rows and columns
move on by one place in a ring, so that in n - 1 rounds, a sweep, every pair has met once.
"""

from __future__ import annotations

import math

from compiler.hlo.dtypes import F32, S32, real_type
from compiler.hlo.ir import HloInstruction
from compiler.passes.expanders.linear_algebra import along_columns, along_rows
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
Quarters = tuple[Instr, Instr, Instr, Instr]
SWEEPS = 12
"""Jacobi converges quadratically; f32 needs 6 to 10 sweeps up to n = 1000."""
TINY = 1e-36
"""What is smaller counts as zero: the machine has no denormal numbers to divide by."""


def eigen_decomposition(e: Emitter, matrix: Instr) -> list[Instr]:
    """Eigenvectors as columns ``[.., n, n]`` and real eigenvalues ``[.., n]``, ascending."""
    dims = matrix.array.dims
    count, batch = dims[-1], dims[:-2]
    half = (count + 1) // 2
    if count == 1:
        return [e.like(matrix, 1), e.reshape(e.real(matrix), dims[:-1])]
    size = 2 * half
    if size != count:  # one more row and column, of a number nothing mixes with
        padding = [*([(0, 0, 0)] * len(batch)), (0, 1, 0), (0, 1, 0)]
        matrix = e.pad(matrix, e.constant(matrix.array.dtype, 0), padding)
    whole = (*batch, size, size)
    diagonal = e.compare(e.positions(whole, -2), e.positions(whole, -1), "EQ")
    vectors = e.select(diagonal, e.like(matrix, 1), e.like(matrix, 0))
    state = [*_quarters(e, matrix, half), *_quarters(e, vectors, half)]

    def step(b: Emitter, _: Instr, values: list[Instr]) -> list[Instr]:
        a, v = values[:4], values[4:]
        return _round(b, (a[0], a[1], a[2], a[3]), (v[0], v[1], v[2], v[3]))

    state = e.loop(SWEEPS * (size - 1), state, step)
    values = e.join((_diagonal(e, state[0]), _diagonal(e, state[3])), -1)
    upper, lower = e.join(state[4:6], -1), e.join(state[6:], -1)
    # The rows of v are the eigenvectors' conjugates.
    rows = e.conj(e.join((upper, lower), -2))
    if size != count:
        values, rows = _without_last(e, values, rows, count)
    rows = e.part(rows, -1, 0, count)
    values, rows = _ascending(e, values, rows)
    return _nan_unless_finite(e, matrix, [e.swap_last(rows), values])


def _nan_unless_finite(e: Emitter, matrix: Instr, results: list[Instr]) -> list[Instr]:
    """NaN for the results of matrices with an element that is not finite: rotations lose them."""
    size = e.instruction("abs", (e.real(matrix),))
    if matrix.array.dtype.is_complex:
        size = e.maximum(size, e.unary("abs", e.unary("imag", matrix)))
    largest = e.total(
        e.select(e.compare(size, size, "NE"), e.like(size, math.inf), size), -2, -1, kind="maximum"
    )
    is_lost = e.compare_to(largest, math.inf, "EQ")
    guarded: list[Instr] = []
    for result in results:
        dims = result.array.dims
        is_bad = e.broadcast(is_lost, dims, tuple(range(is_lost.array.rank)))
        nan = e.as_type(e.full(F32, dims, float("nan")), result.array.dtype)
        guarded.append(e.select(is_bad, nan, result))
    return guarded


def hermitian_eigen(e: Emitter, matrix: Instr, *, is_lower: bool) -> list[Instr]:
    """`eigen_decomposition` of the Hermitian matrix of which one triangle is given."""
    dims = matrix.array.dims
    place, across = e.positions(dims, -2), e.positions(dims, -1)
    own = e.compare(place, across, "GE" if is_lower else "LE")
    whole = e.select(own, matrix, e.conj(e.swap_last(matrix)))
    diagonal = e.compare(place, across, "EQ")
    whole = e.select(diagonal, e.as_type(e.real(matrix), matrix.array.dtype), whole)
    return eigen_decomposition(e, whole)


def _quarters(e: Emitter, matrix: Instr, half: int) -> list[Instr]:
    rows = (e.part(matrix, -2, 0, half), e.part(matrix, -2, half, 2 * half))
    return [e.part(part, -1, start, start + half) for part in rows for start in (0, half)]


def _diagonal(e: Emitter, matrix: Instr) -> Instr:
    """The real parts of a square's diagonal."""
    dims = matrix.array.dims
    real = e.real(matrix)
    mask = e.compare(e.positions(dims, -2), e.positions(dims, -1), "EQ")
    return e.total(e.select(mask, real, e.like(real, 0)), -1)


def _complex_diagonal(e: Emitter, matrix: Instr) -> Instr:
    dims = matrix.array.dims
    mask = e.compare(e.positions(dims, -2), e.positions(dims, -1), "EQ")
    return e.total(e.select(mask, matrix, e.like(matrix, 0)), -1)


def _with_diagonal(e: Emitter, matrix: Instr, values: Instr) -> Instr:
    """A square with other numbers (real ones) on its diagonal."""
    dims = matrix.array.dims
    mask = e.compare(e.positions(dims, -2), e.positions(dims, -1), "EQ")
    return e.select(mask, along_rows(e, e.as_type(values, matrix.array.dtype), dims), matrix)


def _round(e: Emitter, a: Quarters, v: Quarters) -> list[Instr]:
    """Rotate all pairs, then move everything on."""
    c, s, low, high = rotations(
        e, _diagonal(e, a[0]), _diagonal(e, a[3]), _complex_diagonal(e, a[1])
    )
    top_left, top_right, bottom_left, bottom_right = _rotated_rows(e, a, c, s)
    left = rotated_columns(e, top_left, top_right, c, s)
    right = rotated_columns(e, bottom_left, bottom_right, c, s)
    top_left, top_right = (
        _with_diagonal(e, left[0], low),
        _with_diagonal(e, left[1], e.like(low, 0)),
    )
    bottom_left = _with_diagonal(e, right[0], e.like(low, 0))
    bottom_right = _with_diagonal(e, right[1], high)
    rotated = _rotated_rows(e, v, c, s)
    rows = (
        moved_pair(e, (top_left, bottom_left), -2),
        moved_pair(e, (top_right, bottom_right), -2),
    )
    (top_left, bottom_left), (top_right, bottom_right) = rows
    upper = moved_pair(e, (top_left, top_right), -1)
    lower = moved_pair(e, (bottom_left, bottom_right), -1)
    first = moved_pair(e, (rotated[0], rotated[2]), -2)
    second = moved_pair(e, (rotated[1], rotated[3]), -2)
    return [*upper, *lower, first[0], second[0], first[1], second[1]]


def rotations(e: Emitter, p: Instr, q: Instr, w: Instr) -> tuple[Instr, Instr, Instr, Instr]:
    """What makes the Hermitian pairs ``[[p, w], [conj w, q]]`` diagonal.

    Cosines, sines (complex for complex matrices), and the two new diagonals.
    """
    size = e.unary("sqrt", e.squared(w)) if w.array.dtype.is_complex else e.unary("abs", w)
    is_zero = e.compare_to(size, TINY, "LT")
    safe = e.select(is_zero, e.like(size, 1), size)
    # tan of the angle that makes the pair diagonal, the smaller one
    ratio = e.divide(e.subtract(q, p), e.add(safe, safe))
    magnitude = e.unary("abs", ratio)
    is_large = e.compare_to(magnitude, 1e9, "GT")
    bounded = e.select(is_large, e.like(ratio, 1), ratio)
    root = e.unary("sqrt", e.add(e.multiply(bounded, bounded), e.like(ratio, 1)))
    direct = e.divide(e.like(ratio, 1), e.add(e.unary("abs", bounded), root))
    far = e.divide(e.like(ratio, 0.5), e.select(is_large, magnitude, e.like(ratio, 1)))
    tangent = e.select(is_large, far, direct)
    tangent = e.select(e.compare_to(ratio, 0, "LT"), e.negate(tangent), tangent)
    tangent = e.select(is_zero, e.like(tangent, 0), tangent)
    square = e.add(e.multiply(tangent, tangent), e.like(tangent, 1))
    cosine = e.divide(e.like(square, 1), e.unary("sqrt", square))
    sine = e.multiply(tangent, cosine)
    shift = e.multiply(tangent, size)
    dtype = w.array.dtype
    direction = e.divide(w, e.as_type(safe, dtype))
    return (
        e.as_type(cosine, dtype),
        e.multiply(direction, e.as_type(sine, dtype)),
        e.subtract(p, shift),
        e.add(q, shift),
    )


def _rotated_rows(e: Emitter, m: Quarters, c: Instr, s: Instr) -> Quarters:
    """``upper' = c upper - s lower; lower' = conj(s) upper + c lower``."""
    dims = m[0].array.dims
    cos, sin = along_rows(e, c, dims), along_rows(e, s, dims)
    back = along_rows(e, e.conj(s), dims)

    def pair(upper: Instr, lower: Instr) -> tuple[Instr, Instr]:
        return (
            e.subtract(e.multiply(cos, upper), e.multiply(sin, lower)),
            e.add(e.multiply(back, upper), e.multiply(cos, lower)),
        )

    left, right = pair(m[0], m[2]), pair(m[1], m[3])
    return left[0], right[0], left[1], right[1]


def rotated_columns(
    e: Emitter, left: Instr, right: Instr, c: Instr, s: Instr
) -> tuple[Instr, Instr]:
    """The adjoint rotation from the right."""
    dims = left.array.dims
    cos, sin = along_columns(e, c, dims), along_columns(e, s, dims)
    back = along_columns(e, e.conj(s), dims)
    return (
        e.subtract(e.multiply(cos, left), e.multiply(back, right)),
        e.add(e.multiply(sin, left), e.multiply(cos, right)),
    )


def moved_pair(e: Emitter, pair: tuple[Instr, Instr], dim: int) -> tuple[Instr, Instr]:
    """One place on in the ring: first of `pair` stays, its others go right, the second's left."""
    top, bottom = pair
    half = top.array.dims[dim]
    if half == 1:
        return pair
    first = e.part(top, dim, 0, 1)
    crossing = e.part(bottom, dim, 0, 1)
    rest = [e.part(top, dim, 1, half - 1)] if half > 2 else []
    upper = e.join((first, crossing, *rest), dim)
    lower = e.join((e.part(bottom, dim, 1, half), e.part(top, dim, half - 1, half)), dim)
    return upper, lower


def _without_last(e: Emitter, values: Instr, rows: Instr, count: int) -> tuple[Instr, Instr]:
    """Drop the eigenvector that is the padding row: it is put last by a sort of its weight."""
    weight = e.squared(e.part(rows, -1, count, count + 1))
    own = e.compare_to(weight, 0.5, "GT")
    key = e.cast(e.reshape(own, values.array.dims), S32)
    values, rows = ordered_rows(e, key, values, rows)
    return e.part(values, -1, 0, count), e.part(rows, -2, 0, count)


def _ascending(e: Emitter, values: Instr, rows: Instr) -> tuple[Instr, Instr]:
    return ordered_rows(e, values, values, rows)


def ordered_rows(e: Emitter, key: Instr, values: Instr, rows: Instr) -> tuple[Instr, Instr]:
    """Values and rows in the order of a key ``[.., n]``: rows by a product with a permutation."""
    dims = (*key.array.dims, key.array.dims[-1])
    mine, other = along_rows(e, key, dims), along_columns(e, key, dims)
    i, j = e.positions(dims, -2), e.positions(dims, -1)
    tie = e.and_(e.compare(mine, other, "EQ"), e.compare(j, i, "LT"))
    before = e.or_(e.compare(other, mine, "LT"), tie)
    rank = e.total(e.cast(before, S32), -1)
    # where[.., r, i]: whether row i goes to place r
    where = e.compare(along_columns(e, rank, dims), i, "EQ")
    wide = along_columns(e, values, dims)
    moved = e.total(e.select(where, wide, e.like(wide, 0)), -1)
    return moved, _permuted_rows(e, where, rows)


def _permuted_rows(e: Emitter, where: Instr, rows: Instr) -> Instr:
    """The rows gathered by a mask of one true element a row."""
    lead = where.array.dims[:-2]
    batch = tuple(range(len(lead)))
    mask = e.as_type(e.cast(where, real_type(rows.array.dtype)), rows.array.dtype)
    attrs: dict[str, object] = {
        "lhs_contracting_dims": (len(lead) + 1,),
        "rhs_contracting_dims": (len(lead),),
        "operand_precision": ("highest", "highest"),
    }
    if lead:
        attrs |= {"lhs_batch_dims": batch, "rhs_batch_dims": batch}
    return e.instruction("dot", (mask, rows), attrs, rows.array.with_dims(()))
