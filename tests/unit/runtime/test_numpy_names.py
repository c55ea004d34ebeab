"""`tpuc.numpy` in the place of NumPy: what programs of NumPy's use beside its functions."""

from __future__ import annotations

from typing import Any

import numpy as np

import tpuc
import tpuc.numpy as xp


def creation(np: Any) -> list[Any]:
    """Types given by position, as NumPy's programs do."""
    return [
        np.zeros(3, np.int32), np.ones((2, 2), np.int8), np.full(3, 7, np.float32), np.empty(2, np.uint8) * 0,
        np.zeros_like(np.ones(3), np.int32), np.full_like(np.ones(2), 3, np.int32),
        np.asarray([1, 2], np.float32), np.eye(3, 4, 1, np.float32), np.arange(1, 9, 2, np.float32),
        np.linspace(0, 1, 5, False), np.linspace(0, 2, 5, retstep=True)[1], np.ascontiguousarray([1.5, 2]),
    ]  # fmt: skip


def positions(np: Any) -> list[Any]:
    """Positions that follow from dimensions."""
    x = np.reshape(np.arange(16), (4, 4))
    rows, columns = np.ogrid[:4, :3]
    return [
        *np.mgrid[:2, 0:6:2], rows * columns, *np.indices((2, 3)), *np.indices((2, 3), sparse=True),
        x[np.tril_indices(4)], x[np.triu_indices(4, 1)], x[np.diag_indices(4)],
        np.fromfunction(lambda i, j: i + 2 * j, (2, 3)), x[np.s_[1:3, ::2]],
    ]  # fmt: skip


def test_arrays_are_made_as_numpy_makes_them() -> None:
    for make in (creation, positions):
        for found, want in zip(make(xp), make(np), strict=True):
            np.testing.assert_allclose(found, want)
            assert np.asarray(found).dtype.kind == np.asarray(want).dtype.kind


def test_and_so_inside_of_a_function() -> None:
    for make in (creation, positions):
        for found, want in zip(tpuc.jit(lambda make=make: make(xp))(), make(np), strict=True):
            np.testing.assert_allclose(found, want)


def test_ends_of_slices_are_read_and_nothing_is_taken_of_nothing() -> None:
    x = xp.arange(10)
    ends = x[3:6:2]
    np.testing.assert_array_equal(x[ends[0] : ends[1]], [3, 4])
    np.testing.assert_array_equal(x.at[: ends[0]].set(9)[:4], [9, 9, 9, 3])
    empty = xp.zeros(0, xp.int8)
    assert xp.repeat(empty, empty).shape == (0,)
    assert x[[]].shape == (0,)


def test_kinds_and_classes() -> None:
    x = xp.zeros(3, xp.float32)
    assert isinstance(x, xp.ndarray)
    assert xp.issubdtype(x.dtype, xp.floating)
    assert not xp.issubdtype(xp.int32, xp.inexact)
    assert xp.broadcast_shapes((3, 1), (4,)) == (3, 4)
