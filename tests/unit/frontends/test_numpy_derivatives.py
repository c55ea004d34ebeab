"""Derivatives of traced NumPy functions: evaluated, against finite differences and known laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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
from runtime.control import cond, fori_loop, scan

X = np.linspace(-1.3, 1.7, 6, dtype=np.float32).reshape(2, 3)
W = np.float32([[0.5, -0.2, 0.1], [0.3, 0.4, 0.0], [-0.1, 0.2, 0.6]])


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Trace, verify, print, parse and evaluate; the result has the tree of the function's."""
    module, _, out_tree = trace(function, args)
    verify(module)
    leaves = [np.asarray(leaf) for leaf in flatten(args)[0]]
    return unflatten(out_tree, evaluate(parse_module(print_module(module)), leaves, "highest"))


def close(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(got, want, tolerance, tolerance)


def slope(
    function: Callable[..., Any], args: tuple[Any, ...], directions: tuple[Any, ...]
) -> float:
    """The derivative along a direction, of NumPy's own values in double precision."""
    step = 1e-5
    ahead = [np.asarray(a, np.float64) + step * d for a, d in zip(args, directions, strict=True)]
    behind = [np.asarray(a, np.float64) - step * d for a, d in zip(args, directions, strict=True)]
    return float((function(*ahead) - function(*behind)) / (2 * step))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x, w: (np.exp(x @ w) / np.exp(x @ w).sum(1, keepdims=True))[:, 0].sum(),
    "norm": lambda x, w: ((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 0.1) @ w)[0, 1],
    "pieces": lambda x, w: (np.where(x > 0, x * x, np.sin(x)) @ np.maximum(w, 0)).sum(),
    "moves": lambda x, w: (np.concatenate([x, w], 0)[::-1, 1:].T.reshape(-1)[::2] ** 3).sum(),
    "powers": lambda x, w: (np.abs(x) ** 1.5).sum() * np.prod(w + 1) + np.hypot(x, 2).max(),
    "einsum": lambda x, w: np.einsum("ij,jk,ik->", x, w, x),
    "sorted": lambda x, w: np.sort(x @ w, 1)[:, 1].sum() + np.cumsum(x, 1)[1, 2] * np.tanh(w[0, 1]),
    "indexed": lambda x, w: (x[np.array([1, 0, 1])] * w[np.array([0, 0, 2])]).sum(),
    "logs": lambda x, w: np.log1p(np.exp(x)).sum() + np.logaddexp(w, 1).sum() + np.arctan2(w, 2).sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_gradients_against_finite_differences(name: str) -> None:
    function = FUNCTIONS[name]
    rng = np.random.default_rng(len(name))
    directions = rng.standard_normal(X.shape), rng.standard_normal(W.shape)
    value, gradient = run(tpuc.value_and_grad(function, (0, 1)), X, W)
    close(value, function(X.astype(np.float64), W.astype(np.float64)))
    want = slope(function, (X, W), directions)
    close(sum(np.sum(g * d) for g, d in zip(gradient, directions, strict=True)), want, 1e-3)
    tangents = tuple(d.astype(np.float32) for d in directions)
    _, tangent = run(lambda *a: tpuc.jvp(function, a[:2], a[2:]), X, W, *tangents)
    close(tangent, want, 1e-3)


class Layer(NamedTuple):
    w: Any
    b: Any


def test_trees_come_back_as_they_are() -> None:
    layers = {"one": Layer(W, np.float32([1, 2, 3])), "two": [W * 2, np.int32(3)]}

    def loss(layers: Any, x: Any) -> Any:
        return ((x @ layers["one"].w + layers["one"].b) @ layers["two"][0]).sum()

    with pytest.raises(CompileError, match="floating-point arguments"):
        run(tpuc.grad(loss), layers, X)
    layers["two"].pop()
    found = run(tpuc.grad(loss), layers, X)
    assert isinstance(found["one"], Layer)
    close(found["one"].b, (W * 2).sum(1) * 2)
    close(found["two"][0], np.broadcast_to((X @ W + layers["one"].b).sum(0)[:, None], (3, 3)))


def test_arguments_besides_are_python() -> None:
    def loss(x: Any, how: str, *, scale: float = 1) -> Any:
        return (np.sin(x) if how == "sine" else x * x).sum() * scale

    close(run(lambda x: tpuc.grad(loss)(x, "sine", scale=2), X), 2 * np.cos(X))
    close(run(lambda x: tpuc.grad(loss)(x, "square"), X), 2 * X)


def test_a_function_may_close_over_traced_arrays() -> None:
    def outer(x: Any, w: Any) -> Any:
        scaled = x * 2
        return tpuc.grad(lambda w: (scaled @ w).sum())(w)

    close(run(outer, X, W), np.broadcast_to(2 * X.sum(0)[:, None], (3, 3)))


def test_auxiliary_results() -> None:
    def loss(x: Any) -> Any:
        return (x**2).sum(), {"double": x * 2}

    (value, aux), gradient = run(tpuc.value_and_grad(loss, has_aux=True), X)
    close(value, (X**2).sum())
    close(aux["double"], X * 2)
    close(gradient, 2 * X)
    gradient, aux = run(tpuc.grad(loss, has_aux=True), X)
    close(gradient, aux["double"])


def test_pullbacks_take_trees() -> None:
    def function(x: Any, n: Any) -> Any:
        return {"y": np.sin(x), "n": n + 1, "sum": x.sum()}

    def pulled(x: Any, n: Any) -> Any:
        value, pull = tpuc.vjp(function, x, n)
        return value, pull({"y": x, "n": n, "sum": np.float32(2)})

    value, (dx, dn) = run(pulled, X, np.int32(4))
    close(value["n"], 5)
    close(dx, X * np.cos(X) + 2)
    assert dn == 0


def test_second_derivatives_through_loops() -> None:
    def function(x: Any) -> Any:
        return fori_loop(0, 3, lambda i, y: y * x, x)  # x^4

    close(run(tpuc.grad(tpuc.grad(function)), np.float32(1.5)), 12 * 1.5**2)


def test_recurrence_and_branches() -> None:
    def loss(w: Any, x: Any) -> Any:
        def step(carry: Any, row: Any) -> Any:
            ahead = np.tanh(carry @ w + row)
            return cond(ahead[0] > 0, lambda a: a * 2, lambda a: -a, ahead), ahead.sum()

        last, sums = scan(step, np.zeros(3, np.float32), x)
        return (last * last).sum() + sums.sum()

    def plain(w: Any, x: Any) -> Any:
        carry, total = np.zeros(3), 0.0
        for row in x:
            ahead = np.tanh(carry @ w + row)
            carry, total = ahead * 2 if ahead[0] > 0 else -ahead, total + ahead.sum()
        return (carry * carry).sum() + total

    direction = np.random.default_rng(0).standard_normal(W.shape)
    found = run(tpuc.grad(loss), W, X)
    close(np.sum(found * direction), slope(lambda w: plain(w, X), (W,), (direction,)), 1e-3)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(CompileError, match=r"returns <traced f32\[2, 3\].*want one real"):
        run(tpuc.grad(np.sin), X)
    with pytest.raises(CompileError, match="there is no argument 1"):
        run(tpuc.grad(np.sum, argnums=1), X)
    with pytest.raises(CompileError, match="must return a pair"):
        run(tpuc.grad(np.sum, has_aux=True), X)
    with pytest.raises(CompileError, match=r"the tangent is .* want the shape"):
        run(lambda x: tpuc.jvp(np.sin, (x,), (x[0],)), X)


def test_complex_gradients_are_as_jax_has_them() -> None:
    z = np.complex64([1 + 2j, -0.5j])
    found = run(tpuc.grad(lambda z: (np.abs(z) ** 2).sum()), z)
    close(found, 2 * z.conj())
    close(run(tpuc.grad(lambda z: (z * z).sum(), holomorphic=True), z), 2 * z)


def test_on_the_chip_alone_and_under_jit() -> None:
    def loss(w: Any, x: Any) -> Any:
        return (np.tanh(x @ w) ** 2).sum()

    want = run(tpuc.grad(loss), W, X)
    close(tpuc.grad(loss)(W, X), want, 2e-2)
    step = tpuc.jit(lambda w, x: w - np.float32(0.1) * tpuc.grad(loss)(w, x), precision="highest")
    close(step(W, X), W - 0.1 * want)
    value, pull = tpuc.vjp(np.sin, X)
    close(value, np.sin(X))
    close(pull(X)[0], np.cos(X) * X)
    close(tpuc.jvp(np.sin, (X,), (X,))[1], np.cos(X) * X)


def test_static_arguments_of_a_jitted_gradient() -> None:
    def loss(x: Any, how: str, power: int) -> Any:
        return (np.sin(x) if how == "sine" else x**power).sum()

    gradient = tpuc.jit(tpuc.grad(loss), static_argnames=("how", "power"))
    close(gradient(X, "sine", 0), np.cos(X))
    close(gradient(X, how="power", power=3), 3 * X**2)


def test_on_a_slice() -> None:
    """A gradient over a batch that is cut is a sum over the chips."""
    mesh = tpuc.make_mesh((2,), ("data",), "v5e:2x1")
    rows, whole = (tpuc.NamedSharding(mesh, tpuc.PartitionSpec(*axes)) for axes in (("data",), ()))

    def loss(w: Any, x: Any) -> Any:
        return (np.tanh(x @ w) ** 2).sum()

    rng = np.random.default_rng(0)
    w, x = (rng.standard_normal(s).astype(np.float32) for s in ((16, 8), (32, 16)))
    options = {"in_shardings": (whole, rows), "out_shardings": whole, "precision": "highest"}
    function = tpuc.jit(tpuc.value_and_grad(loss), **options)
    value, gradient = function(w, x)
    want = run(tpuc.value_and_grad(loss), w, x)
    close(np.asarray(value), want[0])
    np.testing.assert_allclose(np.asarray(gradient), want[1], 1e-4, 1e-4)
    assert {c["kind"] for c in function.executable.collectives} == {"all-reduce"}
