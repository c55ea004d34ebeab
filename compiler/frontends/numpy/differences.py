"""Differences, spaced values and a few functions of elements.

Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.errors import BadTypeError, BadValueError
from compiler.frontends.numpy.ops import as_float, traced
from compiler.frontends.numpy.special import apply_special
from compiler.frontends.numpy.statistics import hundredth, places, quantile, weight
from compiler.frontends.numpy.tracer import Rule, Trace
from compiler.hlo.special_functions import bessel_i0


def _ediff1d(trace: Trace, ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    x: Any = np.ravel(traced(trace, ary))
    parts: list[Any] = [np.diff(x)]
    if to_begin is not None:
        parts.insert(0, np.ravel(traced(trace, to_begin)).astype(x.dtype))
    if to_end is not None:
        parts.append(np.ravel(traced(trace, to_end)).astype(x.dtype))
    return np.concatenate(parts)


def _gradient(trace: Trace, f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Central differences, one-sided ones at the ends; of the spacing or the coordinates of each axis."""
    x: Any = traced(trace, f)
    x = as_float(x)
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else list(axis)
    if edge_order not in (1, 2):
        raise BadValueError(f"np.gradient: edge_order={edge_order}, want 1 or 2")
    spacings = list(varargs) or [1.0]
    spacings = spacings * len(axes) if len(spacings) == 1 else spacings
    if len(spacings) != len(axes):
        raise BadTypeError(f"np.gradient: {len(spacings)} spacings for {len(axes)} axes")
    found = [
        _along(trace, x, i % x.ndim, h, edge_order) for i, h in zip(axes, spacings, strict=True)
    ]
    return found[0] if len(found) == 1 else tuple(found)


def _along(trace: Trace, x: Any, axis: int, spacing: Any, edge_order: int) -> Any:
    values: Any = np.moveaxis(x, axis, -1)
    if values.shape[-1] < edge_order + 1:
        raise CompileError(f"np.gradient: axis {axis} of {x!r} needs {edge_order + 1} elements")
    step: Any = traced(trace, spacing)
    steps: Any = np.diff(step) if step.ndim else np.broadcast_to(step, (values.shape[-1] - 1,))
    slopes: Any = (values[..., 1:] - values[..., :-1]) / steps
    before, after = steps[:-1], steps[1:]
    inner = (slopes[..., :-1] * after + slopes[..., 1:] * before) / (before + after)
    first, last = slopes[..., :1], slopes[..., -1:]
    if edge_order == 2:
        bend = (slopes[..., 1:2] - first) / (steps[0] + steps[1])
        first = first - bend * steps[0]
        bend = (last - slopes[..., -2:-1]) / (steps[-1] + steps[-2])
        last = last + bend * steps[-1]
    return np.moveaxis(np.concatenate([first, inner, last], axis=-1), -1, axis)


def _unwrap(
    trace: Trace, p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi
) -> Any:
    x: Any = as_float(traced(trace, p))
    steps: Any = np.diff(x, axis=axis)
    half = period / 2
    turned: Any = (steps + half) % period - half
    turned = np.where((turned == -half) & (steps > 0), half, turned)
    missing: Any = turned - steps
    missing = np.where(np.abs(steps) < (half if discont is None else discont), 0, missing)
    total: Any = np.cumsum(missing, axis=axis)
    padding = [(1, 0) if i == axis % x.ndim else (0, 0) for i in range(x.ndim)]
    return x + np.pad(total, padding)


