"""Functions that edit, count, interpolate and divide: the traced module, evaluated, agrees with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler.frontends.numpy.pytree import flatten
from tests.unit.frontends.test_numpy_tracing import run

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 6)).astype(np.float32)
V = RNG.standard_normal(9).astype(np.float32)
M = RNG.integers(-50, 60, (4, 5)).astype(np.int32)
J = RNG.integers(-9, 30, (4, 5)).astype(np.int32)
U = RNG.integers(0, 256, (3, 4)).astype(np.uint8)
K = np.int32([1, 3, 0, 2, 2])
T = RNG.standard_normal((3, 4, 5)).astype(np.float32)
H = np.where(X > 1, np.nan, X).astype(np.float32)
POINTS = np.float32([0, 1, 1.5, 3, 4, 6])

PADS: Any = ("edge", "reflect", "symmetric", "wrap")
MASK = np.array([True, False, True, True, False])

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "gcd": (
        lambda a, b: (np.gcd(a, b), np.lcm(a, b), np.gcd(a, 0)),
        (
            M,
            J,
        ),
    ),
    "bitcount": (
        lambda a, u: (np.bitwise_count(a), np.bitwise_count(u)),
        (
            M,
            U,
        ),
    ),
    "pack": (
        lambda u: (
            np.packbits(u > 100),
            np.packbits(u > 100, axis=1),
            np.packbits(u > 100, axis=0, bitorder="little"),
        ),
        (U,),
    ),
    "unpack": (
        lambda u: (
            np.unpackbits(u),
            np.unpackbits(u, axis=1),
            np.unpackbits(u, axis=0, count=20),
            np.unpackbits(u, axis=0, count=-0 + 30, bitorder="little"),
        ),
        (U,),
    ),
    "ravelmi": (
        lambda k: (
            np.ravel_multi_index((k, k), (4, 5)),
            np.ravel_multi_index((k, k * 2), (4, 5), mode="clip"),
            np.ravel_multi_index((k, k * 2), (4, 5), mode="wrap", order="F"),
        ),
        (K,),
    ),
    "unravel": (
        lambda k: (np.unravel_index(k * 3, (4, 5)), np.unravel_index(k * 3, (4, 5), order="F")),
        (K,),
    ),
    "block": (
        lambda x, v: (
            np.block([[x, x], [x[:1], x[:1]]]),
            np.block([v, v]),
            np.block([[x[0], x[1]], [x[2], x[3]]]),
        ),
        (
            X,
            V,
        ),
    ),
    "poly+": (
        lambda v, w: (np.polyadd(v, w), np.polysub(v, w), np.polymul(v, w)),
        (
            V,
            V[:3],
        ),
    ),
    "polyder": (
        lambda v: (
            np.polyder(v),
            np.polyder(v, 2),
            np.polyint(v),
            np.polyint(v, 2, np.float32([1, 2])),
        ),
        (V,),
    ),
    "polydiv": (
        lambda v, w: np.polydiv(v, w)[0],
        (
            V,
            V[:3],
        ),
    ),
    "poly": (lambda v: np.poly(v), (V[:4],)),
    "polyfit": (
        lambda x, y: (np.polyfit(x, y, 2), np.polyfit(x, y, 1, w=np.abs(y) + 1)),
        (
            V,
            V**2 + 1,
        ),
    ),
    "delete": (
        lambda x: (np.delete(x, 2), np.delete(x, [0, -1], 1), np.delete(x, slice(1, 3), 0)),
        (X,),
    ),
    "insert": (
        lambda x: (
            np.insert(x, 1, 5),
            np.insert(x, 2, x[0], axis=0),
            np.insert(x, [1, 3], 7, axis=1),
            np.insert(x, 1, x[:, 0], axis=1),
            np.insert(x, [0, -1, 2], x[:3], axis=0),
            np.insert(x[0], 3, np.float32([1, 2])),
        ),
        (X,),
    ),
    "resize": (lambda x: (np.resize(x, (4, 11)), np.resize(x, 3)), (X,)),
    "choose": (
        lambda k: (
            np.choose(k, [np.arange(5), k, k * 2, k * 3]),
            np.choose(k * 2, [1, 2], mode="clip"),
        ),
        (K,),
    ),
    "compress": (
        lambda x: (np.compress([True, False, True], x, axis=0), np.compress([0, 1, 1], x)),
        (X,),
    ),
    "piecewise": (
        lambda x: (
            np.piecewise(x, [x < 0, x > 1], [-1, lambda y: y * 2, 0.5]),
            np.piecewise(x, [x < 0], [lambda y: -y]),
        ),
        (X,),
    ),
    "partition": (
        lambda x: (np.sort(np.partition(x, 2)[:, :3]), np.partition(x, 1, axis=0)[1]),
        (X,),
    ),
    "lexsort": (
        lambda a, b: (np.lexsort((a[0], b[0] // 10)), np.lexsort((a // 20, b // 10), axis=0)),
        (
            M,
            J,
        ),
    ),
    "aaa": (
        lambda x: (
            np.apply_along_axis(lambda r: r * 2 + r.sum(), 1, x),
            np.apply_along_axis(np.sum, 0, x),
        ),
        (X,),
    ),
    "aaa3": (lambda x: np.apply_along_axis(lambda r: np.outer(r, r), 1, x), (T,)),
    "aoa": (lambda x: np.apply_over_axes(np.sum, x, [0, 2]), (T,)),
    "ix": (lambda k: np.ix_(k, k), (K,)),
    "tril_idx": (lambda x: (np.tril_indices_from(x, 1), np.triu_indices_from(x)), (X,)),
    "diagidx": (lambda x: np.diag_indices_from(x), (X[:5, :5],)),
    "hist": (
        lambda x: (
            np.histogram(x, 5),
            np.histogram(x, 4, (-1, 1)),
            np.histogram(x, np.float32([-1, 0, 0.5, 2])),
            np.histogram(x, 5, density=True),
            np.histogram(x, 3, weights=x),
        ),
        (X,),
    ),
    "hist2": (
        lambda x: (
            np.histogram2d(x[0], x[1], 3),
            np.histogram2d(x[0], x[1], [2, 3]),
            np.histogramdd(x[:, :2], 3),
            np.histogram_bin_edges(x, 4),
        ),
        (X,),
    ),
    "ediff": (lambda v: (np.ediff1d(v), np.ediff1d(v, 1, v[:2])), (V,)),
    "gradient": (
        lambda x: (
            np.gradient(x),
            np.gradient(x, 2.0, axis=1),
            np.gradient(x, edge_order=2),
            np.gradient(x[0], POINTS),
            np.gradient(x, 2.0, POINTS, edge_order=2),
        ),
        (X,),
    ),
    "unwrap": (lambda v: (np.unwrap(v * 6), np.unwrap(v * 6, axis=0, period=4)), (V,)),
    "linspace": (
        lambda x: (
            np.linspace(x[0], x[1], 5),
            np.linspace(x[0], 2, 4, endpoint=False, axis=1),
            np.linspace(x[0, 0], 3, 1),
            np.logspace(x[0], 1, 3),
            np.geomspace(abs(x[0]), 5, 4),
        ),
        (X,),
    ),
    "i0": (np.i0, (np.float32([0, -1, 3, 8, 9, 50, 85, -20]),)),
    "equiv": (lambda x: (np.array_equiv(x, x[0]), np.array_equiv(x, x)), (X,)),
    "sortc": (lambda x: np.sort_complex(np.round(x[0]) + 1j * x[1]), (X,)),
    "nanq": (
        lambda x: (
            np.nanquantile(x, 0.3),
            np.nanquantile(x, np.float32([0.1, 0.8]), axis=0),
            np.nanmedian(x, axis=1, keepdims=True),
            np.nanpercentile(x, 40, axis=0),
        ),
        (H,),
    ),
    "known masks": (lambda x: (x[MASK], x[:, [True, False] * 3], x[X > 1], x[MASK, 0]), (X,)),
    "pads": (
        lambda x: [
            np.pad(x, ((2, 1), (0, 3)), m) for m in ("edge", "reflect", "symmetric", "wrap")
        ],
        (X,),
    ),
    "pads by statistics": (
        lambda x, m: (
            [
                np.pad(a, ((2, 1), (0, 3)), mode)
                for mode in ("maximum", "mean", "median", "minimum")
                for a in (x, m)
            ]
            + [np.pad(x, 2, "mean", stat_length=((2, 3), (1, 2)))]
        ),
        (X, M),
    ),
    "pads by edge": (
        lambda x, m: (
            np.pad(x, 2, "constant", constant_values=((1, 2), (3, 4))),
            np.pad(x, ((2, 1), (0, 3)), "linear_ramp", end_values=((1, 2), (3, 4))),
            np.pad(m, (2, 3), "linear_ramp"),
            np.pad(x, {1: 2}, "mean"),
        ),
        (X, M),
    ),
    "averages": (
        lambda x, t: (
            np.average(x, axis=0, weights=np.float32([1, 2, 3, 4, 5])),
            np.average(t, axis=(2, 0), weights=np.abs(t[:, 0]).T),
            np.average(x, weights=x),
        ),
        (X, T),
    ),
    "windows": (
        lambda x, v: (
            np.lib.stride_tricks.sliding_window_view(v, 3),
            np.lib.stride_tricks.sliding_window_view(x, (2, 4)),
            np.lib.stride_tricks.sliding_window_view(x, (2, 3), axis=(1, 1)),
        ),
        (X, V),
    ),
    "reduceat": (
        lambda x, m: (
            np.add.reduceat(x, [0, 3, 1, 4]),
            np.maximum.reduceat(m, [2, 0], axis=1),
            np.logical_or.reduceat(x > 1, [0, 2]),
        ),
        (X, M),
    ),
    "reduce": (
        lambda m, u, x: (
            np.bitwise_and.reduce(u, axis=None),
            np.bitwise_or.reduce(m, axis=1, keepdims=True),
            np.bitwise_xor.reduce(m, initial=5),
            np.bitwise_xor.reduce(x > 0, axis=(0, 1)),
            np.logical_xor.reduce(m, where=m > 3),
            np.gcd.reduce(m, axis=1),
            np.fmax.reduce(np.where(x > 0, np.nan, x), axis=(0, 1), keepdims=True),
            np.logaddexp.reduce(x),
        ),
        (M, U, X),
    ),
    "accumulate": (
        lambda m, x: (
            np.bitwise_xor.accumulate(m, axis=1),
            np.bitwise_and.accumulate(m),
            np.logical_or.accumulate(x > 1),
            np.logical_xor.accumulate(m),
        ),
        (M, X),
    ),
    "views": (
        lambda x, m, u: (
            x.view(np.int32),
            x[1:3].view(np.uint8),
            (m.view(np.uint32) >> 3).view(np.int32),
            u.view(np.int16),
            m.view("f4").view(np.int32),
        ),
        (X, M, U),
    ),
    "edges": (
        lambda v, e: (
            np.digitize(v, e),
            np.digitize(v, e[::-1], right=True),
            np.digitize([0.5], e),
            np.searchsorted(np.sort(v), v, "right"),
        ),
        (np.append(V, np.float32([np.nan, -np.inf])), np.float32([-1, 0, 0.5, np.inf])),
    ),
    "covariances": (
        lambda x, v: (
            np.cov(x[0], x[1]),
            np.corrcoef(x[:, 0], x[:, 1]),
            np.cov(x, x * 2, rowvar=False),
            np.cov(x, v[:6]),
        ),
        (X, V),
    ),
    "powers of zero": (
        lambda z, w: np.power(z, w),
        (np.zeros(6, np.complex64), np.complex64([0, 1, 1 + 1j, 2, 3, 0.5 - 3j])),
    ),
    "methods": (lambda t, x: (t.trace(), x.trace(1), t.trace(axis1=2, axis2=0)), (T, X)),
    "diff": (lambda x: (np.diff(x, prepend=0, append=x[:, :2]), np.diff(x > 0, axis=0)), (X,)),
    "einsum diagonals": (
        lambda a: (np.einsum("ii->i", a), np.einsum("ii", a), np.einsum("ij->ji", a)),
        (X[:5, :5],),
    ),
    "einsum ellipsis": (
        lambda t, x: (
            np.einsum("...ij,...j->...i", t, x[:3, :5]),
            np.einsum("...i,...i", t, t[:, :1]),
            np.einsum("i...->...", t),
            np.einsum(t, [0, 1, 2], t, [0, 3, 2], [0, 1, 3]),
        ),
        (T, X),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_numpys(name: str) -> None:
    function, args = CASES[name]
    got, want = flatten(run(function, *args))[0], flatten(function(*args))[0]
    assert len(got) == len(want)
    for mine, theirs in zip(map(np.asarray, got), map(np.asarray, want), strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype.kind == theirs.dtype.kind
        np.testing.assert_allclose(mine.astype(np.complex128), theirs, 5e-3, 3e-4)
