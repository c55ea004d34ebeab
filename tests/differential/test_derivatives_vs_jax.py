"""Derivatives of HLO modules against JAX's: both modes, over functions, types and edge values.

JAX lowers a function to StableHLO; the module is differentiated and evaluated, and JAX's own derivative
runs on CPU. Skipped where JAX is not installed; `tests/unit/autodiff` needs no JAX.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.autodiff.modules import jvp_module, vjp_module
from compiler.frontends.models import parse_model
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.verifier import verify

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

Array = np.ndarray[Any, Any]
_QUICK = {"xla_backend_optimization_level": 0}
_TOLERANCE = {"float32": 2e-5, "bfloat16": 3e-2, "complex64": 3e-5, "float16": 4e-3}


def numbers(
    *shape: int, dtype: Any = np.float32, seed: int = 0, low: float = -2, high: float = 2
) -> Array:
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind == "c":
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(dtype)
    return rng.uniform(low, high, shape).astype(dtype)


def module_of(function: Callable[..., Any], *args: Array) -> HloModule:
    lowered = jax.jit(function).trace(*args).lower(lowering_platforms=("tpu",))
    return parse_model(lowered.as_text())


def check(function: Callable[..., Any], *args: Array, modes: str = "rf", scale: float = 1) -> None:
    """Compare results, cotangents (r) and tangents (f) with JAX's."""
    with jax.default_matmul_precision("highest"):
        module = module_of(function, *args)
        inexact = [
            i
            for i, a in enumerate(args)
            if a.dtype.kind not in "iub" or a.dtype == ml_dtypes.bfloat16
        ]
        moving = [perturbation(args[i], 7 + i) for i in inexact]

        def reverse(values: list[Array], seeds: list[Array]) -> Any:
            outputs, pull = jax.vjp(partial(function, args, inexact), *values)
            leaves, tree = jax.tree.flatten(outputs)
            given = iter(seeds)
            every = [
                next(given)
                if jnp.issubdtype(x.dtype, jnp.inexact)
                else np.zeros(x.shape, jax.dtypes.float0)
                for x in leaves
            ]
            return [*leaves, *pull(jax.tree.unflatten(tree, every))]

        def forward(values: list[Array], tangents: list[Array]) -> Any:
            outputs, moved = jax.jvp(partial(function, args, inexact), values, tangents)
            kept = [t for t in jax.tree.leaves(moved) if t.dtype != jax.dtypes.float0]
            return [*jax.tree.leaves(outputs), *kept]

        shapes = jax.tree.leaves(jax.eval_shape(function, *args))
        seeds = [
            perturbation(np.zeros(s.shape, s.dtype), 3 + i)
            for i, s in enumerate(shapes)
            if jnp.issubdtype(s.dtype, jnp.inexact)
        ]
        values = [args[i] for i in inexact]
        if "r" in modes:
            found = run(vjp_module(module), [*args, *seeds])
            agree(found, quick(reverse, values, seeds), scale)
        if "f" in modes:
            found = run(jvp_module(module), [*args, *moving])
            agree(found, quick(forward, values, moving), scale)


def partial(
    function: Callable[..., Any], args: tuple[Array, ...], inexact: list[int]
) -> Callable[..., Any]:
    def of(*values: Any) -> Any:
        every = list(args)
        for i, value in zip(inexact, values, strict=True):
            every[i] = value
        return function(*every)

    return of


def perturbation(like: Array, seed: int) -> Array:
    return numbers(*like.shape, dtype=like.dtype, seed=seed)


def quick(function: Callable[..., Any], *args: Any) -> list[Array]:
    compiled = jax.jit(function).lower(*args).compile(compiler_options=_QUICK)
    return [np.asarray(x) for x in compiled(*args)]


def run(module: HloModule, args: list[Array]) -> list[Array]:
    verify(module)
    with np.errstate(all="ignore"):
        return evaluate(module, args, "highest")


