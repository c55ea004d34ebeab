"""What has as many results as values say, brought to a stated size: positions that hold, distinct elements.

With fewer results the rest is filled, with more they are cut. Each rule also gives the number of results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.frontends.numpy.ops import concatenate, iota, reshape, traced
from compiler.frontends.numpy.tracer import Trace


@dataclass(frozen=True)
class Distinct:
    """The distinct elements of an array in ascending order; each NaN is one of its own unless they
    count as equal.

    `indices` is where each stands first, `inverse` which of them each element is, in one dimension.
    """

    values: Any
    indices: Any
    inverse: Any
    counts: Any
    count: Any


def _compact(trace: Trace, holds: Any, values: Any, size: int, fill: Any) -> Any:
    """The values where `holds`, in order; `fill` (a value, None for zeros) past their end."""
    place: Any = np.where(holds, np.cumsum(holds) - 1, size)
    start: Any = np.zeros((size,), values.dtype)
    start = traced(trace, start) if fill is None else _spread(trace, fill, size, values.dtype)
    return start.at[place].set(values) if values.size else start


def _spread(trace: Trace, value: Any, size: int, dtype: Any) -> Any:
    return np.broadcast_to(traced(trace, value).astype(dtype), (size,))


def nonzero(trace: Trace, size: int, fill: Any, a: Any) -> tuple[tuple[Any, ...], Any]:
    """The positions of what is not zero, an array for each axis, and how many there are."""
    x: Any = traced(trace, a)
    holds: Any = reshape(x, (x.size,)) != 0
    count = np.sum(holds, dtype=np.int32)
    flat = _compact(trace, holds, iota(trace, (x.size,), 0), size, None)
    beyond: Any = iota(trace, (size,), 0) >= count
    places, step = [], x.size
    for extent in x.shape:
        step //= max(extent, 1)
        place: Any = flat // max(step, 1) % max(extent, 1)
        places.append(np.where(beyond, fill, place))
    return tuple(places), count


def extracted(trace: Trace, size: int, fill: Any, condition: Any, a: Any) -> tuple[Any, Any]:
    """The elements where a condition holds, both in one dimension, and how many there are."""
    holds: Any = np.ravel(traced(trace, condition)) != 0
    return _compact(trace, holds, np.ravel(traced(trace, a)), size, fill), np.sum(
        holds, dtype=np.int32
    )


def distinct(
    trace: Trace, size: int, fill: Any, a: Any, keep: Any = None, *, equal_nan: bool = False
) -> Distinct:
    """The distinct elements; only those where `keep` holds are counted. All NaN are one if they count as
    equal."""
    x: Any = np.ravel(traced(trace, a))
    order: Any = np.argsort(x, stable=True)
    ordered: Any = x[order]
    first: Any = ordered[1:] != ordered[:-1]
    if equal_nan and x.dtype.kind in "fcV":
        first = first & ~(np.isnan(ordered[1:]) & np.isnan(ordered[:-1]))
    head = traced(trace, np.ones((min(1, x.size),), np.bool_))
    first = concatenate(trace, [head, first], 0)
    if keep is not None:
        first = first & np.ravel(traced(trace, keep))[order]
    rank: Any = np.cumsum(first) - 1
    default = fill if fill is not None or not x.size else ordered[0]
    values = _compact(trace, first, ordered, size, default)
    indices = _compact(trace, first, order, size, None)
    places = traced(trace, np.zeros((x.size,), np.int32))
    tally = traced(trace, np.zeros((size,), np.int32))
    if x.size:
        places = places.at[order].set(rank)
        tally = tally.at[rank].add(1)
    return Distinct(values, indices, places, tally, np.sum(first, dtype=np.int32))


def common(trace: Trace, size: int, fill: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """The distinct elements that both arrays have."""
    found = distinct(trace, size, fill, a, np.isin(traced(trace, a), b))
    return found.values, found.count


def left_over(trace: Trace, size: int, fill: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """The distinct elements of `a` that `b` has not."""
    found = distinct(trace, size, fill, a, ~np.isin(traced(trace, a), b))
    return found.values, found.count


def either(trace: Trace, size: int, fill: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """The distinct elements of one of the arrays, but not of both."""
    x: Any = np.ravel(traced(trace, a))
    y: Any = np.ravel(traced(trace, b))
    keep: Any = np.concatenate([~np.isin(x, y), ~np.isin(y, x)])
    found = distinct(trace, size, fill, np.concatenate([x, y]), keep)
    return found.values, found.count


def joined(trace: Trace, size: int, fill: Any, a: Any, b: Any) -> tuple[Any, Any]:
    """The distinct elements of both arrays together."""
    x: Any = np.ravel(traced(trace, a))
    y: Any = np.ravel(traced(trace, b))
    found = distinct(trace, size, fill, np.concatenate([x, y]))
    return found.values, found.count
