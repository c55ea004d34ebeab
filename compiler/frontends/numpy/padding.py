"""np.pad in all of its modes.

An axis is padded after another, and the edges of a later one include what earlier ones got: so are
corners NumPy's. Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.errors import BadValueError
from compiler.frontends.numpy.ops import as_tracer, convert, traced, wrap
from compiler.frontends.numpy.tracer import Rule, Trace

_OPTIONS = {
    "constant": {"constant_values"},
    "edge": set(),
    "empty": set(),
    "linear_ramp": {"end_values"},
    "maximum": {"stat_length"},
    "mean": {"stat_length"},
    "median": {"stat_length"},
    "minimum": {"stat_length"},
    "reflect": {"reflect_type"},
    "symmetric": {"reflect_type"},
    "wrap": set(),
}
"""The modes, and the options that each takes."""
_STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": np.max,
    "mean": np.mean,
    "median": np.median,
    "minimum": np.min,
}


def pad(trace: Trace, array: object, pad_width: Any, mode: Any = "constant", **options: Any) -> Any:
    """np.pad. Widths are known while tracing, values need not be."""
    x = as_tracer(trace, array)
    _expect_mode(mode, options)
    pairs = _widths(pad_width, x.ndim)
    if np.any(pairs < 0):
        raise BadValueError(f"np.pad: {pad_width}, want widths of 0 or more")
    if mode == "empty" or (mode == "constant" and np.ndim(options.get("constant_values", 0)) == 0):
        value = convert(as_tracer(trace, options.get("constant_values", 0)), x.dtype)
        padding = [(int(low), int(high), 0) for low, high in pairs]
        return wrap(x, trace.builder.pad(x.instr, value.instr, padding))
    padded: Any = x
    for axis, widths in enumerate(pairs.tolist()):
        if any(widths):
            padded = _padded_axis(trace, padded, axis, widths, mode, options)
    return padded


def _expect_mode(mode: Any, options: dict[str, Any]) -> None:
    if mode not in _OPTIONS:
        raise BadValueError(f"np.pad: mode={mode!r}; want one of {', '.join(_OPTIONS)}")
    if unknown := options.keys() - _OPTIONS[mode]:
        raise BadValueError(f"np.pad: mode={mode!r} has no option {min(unknown)!r}")
    if options.get("reflect_type", "even") != "even":
        raise UnsupportedError("np.pad: reflect_type='odd' cannot be traced; want 'even'")


def _widths(pad_width: Any, rank: int) -> Any:
    """What is added before and behind each axis; a dict names axes."""
    if isinstance(pad_width, dict):
        pairs = np.zeros((rank, 2), int)
        for axis, width in pad_width.items():
            pairs[axis] = width
        return pairs
    return np.broadcast_to(np.asarray(pad_width, int), (rank, 2))


def _padded_axis(
    trace: Trace, x: Any, axis: int, widths: list[int], mode: Any, options: dict[str, Any]
) -> Any:
    size = x.shape[axis]
    if mode in ("edge", "reflect", "symmetric", "wrap"):  # elements of the array itself
        places = np.pad(np.arange(size, dtype=np.int32), widths, mode)
        return np.take(x, places, axis=axis)
    if mode == "linear_ramp":
        ends = _of_edges(trace, options.get("end_values", 0), x.ndim, axis)
        low, high = (_ramp(x, axis, n, ends[side], side) for side, n in enumerate(widths))
    elif mode == "constant":
        values = _of_edges(trace, options["constant_values"], x.ndim, axis)
        low, high = (_spread(x, axis, n, value) for n, value in zip(widths, values, strict=True))
    else:
        lengths = np.broadcast_to(options.get("stat_length") or size, (x.ndim, 2))[axis]
        found = [_statistic(x, axis, int(lengths[side]), mode, side) for side in (0, 1)]
        low, high = (_spread(x, axis, n, value) for n, value in zip(widths, found, strict=True))
    return np.concatenate([low, x, high], axis=axis)


def _of_edges(trace: Trace, values: Any, rank: int, axis: int) -> list[Any]:
    """The value of each edge of an axis."""
    pairs: Any = np.broadcast_to(traced(trace, values), (rank, 2))
    return [pairs[axis, side] for side in (0, 1)]


def _spread(x: Any, axis: int, width: int, value: Any) -> Any:
    """`width` times a value, which may have one for each line along the axis."""
    shape = [width if i == axis else n for i, n in enumerate(x.shape)]
    return np.broadcast_to(value, shape).astype(x.dtype)


def _edge(x: Any, axis: int, length: int, side: int) -> Any:
    start = x.shape[axis] - length if side else 0
    return x[(slice(None),) * axis + (slice(start, start + length),)]


def _statistic(x: Any, axis: int, length: int, mode: str, side: int) -> Any:
    edge = _edge(x, axis, min(length, x.shape[axis]), side)
    value: Any = _STATISTICS[mode](edge, axis=axis, keepdims=True)
    return np.round(value) if x.dtype.kind in "iu" and value.dtype.kind == "f" else value


def _ramp(x: Any, axis: int, width: int, end: Any, side: int) -> Any:
    """From a given end to the edge, which itself is left out."""
    edge = _edge(x, axis, 1, side)
    real = x.dtype if x.dtype.kind in "fc" else np.dtype(np.float32)
    steps = np.arange(width, dtype=real) / max(width, 1)
    share = (steps[::-1] if side else steps).reshape(
        [-1 if i == axis else 1 for i in range(x.ndim)]
    )
    ramp: Any = end + (edge - end) * share
    return (np.floor(ramp) if x.dtype.kind in "iu" else ramp).astype(x.dtype)


PADDING_FUNCTIONS: dict[object, Rule] = {np.pad: pad}
