"""NumPy functions that insert, delete or choose elements, at places known while tracing.

Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.errors import BadValueError
from compiler.frontends.numpy.ops import common_shape, traced
from compiler.frontends.numpy.reductions import normal_axis
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer
from compiler.frontends.numpy.vectorize import vmap


def _along(x: Any, axis: int | None) -> tuple[Any, int]:
    """The array as one dimension for None, and the axis from its front."""
    return (np.ravel(x), 0) if axis is None else (x, normal_axis(axis, x.ndim))


def _known(name: str, value: Any) -> Any:
    """Places that the program is made for."""
    if isinstance(value, Tracer):
        raise UnsupportedError(f"np.{name}: want places that are known while tracing; use np.where")
    return value


def _delete(trace: Trace, arr: Any, obj: Any, axis: int | None = None) -> Any:
    x, place = _along(traced(trace, arr), axis)
    kept = np.delete(np.arange(x.shape[place]), _known("delete", obj))
    return np.take(x, kept, axis=place)


def _insert(trace: Trace, arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """The values, in the array's type, before places of the array."""
    x, place = _along(traced(trace, arr), axis)
    size = x.shape[place]
    given = _known("insert", obj)
    spots = np.atleast_1d(np.arange(size)[given] if isinstance(given, slice) else np.asarray(given))
    spots = np.where(spots < 0, spots + size, spots)
    new: Any = traced(trace, values).astype(x.dtype)
    new = new.reshape((*(1,) * (x.ndim - new.ndim), *new.shape))
    if isinstance(given, int | np.integer):  # the first axis of the values runs along `axis`
        new = np.moveaxis(new, 0, place)
    count = new.shape[place] if len(spots) == 1 else len(spots)
    new = np.broadcast_to(new, (*x.shape[:place], count, *x.shape[place + 1 :]))
    before = np.repeat(spots, count) if len(spots) == 1 else spots
    order = np.insert(np.arange(size), before, np.arange(size, size + count))
    return np.take(np.concatenate([x, new], axis=place), order, axis=place)


