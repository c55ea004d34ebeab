"""Functions of NumPy and methods of traced arrays that programs seldom use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tpuc

MATRIX = np.arange(12, dtype=np.float32).reshape(3, 4)
ROW = np.float32([1, 2, 3, 4])
COLUMN = np.float32([1, 2, 3])
SIGNS = np.float32([-2, 0, 3, np.nan])
MIXED = np.float32([5, 1, 4, 2, 3])
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "heaviside": (lambda x: np.heaviside(x, np.float32(0.5)), (SIGNS,)),
    "matvec": (lambda x, y: np.matvec(x, y), (MATRIX, ROW)),
    "vecmat": (lambda x, y: np.vecmat(x, y), (COLUMN, MATRIX)),
    "argpartition": (lambda x: np.take(x, np.argpartition(x, 2))[2], (MIXED,)),
    "iscomplexobj": (lambda x: x * (2 if np.iscomplexobj(x) else 3), (ROW,)),
    "isrealobj": (lambda x: x * (2 if np.isrealobj(x) else 3), (ROW,)),
    "std": (lambda x: x.std(), (MIXED,)),
    "prod": (lambda x: x.prod(), (ROW,)),
    "min": (lambda x: x.min(), (ROW,)),
    "all": (lambda x: x.all(), (MATRIX,)),
    "argmin": (lambda x: x.argmin(), (MIXED,)),
    "cumsum": (lambda x: x.cumsum(), (ROW,)),
    "cumprod": (lambda x: x.cumprod(), (ROW,)),
    "dot": (lambda x, y: x.dot(y), (MATRIX, ROW)),
    "squeeze": (lambda x: x[None].squeeze(), (ROW,)),
    "take": (lambda x: x.take(np.array([2, 0])), (ROW,)),
    "searchsorted": (lambda x: x.searchsorted(np.float32(2.5)), (ROW,)),
    "copy": (lambda x: x.copy(), (ROW,)),
    "itemsize": (lambda x: x * x.itemsize, (ROW,)),
    "prod of a selection": (lambda x: x[x > 2].prod(), (ROW,)),
    "min of a selection": (lambda x: x[x > 2].min(), (ROW,)),
    "all of a selection": (lambda x: x[x > 2].all(), (ROW,)),
    "integers of a selection": (lambda x: x[x > 2].astype(np.int32).sum(), (ROW,)),
}


@pytest.mark.parametrize("name", CASES)
def test_as_numpy(name: str) -> None:
    if name in ("matvec", "vecmat") and not hasattr(np, name):
        pytest.skip("NumPy before 2.2")
    function, arguments = CASES[name]
    found = np.asarray(tpuc.jit(function, precision="highest")(*arguments))
    np.testing.assert_allclose(found, function(*arguments), rtol=1e-6)
