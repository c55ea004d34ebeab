"""Order statistics, and reductions that ignore NaN.

Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.ops import traced
from compiler.frontends.numpy.reductions import Axis, normal_axis
from compiler.frontends.numpy.tracer import Rule, Trace


def searchsorted(trace: Trace, a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """np.searchsorted: how many elements come before each value, by comparing all with all."""
    bins, values = traced(trace, a), traced(trace, v)
    ordered: Any = bins if sorter is None else np.take(bins, sorter)
    value: Any = values[..., None]
    below: Any = ordered < value if side == "left" else ordered <= value
    if value.dtype.kind not in "biu":  # NaN comes last
        below = below | (np.isnan(value) & (~np.isnan(ordered) if side == "left" else True))
    return np.sum(below, axis=-1, dtype=np.int32)


def _digitize(trace: Trace, x: Any, bins: Any, right: bool = False) -> Any:
    """np.digitize: edges that fall are those above the value instead of those below."""
    edges: Any = traced(trace, bins)
    below = searchsorted(trace, edges, x, "left" if right else "right")
    return np.where(edges[0] > edges[-1], len(edges) - below, below) if len(edges) else below


def _interp(
    trace: Trace, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    if period is not None:
        raise UnsupportedError("np.interp: argument 'period' cannot be traced")
    at, points, values = (traced(trace, value) for value in (x, xp, fp))
    place: Any = np.clip(searchsorted(trace, points, at, "right") - 1, 0, len(points) - 2)
    low: Any = np.take(points, place)
    share: Any = (at - low) / (np.take(points, place + 1) - low)
    start: Any = np.take(values, place)
    inside: Any = start + share * (np.take(values, place + 1) - start)
    first, last = values[0], values[-1]
    inside = np.where(at <= points[0], first, inside)
    inside = np.where(at >= points[-1], last, inside)
    inside = inside if left is None else np.where(at < points[0], left, inside)
    return inside if right is None else np.where(at > points[-1], right, inside)


def _average(trace: Trace, a: Any, axis: Axis = None, weights: Any = None) -> Any:
    """np.average; weights have the array's shape, or that of the axes."""
    x: Any = traced(trace, a)
    if weights is None:
        return np.mean(x, axis)
    w: Any = traced(trace, weights)
    if x.shape != w.shape:
        w = _along(w, axis, x.shape)
    return np.sum(x * w, axis) / np.sum(w, axis)


def _along(weights: Any, axis: Axis, shape: tuple[int, ...]) -> Any:
    """Weights of some axes, in the order in which these are named, for the whole array."""
    named = (axis,) if isinstance(axis, int) else axis or ()
    axes = [normal_axis(i, len(shape)) for i in named]
    if not axes or weights.shape != tuple(shape[i] for i in axes):
        raise UnsupportedError(
            f"np.average: weights of shape {weights.shape}; want that of the array, {shape}, or of its axes"
        )
    aside = [i for i in range(len(shape)) if i not in axes]
    spread = np.reshape(weights, (*weights.shape, *[1] * len(aside)))
    return np.broadcast_to(np.transpose(spread, np.argsort([*axes, *aside]).tolist()), shape)