def agree(found: list[Array], want: list[Array], scale: float) -> None:
    assert len(found) == len(want)
    for number, (a, b) in enumerate(zip(found, want, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype, (
            number,
            a.dtype,
            a.shape,
            b.dtype,
            b.shape,
        )
        tolerance = _TOLERANCE.get(b.dtype.name, 0) * scale
        wide = np.complex128 if b.dtype.kind == "c" else np.float64
        x, y = a.astype(wide), b.astype(wide)
        size = max(1.0, float(np.max(np.abs(y[np.isfinite(y)]), initial=0)))
        np.testing.assert_allclose(
            x, y, rtol=tolerance, atol=tolerance * size, err_msg=f"result {number}"
        )


UNARY = {
    "abs": lax.abs, "acos": lambda x: lax.acos(x / 3), "acosh": lambda x: lax.acosh(x + 4),
    "asin": lambda x: lax.asin(x / 3), "asinh": lax.asinh, "atan": lax.atan,
    "atanh": lambda x: lax.atanh(x / 3), "cbrt": lambda x: lax.cbrt(x + 3), "ceil": lax.ceil,
    "cos": lax.cos, "cosh": lax.cosh, "erf": lax.erf, "exp": lax.exp, "exp2": lax.exp2, "expm1": lax.expm1,
    "floor": lax.floor,
    "log": lambda x: lax.log(x + 3), "log1p": lambda x: lax.log1p(x + 3), "logistic": lax.logistic,
    "neg": lax.neg, "round": lax.round, "rsqrt": lambda x: lax.rsqrt(x + 3), "sign": lax.sign, "sin": lax.sin,
    "sinh": lax.sinh, "sqrt": lambda x: lax.sqrt(x + 3), "tan": lambda x: lax.tan(x / 3), "tanh": lax.tanh,
    "reduce_precision": lambda x: lax.reduce_precision(x, 8, 7), "is_finite": lambda x: x * lax.is_finite(x),
}  # fmt: skip
COMPLEX = ["abs", "asinh", "cos", "cosh", "exp", "log", "neg", "sin", "sinh", "sqrt", "tanh"]
EDGES = np.array([0, -0.0, 1, -1, 0.5, 2, -2, 1.5], np.float32)


def test_elementwise_functions() -> None:
    """All of them in one module for each type: JAX compiles it at once."""
    skipped = {"atanh", "acos", "asin", "acosh"}  # their edges are outside of these
    for dtype in (np.float32, ml_dtypes.bfloat16):
        x = np.concatenate([EDGES, numbers(9)]).astype(dtype)
        for names in (sorted(UNARY)[::2], sorted(UNARY)[1::2]):
            wanted = [n for n in names if dtype is np.float32 or n not in skipped]
            check(lambda x, w=wanted: [UNARY[n](x) for n in w], x)
    z = numbers(7, dtype=np.complex64)
    check(lambda z: [UNARY[n](z) for n in COMPLEX], z)


def test_functions_of_two() -> None:
    x, y = (a.ravel() for a in np.meshgrid(EDGES, EDGES))
    check(
        lambda x, y: [lax.add(x, y), lax.sub(x, y), lax.mul(x, y), lax.max(x, y), lax.min(x, y)],
        x,
        y,
    )
    keep = y != 0
    check(lambda x, y: [lax.div(x, y), lax.atan2(x, y)], x[keep], y[keep])
    a, b = numbers(9), numbers(9, seed=1) + np.float32(3)
    check(lambda x, y: [lax.rem(x, y), lax.pow(abs(x), y), lax.pow(y, x)], a, b)
    check(
        lambda x, y: lax.pow(x, y), np.array([0, 2, 3], np.float32), np.array([2, 0, 1], np.float32)
    )
    z, w = numbers(5, dtype=np.complex64), numbers(5, dtype=np.complex64, seed=1)
    check(lambda z, w: [z + w, z - w, z * w, z / w], z, w)
    check(
        lambda z: [lax.real(z), lax.imag(z), lax.conj(z), lax.complex(lax.imag(z), lax.real(z))], z
    )


def test_selection_and_bounds() -> None:
    x = np.array([-2, -1, 0, 1, 2], np.float32)
    check(lambda x, y: jnp.where(x > 0, x * y, y), x, numbers(5))
    check(lambda low, x, high: lax.clamp(low, x, high), x * 0 - 1, x, x * 0 + 1)
    check(lambda x: lax.clamp(np.float32(-1), x, np.float32(1)), x)


def test_conversions() -> None:
    x = numbers(6)
    check(lambda x: [x.astype(jnp.bfloat16), x.astype(jnp.complex64), x.astype(jnp.int32)], x)
    check(lambda x: x.astype(jnp.float32) * 3, x.astype(ml_dtypes.bfloat16))


def test_movement() -> None:
    x = numbers(3, 4, 5)
    check(lambda x: [jnp.transpose(x, (2, 0, 1)), x.reshape(5, 12), x[::-1, :, ::-1]], x)
    check(lambda x: [x[1:, ::2, 1:4:2], jnp.concatenate([x, x * x, x[:1]], 0)], x)
    check(lambda x, v: [lax.pad(x, v, ((1, 2, 0), (0, -1, 1), (-1, 1, 2)))], x, numbers())
    check(lambda x: lax.broadcast_in_dim(x, (2, 4, 6, 3), (1, 3)), numbers(4, 3))
    check(lambda x, i: lax.dynamic_slice(x, (i, 1, i), (2, 3, 2)), x, np.int32(2))
    check(
        lambda x, u, i: lax.dynamic_update_slice(x, u, (i, 1, i)), x, numbers(2, 2, 2), np.int32(2)
    )


def test_dots() -> None:
    check(lambda x, y: x @ y, numbers(3, 4), numbers(4, 5))
    check(lambda x, y: jnp.einsum("bij,bkj->bik", x, y), numbers(2, 3, 4), numbers(2, 5, 4))
    dims = (((0, 2), (3, 1)), ((1,), (0,)))
    check(lambda x, y: lax.dot_general(x, y, dims), numbers(3, 2, 4, 5), numbers(2, 4, 6, 3))
    check(lambda x, y: x @ y, numbers(3, 4, dtype=np.complex64), numbers(4, 2, dtype=np.complex64))
    x, y = numbers(3, 4).astype(ml_dtypes.bfloat16), numbers(4, 5).astype(ml_dtypes.bfloat16)
    check(lambda x, y: lax.dot(x, y, preferred_element_type=jnp.float32), x, y)


@pytest.mark.parametrize(
    "options",
    [
        {"padding": "SAME", "window_strides": (1, 1)},
        {"padding": ((1, 2), (0, 1)), "window_strides": (2, 3)},
        {"padding": ((2, 1), (3, 0)), "window_strides": (1, 2), "rhs_dilation": (2, 1)},
        {"padding": ((1, 1), (2, 2)), "window_strides": (1, 1), "lhs_dilation": (2, 3)},
        {"padding": "VALID", "window_strides": (2, 1), "feature_group_count": 2},
        {"padding": "VALID", "window_strides": (1, 1), "batch_group_count": 2},
    ],
)
def test_convolutions(options: dict[str, Any]) -> None:
    groups = options.get("feature_group_count", 1)
    image, kernel = numbers(2, 4, 7, 8), numbers(6, 4 // groups, 3, 2)
    check(lambda x, k: lax.conv_general_dilated(x, k, **options), image, kernel)
    layout = ("NHWC", "HWIO", "NHWC")
    turned = (
        np.ascontiguousarray(image.transpose(0, 2, 3, 1)),
        np.ascontiguousarray(kernel.transpose(2, 3, 1, 0)),
    )
    check(
        lambda x, k: lax.conv_general_dilated(x, k, dimension_numbers=layout, **options),
        *turned,
        modes="r",
    )


def test_reductions() -> None:
    x = numbers(3, 5, 4)
    check(lambda x: [jnp.sum(x, (0, 2)), jnp.max(x, 1), jnp.min(x), jnp.prod(x, (0, 1))], x)
    ties = np.array([[1, 2, 2], [0, 0, -1], [5, 5, 5]], np.float32)
    check(lambda x: [jnp.max(x, 1), jnp.min(x, 0), jnp.argmax(x, 1)], ties)
    check(lambda x: jnp.prod(x, 1), np.array([[1, 0, 3], [0, 0, 2], [2, 3, 4]], np.float32))
    check(lambda x: jax.nn.logsumexp(x, 1) + jax.nn.softmax(x, 1).sum(1), numbers(3, 7))


def test_windows() -> None:
    x = numbers(2, 7, 9)
    check(
        lambda x: lax.reduce_window(
            x, 0.0, lax.add, (1, 3, 2), (1, 2, 3), ((0, 0), (1, 2), (0, 1))
        ),
        x,
    )
    check(
        lambda x: lax.reduce_window(
            x, 0.0, lax.add, (1, 2, 3), (1, 1, 2), ((0, 0), (1, 1), (2, 0)), (1, 2, 1), (1, 3, 2)
        ),
        x,
    )
    check(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2), (1, 2, 2), "SAME"), x)
    check(lambda x: [jnp.cumsum(x, 1), lax.cumsum(x, 2, reverse=True)], x)


def test_indexing() -> None:
    x = numbers(5, 4, 3)
    i = np.array([[0, 4, 2], [2, 2, 1]], np.int32)
    check(lambda x, i: [x[i], x[:, 1][i], x[i, 0, i % 3]], x, i)
    check(lambda x, i: lax.gather(
        x, i[..., None],
        lax.GatherDimensionNumbers(offset_dims=(2, 3), collapsed_slice_dims=(0,), start_index_map=(0,)),
        slice_sizes=(1, 2, 3), mode="clip"), x, np.array([[-3, 9]], np.int32))  # fmt: skip
    check(lambda x, u, i: [x.at[i].add(u), x.at[i[0]].set(u[0])], x, numbers(2, 3, 4, 3), i)
    check(
        lambda x, u, i: x.at[i].add(u, mode="drop"),
        x,
        numbers(3, 4, 3),
        np.array([1, 7, 1], np.int32),
    )
    check(lambda x, u, i: x.at[i].set(u), x, numbers(3, 4, 3), np.array([1, 3, 1], np.int32))
    u = np.round(numbers(3, 4, 3) * 2)
    ties = np.round(x * 2)
    check(lambda x, u, i: [x.at[i].max(u), x.at[i].min(u)], ties, u, np.array([1, 3, 1], np.int32))
    unique = {"unique_indices": True}
    check(lambda x, u, i: x.at[i].mul(u, **unique), x, u, np.array([1, 3, 0], np.int32))
    check(lambda x, i: jnp.take_along_axis(x, i, 0), x, np.zeros((2, 4, 3), np.int32) + 3)


def test_sorts() -> None:
    x = numbers(4, 7)
    check(lambda x: [jnp.sort(x, 1), lax.sort(x, dimension=0)], x)
    check(lambda x, y: lax.sort((x, y), dimension=1, num_keys=1), x, numbers(4, 7, seed=1))
    check(lambda x: lax.top_k(x, 3), x)


def test_linear_algebra() -> None:
    z = numbers(3, 8, dtype=np.complex64)
    check(lambda z: [jnp.fft.fft(z), jnp.fft.ifft2(z)], z)
    check(lambda x: [jnp.fft.rfft(x), jnp.fft.irfft(jnp.fft.rfft(x) * 2)], numbers(3, 8), scale=3)
    check(lambda x: [jnp.fft.rfft2(x)], numbers(4, 7), scale=3)
    check(lambda z: [jnp.fft.irfft(z, 8), jnp.fft.irfft(z, 7)], numbers(3, 5, dtype=np.complex64))
    a = numbers(2, 4, 4)
    positive = a @ a.transpose(0, 2, 1) + 4 * np.eye(4, dtype=np.float32)
    check(lambda a: jnp.linalg.cholesky(a), positive, scale=5)
    b = numbers(2, 4, 3)
    for left in (True, False):
        for options in ({}, {"transpose_a": True}, {"lower": True, "unit_diagonal": True}):
            rhs = b if left else np.ascontiguousarray(b.transpose(0, 2, 1))
            check(
                lambda a, b, o=options, side=left: lax.linalg.triangular_solve(a, b, left_side=side, **o),
                positive, rhs, scale=20,
            )  # fmt: skip


def test_loops() -> None:
    x, w = numbers(3), numbers(4, 3, 3)

    def recurrent(x: Any, w: Any) -> Any:
        def step(carry: Any, w: Any) -> Any:
            ahead = jnp.tanh(w @ carry)
            return ahead, ahead * 2

        return lax.scan(step, x, w)

    check(recurrent, x, w)
    check(lambda x: lax.fori_loop(0, 5, lambda i, y: y * jnp.sin(x) + i, x), x)
    check(lambda x: lax.fori_loop(0, 0, lambda i, y: y * x, x), x)
    check(
        lambda x: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * x), (0, x))[1],
        x,
        modes="f",
    )

    def nested(x: Any) -> Any:
        inner = lambda y: lax.fori_loop(0, 3, lambda j, z: z * jnp.cos(x), y)  # noqa: E731
        return lax.fori_loop(0, 2, lambda i, y: inner(y) + x, x)

    check(nested, x)


