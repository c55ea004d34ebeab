"""What a user does wrong is said with the line where he does it, and what to write."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tpuc
import tpuc.numpy as xp

X = np.ones((4, 8), np.float32)


def condition(x: Any) -> Any:
    return x if x.sum() > 0 else -x  # its line


def shapes(x: Any) -> Any:
    return x + np.ones(3, np.float32)  # its line


def store(x: Any) -> Any:
    out = np.zeros(4)
    out[0] = x[0].sum()  # its line
    return out


def join(x: Any) -> Any:
    return np.concatenate(x, x)  # its line


def values(x: Any) -> Any:
    return x.tolist()  # its line


def turns(x: Any) -> Any:
    return [x[i] for i in range(x[0].astype(np.int32).sum())]  # its line


def dimensions(x: Any) -> Any:
    return x.reshape(x[0, 0].astype(np.int32), -1)  # its line


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (condition, "np.where"),
        (shapes, "cannot be broadcast"),
        (store, r"tpuc\.numpy\.zeros"),
        (join, r"np\.concatenate\(\[x, y\]\)"),
        (values, "return the array"),
        (turns, "fori_loop"),
        (dimensions, "static_argnames"),
    ],
)
def test_an_error_says_the_line_and_what_to_write(
    function: Callable[..., Any], advice: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        tpuc.jit(function)(X)
    notes = caught.value.__notes__
    assert f"test_numpy_mistakes.py:{_line_of(function)}, in {function.__name__}: " in notes[-1]
    assert notes[-1].endswith("# its line")
    assert re.search(advice, "\n".join((str(caught.value), *notes)))


def _line_of(function: Callable[..., Any]) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if "# its line" in line)


def test_an_error_behind_the_function_names_the_line_of_the_selection() -> None:
    with pytest.raises(
        tpuc.UnsupportedError, match=r"x\[mask\] is made in .*test_numpy_mistakes\.py:\d+"
    ):
        tpuc.jit(lambda x: x[x > 0])(X)


def test_arguments_and_results_that_are_no_arrays_are_named() -> None:
    def f(x: Any, mode: Any = None) -> Any:
        return "text" if mode is None else x

    with pytest.raises(TypeError, match=r"mode\[0\]: argument of type str.*static_argnames"):
        tpuc.jit(f)(X, ["up"])
    with pytest.raises(TypeError, match="the function returns 'text' of type str"):
        tpuc.jit(f)(X)
    with pytest.raises(TypeError, match=r"f\(x: .*mode: .*\).*: too many positional arguments"):
        tpuc.jit(f)(X, X, X)
    with pytest.raises(ValueError, match=r"'q' is no parameter of f\(x: "):
        tpuc.jit(f, static_argnames="q")
    with pytest.raises(tpuc.CompileError, match="pass a tuple for a list"):
        tpuc.jit(f, static_argnames="mode")(X, ["up"])


def test_an_array_that_outlives_its_trace_says_to_return_it() -> None:
    kept: list[Any] = []
    tpuc.jit(lambda x: kept.append(x * 2) or x)(X)
    with pytest.raises(tpuc.CompileError, match="return it from the function"):
        kept[0] + 1


def test_names_that_are_elsewhere_are_named() -> None:
    for name, advice in {
        "random": "tpuc.random",
        "poly1d": "polyval",
        "busday_count": "host",
    }.items():
        with pytest.raises(AttributeError, match=advice):
            getattr(xp, name)
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        xp.nothing  # noqa: B018
