"""What asks for a value of a traced array is named in the user's own words; what to write for it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tpuc
import tpuc.numpy as xp

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
X = np.array([1, 2, 3], np.float32)
PLACES = np.array([3, 0, 2], np.int32)


def stored(x: Any) -> Any:
    y = np.zeros((2, 3), np.float32)
    y[1] = x
    return y


def stored_traced(x: Any) -> Any:
    y = xp.asarray(np.zeros((2, 3), np.float32))
    y[1] = x
    return y


CASES: list[tuple[Callable[..., Any], str, Callable[..., Any], Any]] = [
    (lambda i: TABLE[i], "tpuc.numpy.asarray(TABLE)[i]", lambda i: xp.asarray(TABLE)[i], PLACES),
    (
        lambda i: TABLE[i[0], 1],
        "tpuc.numpy.asarray(TABLE)[i[0], 1]",
        lambda i: xp.asarray(TABLE)[i[0], 1],
        PLACES,
    ),
    (
        lambda i: [5, 6, 7, 8][i[0]],
        "tpuc.numpy.asarray([5, 6, 7, 8])[i[0]]",
        lambda i: xp.asarray([5, 6, 7, 8])[i[0]],
        PLACES,
    ),
    (
        lambda i: np.take(TABLE, i, axis=0),
        "tpuc.numpy.take(TABLE, i, axis=0)",
        lambda i: xp.take(TABLE, i, axis=0),
        PLACES,
    ),
    (
        lambda x: np.array([x[0], x[1] * 2, 3.0]),
        "tpuc.numpy.array([x[0], x[1] * 2, 3.0])",
        lambda x: xp.array([x[0], x[1] * 2, 3.0]),
        X,
    ),
    (
        lambda x: np.concatenate([[x[0]], [x[1], 4.0]]),
        "tpuc.numpy.concatenate([[x[0]], [x[1], 4.0]])",
        lambda x: xp.concatenate([[x[0]], [x[1], 4.0]]),
        X,
    ),
    (
        lambda x: np.sum([x[0], x[2]]),
        "tpuc.numpy.sum([x[0], x[2]])",
        lambda x: xp.sum([x[0], x[2]]),
        X,
    ),
    (stored, "y = tpuc.numpy.asarray(y) before", stored_traced, X),
]


@pytest.mark.parametrize(("function", "advice", "advised", "value"), CASES)
def test_what_is_advised_is_said_and_works(
    function: Callable[..., Any], advice: str, advised: Callable[..., Any], value: Any
) -> None:
    with pytest.raises(TypeError) as found:
        tpuc.jit(function)(value)
    assert advice in str(found.value)
    np.testing.assert_array_equal(np.asarray(tpuc.jit(advised)(value)), function(value))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: xp.maximum.reduce([x, x * 2]),
        lambda x: xp.add([x[0], x[1]], [1, x[2]]),
        lambda x: xp.sort([x[2], x[0]]),
        lambda x: xp.where([True, False], [x[0], x[1]], 0),
        lambda x: xp.vstack([[x[0], x[1]], [x[1], x[2]]]),
        lambda x: xp.dot([x[0], x[1]], [x[1], x[1]]),
        lambda x: xp.mean([[x[0], 2], [x[1], 4]], axis=0),
    ],
)
def test_functions_of_tpuc_numpy_take_lists_of_traced_values(function: Callable[..., Any]) -> None:
    np.testing.assert_array_equal(np.asarray(tpuc.jit(function)(X)), np.asarray(function(X)))


def test_an_array_of_the_device_says_how_to_write_what_it_is_not() -> None:
    weights = tpuc.device_put(X)
    with pytest.raises(TypeError, match=r"write weights = weights\.at\[1:\]\.set\(\.\.\.\)"):
        weights[1:] = 0
    np.testing.assert_array_equal(np.asarray(weights.at[1:].set(0)), [1, 0, 0])


def test_a_program_without_source_gets_the_general_words() -> None:
    names: dict[str, Any] = {"table": TABLE}
    exec("def look(i): return table[i]", names)
    with pytest.raises(TypeError, match=r"tpuc\.numpy\.asarray\(table\)\[x\] to look up"):
        tpuc.jit(names["look"])(PLACES)
