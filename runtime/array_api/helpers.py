"""Names of NumPy's that `tpuc.numpy` has beside its functions.

What says something of types, shapes and keys is NumPy's own; positions that follow from dimensions are made
as other arrays are (`creation`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.methods import ArrayMethods
from runtime.array_api.calls import on_arrays
from runtime.array_api.creation import asarray

NUMPYS_OWN = (
    "broadcast_shapes", "complexfloating", "dtype", "errstate", "floating", "generic", "index_exp", "inexact",
    "integer", "isscalar", "issubdtype", "ndenumerate", "ndindex", "number", "printoptions", "s_",
    "set_printoptions", "signedinteger", "unsignedinteger",
)  # fmt: skip
"""Taken from NumPy as they are."""

ndarray = ArrayMethods
"""What arrays on the device and traced arrays are, for `isinstance` and annotations."""


def _all(arrays: Any) -> Any:
    """Arrays of positions, in the tuple or list that they come in."""
    return type(arrays)(asarray(x) for x in arrays)


class _Grid:
    """`mgrid` or `ogrid`: positions by a key of slices."""

    def __init__(self, made: Any) -> None:
        self._made = made

    def __getitem__(self, key: Any) -> Any:
        found = self._made[key]
        return _all(found) if isinstance(found, list | tuple) else asarray(found)


mgrid, ogrid = _Grid(np.mgrid), _Grid(np.ogrid)


class _Joined:
    """`r_` or `c_`: slices, numbers and arrays of a key, joined along the first axis or as columns."""

    def __init__(self, join: Callable[[list[Any]], Any]) -> None:
        self._join = join

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(part, str) for part in parts):
            raise UnsupportedError("r_ and c_ with directions in words: write xp.concatenate(..)")
        return self._join([self._part(part) for part in parts])

    def _part(self, part: Any) -> Any:
        if isinstance(part, slice):
            return asarray(np.r_[part])
        return on_arrays(np.atleast_1d, asarray(part))


def _in_a_row(parts: list[Any]) -> Any:
    return on_arrays(np.concatenate, parts)


def _as_columns(parts: list[Any]) -> Any:
    return on_arrays(np.column_stack, parts)


r_, c_ = _Joined(_in_a_row), _Joined(_as_columns)


def indices(dimensions: Sequence[int], dtype: Any = None, sparse: bool = False) -> Any:
    """The positions along each axis of an array of so many elements."""
    if sparse:
        return tuple(asarray(x, dtype=dtype) for x in np.indices(dimensions, sparse=True))
    return asarray(np.indices(dimensions), dtype=dtype)


def tril_indices(n: int, k: int = 0, m: int | None = None) -> Any:
    """Where a matrix lies at or below its `k`-th diagonal."""
    return _all(np.tril_indices(n, k, m))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> Any:
    """Where a matrix lies at or above its `k`-th diagonal."""
    return _all(np.triu_indices(n, k, m))


def diag_indices(n: int, ndim: int = 2) -> Any:
    """Where an array with axes of `n` elements has its main diagonal."""
    return _all(np.diag_indices(n, ndim))


def fromfunction(function: Callable[..., Any], shape: Sequence[int], **options: Any) -> Any:
    """`function` of the positions along each axis, which are f32 unless `dtype` is stated."""
    dtype = options.pop("dtype", np.float32)
    return function(*indices(shape, dtype=dtype), **options)
