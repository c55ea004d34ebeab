"""NumPy functions that put elements elsewhere: joining, splitting, turning, grids.

Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.errors import BadValueError
from compiler.frontends.numpy.ops import traced
from compiler.frontends.numpy.reductions import normal_axis
from compiler.frontends.numpy.tracer import Rule, Trace


def _append(trace: Trace, arr: Any, values: Any, axis: int | None = None) -> Any:
    x, y = traced(trace, arr), traced(trace, values)
    if axis is None:
        return np.concatenate([np.ravel(x), np.ravel(y)])
    return np.concatenate([x, y], axis=axis)


def _array_split(trace: Trace, ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    x = traced(trace, ary)
    if not isinstance(indices_or_sections, int):
        return np.split(x, indices_or_sections, axis=axis)
    if indices_or_sections < 1:
        raise BadValueError(f"np.array_split into {indices_or_sections} parts")
    size, rest = divmod(x.shape[axis], indices_or_sections)
    ends = np.cumsum([size + (i < rest) for i in range(indices_or_sections)])
    return np.split(x, [int(end) for end in ends[:-1]], axis=axis)


def _atleast_3d(trace: Trace, *arys: Any) -> Any:
    made: list[Any] = []
    for ary in arys:
        x = traced(trace, ary)
        shapes = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}
        made.append(np.reshape(x, shapes.get(x.ndim, x.shape)))
    return made[0] if len(made) == 1 else tuple(made)


def _column_stack(trace: Trace, tup: Sequence[Any]) -> Any:
    columns = [traced(trace, x) for x in tup]
    return np.concatenate([np.reshape(x, (-1, 1)) if x.ndim < 2 else x for x in columns], axis=1)


def _dstack(trace: Trace, tup: Sequence[Any]) -> Any:
    parts = []
    for item in tup:
        x: Any = np.atleast_2d(traced(trace, item))
        parts.append(x[..., None] if x.ndim == 2 else x)
    return np.concatenate(parts, axis=2)


def _unstack(trace: Trace, x: Any, *, axis: int = 0) -> Any:
    moved: Any = np.moveaxis(traced(trace, x), axis, 0)
    return tuple(moved[i] for i in range(len(moved)))


def _splitting(axis_of: Callable[[int], int], least: int) -> Rule:
    def rule(trace: Trace, ary: Any, indices_or_sections: Any) -> Any:
        x = traced(trace, ary)
        if x.ndim < least:
            raise BadValueError(f"np.split of {x!r} across: want {least} dimensions or more")
        return np.split(x, indices_or_sections, axis=axis_of(x.ndim))

    return rule


def _fliplr(trace: Trace, m: Any) -> Any:
    return np.flip(traced(trace, m), 1)


def _flipud(trace: Trace, m: Any) -> Any:
    return np.flip(traced(trace, m), 0)


def _rot90(trace: Trace, m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    x, (first, second) = traced(trace, m), axes
    match k % 4:
        case 0:
            return x
        case 1:
            return np.swapaxes(np.flip(x, second), first, second)
        case 2:
            return np.flip(np.flip(x, first), second)
    return np.flip(np.swapaxes(x, first, second), second)


def _rollaxis(trace: Trace, a: Any, axis: int, start: int = 0) -> Any:
    x = traced(trace, a)
    axis, start = normal_axis(axis, x.ndim), start + x.ndim if start < 0 else start
    return np.moveaxis(x, axis, start - (axis < start))


def _matrix_transpose(trace: Trace, x: Any) -> Any:
    return np.swapaxes(traced(trace, x), -1, -2)


def _meshgrid(
    trace: Trace, *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> Any:
    if indexing not in ("xy", "ij"):
        raise BadValueError(f"np.meshgrid: indexing={indexing!r}, want 'xy' or 'ij'")
    arrays = [np.ravel(traced(trace, x)) for x in xi]
    count = len(arrays)
    places = [1, 0, *range(2, count)] if indexing == "xy" and count > 1 else list(range(count))
    shaped = [
        np.reshape(x, tuple(-1 if i == place else 1 for i in range(count)))
        for x, place in zip(arrays, places, strict=True)
    ]
    return tuple(shaped) if sparse else tuple(np.broadcast_arrays(*shaped))


def _sliding_windows(
    trace: Trace,
    x: Any,
    window_shape: Any,
    axis: Any = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Any:
    """np.lib.stride_tricks.sliding_window_view: a copy, which holds each element once for each window."""
    windows: Any = traced(trace, x)
    sizes = (window_shape,) if isinstance(window_shape, int) else tuple(window_shape)
    axes = range(windows.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    if len(sizes) != len(axes):
        raise CompileError(f"sliding_window_view: {len(sizes)} window sizes for {len(axes)} axes")
    for size, along in zip(sizes, axes, strict=True):
        along %= np.ndim(x)
        if not 0 <= size <= windows.shape[along]:
            raise CompileError(
                f"sliding_window_view: a window of {size} on {windows.shape[along]} elements"
            )
        count = windows.shape[along] - size + 1
        places = np.arange(count, dtype=np.int32)[:, None] + np.arange(size, dtype=np.int32)
        windows = np.moveaxis(np.take(windows, places, axis=along), along + 1, -1)
    return windows


REARRANGING_FUNCTIONS: dict[object, Rule] = {
    np.lib.stride_tricks.sliding_window_view: _sliding_windows,
    np.append: _append,
    np.array_split: _array_split,
    np.atleast_3d: _atleast_3d,
    np.column_stack: _column_stack,
    np.dsplit: _splitting(lambda rank: 2, 3),
    np.dstack: _dstack,
    np.fliplr: _fliplr,
    np.flipud: _flipud,
    np.hsplit: _splitting(lambda rank: min(1, rank - 1), 1),
    np.matrix_transpose: _matrix_transpose,
    np.meshgrid: _meshgrid,
    np.rollaxis: _rollaxis,
    np.rot90: _rot90,
    np.vsplit: _splitting(lambda rank: 0, 2),
}
if hasattr(np, "unstack"):  # since NumPy 2.1
    REARRANGING_FUNCTIONS[np.unstack] = _unstack
