"""Loops and branches of traced functions: the traced module, evaluated, does what Python would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.pytree import flatten, unflatten
from compiler.frontends.numpy.tracing import trace
from compiler.hlo.evaluator import evaluate
from compiler.hlo.host_types import device_dtype
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.verifier import verify
from runtime.control import cond, fori_loop, map, scan, switch, while_loop

X = np.arange(12, dtype=np.float32).reshape(4, 3) / 7
W = np.float32([[0.5, -0.2, 0.1], [0.3, 0.4, 0.0], [-0.1, 0.2, 0.6]])


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Trace, verify, print, parse and evaluate; the result has the tree of the function's."""
    module, _, out_tree = trace(function, args)
    verify(module)
    leaves = [np.asarray(leaf) for leaf in flatten(args)[0]]
    leaves = [leaf.astype(device_dtype(leaf.dtype)) for leaf in leaves]
    return unflatten(out_tree, evaluate(parse_module(print_module(module)), leaves, "highest"))


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def cells(x: np.ndarray, w: np.ndarray, *, reverse: bool) -> tuple[np.ndarray, np.ndarray]:
    carry, rows = np.zeros(3, np.float32), np.zeros_like(x)
    for i in reversed(range(len(x))) if reverse else range(len(x)):
        carry = np.tanh(carry @ w + x[i])
        rows[i] = carry
    return carry, rows


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_carries_stacks_and_uses_what_is_around_it(reverse: bool) -> None:
    def function(x: Any, w: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            carry = np.tanh(carry @ w + row)
            return carry, (carry, None, carry.sum())

        return scan(step, np.zeros(3, np.float32), x, reverse=reverse)

    carry, (rows, none, sums) = run(function, X, W)
    want_carry, want_rows = cells(X, W, reverse=reverse)
    assert none is None
    close(carry, want_carry)
    close(rows, want_rows)
    close(sums, want_rows.sum(1))


def test_a_scan_of_nothing_and_one_without_slices() -> None:
    total, rows = run(lambda x: scan(lambda c, r: (c + r, r * 2), x[0], x[:0]), X)
    close(total, X[0])
    assert rows.shape == (0, 3)
    last, powers = run(lambda x: scan(lambda c, _: (c * 2, c), x, None, 5), np.float32(1))
    close(last, 32)
    close(powers, [1, 2, 4, 8, 16])


def test_loops_in_loops_use_arrays_of_each_level() -> None:
    def function(x: Any, count: Any) -> Any:
        twice = x * 2

        def outer(i: Any, value: Any) -> Any:
            total = value.sum()
            return fori_loop(0, i + 1, lambda j, v: v + twice * total * 0.01 + j, value)

        return fori_loop(0, count, outer, x)

    want = X
    for i in range(3):
        total = want.sum()
        for j in range(i + 1):
            want = want + 2 * X * total * 0.01 + j
    close(run(function, X, 3), want)


def test_a_while_loop_stops_by_its_state_and_scalars_take_the_types_of_the_body() -> None:
    def function(x: Any, limit: Any) -> Any:
        def body(state: Any) -> Any:
            return {"n": state["n"] + 1, "v": state["v"] * x, "weak": state["weak"] * 0.5}

        return while_loop(lambda s: s["v"] < limit, body, {"n": 0, "v": 1, "weak": 1})

    result = run(function, np.float32(3), np.float32(100))
    assert (int(result["n"]), float(result["v"]), float(result["weak"])) == (5, 243.0, 1 / 32)
    assert result["n"].dtype == np.int32


def test_the_trip_count_of_a_constant_bound_stands_in_the_condition() -> None:
    module, _, _ = trace(lambda x: fori_loop(2, 9, lambda i, v: v + i, x), (X,))
    text = print_module(module)
    condition = text[text.index("%condition") :].split("}\n")[0]
    assert "constant(9)" in condition and "direction=LT" in condition


@pytest.mark.parametrize("flag", [True, False])
def test_a_branch_runs_with_what_it_uses_of_around_it(flag: bool) -> None:
    def function(x: Any, w: Any, flag: Any) -> Any:
        product = x @ w
        return cond(flag, lambda v: (v + product, 1), lambda v: (v * w.sum(), 0.5), x)

    value, number = run(function, X, W, np.bool_(flag))
    close(value, X + X @ W if flag else X * W.sum())
    assert float(number) == (1 if flag else 0.5)


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_a_switch_clamps_its_index(index: int) -> None:
    branches = [lambda v: v, lambda v: v * 2, lambda v: v - 1]
    want = branches[min(max(index, 0), 2)](X)
    close(run(lambda i, x: switch(i, branches, x), np.int32(index), X), want)


def test_map_and_calls_outside_of_a_trace_run_on_the_chip() -> None:
    close(map(lambda row: row.max() - row, X), X.max(1, keepdims=True) - X)
    close(fori_loop(0, 4, lambda i, v: v + i, np.float32(0.5)), 6.5)
    close(cond(X.sum() > 0, lambda v: v + 1, lambda v: v, X), X + 1)


def test_what_cannot_be_a_loop_or_branch_says_why() -> None:
    with pytest.raises(
        CompileError, match=r"makes f32\[4\] of the carried state, which is f32\[2\]"
    ):
        fori_loop(0, 3, lambda _, v: np.concatenate([v, v]), np.zeros(2, np.float32))
    with pytest.raises(CompileError, match=r"carried state\[n\], which is s32\[\]"):
        while_loop(lambda s: s["n"] < 3, lambda s: {"n": s["n"] * 0.5}, {"n": np.int32(1)})
    with pytest.raises(CompileError, match=r"result 0 of the branches is f32\[\], s32\[\]"):
        cond(True, lambda: np.float32(1), lambda: np.int32(1))
    with pytest.raises(CompileError, match=r"branch 1 returns an array, want tuple\(an array, an"):
        cond(True, lambda: (1, 2), lambda: 1)
    with pytest.raises(CompileError, match="scan: function must return a pair"):
        scan(lambda c, x: c + x, np.float32(0), X[0])
    with pytest.raises(CompileError, match=r"xs and length give \[3, 4\] steps"):
        scan(lambda c, x: (c, x), 0, X, 3)
    with pytest.raises(CompileError, match="the condition must return one scalar truth value"):
        while_loop(lambda v: v > 0, lambda v: v - 1, X)


def test_arrays_of_a_body_do_not_leave_it() -> None:
    kept: list[Any] = []

    def body(_: Any, value: Any) -> Any:
        kept.append(value)
        return value + 1

    with pytest.raises(CompileError, match="belongs to a trace that has ended"):
        trace(lambda x: fori_loop(0, 3, body, x) + kept[0], (X,))
