"""Norms of vectors and matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.frontends.numpy.errors import BadValueError
from compiler.frontends.numpy.ops import as_float, traced
from compiler.frontends.numpy.tracer import Rule, Trace

Axes = int | tuple[int, ...] | None


def vector_norm(
    trace: Trace, x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
) -> Any:
    """The norm of the elements along axes, by default of all."""
    size: Any = np.abs(as_float(traced(trace, x)))
    if ord in (np.inf, -np.inf):
        return _extreme(size, ord, axis, keepdims)
    if ord == 0:
        return np.sum(size != 0, axis=axis, keepdims=keepdims).astype(size.dtype)
    if ord == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    if ord == 2:
        return np.sqrt(np.sum(size * size, axis=axis, keepdims=keepdims))
    return np.sum(size**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def norm(trace: Trace, x: Any, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Any:
    """The norm of vectors along one axis, or of matrices along two; by default of all elements."""
    value: Any = traced(trace, x)
    axes = tuple(range(value.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    if ord in ("fro", "nuc") and len(axes) != 2:
        raise BadValueError(f"np.linalg.norm: ord={ord!r} of {value!r}, want a matrix")
    if ord is None or ord == "fro" or len(axes) == 1:
        order = 2 if ord in (None, "fro") else ord
        return vector_norm(trace, value, axis=axes, keepdims=keepdims, ord=order)
    if len(axes) != 2:
        raise BadValueError(f"np.linalg.norm: ord={ord!r} of axes {axes}")
    if ord in (2, -2, "nuc"):
        return _by_singular_values(value, ord, axes, keepdims)
    if ord not in (1, -1, np.inf, -np.inf):
        raise BadValueError(f"np.linalg.norm: ord={ord!r} of matrices")
    rows, columns = axes
    inner, outer = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums: Any = np.sum(np.abs(as_float(value)), axis=inner, keepdims=True)
    found = _extreme(sums, ord, outer, True)
    return found if keepdims else np.squeeze(found, axes)


def _extreme(size: Any, ord: float, axis: Any, keepdims: bool) -> Any:
    """The largest element, 0 of none, or the smallest."""
    if ord > 0:
        return np.max(size, axis=axis, keepdims=keepdims, initial=0)
    return np.min(size, axis=axis, keepdims=keepdims)


def _by_singular_values(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    """The largest or the smallest of them, or their sum."""
    s: Any = np.linalg.svdvals(np.moveaxis(x, axes, (-2, -1)))
    if ord == "nuc":
        found = np.sum(s, axis=-1)
    else:
        found = np.max(s, axis=-1, initial=0) if ord > 0 else np.min(s, axis=-1)
    return np.expand_dims(found, tuple(a % x.ndim for a in axes)) if keepdims else found


NORM_FUNCTIONS: dict[object, Rule] = {
    np.linalg.matrix_norm: lambda trace, x, *, keepdims=False, ord="fro": norm(
        trace, x, ord, (-2, -1), keepdims
    ),
    np.linalg.norm: norm,
    np.linalg.vector_norm: vector_norm,
}
