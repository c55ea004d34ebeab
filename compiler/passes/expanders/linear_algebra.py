"""Cholesky and triangular solve: which of the forms fits a batch of matrices.

Many small matrices are done side by side in the lanes, a column at a time. Others are cut into
blocks, whose large parts are dots.
"""

from __future__ import annotations

import math

from compiler.hlo.dtypes import F32, PRED
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.expanders.blocked_factors import blocked_cholesky, blocked_solve
from compiler.passes.expanders.columns import MatrixDims, cholesky_columns, substitution
from compiler.passes.expanders.driver import expand
from compiler.rewrite.emitter import Emitter
from tpu_sim.isa.geometry import LANES

Instr = HloInstruction

_SMALL = 64
"""Rows up to which many matrices are done a column at a time."""
_FEW_ROWS = 8
"""Rows up to which a substitution has fewer steps than an inverse has dots."""


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
    is_lower = instr.lower
    source = working(e, instr.operands[0])
    if not is_lower:
        source = e.conj(e.swap_last(source))
    factor = cholesky_factor(e, source)
    if not is_lower:
        factor = e.conj(e.swap_last(factor))
    return e.cast(factor, instr.array.dtype)


def cholesky_factor(e: Emitter, source: Instr) -> Instr:
    """The lower factor of ``[.., n, n]``; the operand's upper triangle is not read."""
    if _is_many_small(source):
        first = _batch_last(e, source)
        factor = _batch_back(e, cholesky_columns(e, first, MatrixDims(0)), source.array.dims)
    else:
        factor = blocked_cholesky(e, source)
    return _with_failures(e, factor)


def _is_many_small(matrix: Instr) -> bool:
    """Whether the batch fills the lanes better than the columns do."""
    *batch, _, n = matrix.array.dims
    return n <= _SMALL and math.prod(batch) >= LANES


def _batch_last(e: Emitter, value: Instr) -> Instr:
    """``[.., r, c]`` as ``[r, c, batch]``."""
    *batch, rows, columns = value.array.dims
    return e.transpose(e.shaped(value, (math.prod(batch), rows, columns)), (1, 2, 0))


def _batch_back(e: Emitter, value: Instr, dims: tuple[int, ...]) -> Instr:
    return e.shaped(e.transpose(value, (2, 0, 1)), dims)


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
    is_lower = instr.lower
    transpose = str(instr.transpose_a)
    is_left = instr.left_side
    if transpose == "ADJOINT":
        a = e.conj(a)
    # x op(a) = b is op(a)^T x^T = b^T
    if (transpose != "NO_TRANSPOSE") == is_left:
        a, is_lower = e.swap_last(a), not is_lower
    if not is_left:
        b = e.swap_last(b)
    x = solve_triangular(e, a, b, is_lower=is_lower, is_unit=instr.unit_diagonal)
    return e.cast(x if is_left else e.swap_last(x), instr.array.dtype)


def solve_triangular(e: Emitter, a: Instr, b: Instr, *, is_lower: bool, is_unit: bool) -> Instr:
    """``a x = b`` for ``a[.., n, n]`` and ``b[.., n, m]``."""
    a = _triangle(e, a, is_lower=is_lower, is_unit=is_unit)
    if _is_many_small(a):
        square, sides = _batch_last(e, a), _batch_last(e, b)
        x = substitution(e, square, sides, MatrixDims(0), is_lower=is_lower, is_unit=is_unit)
        return _batch_back(e, x, b.array.dims)
    if a.array.dims[-1] <= _FEW_ROWS:
        layout = MatrixDims(a.array.rank - 2)
        return substitution(e, a, b, layout, is_lower=is_lower, is_unit=is_unit)
    if is_lower:
        return blocked_solve(e, a, b)
    # Rows and columns in the opposite order make an upper triangle a lower one.
    rank = a.array.rank
    turned = e.reverse(a, (rank - 2, rank - 1))
    return e.reverse(blocked_solve(e, turned, e.reverse(b, (rank - 2,))), (rank - 2,))


def _triangle(e: Emitter, a: Instr, *, is_lower: bool, is_unit: bool) -> Instr:
    """What the solve may read of a, zeros elsewhere, and the ones it is to take for granted."""
    dims = a.array.dims
    row_at, column_at = e.positions(dims, -2), e.positions(dims, -1)
    own = e.compare(row_at, column_at, "GE" if is_lower else "LE")
    kept = e.select(own, a, e.like(a, 0))
    return e.select(e.compare(row_at, column_at, "EQ"), e.like(a, 1), kept) if is_unit else kept
