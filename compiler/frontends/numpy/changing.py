"""NumPy's functions that change their first argument: what the array is afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.errors import BadValueError


def _copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> Any:
    values = np.broadcast_to(src, dst.shape) if where is True else np.where(where, src, dst)
    return values.astype(dst.dtype)


def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> Any:
    if wrap:
        raise UnsupportedError("np.fill_diagonal: wrap=True; want a matrix that is not tall")
    if a.ndim < 2:
        raise BadValueError("np.fill_diagonal: want an array of two dimensions or more")
    places = np.arange(min(a.shape))
    return a.at[(places,) * a.ndim].set(val)


def _put(a: Any, ind: Any, v: Any, mode: str = "raise") -> Any:
    places = ind if hasattr(ind, "shape") else np.asarray(ind)
    return a.reshape(-1).at[places].set(_repeated(v, places.shape)).reshape(a.shape)


def _putmask(a: Any, mask: Any, values: Any) -> Any:
    return np.where(mask, _repeated(values, a.shape), a).astype(a.dtype)


def _place(arr: Any, mask: Any, vals: Any) -> Any:
    if np.size(vals) != 1:
        raise UnsupportedError("np.place of several values: which goes where depends on the mask")
    return np.where(mask, np.reshape(vals, ()), arr).astype(arr.dtype)


def _put_along_axis(arr: Any, indices: Any, values: Any, axis: int = -1) -> Any:
    axis %= arr.ndim
    rows = np.ogrid[tuple(slice(n) for n in np.shape(indices))]
    key = tuple(indices if i == axis else row for i, row in enumerate(rows))
    return arr.at[key].set(values)


def _repeated(values: Any, shape: tuple[int, ...]) -> Any:
    same = np.shape(values) in ((), shape)
    return values if same else np.resize(values, shape)


CHANGED: dict[object, Callable[..., Any]] = {
    np.copyto: _copyto,
    np.fill_diagonal: _fill_diagonal,
    np.place: _place,
    np.put: _put,
    np.put_along_axis: _put_along_axis,
    np.putmask: _putmask,
}
"""For each function the value that its first argument gets, of the same arguments."""

AT: dict[np.ufunc, str] = {
    np.add: "add",
    np.maximum: "max",
    np.minimum: "min",
    np.multiply: "multiply",
    np.subtract: "subtract",
}
"""The method of ``x.at[key]`` for each ``ufunc.at(x, key, value)``."""
