"""Convolution, covariance and integration along an axis.

Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.frontends.numpy.errors import BadValueError
from compiler.frontends.numpy.ops import traced
from compiler.frontends.numpy.tracer import Rule, Trace


def convolve(trace: Trace, a: Any, v: Any, mode: str = "full") -> Any:
    """np.convolve of two vectors."""
    x, w = traced(trace, a), traced(trace, v)
    if x.ndim > 1 or w.ndim > 1 or not x.size or not w.size:
        raise BadValueError(f"np.convolve of {x!r} and {w!r}: want two vectors, not empty")
    x, w = np.ravel(x), np.ravel(w)
    if len(w) > len(x):
        x, w = w, x
    size, taps = len(x), len(w)
    padded: Any = np.pad(x, (taps - 1, taps - 1))
    places = np.arange(size + taps - 1)[:, None] + np.arange(taps)[None, ::-1]
    whole: Any = np.sum(padded[places] * w, axis=1).astype(np.result_type(x.dtype, w.dtype))
    starts = {
        "full": (0, size + taps - 1),
        "same": ((taps - 1) // 2, size),
        "valid": (taps - 1, size - taps + 1),
    }
    if mode not in starts:
        raise BadValueError(f"np.convolve: mode={mode!r}, want full, same or valid")
    first, count = starts[mode]
    return whole[first : first + count]


def _correlate(trace: Trace, a: Any, v: Any, mode: str = "valid") -> Any:
    w = traced(trace, v)
    x = traced(trace, a)
    return convolve(trace, x, np.conj(w)[::-1], mode)


def _cov(
    trace: Trace,
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
) -> Any:
    rows: list[Any] = [np.atleast_2d(traced(trace, part)) for part in (m, y) if part is not None]
    x: Any = np.concatenate([part if rowvar or part.shape[0] == 1 else part.T for part in rows])
    if any(part.ndim > 2 for part in rows):
        raise BadValueError("np.cov: want one or two dimensions")
    taken = (0 if bias else 1) if ddof is None else ddof
    centred: Any = x - np.mean(x, axis=1, keepdims=True)
    found: Any = centred @ np.conj(centred).T / (x.shape[1] - taken)
    return found[0, 0] if found.shape == (1, 1) else found


def _corrcoef(trace: Trace, x: Any, y: Any = None, rowvar: bool = True) -> Any:
    covariance: Any = _cov(trace, x, y, rowvar)
    if not covariance.shape:
        return covariance / covariance
    deviation: Any = np.sqrt(np.real(np.diagonal(covariance)))
    return covariance / deviation[:, None] / deviation[None, :]


def _trapezoid(trace: Trace, y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    values: Any = np.moveaxis(traced(trace, y), axis, -1)
    steps: Any = dx
    if x is not None:
        points = traced(trace, x)
        steps = np.diff(points if points.ndim == 1 else np.moveaxis(points, axis, -1))
    return np.sum(steps * (values[..., 1:] + values[..., :-1]) / 2, axis=-1)


SIGNALS_FUNCTIONS: dict[object, Rule] = {
    np.convolve: convolve,
    np.corrcoef: _corrcoef,
    np.correlate: _correlate,
    np.cov: _cov,
    np.trapezoid: _trapezoid,
}
