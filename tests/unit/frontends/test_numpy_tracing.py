"""Tracing NumPy code: the traced module, evaluated, agrees with NumPy on the same function."""

from __future__ import annotations

import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.pytree import flatten, unflatten
from compiler.frontends.numpy.tracer import Tracer
from compiler.frontends.numpy.tracing import trace
from compiler.hlo.evaluator import evaluate
from compiler.hlo.host_types import PrecisionWarning, _warn_about_f64_once, device_dtype
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.verifier import verify

BF16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(7)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def i32(*shape: int) -> np.ndarray:
    return RNG.integers(-6, 7, shape).astype(np.int32)


def run(function: Callable[..., Any], *args: Any) -> Any:
    """Trace, verify, print, parse and evaluate; the result has the tree of the function's."""
    module, _, out_tree = trace(function, args)
    verify(module)
    leaves = [np.asarray(leaf) for leaf in flatten(args)[0]]
    leaves = [leaf.astype(device_dtype(leaf.dtype)) for leaf in leaves]
    results = evaluate(parse_module(print_module(module)), leaves, "highest")
    return unflatten(out_tree, results)


def agree(function: Callable[..., Any], *args: Any, tolerance: float = 2e-5) -> None:
    """The traced result has NumPy's shape, values, and (32-bit) type."""
    got = flatten(run(function, *args))[0]
    want = flatten(function(*args))[0]
    assert len(got) == len(want)
    for mine, theirs in zip(got, map(np.asarray, want), strict=True):
        assert isinstance(mine, np.ndarray)
        assert mine.shape == theirs.shape
        assert mine.dtype == device_dtype(theirs.dtype)
        np.testing.assert_allclose(
            mine.astype(np.float64), theirs.astype(np.float64), tolerance, tolerance
        )


UNARY = [
    "abs",
    "arctan",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "deg2rad",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "isfinite",
    "isinf",
    "isnan",
    "logical_not",
    "negative",
    "positive",
    "rint",
    "sign",
    "sin",
    "sinh",
    "square",
    "tan",
    "tanh",
    "trunc",
]
POSITIVE = ["log", "log10", "log1p", "log2", "reciprocal", "sqrt"]
BINARY = [
    "add",
    "arctan2",
    "divide",
    "equal",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "greater",
    "greater_equal",
    "hypot",
    "less",
    "less_equal",
    "logaddexp",
    "logical_and",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "multiply",
    "not_equal",
    "remainder",
    "subtract",
]


@pytest.mark.parametrize("name", UNARY)
def test_unary_ufunc(name: str) -> None:
    agree(getattr(np, name), f32(3, 5) * 3)


@pytest.mark.parametrize("name", POSITIVE)
def test_unary_ufunc_of_positive_values(name: str) -> None:
    agree(getattr(np, name), np.abs(f32(7)) + 0.1)


@pytest.mark.parametrize("name", BINARY)
def test_binary_ufunc_broadcasts(name: str) -> None:
    agree(getattr(np, name), f32(3, 1, 5), f32(4, 1))


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "floor_divide",
        "greater",
        "left_shift",
        "maximum",
        "minimum",
        "multiply",
        "remainder",
        "right_shift",
        "subtract",
    ],
)
def test_binary_ufunc_of_integers(name: str) -> None:
    divisor = np.abs(i32(40)) + 1
    agree(getattr(np, name), i32(40), divisor)


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 4, 5, 0.5, 2.0])
def test_power(exponent: float) -> None:
    agree(lambda x: x**exponent, np.abs(f32(9)) + 0.5)


OPERATORS: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y - 2 * x / (y + 10),
    lambda x, y: (x > y) & ~(x == 0) | (y <= 1),
    lambda x, y: -x + abs(y),
    lambda x, y: divmod(x, 3.0),
    lambda x, y: 1.0 - x,
    lambda x, y: 2**y,
    lambda x, y: np.float32(3) * x,
    lambda x, y: [x, [y, x], (y,)],
]


