"""Linear systems and determinants of `np.linalg`, by LU factors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy import factorizations
from compiler.frontends.numpy.custom_rules import Begun, custom_jvp
from compiler.frontends.numpy.diagonals import diagonal
from compiler.frontends.numpy.factorizations import highest
from compiler.frontends.numpy.matrices import matrices, real_dtype, result_dtype
from compiler.frontends.numpy.ops import common_shape, traced
from compiler.frontends.numpy.tracer import Trace

_SOLVE = Begun()


class SlogdetResult(NamedTuple):
    """What `slogdet` gives: the determinant is ``sign * exp(logabsdet)``."""

    sign: Any
    logabsdet: Any


def solve(trace: Trace, a: Any, b: Any) -> Any:
    """``a x = b``: a vector if b has one axis, else matrices; leading axes broadcast."""
    dtype = result_dtype(trace, a, b)
    wide = np.complex64 if dtype.kind == "c" else np.float32
    matrix = matrices(trace, "solve", a, square=True).astype(wide)
    right: Any = traced(trace, b).astype(wide)
    is_vector = right.ndim == 1
    right = right[:, None] if is_vector else right
    if right.shape[-2] != matrix.shape[-1]:
        raise CompileError(f"np.linalg.solve: {matrix!r} and {right!r}: want rows for each column")
    batch = common_shape(matrix.shape[:-2], right.shape[:-2])
    matrix = np.broadcast_to(matrix, (*batch, *matrix.shape[-2:]))
    right = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    found = right if not right.size else _solved(trace, matrix, right)
    return (found[..., 0] if is_vector else found).astype(dtype)


def _solved(trace: Trace, a: Any, b: Any) -> Any:
    """``a^-1 b`` of matrices that are not empty."""

    def function(a: Any, b: Any) -> Any:
        return factorizations.lu_solve(factorizations.lu(a), b)

    def derivative(primals: Any, tangents: Any) -> Any:
        """``a dx = db - da x``: the factors serve for both."""
        (a, b), (da, db) = primals, tangents
        factors = factorizations.lu(a)
        x = factorizations.lu_solve(factors, b)
        return x, factorizations.lu_solve(factors, db - highest(da, x))

    return custom_jvp(trace, function, derivative, _SOLVE, (a, b))


def inv(trace: Trace, a: Any) -> Any:
    """The inverse of each matrix."""
    x = matrices(trace, "inv", a, square=True)
    unit: Any = np.broadcast_to(traced(trace, factorizations.identity_like(x)), x.shape)
    return solve(trace, x, unit).astype(result_dtype(trace, a))


def tensorsolve(trace: Trace, a: Any, b: Any, axes: Sequence[int] | None = None) -> Any:
    """``tensordot(a, x, x.ndim) = b``."""
    x: Any = traced(trace, a)
    right = traced(trace, b)
    moved: Any = x if axes is None else np.moveaxis(x, tuple(axes), tuple(range(-len(axes), 0)))
    rest = moved.shape[right.ndim :]
    return solve(trace, moved.reshape(right.size, -1), right.reshape(-1)).reshape(rest)


def tensorinv(trace: Trace, a: Any, ind: int = 2) -> Any:
    """The inverse of what `tensordot` does with the axes from `ind` on."""
    x = traced(trace, a)
    shape = (*x.shape[ind:], *x.shape[:ind])
    count = int(np.prod(x.shape[:ind]))
    return inv(trace, x.reshape((count, -1))).reshape(shape)


def det(trace: Trace, a: Any) -> Any:
    """The determinant of each matrix."""
    sign, diagonal_ = _sign_and_diagonal(trace, matrices(trace, "det", a, square=True))
    return (sign * np.prod(diagonal_, axis=-1)).astype(result_dtype(trace, a))


def slogdet(trace: Trace, a: Any) -> SlogdetResult:
    """Sign (or phase) of the determinant, 0 of a singular matrix, and the logarithm of its size."""
    sign, factors = _sign_and_diagonal(trace, matrices(trace, "slogdet", a, square=True))
    size: Any = np.abs(factors)
    safe: Any = np.where(size == 0, 1, size)
    phases: Any = np.where(size == 0, 0, factors / safe.astype(factors.dtype))
    dtype = result_dtype(trace, a)
    sign = sign * np.prod(phases, axis=-1)
    return SlogdetResult(
        sign.astype(dtype), np.sum(np.log(size), axis=-1).astype(real_dtype(dtype))
    )


def _sign_and_diagonal(trace: Trace, x: Any) -> tuple[Any, Any]:
    """The sign of the order of the rows, and the diagonal of U."""
    n = x.shape[-1]
    if not x.size:
        return traced(trace, np.ones(x.shape[:-2], x.dtype)), x[..., 0] if n else x.reshape(
            (*x.shape[:-2], 0)
        )
    packed, pivots, _ = factorizations.lu(x)
    moves: Any = np.sum(pivots != np.arange(n, dtype=np.int32), axis=-1)
    sign: Any = (1 - 2 * (moves % 2)).astype(x.dtype)
    return sign, diagonal(trace, packed, 0, -2, -1)
