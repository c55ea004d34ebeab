"""vmap, Jacobians and Hessians of traced NumPy functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tpuc
from compiler.diagnostics import CompileError
from compiler.frontends.numpy.pytree import flatten, unflatten
from compiler.frontends.numpy.tracing import trace
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.verifier import verify
from runtime.control import scan

X = np.linspace(-1.3, 1.7, 6, dtype=np.float32).reshape(2, 3)
W = np.float32([[0.5, -0.2, 0.1], [0.3, 0.4, 0.0], [-0.1, 0.2, 0.6]])


def run(function: Any, *args: Any) -> Any:
    """Trace, verify, print, parse and evaluate; the result has the tree of the function's."""
    module, _, out_tree = trace(function, args)
    verify(module)
    leaves = [np.asarray(leaf) for leaf in flatten(args)[0]]
    return unflatten(out_tree, evaluate(parse_module(print_module(module)), leaves, "highest"))


def close(got: Any, want: Any) -> None:
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def test_axes() -> None:
    def norm(x: Any, w: Any) -> Any:
        return np.sqrt(((x @ w) ** 2).sum())

    want = np.sqrt(((X @ W) ** 2).sum(1))
    close(run(tpuc.vmap(norm, in_axes=(0, None)), X, W), want)
    close(run(tpuc.vmap(norm, in_axes=(1, None)), X.T.copy(), W), want)
    close(run(lambda x, w: tpuc.vmap(lambda x: norm(x, w))(x), X, W), want)
    close(run(tpuc.vmap(lambda x: x * 2, out_axes=-1), X), 2 * X.T)
    close(run(tpuc.vmap(lambda x, y: (x + y, np.float32(3))), X, X)[1], [3, 3])


def test_trees_and_names() -> None:
    def function(tree: Any, *, scale: Any) -> Any:
        return {"sum": tree["a"].sum() * scale, "b": tree["b"]}

    tree = {"a": X, "b": np.float32(2)}
    mapped = tpuc.vmap(function, in_axes=({"a": 0, "b": None},), out_axes={"sum": 0, "b": None})
    found = run(lambda tree, scale: mapped(tree, scale=scale), tree, np.float32([1, 10]))
    close(found["sum"], X.sum(1) * [1, 10])
    close(found["b"], 2)


def test_nested_and_with_derivatives() -> None:
    def loss(x: Any, w: Any) -> Any:
        last, _ = scan(lambda c, row: (np.tanh(c + row * x), None), x, w)
        return (last**2).sum()

    outer = tpuc.vmap(tpuc.vmap(loss, in_axes=(None, 0)), in_axes=(0, None))
    stack = np.stack([W, W * 2])
    want = [[run(loss, x, w) for w in stack] for x in X]
    close(run(outer, X, stack), want)
    each = run(tpuc.vmap(tpuc.grad(loss), in_axes=(0, None)), X, W)
    close(each, [run(tpuc.grad(loss), x, W) for x in X])
    total = run(tpuc.grad(lambda w, x: tpuc.vmap(loss, in_axes=(0, None))(x, w).sum()), W, X)
    close(total, sum(run(tpuc.grad(loss, 1), x, W) for x in X))


def test_rules_of_users_are_batched() -> None:
    @tpuc.custom_vjp
    def scaled(x: Any, w: Any) -> Any:
        return x * w

    scaled.defvjp(
        lambda x, w: (x * w, (x, w)), lambda kept, g: (g * kept[1] * 10, g * kept[0] * 100)
    )

    def loss(x: Any, w: Any) -> Any:
        return tpuc.vmap(scaled, in_axes=(0, None))(x, w).sum()

    dx, dw = run(tpuc.grad(loss, (0, 1)), X, W[0])
    close(dx, np.broadcast_to(W[0] * 10, X.shape))
    close(dw, X.sum(0) * 100)

    @tpuc.custom_jvp
    def twice(x: Any) -> Any:
        return x * 2

    twice.defjvp(lambda primals, tangents: (twice(*primals), tangents[0] * 20))
    close(run(lambda x: tpuc.jvp(tpuc.vmap(twice), (x,), (x,))[1], X), 20 * X)
    close(run(tpuc.grad(lambda x: tpuc.vmap(twice)(x).sum()), X), np.full_like(X, 20))
    block = tpuc.checkpoint(lambda x: np.sin(x) * x)
    close(run(tpuc.grad(lambda x: tpuc.vmap(block)(x).sum()), X), np.cos(X) * X + np.sin(X))


def test_jacobians() -> None:
    def function(x: Any) -> Any:
        return {"y": np.sin(x) * x[::-1], "s": (x**2).sum()}

    n = 3
    x = X[0]
    want = np.diag(np.cos(x) * x[::-1]) + np.fliplr(np.diag(np.sin(x)))
    for way in (tpuc.jacobian, tpuc.jacrev, tpuc.jacfwd):
        found = run(way(function), x)
        close(found["y"], want)
        close(found["s"], 2 * x)
        assert found["y"].shape == (n, n)
    both = run(tpuc.jacrev(lambda x, w: x @ w, (0, 1)), X, W)
    close(both[0], np.einsum("ik,lj->ijkl", np.eye(2), W))
    close(both[1], np.einsum("ik,jl->ijkl", X, np.eye(3)))
    forward = run(tpuc.jacfwd(lambda x, w: x @ w, (0, 1)), X, W)
    for a, b in zip(both, forward, strict=True):
        close(a, b)


def test_hessians() -> None:
    def function(x: Any) -> Any:
        return (x**3).sum() + x[0] * x[1] * x[2]

    x = X[1]
    cross = np.array([[0, x[2], x[1]], [x[2], 0, x[0]], [x[1], x[0], 0]])
    close(run(tpuc.hessian(function), x), np.diag(6 * x) + cross)
    tree = run(tpuc.hessian(lambda p: (p["a"] * p["b"]).sum()), {"a": x, "b": X[0]})
    close(tree["a"]["b"], np.eye(3))
    close(tree["a"]["a"], np.zeros((3, 3)))


def test_on_the_chip() -> None:
    gradient = tpuc.grad(lambda x, w: np.tanh(x @ w).sum())
    each = tpuc.jit(tpuc.vmap(gradient, in_axes=(0, None)), precision="highest")
    close(each(X, W), ((1 - np.tanh(X @ W) ** 2) @ W.T))
    close(tpuc.vmap(np.sin)(X), np.sin(X))
    close(tpuc.hessian(lambda x: (x**3).sum())(X[0]), np.diag(6 * X[0]))


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(CompileError, match=r"sizes \[2, 3\]"):
        run(tpuc.vmap(lambda x, y: x), X, W)
    with pytest.raises(CompileError, match="in_axes has 1 entries for 2"):
        run(tpuc.vmap(lambda x, y: x, in_axes=(0,)), X, X)
    with pytest.raises(CompileError, match="out_axes has None"):
        run(tpuc.vmap(lambda x: x, out_axes=None), X)
    with pytest.raises(CompileError, match="want real floating-point"):
        run(tpuc.jacobian(lambda n: n * 2), np.int32([1, 2]))
