"""Diagonals of matrices, and matrices made of vectors.

Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.errors import BadValueError
from compiler.frontends.numpy.ops import iota, traced
from compiler.frontends.numpy.tracer import Rule, Trace


def diagonal(trace: Trace, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """np.diagonal: the diagonals of the matrices of two axes, along a new last axis."""
    x: Any = _moved(traced(trace, a), axis1, axis2)
    rows, columns = x.shape[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    first = max(-offset, 0) * columns + max(offset, 0)
    flat = np.reshape(x, (*x.shape[:-2], rows * columns))
    return flat[..., first : first + count * (columns + 1) : columns + 1][..., :count]


def _moved(x: Any, axis1: int, axis2: int) -> Any:
    return np.moveaxis(x, (axis1, axis2), (-2, -1))


def _diag(trace: Trace, v: Any, k: int = 0) -> Any:
    x = traced(trace, v)
    if x.ndim == 2:
        return diagonal(trace, x, k)
    if x.ndim != 1:
        raise CompileError(f"np.diag: {x!r}, want one or two dimensions")
    size = len(x) + abs(k)
    column: Any = np.pad(x, (max(-k, 0), max(k, 0)))[:, None]
    rows, columns = (iota(trace, (size, size), axis) for axis in (0, 1))
    return np.where(columns - rows == k, column, np.zeros((), x.dtype))


def _diagflat(trace: Trace, v: Any, k: int = 0) -> Any:
    return _diag(trace, np.ravel(traced(trace, v)), k)


def trace(
    trace: Trace, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None
) -> Any:
    """np.trace: the sums of diagonals."""
    return np.sum(diagonal(trace, a, offset, axis1, axis2), axis=-1, dtype=dtype)


def _vander(trace: Trace, x: Any, N: int | None = None, increasing: bool = False) -> Any:
    points = traced(trace, x)
    if points.ndim != 1:
        raise BadValueError(f"np.vander of {points!r}: want a vector")
    count = len(points) if N is None else N
    powers: list[Any] = [np.ones_like(points)]
    for _ in range(count - 1):
        powers.append(powers[-1] * points)
    return np.stack(powers if increasing else powers[::-1], axis=1)


DIAGONALS_FUNCTIONS: dict[object, Rule] = {
    np.diag: _diag,
    np.diagflat: _diagflat,
    np.diagonal: diagonal,
    np.trace: trace,
    np.vander: _vander,
}