def _resize(trace: Trace, a: Any, new_shape: Any) -> Any:
    """The elements again and again, as many as are wanted."""
    x: Any = np.ravel(traced(trace, a))
    shape = (new_shape,) if isinstance(new_shape, int) else tuple(new_shape)
    if any(n < 0 for n in shape):
        raise BadValueError(f"np.resize to {list(shape)}: want no negative dimension")
    count = int(np.prod(shape))
    if not x.size or not count:
        return np.zeros(shape, x.dtype)
    return np.tile(x, -(-count // x.size))[:count].reshape(shape)


def _choose(trace: Trace, a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    """One of several arrays for each element; a choice outside of them is clipped, or wrapped."""
    found: Any = traced(trace, a)
    options = [traced(trace, c) for c in choices]
    found = found % len(options) if mode == "wrap" else np.clip(found, 0, len(options) - 1)
    result: Any = options[0]
    for number, option in enumerate(options[1:], 1):
        result = np.where(found == number, option, result)
    return np.broadcast_to(result, common_shape(found.shape, result.shape))


def _compress(trace: Trace, condition: Any, a: Any, axis: int | None = None) -> Any:
    x, place = _along(traced(trace, a), axis)
    mask = np.asarray(_known("compress", condition))
    return np.take(x, np.flatnonzero(mask), axis=place)


def _piecewise(
    trace: Trace, x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any
) -> Any:
    """All pieces are computed everywhere, and chosen among."""
    array: Any = traced(trace, x)
    conditions = list(condlist) if isinstance(condlist, list | tuple) else [condlist]
    functions = list(funclist)
    if len(functions) not in (len(conditions), len(conditions) + 1):
        raise CompileError(
            f"np.piecewise: {len(functions)} functions for {len(conditions)} conditions"
        )

    def piece(function: Any) -> Any:
        made: Any = function(array, *args, **kw) if callable(function) else function
        return traced(trace, made).astype(array.dtype)

    rest = len(functions) > len(conditions)
    result: Any = piece(functions[-1]) if rest else np.zeros_like(array)
    for condition, function in zip(conditions, functions, strict=False):  # the last one holds
        result = np.where(traced(trace, condition), piece(function), result)
    return result


def _partition(
    trace: Trace, a: Any, kth: Any, axis: int | None = -1, kind: Any = None, order: Any = None
) -> Any:
    """Sorted as a whole: a partition about any place."""
    return np.sort(_with_places(traced(trace, a), kth, axis), axis=axis)


def _argpartition(
    trace: Trace, a: Any, kth: Any, axis: int | None = -1, kind: Any = None, order: Any = None
) -> Any:
    return np.argsort(_with_places(traced(trace, a), kth, axis), axis=axis, stable=True)


def _with_places(x: Any, kth: Any, axis: int | None) -> Any:
    """`x`, if its axis has the places."""
    extent = x.size if axis is None else x.shape[normal_axis(axis, x.ndim)]
    if np.any((np.asarray(kth) >= extent) | (np.asarray(kth) < -extent)):
        raise BadValueError(f"np.partition: kth={kth} of an axis of {extent} elements")
    return x


def _lexsort(trace: Trace, keys: Any, axis: int = -1) -> Any:
    """By the last key, ties by the one before it: stable sorts from the first key on."""
    columns = [traced(trace, key) for key in keys]
    found: Any = np.argsort(columns[0], axis=axis, stable=True)
    for key in columns[1:]:
        turn: Any = np.argsort(np.take_along_axis(key, found, axis=axis), axis=axis, stable=True)
        found = np.take_along_axis(found, turn, axis=axis)
    return found


def _apply_along_axis(
    trace: Trace, func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any
) -> Any:
    """The function of all vectors at once (`tpuc.vmap`)."""
    x: Any = traced(trace, arr)
    moved: Any = np.moveaxis(x, axis, -1)
    lead = moved.shape[:-1]
    rows = moved.reshape((-1, moved.shape[-1]))
    found: Any = vmap(trace, lambda row: func1d(row, *args, **kwargs), 0, 0, None, (rows,), {})
    made: Any = found.reshape((*lead, *found.shape[1:]))
    count = found.ndim - 1
    ends = range(len(lead), len(lead) + count)
    return np.moveaxis(made, tuple(ends), tuple(range(axis % x.ndim, axis % x.ndim + count)))


def _apply_over_axes(trace: Trace, func: Callable[..., Any], a: Any, axes: Any) -> Any:
    x: Any = traced(trace, a)
    for axis in np.atleast_1d(axes):
        place = int(axis) % x.ndim
        found = func(x, place)
        x = found if found.ndim == x.ndim else np.expand_dims(found, place)
    return x


def _ix(trace: Trace, *args: Any) -> tuple[Any, ...]:
    arrays = [traced(trace, x) for x in args]
    return tuple(
        x.reshape(tuple(-1 if i == k else 1 for k in range(len(arrays))))
        for i, x in enumerate(arrays)
    )


def _indices_from(function: Callable[..., Any]) -> Rule:
    """Positions that follow from the dimensions alone."""

    def rule(trace: Trace, arr: Any, *args: Any, **kwargs: Any) -> Any:
        x = traced(trace, arr)
        if x.ndim != 2:
            raise BadValueError(f"np.{function.__name__}_from of {x!r}: want a matrix")
        return function(*x.shape, *args, **kwargs)

    return rule


EDITING_FUNCTIONS: dict[object, Rule] = {
    np.apply_along_axis: _apply_along_axis,
    np.apply_over_axes: _apply_over_axes,
    np.argpartition: _argpartition,
    np.choose: _choose,
    np.compress: _compress,
    np.delete: _delete,
    np.diag_indices_from: lambda trace, arr: np.diag_indices(len(arr), arr.ndim),
    np.insert: _insert,
    np.ix_: _ix,
    np.lexsort: _lexsort,
    np.partition: _partition,
    np.piecewise: _piecewise,
    np.resize: _resize,
    np.tril_indices_from: _indices_from(lambda n, m, k=0: np.tril_indices(n, k, m)),
    np.triu_indices_from: _indices_from(lambda n, m, k=0: np.triu_indices(n, k, m)),
}
