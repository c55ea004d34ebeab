"""Functions of the standard with arguments that NumPy's have not."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.frontends.numpy import reductions as rules
from compiler.frontends.numpy.errors import BadValueError
from runtime.array_api.calls import apply, on_arrays
from runtime.array_api.creation import asarray

_KINDS = ("quicksort", "mergesort", "heapsort", "stable")
"""What NumPy calls ways to sort."""


def _sorted(x: Any, axis: int | None, descending: bool) -> Any:
    return apply(rules.sort, x, axis, descending=descending)


def _order(x: Any, axis: int | None, descending: bool) -> Any:
    return apply(rules.argsort, x, axis, descending=descending)


def _check_kind(kind: str | None) -> None:
    """ValueError for a sort that NumPy does not have."""
    if kind is not None and kind not in _KINDS:
        raise BadValueError(f"sort kind must be one of {', '.join(_KINDS)}, not {kind!r}")


def sort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    *,
    descending: bool = False,
    stable: bool | None = True,
) -> Any:
    """Ascending, NaN last; or descending, NaN first. Always stable, whatever NumPy's `kind` asks for."""
    _check_kind(kind)
    return on_arrays(_sorted, x, axis, bool(descending))


def argsort(
    x: Any,
    /,
    axis: int | None = -1,
    kind: str | None = None,
    *,
    descending: bool = False,
    stable: bool | None = True,
) -> Any:
    """The positions of the elements in the order of `sort`. Always stable."""
    _check_kind(kind)
    return on_arrays(_order, x, axis, bool(descending))


def clip(x: Any, /, min: Any = None, max: Any = None) -> Any:
    """The elements, but not below `min` or above `max`."""
    return on_arrays(np.clip, x, min, max)


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """The arrays with their common dimensions, as a list."""
    return list(on_arrays(np.broadcast_arrays, *map(asarray, arrays)))


def meshgrid(*arrays: Any, indexing: str = "xy", sparse: bool = False) -> list[Any]:
    """The coordinates of a grid of vectors, an array for each, as a list."""
    return list(on_arrays(_grid, *map(asarray, arrays), indexing=indexing, sparse=sparse))


def _grid(*arrays: Any, **options: Any) -> Any:
    return np.meshgrid(*arrays, **options)
