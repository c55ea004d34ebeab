"""Polynomials as vectors of coefficients, the highest first (`np.poly*`).

What depends on values in NumPy does not here: leading zeros stay. Each rule is NumPy code on traced arrays;
NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.errors import BadTypeError, BadValueError
from compiler.frontends.numpy.ops import traced
from compiler.frontends.numpy.tracer import Rule, Trace


def _coefficients(trace: Trace, value: Any) -> Any:
    return np.atleast_1d(traced(trace, value))


def _aligned(function: Callable[..., Any]) -> Rule:
    """A function of two polynomials, the shorter one filled with zeros."""

    def rule(trace: Trace, a1: Any, a2: Any) -> Any:
        x, y = _coefficients(trace, a1), _coefficients(trace, a2)
        size = max(len(x), len(y))
        return function(np.pad(x, (size - len(x), 0)), np.pad(y, (size - len(y), 0)))

    return rule


def _multiply(trace: Trace, a1: Any, a2: Any) -> Any:
    return np.convolve(_coefficients(trace, a1), _coefficients(trace, a2))


def _derivative(trace: Trace, p: Any, m: int = 1) -> Any:
    x: Any = _coefficients(trace, p)
    if m < 0:
        raise BadValueError(f"np.polyder: m={m}, want 0 or more")
    for _ in range(m):
        x = x[:-1] * np.arange(len(x) - 1, 0, -1, dtype=x.dtype)
    return x


def _integral(trace: Trace, p: Any, m: int = 1, k: Any = None) -> Any:
    x: Any = _coefficients(trace, p)
    constants = np.zeros(m, np.float32) if k is None else np.broadcast_to(np.atleast_1d(k), (m,))
    for constant in constants:
        higher: Any = x / np.arange(len(x), 0, -1, dtype=np.float32)
        x = np.concatenate([higher, np.asarray([constant], np.float32)])
    return x


def _divide(trace: Trace, u: Any, v: Any) -> tuple[Any, Any]:
    """Quotient and remainder by long division; the remainder keeps its leading zeros."""
    rest: Any = _coefficients(trace, u) + 0.0
    divisor: Any = _coefficients(trace, v) + 0.0
    steps = len(rest) - len(divisor) + 1
    if steps <= 0:
        return np.zeros(1, np.float32), rest
    found: list[Any] = []
    for i in range(steps):
        found.append(rest[i] / divisor[0])
        rest = rest.at[i : i + len(divisor)].subtract(found[-1] * divisor)
    return np.stack(found), rest[steps:] if len(divisor) > 1 else rest[-1:]


def _from_roots(trace: Trace, seq_of_zeros: Any) -> Any:
    roots = traced(trace, seq_of_zeros)
    if roots.ndim != 1:
        raise UnsupportedError("np.poly of a matrix: eigenvalues of any matrix; give the roots")
    wide: Any = roots if roots.dtype.kind in "fc" else roots.astype(np.float32)
    result: Any = np.ones(1, wide.dtype)
    for i in range(len(wide)):
        root = wide[i : i + 1]
        result = np.concatenate([result, np.zeros(1, wide.dtype)]) - np.concatenate(
            [np.zeros_like(root), root * result]
        )
    return result


def _fit(
    trace: Trace,
    x: Any,
    y: Any,
    deg: int,
    rcond: Any = None,
    full: bool = False,
    w: Any = None,
    cov: Any = False,
) -> Any:
    """The polynomial of least squares."""
    if full or cov is not False:
        raise UnsupportedError("np.polyfit: only the coefficients; without full= and cov=")
    points: Any = traced(trace, x) + 0.0
    values: Any = traced(trace, y) + 0.0
    if points.ndim != 1 or len(points) != len(values):
        raise BadTypeError(
            f"np.polyfit: {points!r} and {values!r}, want a vector and as many values"
        )
    if deg < 0:
        raise BadValueError(f"np.polyfit: deg={deg}, want 0 or more")
    columns: Any = np.vander(points, deg + 1)
    if w is not None:
        weights: Any = traced(trace, w)
        columns = columns * weights[:, None]
        values = values * (weights if values.ndim == 1 else weights[:, None])
    scale: Any = np.sqrt(np.sum(columns * columns, axis=0))
    bound = len(points) * float(np.finfo(np.float32).eps) if rcond is None else rcond
    found: Any = np.linalg.lstsq(columns / scale, values, rcond=bound)[0]
    return found / (scale if values.ndim == 1 else scale[:, None])


POLYNOMIAL_FUNCTIONS: dict[object, Rule] = {
    np.poly: _from_roots,
    np.polyadd: _aligned(np.add),
    np.polyder: _derivative,
    np.polydiv: _divide,
    np.polyfit: _fit,
    np.polyint: _integral,
    np.polymul: _multiply,
    np.polysub: _aligned(np.subtract),
}
