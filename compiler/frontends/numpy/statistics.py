"""Order statistics, and reductions that ignore NaN.

Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.errors import BadTypeError, BadValueError
from compiler.frontends.numpy.ops import as_float, traced
from compiler.frontends.numpy.promotion import is_floating
from compiler.frontends.numpy.reductions import Axis, normal_axes, normal_axis
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer


def searchsorted(trace: Trace, a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """np.searchsorted: how many elements come before each value, by comparing all with all."""
    bins, values = traced(trace, a), traced(trace, v)
    if bins.ndim != 1:
        raise BadValueError(f"np.searchsorted in {bins!r}: want a vector")
    if side not in ("left", "right"):
        raise BadValueError(f"np.searchsorted: side={side!r}, want 'left' or 'right'")
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
    if points.ndim != 1 or points.shape != values.shape or not points.size:
        raise BadValueError(f"np.interp between {points!r} and {values!r}: want as many of both")
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


def _average(
    trace: Trace, a: Any, axis: Axis = None, weights: Any = None, *, keepdims: bool = False
) -> Any:
    """np.average; weights have the array's shape, or that of the axes."""
    x: Any = traced(trace, a)
    if weights is None:
        return np.mean(x, axis, keepdims=keepdims)
    w: Any = traced(trace, weights)
    if x.shape != w.shape:
        w = _along(w, axis, x.shape)
    total: Any = np.sum(x * w, axis, keepdims=keepdims)
    return total / np.sum(w, axis, keepdims=keepdims)


def _along(weights: Any, axis: Axis, shape: tuple[int, ...]) -> Any:
    """Weights of some axes, in the order in which these are named, for the whole array."""
    named = (axis,) if isinstance(axis, int) else axis or ()
    axes = [normal_axis(i, len(shape)) for i in named]
    if not axes or weights.shape != tuple(shape[i] for i in axes):
        raise (BadValueError if axes else BadTypeError)(
            f"np.average: weights of shape {weights.shape}; want that of the array, {shape}, or of its axes"
        )
    aside = [i for i in range(len(shape)) if i not in axes]
    spread = np.reshape(weights, (*weights.shape, *[1] * len(aside)))
    return np.broadcast_to(np.transpose(spread, np.argsort([*axes, *aside]).tolist()), shape)


_Place = Callable[[Any, Any], Any]


def _between(first: float, last: float) -> _Place:
    """Where a share lies that spreads the elements from `first` of a step before the first one to `last`
    behind the last one (Hyndman and Fan, 1996)."""
    return lambda count, share: count * share + (first + share * (1 - first - last)) - 1


def _halfway(count: Any, share: Any) -> Any:
    place: Any = (count - 1) * share
    return (np.floor(place) + np.ceil(place)) / 2


def _averaged(count: Any, share: Any) -> Any:
    place: Any = count * share - 1
    return np.where(place == np.floor(place), place + 0.5, np.ceil(place))


_PLACES: dict[str, _Place] = {
    "linear": lambda count, share: (count - 1) * share,
    "lower": lambda count, share: np.floor((count - 1) * share),
    "higher": lambda count, share: np.ceil((count - 1) * share),
    "nearest": lambda count, share: np.round((count - 1) * share),
    "midpoint": _halfway,
    "inverted_cdf": lambda count, share: np.ceil(count * share) - 1,
    "averaged_inverted_cdf": _averaged,
    "closest_observation": lambda count, share: np.round(count * share) - 1,
    "interpolated_inverted_cdf": _between(0, 1),
    "hazen": _between(0.5, 0.5),
    "weibull": _between(0, 0),
    "median_unbiased": _between(1 / 3, 1 / 3),
    "normal_unbiased": _between(3 / 8, 3 / 8),
}
"""For each method of a quantile, where it lies among so many sorted elements; between two is interpolated."""


def places(trace: Trace, method: str, count: Any, q: Any) -> Any:
    """Where quantiles lie among `count` sorted elements. Shares that are known are multiplied in f64."""
    if method not in _PLACES:
        raise BadValueError(f"np.quantile: method={method!r}, want one of {', '.join(_PLACES)}")
    share: Any = q if isinstance(q, Tracer) else np.asarray(q, np.float64)
    if isinstance(q, Tracer):
        share = as_float(share)
    elif np.any((share < 0) | (share > 1)):
        raise BadValueError(f"np.quantile: {q}, want shares between 0 and 1")
    if not isinstance(count, int):
        share = np.astype(share, np.float32)
    place: Any = np.clip(_PLACES[method](count, share), 0, count - 1)
    return traced(trace, np.astype(place, np.float32))


def hundredth(q: Any) -> Any:
    """Percentages as shares: of what is known in f64."""
    return (q if isinstance(q, int | float | Tracer) else np.asarray(q, np.float64)) / 100


def weight(x: Any, q: Any, place: Any, low: Any) -> Any:
    """How much of the way to the next element; beside a Python number the array's type is kept."""
    keeps = isinstance(q, int | float) and is_floating(x.dtype)
    return (place - low).astype(x.dtype) if keeps else place - low


def quantile(
    trace: Trace,
    a: Any,
    q: Any,
    axis: Axis = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    """np.quantile; NaN where there is one."""
    x: Any = traced(trace, a)
    original, axes = x.ndim, normal_axes(axis, x.ndim)
    rest = [i for i in range(original) if i not in axes]
    x = np.transpose(x, (*rest, *axes)).reshape((*(x.shape[i] for i in rest), -1))
    ordered: Any = np.sort(x, axis=-1)
    place = places(trace, method, x.shape[-1], q)
    low: Any = np.floor(place)
    first: Any = np.take(ordered, low.astype(np.int32), axis=-1)
    second: Any = np.take(ordered, np.ceil(place).astype(np.int32), axis=-1)
    found: Any = first + (second - first) * weight(x, q, place, low)
    bad: Any = np.any(np.isnan(x), axis=-1)
    found = np.where(np.reshape(bad, bad.shape + (1,) * place.ndim), np.nan, found)
    found = np.moveaxis(found, range(len(rest), found.ndim), range(place.ndim))
    return np.expand_dims(found, tuple(i + place.ndim for i in axes)) if keepdims else found


def _percentile(trace: Trace, a: Any, q: Any, axis: Axis = None, **options: Any) -> Any:
    return quantile(trace, a, hundredth(q), axis, **options)


def _median(trace: Trace, a: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
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
