"""Maxima and minima of floats in which -0 lies below +0, which NumPy's functions do not know."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def maximum(x: Array, y: Array) -> Array:
    """The greater one, +0 of two zeros of different sign; NaN if one is."""
    return _signed_zeros(np.asarray(np.maximum(x, y)), x, y, 1)


def minimum(x: Array, y: Array) -> Array:
    """The smaller one, -0 of two zeros of different sign; NaN if one is."""
    return _signed_zeros(np.asarray(np.minimum(x, y)), x, y, -1)


def reduce_maximum(array: Array, axes: tuple[int, ...]) -> Array:
    """The greatest along axes (none of which is empty)."""
    return _reduced(np.asarray(np.maximum.reduce(array, axis=axes)), array, axes, is_negative=False)


def reduce_minimum(array: Array, axes: tuple[int, ...]) -> Array:
    """The least along axes (none of which is empty)."""
    return _reduced(np.asarray(np.minimum.reduce(array, axis=axes)), array, axes, is_negative=True)


def maximum_at(flat: Array, targets: Array, updates: Array) -> None:
    """In place: each target becomes the greatest of itself and its updates."""
    _combine_at(np.maximum, flat, targets, updates, is_negative=False)


def minimum_at(flat: Array, targets: Array, updates: Array) -> None:
    """In place: each target becomes the least of itself and its updates."""
    _combine_at(np.minimum, flat, targets, updates, is_negative=True)


def _signed_zeros(result: Array, x: Array, y: Array, sign: int) -> Array:
    """The sum of zeros is -0 where both are; with the signs turned, +0 where both are."""
    if result.dtype.kind != "f":
        return result
    is_zero = (x == 0) & (y == 0)
    return np.where(is_zero, sign * (sign * x + sign * y), result) if is_zero.any() else result


def _reduced(result: Array, array: Array, axes: tuple[int, ...], *, is_negative: bool) -> Array:
    """The result with the sign of the zero that wins where a zero is the extreme."""
    if result.dtype.kind != "f" or not (result == 0).any():
        return result
    found = _wins(array, is_negative).any(axis=axes)
    won, lost = (-0.0, 0.0) if is_negative else (0.0, -0.0)
    zeros = np.where(found, result.dtype.type(won), result.dtype.type(lost))
    return np.where(result == 0, zeros, result)


def _combine_at(
    ufunc: np.ufunc, flat: Array, targets: Array, updates: Array, *, is_negative: bool
) -> None:
    found = _wins(flat, is_negative) if flat.dtype.kind == "f" else None
    ufunc.at(flat, targets, updates)
    if found is not None:
        np.logical_or.at(found, targets, _wins(updates, is_negative))
        flat[(flat == 0) & found] = -0.0 if is_negative else 0.0


def _wins(array: Array, is_negative: bool) -> Array:
    """Where the zeros are whose sign an extreme of zeros of both signs has."""
    return np.asarray((array == 0) & (np.signbit(array) == is_negative))