@pytest.mark.parametrize("function", OPERATORS)
def test_python_operators(function: Callable[[Any, Any], Any]) -> None:
    agree(function, f32(4, 3), f32(4, 3))


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize(
    "name", ["sum", "prod", "max", "min", "mean", "var", "std", "any", "all", "count_nonzero"]
)
def test_reductions(name: str, keepdims: bool, axis: Any) -> None:
    agree(lambda x: getattr(np, name)(x, axis=axis, keepdims=keepdims), f32(2, 3, 4))


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize(
    "name", ["argmax", "argmin", "cumsum", "cumprod", "argsort", "sort", "ptp"]
)
def test_reductions_along_one_axis(name: str, axis: int | None) -> None:
    agree(lambda x: getattr(np, name)(x, axis=axis), f32(3, 5))


def test_sums_of_narrow_types() -> None:
    agree(lambda x: x.sum(), np.arange(100, dtype=np.int8))
    agree(lambda x: x.sum(0), f32(4, 3) > 0)
    assert run(lambda x: x.sum(), np.ones(1000, BF16)) == 1000


def test_argmax_takes_the_first_and_nan_wins() -> None:
    agree(np.argmax, np.array([1, 3, 3, np.nan, 2, np.nan], np.float32))
    agree(lambda x: np.argmax(x, axis=1, keepdims=True), np.array([[1, 3, 3]], np.int32))


def test_ufunc_reduce() -> None:
    agree(lambda x: np.add.reduce(x), f32(3, 4))
    agree(lambda x: np.maximum.reduce(x, axis=1), f32(3, 4))


SHAPES: list[Callable[[Any], Any]] = [
    lambda x: x.T,
    lambda x: x.mT,
    lambda x: x.reshape(4, -1),
    lambda x: x.reshape((6, 4)),
    lambda x: np.reshape(x, -1),
    lambda x: x.ravel(),
    lambda x: x.transpose(1, 0, 2),
    lambda x: np.transpose(x, (2, 0, 1)),
    lambda x: np.swapaxes(x, 0, -1),
    lambda x: np.moveaxis(x, (0, 1), (-1, 0)),
    lambda x: np.expand_dims(x, (0, 2)),
    lambda x: np.squeeze(x[:1]),
    lambda x: np.concatenate([x, x[:, :1]], axis=1),
    lambda x: np.concatenate([x, x], axis=None),
    lambda x: np.stack([x, x * 2], axis=-1),
    lambda x: np.vstack([x[0], x[1]]),
    lambda x: np.hstack([x, x]),
    lambda x: np.split(x, 2, axis=2),
    lambda x: np.split(x, [1, 3], axis=2),
    lambda x: np.broadcast_to(x, (5, 2, 3, 4)),
    lambda x: np.broadcast_to(x[:, :1], (2, 3, 4)),
    lambda x: np.where(x > 0, x, 0),
    lambda x: np.where(x[0] > 0, 1.5, x),
    lambda x: np.clip(x, -0.5, 0.5),
    lambda x: x.clip(max=0.2),
    lambda x: (np.zeros_like(x), np.ones_like(x, dtype=np.int32), np.full_like(x, 7)),
    lambda x: np.flip(x, (0, 2)),
    lambda x: np.roll(x, 2, axis=1),
    lambda x: np.roll(x, -5),
    lambda x: np.tile(x, (2, 1, 3)),
    lambda x: np.repeat(x, 3, axis=1),
    lambda x: np.repeat(x, np.arange(len(x)), axis=0),
    lambda x: np.repeat(x[:0], [], axis=0),
    lambda x: np.vecdot(x, x, axis=0),
    lambda x: np.cumsum(x[:, :0], axis=1),
    lambda x: np.pad(x, ((0, 1), (2, 0), (1, 1)), constant_values=3),
    lambda x: (np.tril(x), np.triu(x, 1), np.tril(x, -1)),
    lambda x: np.diff(x, axis=1),
    lambda x: np.round(x, 1),
    lambda x: np.astype(x * 3, np.int32),
    lambda x: np.isclose(x, x + 1e-7),
    lambda x: np.nan_to_num(x / 0),
    lambda x: np.average(x, axis=1),
    lambda x: np.shape(x)[0] + np.ndim(x) + np.size(x) + len(x) + x,
    lambda x: sum(row for row in x),
]


