"""custom_vjp, custom_jvp and checkpoint of traced functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tpuc
from compiler.autodiff.rule_names import DERIVATIVE
from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.pytree import flatten, unflatten
from compiler.frontends.numpy.tracing import trace
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.verifier import verify
from runtime.control import scan

X = np.linspace(-1.3, 1.7, 6, dtype=np.float32).reshape(2, 3)


def run(function: Any, *args: Any) -> Any:
    """Trace, verify, print, parse and evaluate; the result has the tree of the function's."""
    module, _, out_tree = trace(function, args)
    verify(module)
    for computation in module.computations.values():
        assert not any(DERIVATIVE in instr.attrs for instr in computation)
    leaves = [np.asarray(leaf) for leaf in flatten(args)[0]]
    return unflatten(out_tree, evaluate(parse_module(print_module(module)), leaves, "highest"))


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


@tpuc.custom_vjp
def clipped(x: Any, limit: Any) -> Any:
    return x * 1


def _forward(x: Any, limit: Any) -> Any:
    return x * 1, {"limit": limit, "unused": x}


def _backward(residuals: Any, g: Any) -> Any:
    return np.clip(g, -residuals["limit"], residuals["limit"]), None


clipped.defvjp(_forward, _backward)


def test_a_backward_rule_is_used() -> None:
    def loss(x: Any) -> Any:
        return (clipped(x, np.float32(0.5)) ** 2).sum()

    close(run(tpuc.grad(loss), X), np.clip(2 * X, -0.5, 0.5))
    close(run(lambda x: clipped(x, limit=1.0), X), X)
    close(run(tpuc.grad(lambda x: loss(x) * 3), X), np.clip(6 * X, -0.5, 0.5))
    close(clipped(X, np.float32(1)), X)


def test_it_is_used_in_loops_and_again() -> None:
    def loss(x: Any) -> Any:
        last, _ = scan(lambda c, row: (clipped(c * 2 + row, np.float32(0.1)), None), x[0], x)
        return (last * last).sum()

    # The cotangent is 0.1 or less after each rule, and doubled on its way to the one before.
    gradient = run(tpuc.grad(loss), X)
    assert np.all(np.abs(gradient[1]) <= 0.1 + 1e-6) and np.all(np.abs(gradient[0]) <= 0.3 + 1e-6)
    second = run(tpuc.grad(lambda x: tpuc.grad(lambda y: (clipped(y, 9.0) ** 3).sum())(x).sum()), X)
    close(second, 6 * X)


def test_forward_mode_of_a_backward_rule_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="give it custom_jvp"):
        run(lambda x: tpuc.jvp(lambda x: clipped(x, 1.0), (x,), (x,)), X)


def test_what_a_rule_closes_over_is_constant() -> None:
    def outer(x: Any) -> Any:
        @tpuc.custom_vjp
        def scaled(y: Any) -> Any:
            return y * x

        scaled.defvjp(lambda y: (y * x, x), lambda kept, g: (g * kept,))
        return tpuc.grad(lambda y: scaled(y).sum())(x), scaled

    close(run(lambda x: outer(x)[0], X), X)
    with pytest.raises(UnsupportedError, match="pass it as an argument"):
        run(tpuc.grad(lambda x: outer(x)[1](x).sum()), X)


def test_static_arguments_of_a_rule() -> None:
    power = tpuc.custom_vjp(lambda n, x: x**n, nondiff_argnums=(0,))
    power.defvjp(lambda n, x: (x**n, x), lambda n, x, g: (g * n * x ** (n - 1) * 10,))
    close(run(tpuc.grad(lambda x: power(3, x).sum()), X), 30 * X**2)
    close(power(2, X), X**2)


def test_a_rule_for_both_modes() -> None:
    @tpuc.custom_jvp
    def logistic(x: Any) -> Any:
        return 1 / (1 + np.exp(-x))

    @logistic.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:
        y = logistic(primals[0])
        return y, y * (1 - y) * tangents[0] * 2  # twice what it should be, so that it is seen

    y = 1 / (1 + np.exp(-X))
    close(run(lambda x: tpuc.jvp(logistic, (x,), (x,)), X)[1], 2 * y * (1 - y) * X)
    close(run(tpuc.grad(lambda x: logistic(x).sum()), X), 2 * y * (1 - y))


def test_a_checkpoint_computes_again_behind_a_barrier() -> None:
    def block(x: Any) -> Any:
        return np.sin(np.sin(x)) * x

    def loss(x: Any, f: Any) -> Any:
        return (f(x) * 2).sum()

    want = run(tpuc.grad(lambda x: loss(x, block)), X)
    close(run(tpuc.grad(lambda x: loss(x, tpuc.checkpoint(block))), X), want)
    module, _, _ = trace(tpuc.value_and_grad(lambda x: loss(x, tpuc.checkpoint(block))), (X,))
    assert [i.opcode for i in module.entry].count("opt-barrier") == 1
    close(run(lambda x: tpuc.jvp(tpuc.checkpoint(block), (x,), (x,)), X)[1], want * X / 2)
    got = tpuc.jit(tpuc.grad(lambda x: loss(x, tpuc.checkpoint(block))))(X)
    close(got, want)


def test_rules_that_do_not_fit_are_said() -> None:
    f = tpuc.custom_vjp(lambda x: x * 2)
    with pytest.raises(CompileError, match="call defvjp"):
        run(f, X)
    f.defvjp(lambda x: (x * 2, None), lambda _, g: g)
    with pytest.raises(CompileError, match="bwd must return a tuple of 1"):
        run(f, X)
    f.defvjp(lambda x: (x.sum(), None), lambda _, g: (g,))
    with pytest.raises(CompileError, match="custom_vjp: fwd returns"):
        run(f, X)
    f.defvjp(lambda x: (x * 2, None), lambda _, g: (g.sum(),))
    with pytest.raises(CompileError, match="cotangent 0 of bwd has shape"):
        run(f, X)


def test_a_rule_may_call_its_own_function() -> None:
    @tpuc.custom_vjp
    def cube(x: Any) -> Any:
        return x**3

    cube.defvjp(lambda x: (cube(x), x), lambda x, g: (3 * g * x**2,))
    first = tpuc.grad(lambda x: cube(x).sum())
    close(run(first, X), 3 * X**2)
    close(run(tpuc.grad(lambda x: first(x).sum()), X), 6 * X)


def test_what_is_held_has_no_derivative_of_any_order() -> None:
    def product(x: Any) -> Any:
        held = tpuc.lax.stop_gradient({"x": x, "number": 3, "whole": x.astype(np.int32)})
        return (x**2 * held["x"]).sum()

    close(run(tpuc.grad(product), X), 2 * X**2)
    close(run(tpuc.grad(lambda x: tpuc.grad(product)(x).sum()), X), 2 * X)
    close(run(lambda x: tpuc.jvp(tpuc.lax.stop_gradient, (x,), (x,))[1], X), 0 * X)
    close(run(tpuc.vmap(tpuc.lax.stop_gradient), X), X)
