"""Cholesky and triangular solve as loops over columns.

Each turn of a loop finishes one column (or row) and takes it out of all that is left, a product
of a column and a row subtracted from the whole array. What belongs to the turn is picked by
comparing positions with the loop's counter, so that every array keeps its shape.
"""

from __future__ import annotations

from compiler.hlo.dtypes import F32, PRED
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.passes.expanders.emitter import Emitter, flag

Instr = HloInstruction


def expand_linear_algebra(module: HloModule, context: PassContext) -> bool:
    """Expand every `cholesky` and `triangular-solve`."""
    table = {"cholesky": expand_cholesky, "triangular-solve": expand_triangular_solve}
    return expand(module, context, table)


def is_at(b: Emitter, dims: tuple[int, ...], dim: int, i: Instr, direction: str = "EQ") -> Instr:
    """A mask: where the position along `dim` compares so with the scalar `i`."""
    place = b.positions(dims, dim)
    return b.compare(place, b.broadcast(i, dims), direction)


def column(b: Emitter, matrix: Instr, i: Instr) -> Instr:
    """Column i of each matrix, with a batch's leading dimensions: ``[.., rows]``."""
    mask = is_at(b, matrix.array.dims, -1, i)
    return b.total(b.select(mask, matrix, b.like(matrix, 0)), -1)


def row(b: Emitter, matrix: Instr, i: Instr) -> Instr:
    """Row i of each matrix: ``[.., columns]``."""
    mask = is_at(b, matrix.array.dims, -2, i)
    return b.total(b.select(mask, matrix, b.like(matrix, 0)), -2)


def element(b: Emitter, vector: Instr, i: Instr) -> Instr:
    """Element i of each vector: the batch's dimensions."""
    mask = is_at(b, vector.array.dims, -1, i)
    return b.total(b.select(mask, vector, b.like(vector, 0)), -1)


def along_rows(b: Emitter, vector: Instr, dims: tuple[int, ...]) -> Instr:
    """A column vector spread over the columns of a matrix: ``[.., r, c] = v[.., r]``."""
    return b.broadcast(vector, dims, tuple(range(len(dims) - 1)))


def along_columns(b: Emitter, vector: Instr, dims: tuple[int, ...]) -> Instr:
    """A row vector spread over the rows of a matrix: ``[.., r, c] = v[.., c]``."""
    return b.broadcast(vector, dims, (*range(len(dims) - 2), len(dims) - 1))


def per_batch(b: Emitter, value: Instr, dims: tuple[int, ...]) -> Instr:
    """One number of each batch element spread over vectors or matrices."""
    return b.broadcast(value, dims, tuple(range(value.array.rank)))


def working(e: Emitter, operand: Instr) -> Instr:
    """The operand in the type the computation is done in: at least f32."""
    dtype = operand.array.dtype
    return e.cast(operand, F32) if dtype.is_float and dtype.bits < 32 else operand


def expand_cholesky(instr: Instr) -> Instr | None:
    """``L L^H`` (or ``U^H U``); NaN where a matrix is not positive definite."""
    e = Emitter.at(instr)
    if 0 in instr.array.dims:
        return instr.operands[0]
    is_lower = flag(instr, "lower")
    source = working(e, instr.operands[0])
    if not is_lower:
        source = e.conj(e.swap_last(source))
    factor = cholesky_factor(e, source)
    if not is_lower:
        factor = e.conj(e.swap_last(factor))
    return e.cast(factor, instr.array.dtype)


def cholesky_factor(e: Emitter, source: Instr) -> Instr:
    """The lower factor of ``[.., n, n]``; the operand's upper triangle is not read."""
    dims = source.array.dims

    def step(b: Emitter, j: Instr, state: list[Instr]) -> list[Instr]:
        rest, factor = state
        current = column(b, rest, j)
        pivot = b.unary("sqrt", b.real(element(b, current, j)))
        scaled = b.divide(current, b.as_type(per_batch(b, pivot, dims[:-1]), current.array.dtype))
        below = is_at(b, dims[:-1], -1, j, "GE")
        scaled = b.select(below, scaled, b.like(scaled, 0))
        left, right = along_rows(b, scaled, dims), along_columns(b, b.conj(scaled), dims)
        here = is_at(b, dims, -1, j)
        return [b.subtract(rest, b.multiply(left, right)), b.select(here, left, factor)]

    _, factor = e.loop(dims[-1], [source, e.like(source, 0)], step)
    return _with_failures(e, factor)


def _with_failures(e: Emitter, factor: Instr) -> Instr:
    """All NaN in the lower triangle of a matrix that has one."""
    dims = factor.array.dims
    part = e.real(factor)
    nan = e.compare(part, part, "NE")
    any_nan = e.reduce(
        nan, e.constant(PRED, False), (len(dims) - 2, len(dims) - 1), e.scalar("or", PRED)
    )
    lower = e.compare(e.positions(dims, -2), e.positions(dims, -1), "GE")
    bad = e.and_(per_batch(e, any_nan, dims), lower)
    return e.select(bad, e.like(factor, float("nan")), factor)


def expand_triangular_solve(instr: Instr) -> Instr | None:
    """x of ``op(a) x = b`` or ``x op(a) = b``."""
    e = Emitter.at(instr)
    if 0 in instr.array.dims:
        return instr.operands[1]
    a, b = (working(e, operand) for operand in instr.operands)
    is_lower = flag(instr, "lower")
    transpose = str(instr.attrs.get("transpose_a", "NO_TRANSPOSE"))
    is_left = flag(instr, "left_side")
    if transpose == "ADJOINT":
        a = e.conj(a)
    # x op(a) = b is op(a)^T x^T = b^T
    if (transpose != "NO_TRANSPOSE") == is_left:
        a, is_lower = e.swap_last(a), not is_lower
    if not is_left:
        b = e.swap_last(b)
    x = solve_triangular(e, a, b, is_lower=is_lower, is_unit=flag(instr, "unit_diagonal"))
    return e.cast(x if is_left else e.swap_last(x), instr.array.dtype)


def solve_triangular(e: Emitter, a: Instr, b: Instr, *, is_lower: bool, is_unit: bool) -> Instr:
    """``a x = b`` for ``a[.., n, n]`` and ``b[.., n, m]``: substitution, a row at a time."""
    square, dims = a.array.dims, b.array.dims
    count = dims[-2]

    def step(e: Emitter, turn: Instr, state: list[Instr]) -> list[Instr]:
        matrix, rest = state
        i = turn if is_lower else e.subtract(e.constant(turn.array.dtype, count - 1), turn)
        coefficients = column(e, matrix, i)
        value = row(e, rest, i)
        if not is_unit:
            diagonal = element(e, coefficients, i)
            value = e.divide(value, per_batch(e, diagonal, value.array.dims))
        ahead = is_at(e, square[:-1], -1, i, "GT" if is_lower else "LT")
        coefficients = e.select(ahead, coefficients, e.like(coefficients, 0))
        spread = along_columns(e, value, dims)
        left = e.subtract(rest, e.multiply(along_rows(e, coefficients, dims), spread))
        return [matrix, e.select(is_at(e, dims, -2, i), spread, left)]

    return e.loop(count, [a, b], step)[1]
