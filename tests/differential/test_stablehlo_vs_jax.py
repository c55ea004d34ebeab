"""JAX programs lowered to StableHLO for a TPU by JAX itself, against JAX's own results on CPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from compiler.frontends.models import parse_model
from compiler.hlo.evaluator import evaluate
from compiler.hlo.verifier import verify

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 8)).astype(np.float32)
Y = RNG.normal(size=(8, 5)).astype(np.float32)
K = RNG.normal(size=(3, 3, 2, 4)).astype(np.float32)
IMAGE = RNG.normal(size=(2, 9, 9, 2)).astype(np.float32)
INDEX = RNG.integers(0, 6, 7).astype(np.int32)
SPD = (X @ X.T + 8 * np.eye(6)).astype(np.float32)


def scan(x: Any) -> Any:
    return jax.lax.scan(lambda c, v: (c * 0.5 + v, c.sum()), x[0], x)


def fori_with_cond(x: Any) -> Any:
    def body(i: Any, v: Any) -> Any:
        return jax.lax.cond(i % 2 == 0, lambda u: u + x, lambda u: u * 2, v)

    return jax.lax.fori_loop(0, 5, body, x)


def switch(i: Any, x: Any) -> Any:
    return jax.lax.switch(i, [jnp.sin, jnp.cos, lambda v: v @ v.T @ v], x)


def convolve(x: Any, k: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    padding = ((1, 2), (0, 1))
    return jax.lax.conv_general_dilated(x, k, (2, 1), padding, (1, 2), (2, 1), numbers)


def pools(x: Any) -> Any:
    def pooled(v: Any) -> Any:
        window = (1, 3, 3, 1)
        return jax.lax.reduce_window(v, -jnp.inf, jax.lax.max, window, (1, 2, 2, 1), "SAME")

    return pooled(x), jax.grad(lambda v: pooled(v).sum())(x)


def special(x: Any) -> Any:
    y = jnp.abs(x) + 0.5
    functions = jax.scipy.special
    return (
        functions.gammaln(y), functions.digamma(y), functions.erf(x), functions.erfc(x),
        functions.erfinv(jnp.tanh(x)), functions.i1e(x), functions.zeta(y + 1.5, y),
        functions.polygamma(2, y), jnp.nextafter(x, y), jnp.arcsinh(x), jnp.tan(x),
    )  # fmt: skip


def gather_scatter(x: Any, i: Any) -> Any:
    return (
        x[i, 1:4],
        x.at[i].add(1.5),
        x.at[i, 2].set(0.0),
        jax.vmap(lambda r, j: r[j])(x[:6], i[:6]),
    )


def random(seed: Any) -> Any:
    key = jax.random.key(seed)
    return jax.random.normal(key, (4, 5)), jax.random.randint(key, (7,), 0, 100)


PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x, y: jnp.einsum("ij,jk->ki", x, y), (X, Y)),
    (lambda x: jax.nn.softmax(x), (X,)),
    (lambda x: jax.grad(lambda v: jnp.linalg.norm(jax.nn.gelu(v)))(x), (X,)),
    (lambda x: (jnp.sort(x, 1), jnp.argsort(x, 0), jnp.argmax(x, 1)), (X,)),
    (lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), jax.lax.cummax(x, 0)), (X,)),
    (lambda x: jax.lax.top_k(x, 3), (X,)),
    (lambda x: jnp.linalg.cholesky(x), (SPD,)),
    (lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * 2), (X,)),
    (lambda x: x.astype(jnp.bfloat16) @ x.T.astype(jnp.bfloat16), (X,)),
    (lambda x: (jnp.pad(x, 1), jnp.roll(x, 2, 1), x[::-1, ::2], jnp.tile(x, 2)), (X,)),
    (scan, (X,)),
    (fori_with_cond, (X,)),
    (switch, (np.int32(2), X)),
    (convolve, (IMAGE, K)),
    (pools, (IMAGE,)),
    (special, (X,)),
    (gather_scatter, (X, INDEX)),
    (random, (np.int32(7),)),
]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_lowered_program_computes_what_jax_computes(number: int) -> None:
    function, arguments = PROGRAMS[number]
    jitted = jax.jit(function, keep_unused=True)
    module = parse_model(jitted.trace(*arguments).lower(lowering_platforms=("tpu",)).as_text())
    verify(module)
    found = evaluate(module, [np.asarray(a) for a in arguments], "highest")
    with jax.default_matmul_precision("highest"):
        wants = [np.asarray(leaf) for leaf in jax.tree.leaves(jitted(*arguments))]
    assert len(found) == len(wants)
    for result, want in zip(found, wants, strict=True):
        assert result.dtype == want.dtype
        tolerance = 2e-2 if result.dtype.itemsize == 2 else 2e-5
        scale = float(np.abs(want.astype(np.float64)).max()) + 1e-6
        error = np.abs(result.astype(np.float64) - want.astype(np.float64)).max()
        assert error <= tolerance * scale


def test_an_exported_program_with_symbolic_shapes_is_refined() -> None:
    export = pytest.importorskip("jax.export")
    (n,) = export.symbolic_shape("n")
    function = jax.jit(lambda x: jnp.concatenate([x, x * 2]).reshape(2, -1).sum(1))
    exported = export.export(function)(jax.ShapeDtypeStruct((n, 8), np.float32))
    text = exported.mlir_module()
    concrete = text.replace("tensor<?x8xf32>", "tensor<6x8xf32>", 1)  # the entry's argument
    found = evaluate(parse_model(concrete), [X], "highest")[0]
    np.testing.assert_allclose(found, np.asarray(function(X)), rtol=1e-5)
