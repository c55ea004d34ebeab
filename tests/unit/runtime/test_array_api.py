"""`tpuc.numpy`: on traced arrays and on device arrays, with NumPy's values and the standard's types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tpuc
import tpuc.numpy as xp
from compiler.diagnostics import CompileError, UnsupportedError
from runtime.buffer import Array
from tests.unit.frontends.test_numpy_tracing import run

HOST = np.float32([[3, -1, 2], [0, np.nan, 5]])
X = xp.asarray(HOST)
N = xp.asarray([3, 1, 3, 0, 1])


def check(got: Any, want: Any, dtype: Any = None) -> None:
    assert isinstance(got, Array)
    assert got.dtype == np.dtype(dtype or np.asarray(want).dtype)
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


def test_creation_has_the_types_of_the_standard() -> None:
    check(xp.asarray([1, 2]), [1, 2], np.int32)
    check(xp.asarray([[1.5], [2]]), [[1.5], [2]], np.float32)
    check(xp.asarray([True]), [True])
    check(xp.asarray(2j), 2j, np.complex64)
    check(xp.asarray([1, -1], dtype=xp.int64), [1, -1], np.int64)
    check(xp.asarray([2**40], dtype=xp.uint64), [2**40], np.uint64)
    check(xp.asarray([X[0, 0], 1.0]), [3.0, 1.0], np.float32)
    check(xp.arange(2, 10, 3), [2, 5, 8], np.int32)
    check(xp.arange(3, dtype=xp.bfloat16).astype(xp.float32), [0, 1, 2], np.float32)
    check(xp.linspace(0, 1, 5), [0, 0.25, 0.5, 0.75, 1], np.float32)
    check(xp.eye(2, 3, k=1), np.eye(2, 3, 1), np.float32)
    check(xp.full((2,), 7), [7, 7], np.int32)
    check(xp.zeros_like(N), np.zeros(5), np.int32)
    check(xp.tri(3), np.tri(3), np.float32)
    assert xp.asarray(X) is X and xp.asarray(X, device=X.device) is X


def test_no_chip_has_f64() -> None:
    for make in (lambda: xp.zeros(3, dtype=xp.float64), lambda: xp.astype(X, np.complex128)):
        with pytest.raises(UnsupportedError, match="no chip has it; use"):
            make()
    assert xp.float64 not in xp.__array_namespace_info__().dtypes(kind="real floating").values()


def test_64_bit_integers_are_real() -> None:
    big = xp.asarray([2**40, -1], dtype=xp.int64)
    check(big * 3 + big, [2**42, -4], np.int64)
    check(big + 2**41, [2**40 + 2**41, 2**41 - 1], np.int64)
    check(xp.asarray([1], dtype=xp.uint32) + xp.asarray([-2]), [-1], np.int64)
    check(xp.sum(N, dtype=xp.int64), 8, np.int64)
    assert tpuc.jit(lambda x: x + 1)(big).dtype == np.int64
    with pytest.raises(CompileError, match="does not fit int32"):
        xp.asarray(2**40)


def test_scalars_that_do_not_fit_are_errors() -> None:
    small = xp.asarray([1], dtype=xp.uint8)
    check(small + 254, [255], np.uint8)
    for number in (300, -1):
        with pytest.raises(OverflowError, match="does not fit uint8"):
            small + number


@pytest.mark.parametrize("is_traced", [False, True], ids=["eager", "traced"])
def test_ranges_that_do_not_fit_are_errors(is_traced: bool) -> None:
    def made(args: tuple[int, ...], dtype: Any) -> Any:
        def function() -> Any:
            return xp.arange(*args, dtype=dtype)

        return tpuc.jit(function)() if is_traced else function()

    big = 2**31
    for args, dtype in (((big, big + 3), None), ((-1, 5), xp.uint8), ((300, 0, -100), xp.int8)):
        with pytest.raises(OverflowError, match=r"arange: .* does not fit"):
            made(args, dtype)
    for args, dtype in (((big, big + 3), xp.uint32), ((big * 512, 0, -big), xp.int64)):
        assert np.asarray(made(args, dtype)).tolist() == list(range(*args))


@pytest.mark.parametrize(
    "function",
    [
        lambda xp, x: xp.sum(x, axis=1) + xp.max(x),
        lambda xp, x: xp.where(xp.isnan(x), 0, x),
        lambda xp, x: xp.concat([x, xp.ones_like(x)], axis=0),
        lambda xp, x: xp.cumulative_sum(x, axis=1, include_initial=True),
        lambda xp, x: xp.std(xp.nan_to_num(x), correction=1),
        lambda xp, x: xp.arange(3) + xp.eye(3)[0] * xp.linspace(0, 1, 3, dtype=xp.float32),
        lambda xp, x: xp.linalg.vector_norm(x[0]) + xp.fft.fftshift(x[0]),
        lambda xp, x: xp.zeros((2, 3), dtype=xp.float32) + xp.full((3,), 2),
    ],
)
def test_one_function_traced_and_eager(function: Callable[..., Any]) -> None:
    want = function(np, HOST)
    check(function(xp, X), want, np.float32)
    check(tpuc.jit(lambda x: function(xp, x))(X), want, np.float32)


def test_sorting_both_ways() -> None:
    check(xp.sort(X, descending=True), [[3, 2, -1], [np.nan, 5, 0]], np.float32)
    check(xp.argsort(N, descending=True), [0, 2, 1, 4, 3], np.int32)
    check(xp.argsort(N), [3, 1, 4, 0, 2], np.int32)


def test_sizes_are_read_outside_of_a_trace() -> None:
    check(X[X > 1], [3, 2, 5], np.float32)
    check(X[xp.asarray([True, False])], HOST[:1], np.float32)
    check(xp.nonzero(X > 1)[1], [0, 2, 2], np.int32)
    check(xp.argwhere(N == 3), [[0], [2]], np.int32)
    values, indices, inverse, counts = xp.unique_all(N)
    for got, want in ((values, [0, 1, 3]), (indices, [3, 1, 0]), (counts, [1, 2, 2])):
        check(got, want, np.int32)
    check(inverse, [2, 1, 2, 0, 1], np.int32)
    check(xp.intersect1d(N, xp.asarray([1, 7, 0])), [0, 1], np.int32)


def test_set_functions() -> None:
    """Traced and evaluated: compiling sorts takes a while."""
    other = np.int32([1, 7])

    def function(n: Any, m: Any) -> Any:
        functions = (xp.setdiff1d, xp.setxor1d, xp.union1d, xp.intersect1d)
        return [f(n, m, size=5, fill_value=-1) for f in functions]

    found = run(function, np.asarray(N), other)
    want = [[0, 3, -1, -1, -1], [0, 3, 7, -1, -1], [0, 1, 3, 7, -1], [1, -1, -1, -1, -1]]
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_array_equal(got, expected)
    nan = run(lambda x: xp.unique_values(x, size=4), np.float32([np.nan, 1, np.nan, 0]))
    np.testing.assert_array_equal(nan, [0, 1, np.nan, np.nan])


def test_sizes_are_stated_inside_of_one() -> None:
    found = tpuc.jit(lambda n: (xp.unique_values(n, size=4), xp.nonzero(n, size=2)))(N)
    check(found[0], [0, 1, 3, 0], np.int32)
    check(found[1][0], [0, 1], np.int32)
    counts = run(lambda n: xp.bincount(n, length=3), np.asarray(N))
    np.testing.assert_array_equal(counts, [1, 2, 0])
    with pytest.raises(UnsupportedError, match="state size="):
        tpuc.jit(xp.unique_values)(N)
    repeated = run(lambda n: xp.repeat(n, n, size=9), np.asarray(N))
    np.testing.assert_array_equal(repeated, [3, 3, 3, 1, 3, 3, 3, 1, 1])
    with pytest.raises(UnsupportedError, match="repeat: the number of results is not known"):
        tpuc.jit(lambda n: xp.repeat(n, n))(N)


def test_counts_are_read_to_repeat_elements() -> None:
    check(xp.repeat(N, N), [3, 3, 3, 1, 3, 3, 3, 1], np.int32)
    check(xp.repeat(X, xp.asarray([2]), axis=0)[1], HOST[0], np.float32)
    check(xp.repeat(N[:2], 2), [3, 3, 1, 1], np.int32)
    assert [array.shape for array in xp.broadcast_arrays(N, X[:, :1])] == [(2, 5), (2, 5)]


def test_updates_make_new_arrays() -> None:
    check(X.at[0, 1].set(9), [[3, 9, 2], [0, np.nan, 5]], np.float32)
    check(N.at[1:3].add(10), [3, 11, 13, 0, 1], np.int32)
    check(X.at[X > 2].multiply(2), [[6, -1, 2], [0, np.nan, 10]], np.float32)
    check(N.at[xp.asarray([0, 0, 4])].add(1), [5, 1, 3, 0, 2], np.int32)
    check(N, [3, 1, 3, 0, 1], np.int32)
    with pytest.raises(TypeError, match=r"N = N\.at\[0\]\.set\(\.\.\.\)"):
        N[0] = 1


def test_what_a_namespace_says_of_itself() -> None:
    assert X.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(ValueError, match="2099"):
        X.__array_namespace__(api_version="2099.12")
    info = xp.__array_namespace_info__()
    assert info.default_device() in info.devices() and X.to_device(X.device) is X
    assert info.default_dtypes()["indexing"] == np.int32
    assert xp.isdtype(xp.bfloat16, "real floating") and not xp.isdtype(xp.int8, ("bool", xp.int16))
    assert xp.result_type(xp.int8, xp.uint8) == np.int16 and xp.result_type(N, 1.0) == np.float32
    assert xp.can_cast(xp.int8, xp.int32) and not xp.can_cast(xp.float32, xp.bfloat16)
    assert xp.finfo(xp.bfloat16).bits == 16 and xp.iinfo(xp.int64).max == 2**63 - 1
    assert xp.finfo(np.dtype(ml_dtypes.bfloat16)).eps == 2**-7
    check(xp.from_dlpack(np.arange(3)), [0, 1, 2], np.int64)