def _linspace(
    trace: Trace,
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """The last value is `stop` itself."""
    first, last = as_float(traced(trace, start)), as_float(traced(trace, stop))
    if num < 0:
        raise BadValueError(f"np.linspace: num={num}, want 0 or more")
    count = max(num - 1 if endpoint else num, 1)
    low: Any = np.expand_dims(first + 0 * last, 0)
    high: Any = np.expand_dims(last + 0 * first, 0)
    share = (np.arange(num) / count).reshape((-1, *(1,) * (low.ndim - 1))).astype(np.float32)
    spread: Any = np.where(share == 1, high, low + (high - low) * share)
    spread = np.moveaxis(spread, 0, axis)
    spread = spread if dtype is None else spread.astype(dtype)
    return (spread, (last - first) / count) if retstep else spread


def _logspace(
    trace: Trace,
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    exponents: Any = _linspace(trace, start, stop, num, endpoint, axis=axis)
    found: Any = np.power(traced(trace, base), exponents)
    return found if dtype is None else found.astype(dtype)


def _geomspace(
    trace: Trace,
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Of positive numbers, or of negative ones."""
    first, last = traced(trace, start), traced(trace, stop)
    exponents = _linspace(
        trace, np.log(np.abs(first)), np.log(np.abs(last)), num, endpoint, axis=axis
    )
    found: Any = np.exp(exponents) * np.expand_dims(np.sign(first), axis)
    return found if dtype is None else found.astype(dtype)


def _i0(trace: Trace, x: Any) -> Any:
    return apply_special(trace, bessel_i0, x)


def _array_equiv(trace: Trace, a1: Any, a2: Any) -> Any:
    x, y = traced(trace, a1), traced(trace, a2)
    try:
        np.broadcast_shapes(x.shape, y.shape)
    except ValueError:
        return traced(trace, np.bool_(False))
    return np.all(x == y)


def _sort_complex(trace: Trace, a: Any) -> Any:
    """By real part, then imaginary part."""
    x: Any = traced(trace, a).astype(np.complex64)
    order = np.lexsort((np.imag(x), np.real(x)), axis=-1)
    return np.take_along_axis(x, order, axis=-1)


def _nanquantile(
    trace: Trace, a: Any, q: Any, axis: int | None = None, *, method: str = "linear", keepdims: bool = False
) -> Any:  # fmt: skip
    """The quantile of what is no NaN: sorted last, and not counted."""
    x: Any = traced(trace, a)
    if x.dtype.kind not in "fV":
        return quantile(trace, x, q, axis, method=method, keepdims=keepdims)
    rank = x.ndim
    rows: Any = np.ravel(x) if axis is None else np.moveaxis(x, axis, -1)
    ordered: Any = np.sort(rows, axis=-1)
    count: Any = np.sum(~np.isnan(rows), axis=-1, keepdims=True)
    place = places(trace, method, np.maximum(count, 1).astype(np.float32), np.ravel(q))
    low: Any = np.floor(place)
    first: Any = np.take_along_axis(ordered, _spread(low, ordered), axis=-1)
    second: Any = np.take_along_axis(ordered, _spread(np.ceil(place), ordered), axis=-1)
    found: Any = np.moveaxis(first + (second - first) * weight(x, q, place, low), -1, 0)
    if keepdims:
        kept = range(rank) if axis is None else [axis % rank]
        found = np.expand_dims(found, tuple(i + 1 for i in kept))
    return found.reshape((*np.shape(q), *found.shape[1:]))


def _spread(place: Any, ordered: Any) -> Any:
    """Positions along the last axis, for every row."""
    return np.broadcast_to(place.astype(np.int32), (*ordered.shape[:-1], place.shape[-1]))


def _nanpercentile(trace: Trace, a: Any, q: Any, axis: int | None = None, **options: Any) -> Any:
    return _nanquantile(trace, a, hundredth(q), axis, **options)


def _nanmedian(trace: Trace, a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    return _nanquantile(trace, a, 0.5, axis, keepdims=keepdims)


DIFFERENCE_FUNCTIONS: dict[object, Rule] = {
    np.array_equiv: _array_equiv,
    np.ediff1d: _ediff1d,
    np.geomspace: _geomspace,
    np.gradient: _gradient,
    np.i0: _i0,
    np.linspace: _linspace,
    np.logspace: _logspace,
    np.nanmedian: _nanmedian,
    np.nanpercentile: _nanpercentile,
    np.nanquantile: _nanquantile,
    np.sort_complex: _sort_complex,
    np.unwrap: _unwrap,
}
