"""``x.at[key]`` of traced arrays against NumPy's assignment and ``ufunc.at``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.diagnostics import CompileError, UnsupportedError
from tests.unit.frontends.test_numpy_tracing import run

X = np.arange(40, dtype=np.float32).reshape(5, 8)
T = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
ROWS = np.int32([3, 0, 3, -1])
KEYS: dict[str, tuple[np.ndarray, Any]] = {
    "element": (X, (2, 3)),
    "last": (X, -1),
    "row": (X, 2),
    "column": (X, (slice(None), -2)),
    "box": (X, (slice(1, 4), slice(2, 6))),
    "steps": (X, (slice(None, None, 2), slice(1, None, 3))),
    "turned": (X, (slice(None, None, -1), slice(6, 1, -2))),
    "ellipsis": (T, (Ellipsis, 1)),
    "newaxis": (X, (None, 1)),
    "empty": (X, slice(3, 3)),
    "array": (X, ROWS),
    "list": (X, [1, 2]),
    "array of columns": (X, (slice(None), np.int32([[1, 2], [5, 7]]))),
    "two arrays": (T, (np.int32([0, 2]), slice(None), np.int32([4, 1]))),
    "array and integer": (T, (1, np.int32([0, 3]))),
    "array and slice": (T, (slice(0, 2), np.int32([0, 3, 3]), slice(None, None, 2))),
}
METHODS = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "min": np.minimum, "max": np.maximum,
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_set_is_assignment(name: str) -> None:
    array, key = KEYS[name]
    want = array.copy()
    value = np.arange(want[key].size, dtype=array.dtype).reshape(want[key].shape) * 0 - 7
    want[key] = value
    got = run(lambda x, v: x.at[key].set(v), array, value)
    assert got.dtype == array.dtype
    assert (got == want).all()
    want[key] = 3
    assert (run(lambda x: x.at[key].set(3), array) == want).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", KEYS)
def test_other_methods_combine_once_for_each_time_an_element_is_named(
    name: str, method: str
) -> None:
    array, key = KEYS[name]
    want = array.copy()
    rng = np.random.default_rng(2)
    value = rng.integers(-3, 30, want[key].shape).astype(array.dtype)
    METHODS[method].at(want, key, value)
    assert (run(lambda x, v: getattr(x.at[key], method)(v), array, value) == want).all()


def test_quotients_and_powers_are_taken_for_each_time_an_element_is_named() -> None:
    want = X.copy()
    np.divide.at(want, ROWS, np.float32(4))
    assert (run(lambda x: x.at[ROWS].divide(4), X) == want).all()
    want = X.copy()
    np.power.at(want, [1, 1], np.float32(2))
    np.testing.assert_allclose(run(lambda x: x.at[np.int32([1, 1])].power(2), X), want, rtol=1e-6)


def test_positions_may_be_traced_and_values_are_broadcast() -> None:
    want = X.copy()
    want[ROWS] = np.float32([5])
    assert (run(lambda x, i: x.at[i].set(np.float32([5])), X, ROWS) == want).all()
    assert (run(lambda x, i: x.at[i, 1].get(), X, ROWS) == X[ROWS, 1]).all()


def test_updates_outside_of_the_array_are_dropped() -> None:
    assert (run(lambda x, i: x.at[i].add(1), X, np.int32([99])) == X).all()


def test_a_mask_takes_a_scalar() -> None:
    got = run(lambda x: x.at[x > 20].set(-1).at[x < 3].multiply(2.0), X)
    assert (got == np.where(X > 20, -1, np.where(X < 3, X * 2, X))).all()
    with pytest.raises(UnsupportedError, match="want a mask of the first dimensions"):
        run(lambda x: x.at[x[0] > 3].set(1), X)


def test_what_does_not_fit_is_named() -> None:
    with pytest.raises(CompileError, match="index 9 is out of range"):
        run(lambda x: x.at[9].set(1), X)
    with pytest.raises(CompileError, match="cannot be broadcast"):
        run(lambda x, v: x.at[0].set(v), X, X)
