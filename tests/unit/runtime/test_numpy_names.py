"""`tpuc.numpy` in the place of NumPy: what programs of NumPy's use beside its functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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


def ufunc_methods(np: Any) -> list[Any]:
    """What a ufunc of two arguments has beside the call, ways to sort, and arrays joined by a key."""
    x = np.asarray([[3, -1, 2], [0, 5, -4]], dtype=np.float32)
    return [
        np.add.reduce(x, axis=1), np.maximum.accumulate(x, axis=1), np.subtract.outer(x[0], x[1]),
        np.add.reduceat(x[0], [0, 2]), np.logical_or.reduce(x > 4), np.multiply.reduce(x),
        np.argsort(x, kind="stable"), np.sort(x, axis=0, kind="mergesort"), np.argsort(x, -1, "quicksort"),
        np.r_[True, x[0, 1:] != x[0, :-1]], np.r_[1:4, x[1], 7], np.c_[x[0], x[1], x[1]], np.r_[0:1:5j],
        np.c_[x, x],
    ]  # fmt: skip


def test_ufuncs_have_methods_and_sorts_have_kinds() -> None:
    want = ufunc_methods(np)
    for found in (ufunc_methods(xp), tpuc.jit(lambda: ufunc_methods(xp))()):
        for ours, numpys in zip(found, want, strict=True):
            np.testing.assert_allclose(ours, numpys)
            assert np.asarray(ours).dtype.kind == np.asarray(numpys).dtype.kind


def test_methods_of_ufuncs_change_traced_arrays_and_refuse_others() -> None:
    def add_at(x: Any, i: Any) -> Any:
        xp.add.at(x, i, 2.0)
        return x

    x, i = np.zeros(3, np.float32), np.asarray([0, 2, 2], np.int32)
    np.testing.assert_array_equal(tpuc.jit(add_at)(x, i), [2, 0, 4])
    with pytest.raises(tpuc.UnsupportedError, match=r"np\.add\.at is to change an array"):
        xp.add.at(xp.zeros(3), 0, 2.0)
    with pytest.raises(ValueError, match="sort kind must be one of"):
        xp.sort(x, kind="bogo")
    assert not hasattr(xp.sqrt, "reduce")


def test_counts_have_a_known_size_where_it_covers_the_type() -> None:
    bytes_ = np.asarray([3, 255, 3, 0], np.uint8)
    for counts in (
        tpuc.jit(lambda x: np.bincount(x, minlength=256))(bytes_),
        tpuc.jit(lambda x: xp.bincount(x, minlength=256))(bytes_),
        xp.bincount(bytes_, minlength=256),
    ):
        np.testing.assert_array_equal(counts, np.bincount(bytes_, minlength=256))
    weights = np.asarray([1, 2, 4, 8], np.float32)
    sums = tpuc.jit(lambda x, w: np.bincount(x > 2, w, minlength=2))(bytes_, weights)
    np.testing.assert_array_equal(sums, [8, 7])
    for minlength in (0, 255):
        with pytest.raises(tpuc.UnsupportedError, match="size="):
            tpuc.jit(lambda x, n=minlength: np.bincount(x, minlength=n))(bytes_)


def test_the_sign_of_a_zero_is_a_positive_zero() -> None:
    for z in (
        np.asarray([-0.0, 0, 2], np.float32),
        np.asarray([complex(-0.0, -0.0), 3j], np.complex64),
    ):
        found, want = np.asarray(xp.sign(xp.asarray(z))), np.sign(z)
        np.testing.assert_array_equal(found, want)
        np.testing.assert_array_equal(np.signbit(found.real), np.signbit(want.real))
        np.testing.assert_array_equal(np.signbit(found.imag), np.signbit(want.imag))