def test_branches() -> None:
    x, y = numbers(3), numbers(3, seed=1)
    for number in range(3):
        check(
            lambda x, y, i: lax.switch(
                i, [lambda x, y: x * y, lambda x, y: jnp.sin(x), lambda x, y: y], x, y
            ),
            x, y, np.int32(number),
        )  # fmt: skip
    check(lambda x: lax.cond(x[0] > 0, lambda x: x * x, lambda x: x * 3, x), x)


def test_second_derivatives() -> None:
    def function(x: Any, w: Any) -> Any:
        step = lambda carry, w: (jnp.tanh(w * carry), carry.max())  # noqa: E731
        last, ys = lax.scan(step, x, w)
        return (last**3).sum() + ys.prod() + jnp.sort(x)[1]

    x, w = numbers(3), numbers(4, 3)
    check(lambda x, w: jax.grad(function)(x, w), x, w, scale=5)
    once = module_of(lambda x, w: function(x, w), x, w)
    seed = np.float32(1)
    twice = vjp_module(vjp_module(once, [0]), [0])
    zero = np.float32(0)
    found = run(twice, [x, w, seed, zero, numbers(3, seed=5)])
    hessian = jax.hessian(function)(x, w)
    np.testing.assert_allclose(found[-1], hessian.T @ numbers(3, seed=5), rtol=1e-4, atol=1e-4)
