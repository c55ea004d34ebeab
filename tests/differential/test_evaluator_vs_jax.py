"""The evaluator against XLA on CPU: small programs over opcode x dtype x awkward shapes.

JAX lowers each program to HLO text; XLA runs it, and the evaluator runs the text. Precision is
"highest" on both sides. Skipped where JAX is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = ("float32", "bfloat16", "float16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int4", "uint4")
SHAPES = ((), (1,), (7,), (3, 129), (2, 8, 5))

# Unoptimised code compiles faster, and its arithmetic is plainer.
_QUICK = {"xla_backend_optimization_level": 0}
_TOLERANCE = {"float32": 3e-6, "float16": 3e-3, "bfloat16": 2e-2, "complex64": 1e-5}


def dtype_named(name: str) -> np.dtype[Any]:
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def draw(rng: np.random.Generator, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """Small values, with zeros, ties and (for integers) the extremes."""
    target = dtype_named(dtype)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("complex"):
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(target)
    if dtype in FLOATS:
        values = rng.standard_normal(shape) * 2
        return np.where(rng.random(shape) < 0.1, 0.0, values).astype(target)
    info = ml_dtypes.iinfo(target)
    small = rng.integers(max(-5, info.min), 6, shape)
    pick = rng.random(shape)
    values = np.where(pick < 0.15, int(info.min), np.where(pick > 0.85, int(info.max), small))
    return values.astype(target)


def check(
    function: Callable[..., Any],
    *args: np.ndarray,
    tolerance: float | None = None,
    platform: str = "cpu",
) -> None:
    """Run through XLA and through the evaluator; integers must be equal, floats close.

    The evaluator gets the HLO that JAX makes for `platform`; XLA runs the one for the CPU.
    """
    with jax.default_matmul_precision("highest"):
        traced = jax.jit(function).trace(*args)
        lowered = traced.lower()
        want = jax.tree.leaves(lowered.compile(_QUICK)(*args))
        if platform != "cpu":
            lowered = traced.lower(lowering_platforms=(platform,))
    text = lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=True)
    got = evaluate(parse_module(text), args, "highest")
    assert len(got) == len(want)
    for mine, theirs in zip(got, map(np.asarray, want), strict=True):
        assert mine.dtype == theirs.dtype
        assert mine.shape == theirs.shape
        if str(theirs.dtype) in _TOLERANCE:
            limit = _TOLERANCE[str(theirs.dtype)] if tolerance is None else tolerance
            wide = np.complex128 if theirs.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(mine.astype(wide), theirs.astype(wide), limit, limit)
        elif theirs.dtype.kind in "iub":
            np.testing.assert_array_equal(mine, theirs)
        else:  # fp8, int4: their own NaN is not one to NumPy's comparison
            np.testing.assert_array_equal(mine.astype(np.float32), theirs.astype(np.float32))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1234)


UNARY_FLOAT = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "expm1",
    "floor",
    "is_finite",
    "log",
    "log1p",
    "logistic",
    "neg",
    "round",
    "rsqrt",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]
BINARY_FLOAT = [
    "add",
    "atan2",
    "div",
    "eq",
    "ge",
    "lt",
    "max",
    "min",
    "mul",
    "ne",
    "nextafter",
    "pow",
    "rem",
    "sub",
]
BINARY_INTEGER = [
    "add",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "div",
    "gt",
    "le",
    "max",
    "min",
    "mul",
    "rem",
    "shift_left",
    "shift_right_arithmetic",
    "shift_right_logical",
    "sub",
]


@pytest.mark.parametrize("name", UNARY_FLOAT)
def test_unary_float(name: str, rng: np.random.Generator) -> None:
    for dtype, shape in zip(FLOATS, SHAPES[2:], strict=True):
        check(getattr(lax, name), draw(rng, dtype, shape), tolerance=_loose(name, dtype))


def _loose(name: str, dtype: str) -> float | None:
    return (
        3e-5 if dtype == "float32" and name in ("tan", "acosh", "asinh", "atanh", "pow") else None
    )


@pytest.mark.parametrize("name", ["bitwise_not", "clz", "neg", "population_count", "sign", "abs"])
def test_unary_integer(name: str, rng: np.random.Generator) -> None:
    for dtype in INTEGERS[:6]:
        if name == "abs" and dtype.startswith("u"):
            continue
        check(getattr(lax, name), draw(rng, dtype, (3, 17)))


@pytest.mark.parametrize("name", BINARY_FLOAT)
def test_binary_float(name: str, rng: np.random.Generator) -> None:
    for dtype, shape in zip(FLOATS, SHAPES[2:], strict=True):
        a, b = draw(rng, dtype, shape), draw(rng, dtype, shape)
        check(getattr(lax, name), a, b, tolerance=_loose(name, dtype))


@pytest.mark.parametrize("name", BINARY_INTEGER)
def test_binary_integer_with_zero_divisors_and_wide_shifts(
    name: str, rng: np.random.Generator
) -> None:
    operands = [draw(rng, dtype, (3, 43)) for dtype in INTEGERS[:6] for _ in range(2)]
    function = getattr(lax, name)
    check(lambda *xs: [function(*xs[i : i + 2]) for i in range(0, 12, 2)], *operands)


@pytest.mark.parametrize(
    "name",
    ["abs", "add", "conj", "cos", "exp", "log", "log1p", "mul", "real", "imag", "sqrt", "tanh"],
)
def test_complex(name: str, rng: np.random.Generator) -> None:
    count = 2 if name in ("add", "mul") else 1
    check(getattr(lax, name), *(draw(rng, "complex64", (5, 3)) for _ in range(count)))


@pytest.mark.parametrize("name", ["max", "min"])
def test_maximum_and_minimum_propagate_nan(name: str) -> None:
    a = np.array([np.nan, 1, -np.inf, 0.0], np.float32)
    b = np.array([1, np.nan, np.inf, 2.0], np.float32)
    check(getattr(lax, name), a, b)


@pytest.mark.parametrize("source", [*FLOATS, "bool", "int8", "uint16", "int32", "uint32"])
def test_convert(source: str, rng: np.random.Generator) -> None:
    values = draw(rng, source, (4, 33))
    targets = (*FLOATS, "bool", *INTEGERS[:6], "float8_e5m2", "float8_e4m3fn")
    check(lambda x: [lax.convert_element_type(x, dtype_named(t)) for t in targets], values)


def test_float_to_integer_clamps_and_nan_is_zero() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 2.9, -2.9, 127.5, 255.5], np.float32)
    check(lambda x: [lax.convert_element_type(x, dtype_named(t)) for t in INTEGERS[:6]], values)


@pytest.mark.parametrize(
    ("source", "target", "shape"),
    [
        ("float32", "int32", (3, 5)),
        ("float32", "uint8", (3, 5)),
        ("uint8", "float32", (3, 4)),
        ("bfloat16", "uint16", (7,)),
        ("uint16", "uint32", (5, 2)),
        ("uint8", "uint4", (6,)),
    ],
)
def test_bitcast_convert(
    source: str, target: str, shape: tuple[int, ...], rng: np.random.Generator
) -> None:
    check(lambda x: lax.bitcast_convert_type(x, dtype_named(target)), draw(rng, source, shape))


def test_reduce_precision(rng: np.random.Generator) -> None:
    values = np.concatenate([draw(rng, "float32", (97,)) * 10.0**e for e in (-38, -6, 0, 5, 30)])
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    for exponent, mantissa in ((5, 10), (8, 7), (4, 3), (5, 2), (8, 1)):
        check(
            lambda x, e=exponent, m=mantissa: lax.reduce_precision(x, e, m),
            np.concatenate([values, special]).astype(np.float32),
        )


@dataclass(frozen=True)
class Movement:
    """A function that moves elements, and the shape it takes."""

    name: str
    function: Callable[[Any], Any]
    shape: tuple[int, ...]


MOVEMENTS = (
    Movement("broadcast", lambda x: lax.broadcast_in_dim(x, (4, 3, 5), (1, 2)), (3, 5)),
    Movement("broadcast of 1", lambda x: lax.broadcast_in_dim(x, (3, 5), (0, 1)), (1, 5)),
    Movement("transpose", lambda x: lax.transpose(x, (2, 0, 1)), (2, 3, 129)),
    Movement("reshape", lambda x: lax.reshape(x, (6, 7)), (2, 3, 7)),
    Movement("slice", lambda x: lax.slice(x, (1, 0), (3, 129), (1, 4)), (3, 129)),
    Movement("reverse", lambda x: lax.rev(x, (0, 2)), (2, 3, 5)),
    Movement("concatenate", lambda x: lax.concatenate([x, x[:, :2], x], 1), (3, 7)),
    Movement("pad", lambda x: lax.pad(x, x.dtype.type(1), ((1, 2, 0), (0, 3, 1))), (2, 5)),
    Movement(
        "pad negative", lambda x: lax.pad(x, x.dtype.type(1), ((-1, 2, 2), (2, -4, 1))), (4, 5)
    ),
    Movement("pad away", lambda x: lax.pad(x, x.dtype.type(1), ((-3, 4, 0),)), (2,)),
    Movement("dynamic-slice", lambda x: lax.dynamic_slice(x, (9, -2), (2, 3)), (5, 7)),
    Movement(
        "dynamic-update-slice", lambda x: lax.dynamic_update_slice(x, x[:2, :3], (4, -2)), (5, 7)
    ),
    Movement("iota", lambda x: x + lax.broadcasted_iota(x.dtype, (3, 7), 1), (3, 7)),
)


@pytest.mark.parametrize("case", MOVEMENTS, ids=lambda case: case.name)
def test_movement(case: Movement, rng: np.random.Generator) -> None:
    for dtype in ("float32", "bfloat16", "int8", "uint32"):
        check(case.function, draw(rng, dtype, case.shape))


DOTS = (
    ((3, 129), (129, 7), (((1,), (0,)), ((), ()))),
    ((129, 3), (7, 129), (((0,), (1,)), ((), ()))),
    ((2, 3, 5), (2, 5, 4), (((2,), (1,)), ((0,), (0,)))),
    ((3, 2, 5, 4), (5, 4, 2, 6), (((2, 3), (0, 1)), ((1,), (2,)))),
    ((4,), (4,), (((0,), (0,)), ((), ()))),
    ((2, 3), (4,), (((), ()), ((), ()))),
    ((2, 0), (0, 3), (((1,), (0,)), ((), ()))),
)


@pytest.mark.parametrize("case", DOTS, ids=str)
def test_dot(case: tuple[Any, Any, Any], rng: np.random.Generator) -> None:
    lhs, rhs, numbers = case
    for dtype in ("float32", "bfloat16", "complex64", "int32"):
        a, b = draw(rng, dtype, lhs), draw(rng, dtype, rhs)
        check(
            lambda x, y: lax.dot_general(x, y, numbers),
            a,
            b,
            tolerance=3e-2 if dtype == "bfloat16" else 3e-5,
        )


def test_dot_into_a_wider_type(rng: np.random.Generator) -> None:
    for source, target in (("int8", "int32"), ("bfloat16", "float32"), ("float16", "float32")):
        a, b = draw(rng, source, (5, 33)), draw(rng, source, (33, 4))
        check(
            lambda x, y, t=target: jnp.matmul(x, y, preferred_element_type=dtype_named(t)),
            a,
            b,
            tolerance=1e-4,
        )


@dataclass(frozen=True)
class Conv:
    """Arguments of conv_general_dilated."""

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    labels: tuple[str, str, str]
    stride: tuple[int, ...]
    padding: Any
    lhs_dilation: tuple[int, ...] | None = None
    rhs_dilation: tuple[int, ...] | None = None
    groups: int = 1
    batch_groups: int = 1


CONVOLUTIONS = (
    Conv((2, 9, 8, 3), (3, 3, 3, 5), ("NHWC", "HWIO", "NHWC"), (1, 1), "SAME"),
    Conv((2, 3, 9, 8), (5, 3, 3, 2), ("NCHW", "OIHW", "NCHW"), (2, 3), "VALID"),
    Conv((2, 9, 8, 4), (3, 2, 2, 6), ("NHWC", "HWIO", "NHWC"), (1, 2), ((1, 2), (0, 1)), groups=2),
    Conv((2, 9, 8, 4), (3, 3, 1, 4), ("NHWC", "HWIO", "NHWC"), (1, 1), "SAME", groups=4),
    Conv((1, 5, 6, 3), (3, 3, 3, 2), ("NHWC", "HWIO", "NHWC"), (1, 1), ((2, 2), (2, 1)), (2, 2)),
    Conv((1, 9, 9, 2), (3, 2, 2, 2), ("NHWC", "HWIO", "NHWC"), (1, 1), "VALID", None, (2, 3)),
    Conv((4, 7, 7, 2), (3, 3, 2, 4), ("NHWC", "HWIO", "NHWC"), (1, 1), "SAME", batch_groups=2),
    Conv((1, 7, 7, 2), (3, 3, 2, 4), ("NHWC", "HWIO", "NHWC"), (1, 1), ((-1, 2), (3, -2))),
    Conv((3, 17, 2), (4, 2, 5), ("NWC", "WIO", "NWC"), (3,), ((2, 1),)),
    Conv((4, 9), (9, 3), ("NC", "IO", "NC"), (), ()),
    Conv((1, 4, 5, 6, 2), (2, 2, 3, 2, 3), ("NDHWC", "DHWIO", "NDHWC"), (1, 1, 2), "SAME"),
)


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolution(case: Conv, rng: np.random.Generator) -> None:
    def function(x: Any, y: Any) -> Any:
        return lax.conv_general_dilated(
            x,
            y,
            case.stride,
            case.padding,
            case.lhs_dilation,
            case.rhs_dilation,
            case.labels,
            case.groups,
            case.batch_groups,
        )

    check(function, draw(rng, "float32", case.lhs), draw(rng, "float32", case.rhs), tolerance=1e-4)


def test_convolution_gradients(rng: np.random.Generator) -> None:
    def loss(x: Any, y: Any) -> Any:
        out = lax.conv_general_dilated(
            x, y, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=2
        )
        return jnp.sum(out * out)

    x, y = draw(rng, "float32", (2, 9, 8, 4)), draw(rng, "float32", (3, 3, 2, 6))
    check(jax.grad(loss, (0, 1)), x, y, tolerance=2e-4)


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 2), (0, 1, 2)], ids=str)
@pytest.mark.parametrize(
    "name", ["sum", "max", "min", "prod", "any", "all", "argmax", "argmin", "cumsum", "cummax"]
)
def test_reductions(name: str, axes: tuple[int, ...], rng: np.random.Generator) -> None:
    function = getattr(lax if name.startswith("cum") else jnp, name)
    axis: Any = axes if name not in ("argmax", "argmin", "cumsum", "cummax") else axes[0]
    for dtype in ("bool",) if name in ("any", "all") else ("float32", "int32", "bfloat16"):
        check(
            lambda x: function(x, axis=axis),
            draw(rng, dtype, (3, 9, 17)),
            tolerance=5e-2 if dtype == "bfloat16" else 1e-4,
        )


def test_reduce_with_any_computation(rng: np.random.Generator) -> None:
    def function(x: Any, y: Any) -> Any:
        def body(a: Any, b: Any) -> Any:
            return a[0] * b[0], a[1] * b[0] + b[1]

        return lax.reduce((x, y), (np.float32(1), np.float32(0)), body, (1,))

    check(function, draw(rng, "float32", (5, 13)), draw(rng, "float32", (5, 13)), tolerance=1e-4)


def test_reduce_of_nothing(rng: np.random.Generator) -> None:
    check(lambda x: (jnp.sum(x, 1), jnp.max(x, 1, initial=-3.0)), draw(rng, "float32", (4, 0)))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("name", ["add", "max", "mul"])
def test_reduce_window(name: str, padding: str, rng: np.random.Generator) -> None:
    start = {"add": 0.5, "max": -np.inf, "mul": 1.0}[name]
    check(
        lambda x: lax.reduce_window(
            x, start, getattr(lax, name), (1, 3, 2), (1, 2, 1), padding, (1, 2, 1), (1, 1, 3)
        ),
        draw(rng, "float32", (2, 9, 12)),
        tolerance=1e-4,
    )


def test_reduce_window_with_any_computation(rng: np.random.Generator) -> None:
    check(
        lambda x: lax.reduce_window(
            x, np.float32(0), lambda a, b: a + b * b, (2, 3), (1, 2), ((0, 1), (1, 0))
        ),
        np.abs(draw(rng, "float32", (5, 8))) * 0,
    )


def test_max_pool_gradient_is_select_and_scatter(rng: np.random.Generator) -> None:
    def pool(x: Any) -> Any:
        y = lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        return jnp.sum(jnp.sin(y))

    check(jax.grad(pool), draw(rng, "float32", (2, 9, 8, 3)), tolerance=1e-5)


@pytest.mark.parametrize(
    "index", [np.s_[[2, 0, 9],], np.s_[:, [1, 1]], np.s_[[0, 2], :, [3, 1]], np.s_[1:3, [[0], [2]]]]
)
def test_gather_and_scatter_by_indexing(index: Any, rng: np.random.Generator) -> None:
    x = draw(rng, "float32", (4, 3, 5))
    check(lambda x: x.at[index].get(mode="clip"), x)
    for method in ("set", "add", "max", "mul"):
        check(lambda x, m=method: getattr(x.at[index], m)(2.5), x)
    check(lambda x: x.at[index].add(1.5, mode="drop"), x.astype(BF16))


def test_gather_with_windows_and_batching_dims(rng: np.random.Generator) -> None:
    numbers = lax.GatherDimensionNumbers((1, 2), (), (1, 2), (0,), (0,))
    x, i = draw(rng, "float32", (3, 6, 7)), rng.integers(-3, 9, (3, 5, 2)).astype(np.int32)
    check(
        lambda x, i: lax.gather(x, i, numbers._replace(offset_dims=(2, 3)), (1, 2, 7), mode="clip"),
        x,
        i,
    )
    check(jax.vmap(lambda a, j: a[j, 1:3]), x, i[..., 0])


def test_scatter_of_windows_drops_those_out_of_bounds(rng: np.random.Generator) -> None:
    numbers = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))
    x, updates = draw(rng, "float32", (6, 7)), draw(rng, "float32", (4, 2, 3))
    index = np.array([[0, 0], [1, 1], [5, 0], [-1, 2]], np.int32)
    for function in (lax.scatter_add, lax.scatter, lax.scatter_min, lax.scatter_mul):
        check(lambda x, i, u, f=function: f(x, i, u, numbers, mode="drop"), x, index, updates)


def test_scatter_apply_uses_any_computation(rng: np.random.Generator) -> None:
    x, i = draw(rng, "float32", (9,)), np.array([3, 3, 1, 8], np.int32)
    check(lambda x, i: x.at[i].apply(jnp.sin), x, i)


def test_batched_scatter(rng: np.random.Generator) -> None:
    x, i = draw(rng, "float32", (3, 6)), rng.integers(0, 6, (3, 4)).astype(np.int32)
    check(jax.vmap(lambda a, j: a.at[j].add(1.0)), x, i)


def test_sort_orders_nan_and_signed_zeros(rng: np.random.Generator) -> None:
    x = np.array([[2, np.nan, -0.0, 0.0, -np.inf, 3, 2], [1, 1, 0, 5, np.inf, -4, 9]], np.float32)
    check(lambda x: lax.sort(x, dimension=1), x)
    check(lambda x: jnp.argsort(x, axis=1), x)
    check(lambda x: jnp.sort(x, axis=0, descending=True), draw(rng, "int32", (33, 3)))


def test_sort_of_several_operands_is_stable(rng: np.random.Generator) -> None:
    keys = rng.integers(0, 4, (41, 2)).astype(np.int32)
    values = np.arange(82, dtype=np.float32).reshape(41, 2)
    check(lambda k, v: lax.sort((k, v), dimension=0, num_keys=1, is_stable=True), keys, values)
    check(lambda k, v: lax.sort((v, k), dimension=0, num_keys=2), keys, values)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_top_k(dtype: str, rng: np.random.Generator) -> None:
    check(lambda x: lax.top_k(x, 5), draw(rng, dtype, (3, 40)))


@pytest.mark.parametrize("kind", ["fft", "ifft", "rfft", "irfft", "fft2"])
def test_fft(kind: str, rng: np.random.Generator) -> None:
    x = draw(rng, "float32" if kind == "rfft" else "complex64", (3, 6, 9))
    check(getattr(jnp.fft, kind), x, tolerance=1e-4)


def test_cholesky_and_triangular_solve(rng: np.random.Generator) -> None:
    root = draw(rng, "float32", (2, 6, 6))
    spd = root @ root.transpose(0, 2, 1) + 3 * np.eye(6, dtype=np.float32)
    b = draw(rng, "float32", (2, 6, 3))
    for lower in (True, False):
        for transpose in (True, False):
            for left in (True, False):
                check(
                    lambda a, b, lo=lower, t=transpose, le=left: lax.linalg.triangular_solve(
                        a, b, left_side=le, lower=lo, transpose_a=t
                    ),
                    spd,
                    b if left else b.transpose(0, 2, 1).copy(),
                    tolerance=1e-3,
                    platform="tpu",
                )
    module = "ENTRY e { a = f32[2,6,6] parameter(0) ROOT c = f32[2,6,6] cholesky(a), lower=true }"
    (factor,) = evaluate(parse_module(module), [spd])
    np.testing.assert_allclose(factor, np.linalg.cholesky(spd), 1e-5, 1e-5)


@pytest.mark.parametrize(
    "algorithm", [lax.RandomAlgorithm.RNG_THREE_FRY, lax.RandomAlgorithm.RNG_PHILOX]
)
@pytest.mark.parametrize("dtype", ["uint32", "uint64", "uint8", "uint16"])
def test_random_bits_equal_those_of_xla(algorithm: Any, dtype: str) -> None:
    key = np.array([1, 2, 3, 4], np.uint32)
    with jax.enable_x64(dtype == "uint64"):
        for shape in ((), (1,), (7,), (4, 6), (3, 5), (5, 8)):
            check(
                lambda k, s=shape: lax.rng_bit_generator(k, s, dtype_named(dtype), algorithm), key
            )


def test_jax_random_uniform() -> None:
    check(lambda k: jax.random.uniform(k, (3, 5)), np.array([7, 9], np.uint32))


def test_control_flow(rng: np.random.Generator) -> None:
    x = draw(rng, "float32", (4, 4))

    def step(carry: Any, row: Any) -> Any:
        carry = jnp.tanh(carry @ x + row)
        return carry, jnp.sum(carry)

    check(lambda x: lax.scan(step, x[0], x), x)
    check(lambda x: lax.while_loop(lambda v: jnp.sum(v) < 50, lambda v: v * 1.5 + 1, x), x)
    for index in (-1, 0, 2, 7):
        check(
            lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * 2], x), np.int32(index), x
        )
    check(lambda x: lax.cond(x[0, 0] > 0, lambda: x, lambda: -x), x)


def test_ragged_dot(rng: np.random.Generator) -> None:
    sizes = np.array([3, 0, 2], np.int32)
    x, y = draw(rng, "float32", (7, 4)), draw(rng, "float32", (3, 4, 5))
    check(lax.ragged_dot, x, y, sizes, platform="tpu", tolerance=1e-5)


def test_top_k_opcode_of_the_tpu_lowering(rng: np.random.Generator) -> None:
    check(lambda x: lax.top_k(x, 3), draw(rng, "float32", (4, 9)), platform="tpu")


def test_linear_solve_through_lu(rng: np.random.Generator) -> None:
    a, b = draw(rng, "float32", (2, 5, 5)), draw(rng, "float32", (2, 5, 3))
    check(jnp.linalg.solve, a, b, platform="tpu", tolerance=1e-3)


def test_factorisations_through_their_custom_calls(rng: np.random.Generator) -> None:
    def through_qr(a: Any) -> Any:
        q, r = jnp.linalg.qr(a)
        return q @ r, q.mT @ q, jnp.abs(r)

    def through_eigh(a: Any) -> Any:
        values, vectors = jnp.linalg.eigh(a + a.mT)
        return values, (vectors * values[..., None, :]) @ vectors.mT

    a = draw(rng, "float32", (2, 6, 4))
    check(through_qr, a, platform="tpu", tolerance=1e-4)
    check(through_eigh, a[:, :4], platform="tpu", tolerance=1e-4)
    check(jnp.linalg.svdvals, a, platform="tpu", tolerance=1e-4)
    check(jnp.linalg.det, a[:, :4], platform="tpu", tolerance=1e-4)
