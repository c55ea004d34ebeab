"""Histograms: counts of what lies between edges, the last edge included.

Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.errors import BadValueError
from compiler.frontends.numpy.integers import counted
from compiler.frontends.numpy.ops import traced
from compiler.frontends.numpy.tracer import Rule, Trace


def edges_of(trace: Trace, a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of so many equal bins over a range, by default the values'; given ones as they are."""
    if isinstance(bins, str):
        raise UnsupportedError(f"np.histogram: bins={bins!r}; want their number or their edges")
    if isinstance(bins, int) and bins < 1:
        raise BadValueError(f"np.histogram: {bins} bins, want 1 or more")
    if not isinstance(bins, int):
        edges: Any = traced(trace, bins)
        return edges
    x: Any = np.ravel(traced(trace, a))
    if range is not None:
        low, high = map(float, range)
        if low > high:
            raise BadValueError(f"np.histogram: range={range}, want the smaller first")
        low, high = (low - 0.5, high + 0.5) if low == high else (low, high)
        return traced(trace, np.linspace(low, high, bins + 1).astype(np.float32))
    if not x.size:
        return traced(trace, np.linspace(0, 1, bins + 1).astype(np.float32))
    first: Any = np.min(x).astype(np.float32)
    last: Any = np.max(x).astype(np.float32)
    is_point: Any = first == last
    first, last = np.where(is_point, first - 0.5, first), np.where(is_point, last + 0.5, last)
    share = np.linspace(0, 1, bins + 1).astype(np.float32)
    return np.where(share == 1, last, first + (last - first) * share)


def _places(x: Any, edges: Any) -> Any:
    """The bin of each value; past the last one for what lies outside."""
    count = len(edges) - 1
    place: Any = np.searchsorted(edges, x, side="right") - 1
    place = np.where(x == edges[-1], count - 1, place)
    return np.where((x >= edges[0]) & (x <= edges[-1]), place, count)


def histogram(
    trace: Trace,
    a: Any,
    bins: Any = 10,
    range: Any = None,
    density: Any = None,
    weights: Any = None,
) -> tuple[Any, Any]:
    """np.histogram."""
    x: Any = np.ravel(traced(trace, a))
    edges = edges_of(trace, x, bins, range)
    share = None if weights is None else np.ravel(traced(trace, weights))
    counts: Any = counted(trace, _places(x, edges), share, len(edges) - 1)
    if density:
        counts = counts / np.diff(edges) / np.sum(counts)
    return counts, edges


def histogramdd(
    trace: Trace,
    sample: Any,
    bins: Any = 10,
    range: Any = None,
    density: Any = None,
    weights: Any = None,
) -> tuple[Any, tuple[Any, ...]]:
    """np.histogramdd."""
    if isinstance(sample, list | tuple):
        columns: list[Any] = [traced(trace, column) for column in sample]
    else:
        x: Any = traced(trace, sample)
        columns = [x] if x.ndim == 1 else list(np.moveaxis(x, 1, 0))
    each = [bins] * len(columns) if isinstance(bins, int) else list(bins)
    ranges: Sequence[Any] = [None] * len(columns) if range is None else range
    edges = [edges_of(trace, c, b, r) for c, b, r in zip(columns, each, ranges, strict=True)]
    sizes = [len(edge) - 1 for edge in edges]
    flat: Any = 0
    outside: Any = False
    for column, edge, size in zip(columns, edges, sizes, strict=True):
        place = _places(column, edge)
        flat, outside = flat * size + place, outside | (place == size)
    total = int(np.prod(sizes))
    share = None if weights is None else np.ravel(traced(trace, weights))
    counts: Any = counted(trace, np.where(outside, total, flat), share, total)
    counts = counts.reshape(sizes).astype(np.float32)
    if density:
        counts = counts / np.sum(counts)
        for axis, edge in enumerate(edges):
            width: Any = np.diff(edge)
            counts = counts / width.reshape([-1 if i == axis else 1 for i in np.arange(len(sizes))])
    return counts, tuple(edges)


def histogram2d(
    trace: Trace,
    x: Any,
    y: Any,
    bins: Any = 10,
    range: Any = None,
    density: Any = None,
    weights: Any = None,
) -> tuple[Any, Any, Any]:
    """np.histogram2d."""
    is_shared = not isinstance(bins, int | list | tuple) or (
        isinstance(bins, list | tuple) and len(bins) != 2
    )
    each = [bins, bins] if is_shared else bins
    counts, (first, second) = histogramdd(trace, [x, y], each, range, density, weights)
    return counts, first, second


HISTOGRAM_FUNCTIONS: dict[object, Rule] = {
    np.histogram: histogram,
    np.histogram2d: histogram2d,
    np.histogram_bin_edges: edges_of,
    np.histogramdd: histogramdd,
}
