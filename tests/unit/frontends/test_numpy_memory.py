"""Traced arrays that change, and share memory: each function does what NumPy does, values and all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tpuc
import tpuc.numpy as tnp
from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.tracing import trace
from tests.unit.frontends.test_numpy_tracing import agree, f32, run

Function = Callable[[Any], Any]


def _filled(x: Any) -> Any:
    y = np.zeros_like(x)
    for i in range(len(x)):
        y[i] = x[i] * i
    y[:, 1] = 7
    y[0, ::2] += x[1, ::2]
    return y, x


def _masked(x: Any) -> Any:
    x[x < 0] = 0
    x[x > 1] *= 2
    x[x[:, 0] > 0] = -x[:, 1].sum()
    y = np.ones_like(x)
    y[x > 0] = 2 * x[x > 0] + 1
    return x, y


def _reduced(x: Any) -> Any:
    chosen = x[x > 0]
    rows = x[x[:, 0] > -9]
    return (
        chosen.sum(), np.mean(chosen), chosen.max(), np.min(chosen), (chosen**2).std(), chosen.any(),
        rows.sum(axis=0), rows.mean(axis=0), (chosen - chosen.mean()).var(),
    )  # fmt: skip


def _views(x: Any) -> Any:
    row, middle, turned, flat = x[1], x[1:3, 1:], x.T, x.reshape(-1)
    inner = middle[0]
    row += 1
    inner *= 3
    flat[0] = 9
    turned[2, 3] = -5
    np.flip(x, 0)[0] = 4
    x[-1] += row
    return x, row, middle, turned, flat, inner


def _copies(x: Any) -> Any:
    kept = [x.copy(), x.flatten(), np.abs(x), x.astype(np.float32), +x, x[[0, 1]], np.maximum(x, x)]
    x += 1
    kept[3][0] = 2
    return x, *kept


def _named_twice(x: Any) -> Any:
    y = x
    y += 1
    number = x[0, 0]
    same = number
    number += 5
    return x, y, number, same


def _out(x: Any) -> Any:
    y, z, i = np.empty_like(x), np.zeros_like(x), np.zeros_like(x, dtype=np.int32)
    np.add(x, 1, out=y)
    np.multiply(y, 2, out=z, where=x > 0)
    np.sum(x, axis=0, out=y[1])
    np.floor(x).astype(np.int32, copy=True)
    i += 3
    return y, z, i


def _functions(x: Any) -> Any:
    a, b, c, d, e, f = (x.copy() for _ in range(6))
    np.fill_diagonal(a, 5)
    np.copyto(b, x[0], where=x > 0)
    np.put(c, [1, 5], [8, 9])
    np.putmask(d, d > 0, -d)
    np.put_along_axis(e, np.argmax(x, axis=1)[:, None], 0, axis=1)
    f.sort(axis=0)
    g = np.zeros_like(x[:, 0])
    np.add.at(g, np.array([0, 0, 2]), x[:3, 0])
    g[1:3].fill(3)
    x[[0, 1]] = x[[1, 0]]
    return a, b, c, d, e, f, g, x


def _viewed(x: Any) -> Any:
    bits, halves = x.view(np.int32), x[1].view(np.int16)
    bits[0] = 0
    halves[:2] = 3
    x[2] = 1
    return x, bits, halves


def _methods(x: Any) -> Any:
    outer = np.subtract.outer(x[0], x[1])
    best = np.maximum.accumulate(x, axis=1)
    return (
        outer,
        best,
        x.argsort(),
        x.round(1),
        x.diagonal(),
        x.repeat(2, axis=0),
        x.flat[3],
        x.nbytes,
    )


@pytest.mark.parametrize(
    "function",
    [
        _filled,
        _masked,
        _reduced,
        _views,
        _copies,
        _named_twice,
        _out,
        _functions,
        _viewed,
        _methods,
    ],
)
def test_arrays_change_as_numpys(function: Function) -> None:
    x = f32(4, 4)
    agree(lambda given: function(given.copy()), x)


def test_the_callers_array_stays_as_it_is() -> None:
    def function(x: Any) -> Any:
        x[0] = 5
        return x

    x = f32(3)
    kept = x.copy()
    assert run(function, x)[0] == 5
    assert (x == kept).all()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: np.broadcast_to(x, (2, 4, 4)).fill(1), "a view that cannot be written through"),
        (lambda x: x.astype(np.int32).__iadd__(0.5), r"write x = x\.astype\(float32\) first"),
        (lambda x: x[0].__iadd__(x), r"the result has the shape \[4, 4\]"),
        (lambda x: np.add.at(np.zeros(4), [0], x[0, 0]), "make it with tpuc.numpy"),
        (lambda x: np.add(x, 1, out=np.zeros((4, 4))), "make it with tpuc.numpy"),
        (lambda x: np.median(x[x > 0]), r"np\.median of x\[mask\]: the number of elements"),
        (lambda x: x[x > 0] + x[x > 1], "with another mask"),
        (lambda x: x[x > 0].size, r"\.size of x\[mask\]"),
        (lambda x: x.__setitem__(x > 0, x[x > 1]), "want the same mask"),
        (lambda x: x.__setitem__(x > 0, x), "a value for every place"),
    ],
)
def test_what_cannot_be_changed_says_what_to_write(use: Function, message: str) -> None:
    with pytest.raises((CompileError, UnsupportedError), match=message):
        trace(use, (f32(4, 4),))


def test_a_body_does_not_change_arrays_around_it() -> None:
    def function(x: Any) -> Any:
        def body(i: Any, total: Any) -> Any:
            x[0] = 1
            return total + x[0]

        return tpuc.lax.fori_loop(0, 3, body, np.float32(0))

    with pytest.raises(CompileError, match="return the changed array from it"):
        trace(function, (f32(3),))


def test_a_body_changes_its_own_arrays() -> None:
    def function(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            y[i] = 2 * x[i]
            return y

        return tpuc.lax.fori_loop(0, 3, body, tnp.zeros(3))

    x = f32(3)
    np.testing.assert_allclose(run(function, x), 2 * x)


def test_changes_have_gradients() -> None:
    def loss(x: Any) -> Any:
        y = x**2
        y[0] = 0
        y[y > 4] = 1
        return y.sum()

    x = np.float32([5, 1, 3])
    np.testing.assert_allclose(run(tpuc.grad(loss), x), [0, 2, 0])
