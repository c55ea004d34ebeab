"""Functions made of others, `np.fft` and `np.linalg`: the traced module, evaluated, agrees with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.numpy_functions import listed, listing
from compiler.frontends.numpy.diagonals import DIAGONALS_FUNCTIONS
from compiler.frontends.numpy.fourier import FFT_FUNCTIONS
from compiler.frontends.numpy.linalg import LINALG_FUNCTIONS
from compiler.frontends.numpy.predicates import PREDICATES_FUNCTIONS
from compiler.frontends.numpy.pytree import flatten
from compiler.frontends.numpy.rearranging import REARRANGING_FUNCTIONS
from compiler.frontends.numpy.signals import SIGNALS_FUNCTIONS
from compiler.frontends.numpy.statistics import STATISTICS_FUNCTIONS
from compiler.frontends.numpy.vectors import VECTORS_FUNCTIONS
from tests.unit.frontends.test_numpy_tracing import run

RNG = np.random.default_rng(11)
X = RNG.standard_normal((5, 6)).astype(np.float32)
Y = RNG.standard_normal((5, 6)).astype(np.float32)
V = RNG.standard_normal(7).astype(np.float32)
W = np.float32([0.5, -1.0, 2.0])
T = RNG.standard_normal((2, 3, 4)).astype(np.float32)
SQUARE = RNG.standard_normal((4, 4)).astype(np.float32)
DEFINITE = SQUARE @ SQUARE.T + 4 * np.eye(4, dtype=np.float32)
C = (X + 1j * Y).astype(np.complex64)
HOLED = np.where(X > 0.8, np.nan, X).astype(np.float32)
HOLED[2] = np.nan
EDGES = np.float32([-1, -0.2, 0.1, 0.5, 2])
K = np.int32([[1, 2, 0], [3, 1, 1]])

CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "allclose": (lambda x: (np.allclose(x, x + 1e-7), np.allclose(x, x + 1)), (X,)),
    "angle": (lambda z: (np.angle(z), np.angle(z, True)), (C,)),
    "append": (lambda x, v: (np.append(x, v), np.append(x, x, 1)), (X, V)),
    "array_equal": (lambda x, v: (np.array_equal(x, x), np.array_equal(x, v)), (X, V)),
    "array_split": (lambda v: np.array_split(v, 3), (V,)),
    "atleast_3d": (lambda v, x: (np.atleast_3d(v), np.atleast_3d(x)), (V, X)),
    "column_stack": (lambda x, y: np.column_stack([x[0], y[1], x[2]]), (X, Y)),
    "convolve": (lambda v, w: [np.convolve(v, w, m) for m in ("full", "same", "valid")], (V, W)),
    "corrcoef": (np.corrcoef, (X,)),
    "correlate": (lambda v, w: [np.correlate(v, w, m) for m in ("full", "same", "valid")], (V, W)),
    "cov": (lambda x: (np.cov(x), np.cov(x, rowvar=False, bias=True), np.cov(x[0])), (X,)),
    "cross": (lambda x, y: (np.cross(x[:, :3], y[:, :3]), np.cross(x[0, :3], y[:, :3])), (X, Y)),
    "diag": (lambda v, x: (np.diag(v), np.diag(v, -2), np.diag(x), np.diag(x, 2)), (V, X)),
    "diagflat": (lambda x: np.diagflat(x[:2], 1), (X,)),
    "diagonal": (lambda t: (np.diagonal(t, 1, 2, 1), np.diagonal(t, -1)), (T,)),
    "digitize": (lambda v: (np.digitize(v, EDGES), np.digitize(v, EDGES[::-1], right=True)), (V,)),
    "dsplit": (lambda t: np.dsplit(t, 2), (T,)),
    "dstack": (lambda x, y: (np.dstack([x, y]), np.dstack([x[0], y[0]])), (X, Y)),
    "fix": (np.fix, (X * 3,)),
    "fliplr": (lambda x: (np.fliplr(x), np.flipud(x)), (X,)),
    "hsplit": (lambda x, v: (np.hsplit(x, 3), np.hsplit(v, [2])), (X, V)),
    "interp": (lambda v: (np.interp(v, EDGES, EDGES**2), np.interp(v, EDGES, EDGES, -9, 9)), (V,)),
    "isin": (lambda i: (np.isin(i, [1, 3]), np.isin(i, [1, 3], invert=True)), (K,)),
    "isneginf": (lambda x: (np.isneginf(x), np.isposinf(x)), (np.float32([np.inf, -np.inf, 1]),)),
    "isreal": (lambda z, x: (np.isreal(z), np.iscomplex(z), np.isreal(x)), (C * (X > 0), X)),
    "kron": (lambda x, v: (np.kron(x[:2], x[:3]), np.kron(v, x)), (X, V)),
    "matrix_transpose": (np.matrix_transpose, (T,)),
    "median": (lambda x: (np.median(x), np.median(x, 0), np.median(x, 1, keepdims=True)), (X,)),
    "meshgrid": (lambda v, w: (np.meshgrid(v, w), np.meshgrid(v, w, indexing="ij", sparse=True)), (V, W)),
    "nan reductions": (
        lambda x: [
            f(x, axis=0)
            for f in (np.nansum, np.nanprod, np.nanmax, np.nanmin, np.nanmean, np.nanvar, np.nanstd)
        ],
        (HOLED,),
    ),
    "nan positions": (lambda x: (np.nanargmax(x, axis=0), np.nanargmin(x, axis=0)), (HOLED,)),
    "nan sums": (lambda x: (np.nancumsum(x, axis=0), np.nancumprod(x, axis=1)), (HOLED,)),
    "percentile": (lambda x: np.percentile(x, np.float32([10, 50, 99.5]), axis=0), (X,)),
    "quantile": (lambda x: (np.quantile(x, 0.3), np.quantile(x, 0.9, axis=1, keepdims=True)), (X,)),
    "quantile of NaN": (lambda x: np.quantile(x, np.float32([0.2, 0.7]), axis=1), (HOLED,)),
    "polyval": (lambda w, x: np.polyval(w, x), (W, X)),
    "rollaxis": (lambda t: (np.rollaxis(t, 2), np.rollaxis(t, 0, 3)), (T,)),
    "rot90": (lambda x: [np.rot90(x, k) for k in range(-1, 4)], (X,)),
    "searchsorted": (lambda v: [np.searchsorted(EDGES, v, side) for side in ("left", "right")], (V,)),
    "select": (lambda x: np.select([x > 1, x > 0], [x * 2, x], -1.0), (X,)),
    "sinc": (np.sinc, (np.float32([0, 0.5, -1, 2.3]),)),
    "trace": (lambda t: (np.trace(t), np.trace(t, 1, 1, 2)), (T,)),
    "trapezoid": (lambda x: (np.trapezoid(x), np.trapezoid(x, dx=0.5, axis=0)), (X,)),
    "trapezoid at points": (lambda x, y: np.trapezoid(y, x), (X, Y)),
    "unstack": (lambda t: np.unstack(t, axis=1), (T,)),
    "vander": (lambda w: (np.vander(w), np.vander(w, 4, increasing=True)), (W,)),
    "vecdot": (lambda x, y, z: (np.vecdot(x, y), np.vecdot(z, z)), (X, Y, C)),
    "vsplit": (lambda x: np.vsplit(x, [1, 3]), (X,)),
    "linalg.norm": (
        lambda x, v: [np.linalg.norm(x), *(np.linalg.norm(x, o) for o in (1, -1, np.inf)),
                      *(np.linalg.norm(v, o) for o in (None, 0, 1, 3, -np.inf)), np.linalg.norm(x, axis=1)],
        (X, V),
    ),
    "linalg norms of 2.0": (
        lambda x: (np.linalg.vector_norm(x, axis=0), np.linalg.matrix_norm(x, ord=1)), (X,)
    ),
    "linalg.cholesky": (np.linalg.cholesky, (DEFINITE,)),
    "linalg.matrix_power": (lambda a: [np.linalg.matrix_power(a / 2, n) for n in (0, 1, 5)], (SQUARE,)),
    "linalg.multi_dot": (lambda x, y: np.linalg.multi_dot([x, y.T, x]), (X, Y)),
    "linalg as np": (
        lambda t: (np.linalg.trace(t), np.linalg.diagonal(t, offset=1), np.linalg.matrix_transpose(t)), (T,)
    ),
    "fft": (lambda z: (np.fft.fft(z), np.fft.fft(z, 4), np.fft.fft(z, 9, 0, "ortho")), (C,)),
    "ifft": (lambda z: (np.fft.ifft(z), np.fft.ifft(z, norm="forward")), (C,)),
    "rfft": (lambda x: (np.fft.rfft(x), np.fft.rfft(x, 5), np.fft.irfft(np.fft.rfft(x), 6)), (X,)),
    "irfft": (lambda z: (np.fft.irfft(z), np.fft.irfft(z, 7, 0, "ortho")), (C,)),
    "hfft": (lambda z: (np.fft.hfft(z), np.fft.hfft(z, 9, norm="ortho")), (C,)),
    "ihfft": (lambda x: (np.fft.ihfft(x), np.fft.ihfft(x, 9, norm="ortho")), (X,)),
    "several axes": (lambda z, t: (np.fft.fft2(z), np.fft.ifftn(t), np.fft.fftn(t, (4, 4), (0, 2))), (C, T)),
    "real, several axes": (
        lambda t: (np.fft.rfft2(t), np.fft.rfftn(t), np.fft.irfftn(np.fft.rfftn(t), t.shape, (0, 1, 2))), (T,)
    ),
    "shifts": (lambda x: (np.fft.fftshift(x), np.fft.ifftshift(x, 0)), (X,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:.*NaN|.*slice|invalid|Mean|Degrees:RuntimeWarning")
def test_values_are_those_of_numpy(name: str) -> None:
    function, args = CASES[name]
    if name == "nan positions":
        args = (np.where(np.isnan(HOLED), np.float32(0.5), HOLED),)
    got = flatten(run(function, *args))[0]
    want = flatten(function(*args))[0]
    assert len(got) == len(want)
    for mine, theirs in zip(got, map(np.asarray, want), strict=True):
        mine = np.asarray(mine)
        assert mine.shape == theirs.shape
        assert mine.dtype.kind == theirs.dtype.kind
        kind = np.complex128 if mine.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(mine.astype(kind), theirs.astype(kind), 2e-4, 2e-4)


def test_every_composed_function_is_tried() -> None:
    """The names of a module's functions appear in the cases, or in the text of this file."""
    tables = (
        *DIAGONALS_FUNCTIONS, *FFT_FUNCTIONS, *LINALG_FUNCTIONS, *PREDICATES_FUNCTIONS,
        *REARRANGING_FUNCTIONS, *SIGNALS_FUNCTIONS, *STATISTICS_FUNCTIONS, *VECTORS_FUNCTIONS,
    )  # fmt: skip
    folder = Path(__file__).parent
    files = (__file__, folder / "test_numpy_linalg.py", folder / "test_numpy_editing.py")
    text = "".join(Path(file).read_text() for file in files)
    names = {f.__name__ for f in tables}  # type: ignore[attr-defined]
    same_as_np = {
        "matmul",
        "outer",
        "tensordot",
        "iscomplexobj",
        "isrealobj",
        "cross",
        "ifft2",
        "irfft2",
    }
    assert {name for name in names if name not in text} <= same_as_np
    assert len(listed(listing())) > 250


def test_what_is_left_out_is_refused() -> None:
    with pytest.raises(ValueError, match="method='middle', want one of"):
        run(lambda x: np.quantile(x, 0.5, method="middle"), X)
    with pytest.raises(ValueError, match="want vectors of three elements"):
        run(lambda x: np.cross(x[:, :2], x[:, :2]), X)
    for transform in (np.fft.fft, np.fft.hfft):
        with pytest.raises(ValueError, match="norm='unit', want"):
            run(lambda z, f=transform: f(z, norm="unit"), C)


def test_the_position_of_nothing_but_nan_is_minus_one() -> None:
    """NumPy raises an error, which the chip cannot."""
    for function in (np.nanargmax, np.nanargmin):
        assert run(lambda x, f=function: f(x, axis=1), HOLED)[2] == -1
