"""Functions with as many results as values say: of a stated `size` in traced functions; outside of them the
number is read from the device, and the results are cut to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy import integers as integer_rules
from compiler.frontends.numpy import sized as rules
from compiler.frontends.numpy.methods import ArrayMethods
from compiler.frontends.numpy.tracer import Rule, open_trace
from runtime.array_api.calls import apply, on_arrays
from runtime.array_api.creation import asarray

Size = int | None


class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: Any
    counts: Any


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: Any
    inverse_indices: Any


def _nonzero(size: int, fill: Any, x: Any) -> Any:
    return apply(rules.nonzero, size, fill, x)


def _extracted(size: int, fill: Any, condition: Any, x: Any) -> Any:
    return apply(rules.extracted, size, fill, condition, x)


def _counted(length: int, weights: Any, x: Any) -> Any:
    return apply(integer_rules.counted, x, weights, length)


def _distinct(size: int, fill: Any, equal_nan: bool, x: Any) -> Any:
    found = apply(rules.distinct, size, fill, x, equal_nan=equal_nan)
    return found.values, found.indices, found.inverse, found.counts, found.count


def _pair(rule: Rule) -> Callable[..., Any]:
    """A set function, of two arrays."""

    def found(size: int, fill: Any, a: Any, b: Any) -> Any:
        return apply(rule, size, fill, a, b)

    def function(ar1: Any, ar2: Any, *, size: Size = None, fill_value: Any = None) -> Any:
        first, second = asarray(ar1), asarray(ar2)
        limit = first.size + second.size
        values, count = on_arrays(
            found, _size(rule.__name__, size, limit), fill_value, first, second
        )
        return values if size is not None else values[: int(count)]

    return function


def _size(name: str, size: Size, limit: int) -> int:
    """The size to compute: the stated one, or the most there can be."""
    if size is not None:
        return int(size)
    if open_trace() is not None:
        raise UnsupportedError(f"{name}: the number of results is not known; state size=")
    return limit


def nonzero(x: Any, /, *, size: Size = None, fill_value: Any = 0) -> tuple[Any, ...]:
    """The positions of what is not zero, an array of int32 for each axis."""
    array = asarray(x)
    if not array.ndim:
        raise ValueError("nonzero of an array without axes; want at least one")
    places, count = on_arrays(_nonzero, _size("nonzero", size, array.size), fill_value, array)
    return tuple(places) if size is not None else tuple(place[: int(count)] for place in places)


def flatnonzero(x: Any, *, size: Size = None, fill_value: Any = 0) -> Any:
    """The positions of what is not zero in the array as one dimension."""
    return nonzero(asarray(x).reshape(-1), size=size, fill_value=fill_value)[0]


def argwhere(x: Any, *, size: Size = None, fill_value: Any = 0) -> Any:
    """The positions of what is not zero, a row for each."""
    return np.stack(nonzero(x, size=size, fill_value=fill_value), axis=1)


def where(condition: Any, /, *choices: Any, size: Size = None, fill_value: Any = 0) -> Any:
    """Elements of one array or the other; of a condition alone, its `nonzero`."""
    if not choices:
        return nonzero(condition, size=size, fill_value=fill_value)
    arrays = [asarray(x) if isinstance(x, list | tuple) else x for x in choices]
    return on_arrays(np.where, condition, *arrays)


def extract(condition: Any, x: Any, *, size: Size = None, fill_value: Any = 0) -> Any:
    """The elements where a condition holds."""
    array = asarray(x)
    limit = _size("extract", size, array.size)
    values, count = on_arrays(_extracted, limit, fill_value, asarray(condition), array)
    return values if size is not None else values[: int(count)]


def unique_all(x: Any, /, *, size: Size = None, fill_value: Any = None) -> UniqueAll:
    """The distinct elements, where each stands first, which each element is, how often each stands there."""
    return _unique_all(x, size, fill_value)


def _unique_all(x: Any, size: Size, fill_value: Any, *, equal_nan: bool = False) -> UniqueAll:
    array = asarray(x)
    limit = _size("unique_all", size, array.size)
    values, indices, inverse, counts, count = on_arrays(
        _distinct, limit, fill_value, equal_nan, array
    )
    inverse = inverse.reshape(array.shape)
    if size is not None:
        return UniqueAll(values, indices, inverse, counts)
    end = int(count)
    return UniqueAll(values[:end], indices[:end], inverse, counts[:end])


def unique_counts(x: Any, /, *, size: Size = None, fill_value: Any = None) -> UniqueCounts:
    """The distinct elements, and how often each stands there."""
    found = unique_all(x, size=size, fill_value=fill_value)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Any, /, *, size: Size = None, fill_value: Any = None) -> UniqueInverse:
    """The distinct elements, and which of them each element is."""
    found = unique_all(x, size=size, fill_value=fill_value)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Any, /, *, size: Size = None, fill_value: Any = None) -> Any:
    """The distinct elements in ascending order; each NaN is one of its own."""
    return unique_all(x, size=size, fill_value=fill_value).values


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    *,
    equal_nan: bool = True,
    size: Size = None,
    fill_value: Any = None,
) -> Any:
    """As `unique_values`, with what else is asked for, as in NumPy."""
    found = _unique_all(ar, size, fill_value, equal_nan=equal_nan)
    asked = (True, return_index, return_inverse, return_counts)
    chosen = tuple(part for part, wanted in zip(found, asked, strict=True) if wanted)
    return chosen[0] if len(chosen) == 1 else chosen


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, *, length: Size = None, size: Size = None
) -> Any:
    """How often each number is there, or the sums of their weights: of `length` (or `size`) numbers, larger
    ones left out, or of as many as the largest needs. A `minlength` that covers the element type says how
    many, too."""
    array = asarray(x)
    stated = length if size is None else size
    if stated is None:
        stated = integer_rules.counted_length(array.dtype, minlength)
    if stated is None:
        _size("bincount", None, 0)
        largest = int(np.max(array)) if array.size else -1
        stated = max(minlength, largest + 1)
    return on_arrays(_counted, int(stated), weights, array)


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None, size: Size = None) -> Any:
    """Each element as often as `repeats` says, `size` in all: the last one fills what is left."""
    array = asarray(x)
    if size is None and not isinstance(repeats, ArrayMethods):
        return on_arrays(np.repeat, array, repeats, axis)
    array, axis = (array.reshape(-1), 0) if axis is None else (array, axis)
    counts = asarray(repeats)
    if counts.size == 1:
        counts = np.broadcast_to(counts.reshape(-1), (array.shape[axis],))
    if size is None:
        _size("repeat", None, 0)
        size = int(np.sum(counts))
    return np.take(array, on_arrays(_places, size, counts), axis)


def _places(size: int, counts: Any) -> Any:
    found = np.searchsorted(np.cumsum(counts), np.arange(size, dtype=np.int32), side="right")
    return np.minimum(found, counts.shape[0] - 1)


intersect1d = _pair(rules.common)
setdiff1d = _pair(rules.left_over)
setxor1d = _pair(rules.either)
union1d = _pair(rules.joined)