def quantile(
    trace: Trace,
    a: Any,
    q: Any,
    axis: int | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """np.quantile, interpolated linearly; NaN where there is one."""
    if method != "linear":
        raise UnsupportedError(f"np.quantile: method={method!r}, only 'linear'")
    x: Any = traced(trace, a)
    original = x.ndim
    x = np.ravel(x) if axis is None else np.moveaxis(x, axis, -1)
    ordered: Any = np.sort(x, axis=-1)
    share: Any = traced(trace, q)
    share = share if share.dtype.kind == "f" else share.astype(np.float32)
    place: Any = share * (x.shape[-1] - 1)
    low: Any = np.floor(place)
    first: Any = np.take(ordered, low.astype(np.int32), axis=-1)
    second: Any = np.take(ordered, np.ceil(place).astype(np.int32), axis=-1)
    found: Any = first + (second - first) * (place - low)
    bad: Any = np.any(np.isnan(x), axis=-1)
    found = np.where(np.reshape(bad, bad.shape + (1,) * share.ndim), np.nan, found)
    found = np.moveaxis(found, -1, 0) if share.ndim else found
    if not keepdims:
        return found
    if axis is None:
        return np.reshape(found, share.shape + (1,) * original)
    return np.expand_dims(found, share.ndim + axis % original)


def _percentile(trace: Trace, a: Any, q: Any, axis: int | None = None, **options: Any) -> Any:
    share: Any = traced(trace, q)
    return quantile(trace, a, share / 100, axis, **options)


def _median(trace: Trace, a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    return quantile(trace, a, 0.5, axis, keepdims=keepdims)


def _filled(trace: Trace, a: Any, value: float) -> Any:
    x = traced(trace, a)
    return np.where(np.isnan(x), np.array(value, x.dtype), x) if x.dtype.kind in "fcV" else x


def _ignoring(function: Callable[..., Any], neutral: float) -> Rule:
    """A reduction in which NaN counts as `neutral`."""

    def rule(trace: Trace, a: Any, axis: Any = None, **options: Any) -> Any:
        return function(_filled(trace, a, neutral), axis=axis, **options)

    return rule


def _extreme(function: Callable[..., Any], neutral: float) -> Rule:
    """An extremum of what is no NaN; NaN where there is nothing else."""

    def rule(trace: Trace, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        x = traced(trace, a)
        if x.dtype.kind not in "fV":
            return function(x, axis=axis, keepdims=keepdims)
        found = function(_filled(trace, x, neutral), axis=axis, keepdims=keepdims)
        return np.where(
            np.all(np.isnan(x), axis=axis, keepdims=keepdims), np.array(np.nan, x.dtype), found
        )

    return rule


def _position(function: Callable[..., Any], neutral: float) -> Rule:
    """The position of an extremum of what is no NaN; -1 where there is nothing else, which NumPy raises
    an error for."""
    found = _ignoring(function, neutral)

    def rule(trace: Trace, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        x = traced(trace, a)
        places = found(trace, x, axis, keepdims=keepdims)
        return np.where(np.all(np.isnan(x), axis=axis, keepdims=keepdims), np.int32(-1), places)

    return rule


def _nanmean(trace: Trace, a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    x: Any = traced(trace, a)
    count: Any = np.sum(~np.isnan(x), axis=axis, keepdims=keepdims)
    return np.sum(_filled(trace, x, 0), axis=axis, keepdims=keepdims) / count


def _nanvar(
    trace: Trace, a: Any, axis: Any = None, *, ddof: int = 0, keepdims: bool = False
) -> Any:
    x: Any = traced(trace, a)
    count: Any = np.sum(~np.isnan(x), axis=axis, keepdims=keepdims)
    centred: Any = _filled(trace, x - _nanmean(trace, x, axis, keepdims=True), 0)
    return np.sum(np.abs(centred) ** 2, axis=axis, keepdims=keepdims) / (count - ddof)


def _nanstd(
    trace: Trace, a: Any, axis: Any = None, *, ddof: int = 0, keepdims: bool = False
) -> Any:
    return np.sqrt(_nanvar(trace, a, axis, ddof=ddof, keepdims=keepdims))


STATISTICS_FUNCTIONS: dict[object, Rule] = {
    np.average: _average,
    np.digitize: _digitize,
    np.interp: _interp,
    np.median: _median,
    np.nanargmax: _position(np.argmax, -np.inf),
    np.nanargmin: _position(np.argmin, np.inf),
    np.nancumprod: _ignoring(np.cumprod, 1),
    np.nancumsum: _ignoring(np.cumsum, 0),
    np.nanmax: _extreme(np.max, -np.inf),
    np.nanmean: _nanmean,
    np.nanmin: _extreme(np.min, np.inf),
    np.nanprod: _ignoring(np.prod, 1),
    np.nanstd: _nanstd,
    np.nansum: _ignoring(np.sum, 0),
    np.nanvar: _nanvar,
    np.percentile: _percentile,
    np.quantile: quantile,
    np.searchsorted: searchsorted,
}
