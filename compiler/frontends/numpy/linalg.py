"""`np.linalg` of traced arrays, on the factorizations that the compiler has.

Integers compute in f32, 16-bit floats too, rounded once. What NumPy raises `LinAlgError` for depends on
values and is not raised: a singular matrix has infinities and NaN, a matrix that is not positive definite
a factor of NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.frontends.numpy.decompositions import (
    cholesky,
    cond,
    eigh,
    matrix_rank,
    pinv,
    qr,
    svd,
    svdvals,
)
from compiler.frontends.numpy.diagonals import diagonal
from compiler.frontends.numpy.diagonals import trace as diagonal_sum
from compiler.frontends.numpy.errors import BadMatrixError, BadValueError
from compiler.frontends.numpy.factorizations import highest
from compiler.frontends.numpy.matrices import epsilon, expect_matrices, matrices, result_dtype
from compiler.frontends.numpy.norms import NORM_FUNCTIONS
from compiler.frontends.numpy.ops import traced
from compiler.frontends.numpy.systems import det, inv, slogdet, solve, tensorinv, tensorsolve
from compiler.frontends.numpy.tracer import Rule, Trace
from compiler.frontends.numpy.vectors import cross, vecdot


def lstsq(trace: Trace, a: Any, b: Any, rcond: Any = None) -> tuple[Any, Any, Any, Any]:
    """The x of least norm that makes ``a x - b`` least, the squares of that where a has full rank (else
    NaN), the rank of a, and its singular values."""
    x, right = matrices(trace, "lstsq", a), traced(trace, b)
    if x.ndim != 2:
        raise BadMatrixError(f"np.linalg.lstsq: {x!r}, want one matrix")
    dtype = result_dtype(trace, a, b)
    columns: Any = right[:, None] if right.ndim == 1 else right
    columns = columns.astype(np.complex64 if dtype.kind == "c" else np.float32)
    x = x.astype(columns.dtype)
    share = max(x.shape) * epsilon(x.dtype) if rcond is None else rcond
    found: Any = highest(traced(trace, pinv(trace, x, share)), columns)
    values: Any = svdvals(trace, x)
    rank = matrix_rank(trace, x, rtol=share)
    left: Any = highest(x, found) - columns
    squares: Any = np.sum(np.real(left * np.conj(left)), axis=0)
    squares = (
        np.where(rank == x.shape[1], squares, np.nan) if x.shape[0] > x.shape[1] else squares[:0]
    )
    found = found[:, 0] if right.ndim == 1 else found
    return found.astype(dtype), squares, rank, values


def matrix_power(trace: Trace, a: Any, n: int) -> Any:
    """A matrix times itself, by squaring; of the inverse for negative powers."""
    x: Any = traced(trace, a)
    expect_matrices("matrix_power", x, square=True)
    if n < 0:
        return matrix_power(trace, inv(trace, x), -n)
    if n == 0:
        return np.broadcast_to(traced(trace, np.eye(x.shape[-1], dtype=x.dtype)), x.shape)
    result, square = None, x
    while n:
        if n & 1:
            result = square if result is None else result @ square
        n >>= 1
        square = square @ square if n else square
    return result


def multi_dot(trace: Trace, arrays: Sequence[Any]) -> Any:
    """The product of several matrices, from left to right."""
    if len(arrays) < 2:
        raise BadValueError("np.linalg.multi_dot: want two arrays or more")
    return functools.reduce(np.dot, [traced(trace, x) for x in arrays])


def _last_two(function: Rule) -> Rule:
    """The form of `np.linalg`, which works on the last two axes."""

    def rule(trace: Trace, x: Any, *, offset: int = 0, **options: Any) -> Any:
        return function(trace, x, offset, -2, -1, **options)

    return rule


LINALG_FUNCTIONS: dict[object, Rule] = {
    **NORM_FUNCTIONS,
    np.linalg.cholesky: cholesky,
    np.linalg.cond: cond,
    np.linalg.cross: lambda trace, x1, x2, *, axis=-1: cross(trace, x1, x2, axis=axis),
    np.linalg.det: det,
    np.linalg.diagonal: _last_two(diagonal),
    np.linalg.eigh: eigh,
    np.linalg.eigvalsh: lambda trace, a, UPLO="L": eigh(trace, a, UPLO).eigenvalues,
    np.linalg.inv: inv,
    np.linalg.lstsq: lstsq,
    np.linalg.matmul: lambda trace, x1, x2: np.matmul(traced(trace, x1), x2),
    np.linalg.matrix_power: matrix_power,
    np.linalg.matrix_rank: matrix_rank,
    np.linalg.matrix_transpose: lambda trace, x: np.swapaxes(traced(trace, x), -1, -2),
    np.linalg.multi_dot: multi_dot,
    np.linalg.outer: lambda trace, x1, x2: np.outer(traced(trace, x1), x2),
    np.linalg.pinv: pinv,
    np.linalg.qr: qr,
    np.linalg.slogdet: slogdet,
    np.linalg.solve: solve,
    np.linalg.svd: svd,
    np.linalg.svdvals: svdvals,
    np.linalg.tensordot: lambda trace, x1, x2, *, axes=2: np.tensordot(traced(trace, x1), x2, axes),
    np.linalg.tensorinv: tensorinv,
    np.linalg.tensorsolve: tensorsolve,
    np.linalg.trace: _last_two(diagonal_sum),
    np.linalg.vecdot: vecdot,
}
