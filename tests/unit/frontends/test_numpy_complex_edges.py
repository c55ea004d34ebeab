"""Complex functions at infinities, NaN and zeros of both signs have NumPy's values, signs included."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.frontends.test_numpy_tracing import run

EDGES = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]
X = np.array([complex(a, b) for a in EDGES for b in EDGES], np.complex64)
NAMES = [
    "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cos", "cosh", "exp", "log", "log1p",
    "sin", "sinh", "sqrt", "square", "tan", "tanh",
]  # fmt: skip


def same(mine: np.ndarray, theirs: np.ndarray, has_sign: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        is_near = (mine == theirs) | (np.abs(mine - theirs) < 1e-5)
        is_mirrored = ~has_sign & (np.abs(mine) == np.abs(theirs))
    is_same = is_near & (~has_sign | (np.signbit(mine) == np.signbit(theirs)))
    return (np.isnan(mine) & np.isnan(theirs)) | is_same | is_mirrored


@pytest.mark.parametrize("name", NAMES)
def test_values_at_the_edges(name: str) -> None:
    function = getattr(np, name)
    got = run(function, X)
    with np.errstate(all="ignore"):
        want = function(X)
    # What C leaves open: which infinity or zero comes of an infinity beside no finite number.
    has_sign = ~(np.isinf(X.real) & ~np.isfinite(X.imag))
    wrong = ~(same(got.real, want.real, has_sign) & same(got.imag, want.imag, has_sign))
    assert not wrong.any(), list(zip(X[wrong], got[wrong], want[wrong], strict=True))


def test_expm1_goes_to_minus_one() -> None:
    got = run(np.expm1, X)
    low = np.isinf(X.real) & (X.real < 0)
    assert (got[low] == -1).all()