@pytest.mark.parametrize("function", SHAPES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_shapes_and_placement(function: Callable[[Any], Any]) -> None:
    agree(function, f32(2, 3, 4))


KEYS = [
    np.s_[0],
    np.s_[-1],
    np.s_[:, 1],
    np.s_[1:, ::2],
    np.s_[..., -1],
    np.s_[None, :, None, 0],
    np.s_[::-1, :, 3:0:-2],
    np.s_[:, 5:9],
    np.s_[0, 1, 2],
    np.s_[[1, 0, 1]],
    np.s_[:, [0, 2]],
    np.s_[[0, 1], :, [3, 1]],
    np.s_[0, [2, -1]],
    np.s_[:, [[0, 1], [2, -3]], None],
    np.s_[:, np.array([0, 2]), 1:3],
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_indexing(key: Any) -> None:
    agree(lambda x: x[key], f32(2, 3, 4))


def test_traced_indices() -> None:
    agree(lambda x, i: x[i], f32(5, 3), np.array([4, -1, 0], np.int32))
    agree(lambda x, i: x[i], f32(5, 3), np.array(-2, np.int32))
    agree(lambda x, i: x[np.arange(3), i], f32(3, 5), np.array([4, 0, -1], np.int32))
    agree(lambda x, i: np.take(x, i, axis=1), f32(2, 5), i32(3, 2) % 5)
    agree(lambda x, i: np.take_along_axis(x, i, axis=1), f32(3, 5), i32(3, 2) % 5)


PRODUCTS = [
    ("matmul", (3, 4), (4, 5)),
    ("matmul", (4,), (4,)),
    ("matmul", (4,), (4, 5)),
    ("matmul", (2, 3, 4), (4,)),
    ("matmul", (2, 3, 4), (4, 5)),
    ("matmul", (6, 1, 3, 4), (2, 4, 5)),
    ("matmul", (4,), (2, 4, 5)),
    ("dot", (3, 4), (4, 5)),
    ("dot", (2, 3, 4), (5, 4, 6)),
    ("dot", (), (3,)),
    ("inner", (3, 4), (5, 4)),
    ("outer", (3,), (2, 2)),
    ("vdot", (3, 4), (3, 4)),
    ("tensordot", (2, 3, 4), (3, 4, 5)),
]


@pytest.mark.parametrize(("name", "a", "b"), PRODUCTS)
def test_products(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    agree(getattr(np, name), f32(*a), f32(*b))


def test_tensordot_axes_and_array_on_the_left() -> None:
    agree(lambda x, y: np.tensordot(x, y, ([0, 2], [1, 0])), f32(2, 3, 4), f32(4, 2, 5))
    left = f32(3, 4)
    agree(lambda x: left @ x + np.ones(5, np.float32), f32(4, 5))


@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk->ik", ((2, 3), (3, 4))),
        ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))),
        ("ij,ij->i", ((2, 3), (2, 3))),
        ("ij->ji", ((2, 3),)),
        ("ijk->j", ((2, 3, 4),)),
        ("i,j->ji", ((2,), (3,))),
        ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))),
        ("ij,jk", ((2, 3), (3, 4))),
        ("bi,bo,b->io", ((2, 3), (2, 4), (2,))),
    ],
)
def test_einsum(subscripts: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    agree(lambda *xs: np.einsum(subscripts, *xs), *(f32(*shape) for shape in shapes))


def test_matmul_of_booleans_is_reachability() -> None:
    agree(lambda x, y: x @ y, f32(3, 4) > 0, f32(4, 3) > 0)


def test_python_scalars_are_weak() -> None:
    assert run(lambda x: x * 2.5, np.ones(3, BF16)).dtype == BF16
    assert run(lambda x, lr: x - lr * x, np.ones(3, BF16), 0.1).dtype == BF16
    assert run(lambda x: x + 1, np.ones(3, np.int8)).dtype == np.int8
    assert run(lambda x: x + 1.5, np.ones(3, np.int32)).dtype == np.float32
    assert run(lambda x: x / 2, np.ones(3, np.int32)).dtype == np.float32
    assert run(lambda x: np.exp(x), np.ones(3, np.int32)).dtype == np.float32


def test_strong_types_promote_by_kind() -> None:
    assert run(lambda x, y: x + y, np.ones(3, BF16), np.ones(3, np.int32)).dtype == BF16
    assert run(lambda x, y: x + y, np.ones(3, BF16), np.ones(3, np.float16)).dtype == np.float32
    assert run(lambda x, y: x + y, np.ones(3, np.int32), np.ones(3, np.float32)).dtype == np.float32
    assert run(lambda x, y: x + y, np.ones(3, np.int8), np.ones(3, np.uint8)).dtype == np.int16
    assert run(lambda x, y: x + y, np.ones(3, bool), np.ones(3, np.uint8)).dtype == np.uint8


def test_a_python_integer_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(CompileError, match="300 does not fit int8"):
        trace(lambda x: x + 300, (np.ones(3, np.int8),))


def test_host_f64_and_s64_become_32_bits_with_one_warning() -> None:
    _warn_about_f64_once.cache_clear()
    with pytest.warns(PrecisionWarning, match="float64 arrays become float32"):
        module, _, _ = trace(lambda x, i: (x, i), (np.ones(2), np.arange(2)))
    assert [p.array.dtype.name for p in module.entry.parameters] == ["f32", "s32"]
    _warn_about_f64_once.cache_clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        trace(lambda x: x * np.sqrt(2) + np.float64(1) + [0.5, 1.5], (f32(2),))
        assert not seen
        trace(lambda x: x * np.ones(2), (f32(2),))
    assert [w.filename for w in seen] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trace(lambda x: x, (np.ones(2),))


Layer = namedtuple("Layer", "w b")


def test_trees_of_arguments_and_results() -> None:
    def step(params: Any, batch: Any) -> Any:
        x = np.tanh(batch["x"] @ params["l"][0].w + params["l"][0].b)
        return {"out": x, "params": params, "none": None, "pair": (x.sum(), [x.max()])}

    params = {"l": [Layer(f32(3, 4), f32(4))], "scale": np.float32(2)}
    batch = {"x": f32(5, 3)}
    result = run(step, params, batch)
    assert set(result) == {"out", "params", "none", "pair"}
    assert result["none"] is None
    assert isinstance(result["params"]["l"][0], Layer)
    np.testing.assert_allclose(result["pair"][1][0], step(params, batch)["pair"][1][0], 1e-6)
    module, in_tree, out_tree = trace(step, (params, batch))
    assert [p.name for p in module.entry.parameters] == [
        "arg_0_l_0_0",
        "arg_0_l_0_1",
        "arg_0_scale",
        "arg_1_x",
    ]
    assert (in_tree.leaf_count, out_tree.leaf_count) == (4, 6)


def test_mismatched_leaves() -> None:
    _, tree = flatten((1, 2))
    with pytest.raises(CompileError, match="found 1 leaves, want 2"):
        unflatten(tree, [1])
    assert flatten({"b": 1, "a": 2})[1] == flatten({"a": 3, "b": 4})[1]


def test_constant_results_and_closed_over_arrays() -> None:
    table = f32(3)
    agree(lambda x: (x + table, table), f32(3))
    assert run(lambda x: 3.5, f32(1)) == np.float32(3.5)


def test_python_loops_unroll() -> None:
    def power(x: Any) -> Any:
        for _ in range(4):
            x = x @ x * 0.5
        return x

    module, _, _ = trace(power, (f32(3, 3),))
    assert sum(i.opcode == "dot" for i in module.entry) == 4
    agree(power, f32(3, 3))


def test_instructions_name_the_users_line() -> None:
    module, _, _ = trace(lambda x: np.tanh(x) + 1, (f32(2),))
    metadata = next(str(i.attrs["metadata"]) for i in module.entry if i.opcode == "tanh")
    assert "np.tanh" in metadata
    assert "test_numpy_tracing.py" in metadata


def test_dead_instructions_are_dropped() -> None:
    module, _, _ = trace(lambda x: (np.exp(x), x + 1)[1], (f32(2),))
    opcodes = sorted(i.opcode for i in module.entry)
    assert opcodes == ["add", "broadcast", "constant", "parameter"]


@pytest.mark.parametrize(
    "use",
    [
        lambda x: 1 if x.sum() > 0 else 2,
        lambda x: float(x[0]),
        lambda x: int(x[0]),
        lambda x: range(x[0].astype(np.int32)),
        lambda x: x[0].item(),
        lambda x: np.asarray(x),
        lambda x: max(x[0], x[1]),
        lambda x: np.trim_zeros(x[0]),
    ],
)
def test_asking_for_a_value_is_refused(use: Callable[[Any], Any]) -> None:
    with pytest.raises(CompileError, match=r"not known yet|cannot be traced"):
        trace(use, (f32(2),))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: np.linalg.eig(x), r"np\.linalg.*eig cannot be traced"),
        (lambda x: np.roots(x), r"np\.roots cannot be traced"),
        (lambda x: np.nonzero(x), r"write tpuc\.numpy\.nonzero\(\.\., size=\)"),
        (
            lambda x: np.add(x, 1, where=x > 0),
            "'where' cannot be traced; give out=, or use np.where",
        ),
        (lambda x: np.where(x > 0), "unknown number"),
        (lambda x: x.view(bool), r"x\.view of float32 as bool: write x\.astype"),
        (lambda x: np.pad(x, 1, "reflect", reflect_type="odd"), "want 'even'"),
        (lambda x: np.add.reduceat(x, np.argmax(x, 1)), "want indices known"),
    ],
)
def test_what_is_not_supported_is_named(use: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        trace(use, (f32(2, 2),))


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda x: x + np.ones(5, np.float32), "cannot be broadcast together"),
        (lambda x: np.pad(x, 1, mode="middle"), "want one of constant, edge"),
        (lambda x: np.average(x, weights=x[0]), "want that of the array"),
        (lambda x: x.astype(np.int8).view(np.int16), "no multiple of 2"),
        (lambda x: x[7], "index 7 is out of range"),
        (lambda x: x[0, 0, 0], "found 3 indices, want at most 2"),
        (lambda x: x.sum(2), "axis 2 is out of range"),
        (lambda x: x.reshape(5), "cannot reshape"),
        (lambda x: x @ np.ones((5, 2), np.float32), "cannot contract 3 with 5"),
        (lambda x: np.sum(x[:0].reshape(0), 0).max(initial=None) + x[:0].max(), "empty axis"),
        (lambda x: x + "text", "no element type"),
        (lambda x: np.max(x, where=x > 0), "give `initial`"),
    ],
)
def test_mistakes_are_compile_errors(use: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        trace(use, (f32(2, 3),))


def test_an_argument_must_be_an_array_or_a_number() -> None:
    with pytest.raises(CompileError, match="argument of type str"):
        trace(lambda x: x, ("text",))


def test_a_tracer_does_not_outlive_its_trace() -> None:
    kept: list[Tracer] = []
    trace(lambda x: kept.append(x) or x, (f32(2),))
    with pytest.raises(CompileError, match="trace that has ended"):
        _ = kept[0] + 1
    with pytest.raises(CompileError, match="belongs to a trace that has ended"):
        trace(lambda x: x + kept[0], (f32(2),))


def test_a_training_step_of_an_mlp() -> None:
    def loss_and_update(params: Any, x: Any, labels: Any) -> Any:
        h = np.maximum(x @ params["w1"] + params["b1"], 0)
        logits = h @ params["w2"]
        shifted = logits - logits.max(axis=1, keepdims=True)
        log_probs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        loss = -log_probs[np.arange(len(x)), labels].mean()
        d_logits = np.exp(log_probs) - (labels[:, None] == np.arange(10))
        d_h = np.where(h > 0, d_logits @ params["w2"].T, 0)
        grads = {"w1": x.T @ d_h, "b1": d_h.sum(0), "w2": h.T @ d_logits}
        return loss, {k: params[k] - 0.1 / len(x) * grads[k] for k in params}

    params = {"w1": f32(12, 16), "b1": f32(16), "w2": f32(16, 10)}
    agree(loss_and_update, params, f32(8, 12), RNG.integers(0, 10, 8).astype(np.int32))


def test_parts_and_conjugates_of_arrays_as_methods() -> None:
    z = (f32(2, 3) + 1j * f32(2, 3)).astype(np.complex64)
    for x in (z, f32(4), i32(3)):
        found = run(lambda x: (x.real, x.imag, x.conj(), x.conjugate()), x)
        for got, want in zip(found, (x.real, x.imag, x.conj(), x.conj()), strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("function", "advice"), [(np.roots, "on the host"), (np.trim_zeros, "known size")]
)
def test_what_has_no_size_says_what_to_do(function: Callable[..., Any], advice: str) -> None:
    with pytest.raises(UnsupportedError, match=f"np.{function.__name__}.*{advice}"):
        trace(function, (f32(3),))
