"""A wrong call raises, traced, what NumPy raises for it: the same built-in class, and `CompileError`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tpuc
from compiler.diagnostics import CompileError

X = np.ones((3, 4), np.float32)
V = np.arange(5, dtype=np.float32)
N = np.arange(5, dtype=np.int32)
U = np.arange(5, dtype=np.uint8)
Z = np.ones(3, np.complex64)

WRONG: dict[str, list[Callable[..., Any]]] = {
    "shapes": [
        lambda x, v, *_: x + v,
        lambda x, v, *_: x @ v,
        lambda x, v, *_: np.dot(x, v),
        lambda x, *_: x.reshape(5, 5),
        lambda x, *_: x.reshape(-1, -1),
        lambda x, *_: np.squeeze(x, 0),
        lambda x, v, *_: np.concatenate([x, v]),
        lambda x, v, *_: np.stack([v, v[:2]]),
        lambda x, v, *_: np.broadcast_to(v, (3, 4)),
        lambda x, v, *_: np.split(v, 2),
        lambda x, v, *_: np.array_split(v, 0),
        lambda x, v, *_: np.einsum("ij,jk", x, x),
        lambda x, v, *_: np.einsum("i$", v),
        lambda x, v, *_: np.where(v > 1, v),
        lambda x, v, *_: np.interp(v, v, v[:2]),
        lambda x, v, *_: np.max(v[:0]),
        lambda x, v, *_: np.argmin(v[:0]),
        lambda x, v, *_: np.average(x, axis=0, weights=v),
        lambda x, v, *_: np.average(v, weights=v[:2]),
        lambda x, v, *_: np.searchsorted(x, v),
        lambda x, v, *_: np.convolve(v, v[:0]),
        lambda x, v, *_: np.vsplit(v, 1),
        lambda x, v, *_: np.vander(x),
    ],
    "axes": [
        lambda x, *_: x.sum(axis=2),
        lambda x, *_: x.sum(axis=(0, 0)),
        lambda x, *_: x.sum(axis=1.5),
        lambda x, *_: np.swapaxes(x, 0, 4),
        lambda x, *_: np.transpose(x, (0, 0)),
        lambda x, *_: np.sort(x, axis=3),
        lambda x, *_: np.rollaxis(x, 4),
        lambda x, *_: np.compress([True, False], x, axis=3),
    ],
    "indices": [
        lambda x, *_: x[5],
        lambda x, *_: x[0, 0, 0],
        lambda x, *_: x[..., ...],
        lambda x, *_: x["a"],
        lambda x, *_: x[np.array([1.5])],
        lambda x, *_: x[np.ones((2, 2), bool)],
        lambda x, *_: x[..., np.ones(3, bool)],
        lambda x, *_: x[None, 0, np.ones(3, bool)],
        lambda x, v, *_: v[np.array([7])],
        lambda x, v, *_: np.take(v, [-6]),
        lambda x, v, *_: np.partition(v, 9),
        lambda x, v, *_: np.add.reduceat(v, [9]),
    ],
    "types": [
        lambda x, v, *_: v & 1,
        lambda x, v, *_: ~v,
        lambda x, v, *_: v << 1,
        lambda x, v, *_: v + None,
        lambda x, v, *_: v + "a",
        lambda x, v, *_: -(v > 1),
        lambda x, v, *_: (v > 1) - (v > 2),
        lambda x, v, *_: np.gcd(v, 2),
        lambda x, v, *_: np.packbits(v),
        lambda x, v, n, u, z: np.floor(z),
        lambda x, v, n, u, z: np.fft.rfft(z),
        lambda x, v, *_: np.around(v, 1.5),
    ],
    "numbers": [
        lambda x, v, n, *_: n + 2**40,
        lambda x, v, n, u, z: u + 300,
        lambda x, v, n, u, z: u - -1,
        lambda x, v, n, *_: n**-1,
    ],
    "options": [
        lambda x, v, *_: np.pad(v, 1, mode="nope"),
        lambda x, v, *_: np.pad(v, -1),
        lambda x, v, *_: np.quantile(v, 0.5, method="nope"),
        lambda x, v, *_: np.percentile(v, 120),
        lambda x, v, *_: np.convolve(v, v, "nope"),
        lambda x, v, *_: np.fft.fft(v, n=0),
        lambda x, v, *_: np.fft.fft(v, norm="nope"),
        lambda x, v, *_: np.histogram(v, bins=0),
        lambda x, v, *_: np.histogram(v, range=(3, 1)),
        lambda x, v, *_: np.linspace(v, v, -1),
        lambda x, v, *_: np.diff(v, n=-1),
        lambda x, v, *_: np.meshgrid(v, v, indexing="zz"),
        lambda x, v, *_: np.polyfit(v, v, -1),
        lambda x, v, *_: np.searchsorted(v, v, side="mid"),
        lambda x, v, *_: np.linalg.norm(v, ord="fro"),
    ],
    "matrices": [
        lambda x, *_: np.linalg.inv(x),
        lambda x, v, *_: np.linalg.qr(v),
        lambda x, *_: np.linalg.det(x),
        lambda x, *_: np.linalg.matrix_power(x, 2),
        lambda x, *_: np.linalg.cholesky(x),
        lambda x, v, *_: np.linalg.multi_dot([v]),
    ],
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_calls_raise_what_numpy_raises(kind: str) -> None:
    arguments = (X, V, N, U, Z)
    for number, call in enumerate(WRONG[kind]):
        with pytest.raises(Exception) as wanted:  # whatever NumPy says
            call(*arguments)
        public = next(c for c in wanted.type.__mro__ if not c.__name__.startswith(("UFunc", "_")))
        with pytest.raises(public) as found:
            tpuc.jit(call).lower(*arguments)
        is_ours = isinstance(found.value, CompileError) or "interpreted as an integer" in str(
            found.value
        )
        assert is_ours, (kind, number, found.value)


def test_what_no_one_named_is_a_value_error_with_its_message() -> None:
    with pytest.raises(ValueError, match=r"\[3, 4\] and \[5\] cannot be broadcast"):
        tpuc.jit(lambda x, v: x * v).lower(X, V)


def test_an_array_without_a_value_is_a_type_error() -> None:
    table = np.arange(9)
    with pytest.raises(TypeError, match=r"tpuc\.numpy\.asarray"):
        tpuc.jit(lambda n: table[n]).lower(N)


def test_arrays_on_the_device_raise_the_same() -> None:
    x = tpuc.device_put(X)
    with pytest.raises(ValueError, match="squeeze"):
        np.squeeze(x, 0)
    with pytest.raises(IndexError):
        x[7]


METHODS = (
    "linear", "lower", "higher", "nearest", "midpoint", "inverted_cdf", "averaged_inverted_cdf",
    "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased",
    "normal_unbiased",
)  # fmt: skip


def test_quantiles_by_each_method() -> None:
    x = np.random.default_rng(0).standard_normal((4, 10)).astype(np.float32)
    q = [0, 0.05, 0.25, 0.3, 0.5, 0.77, 1]

    @tpuc.jit
    def all_methods(x: Any) -> Any:
        return [np.quantile(x, q, axis=1, method=m) for m in METHODS]

    for method, found in zip(METHODS, all_methods(x), strict=True):
        want = np.quantile(x, q, axis=1, method=method)
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6, err_msg=method)


def test_quantiles_of_several_axes_and_of_missing_values() -> None:
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    holed = np.where(x > 1, np.nan, x)

    def several(x: Any, holed: Any) -> Any:
        return (
            np.quantile(x, [0.2, 0.9], axis=(0, 2), keepdims=True),
            np.percentile(x, 30, axis=(0, 1)),
            np.median(x),
            np.nanquantile(holed, 0.3, axis=1, method="lower"),
            np.nanpercentile(holed, [10, 50]),
        )

    for found, want in zip(tpuc.jit(several)(x, holed), several(x, holed), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def test_arrays_by_columns() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    def by_columns(x: Any) -> Any:
        flat = x.ravel("F")
        flat[0] = 99  # of an array by rows that is a copy
        return (
            flat,
            x,
            x.reshape(4, -1, order="F"),
            np.reshape(x, (6, 4), order="F"),
            x.flatten("F"),
        )

    for found, want in zip(tpuc.jit(by_columns)(x), by_columns(x.copy()), strict=True):
        np.testing.assert_array_equal(found, want)


def test_correlation_with_a_longer_array() -> None:
    x, y = V[:3] + 1, V[::-1] * 2

    def correlated(x: Any, y: Any) -> Any:
        return [np.correlate(x, y, m) for m in ("full", "same", "valid")] + [
            np.average(y, keepdims=True)
        ]

    for found, want in zip(tpuc.jit(correlated)(x, y), correlated(x, y), strict=True):
        np.testing.assert_allclose(found, want)
