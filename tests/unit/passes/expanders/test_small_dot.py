"""Outer products and small dots of high precision are f32 arithmetic; others stay dots."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.expanders.small_dot_expander import expand_small_dots
from compiler.passes.pipeline import run_pipeline
from tests.support.expansions import Array, assert_close, expanded, on_machine, reference
from tpu_sim.isa.chips import load_chip

HIGHEST = ", operand_precision={highest,highest}"
PASS = ["small-dot-expander"]
MATRICES = ("4,7", "7,6", "4,6", "lhs_contracting_dims={1}, rhs_contracting_dims={0}")
CASES = {
    "matrices": MATRICES,
    "vector on the right": ("9,7", "7", "9", "lhs_contracting_dims={1}, rhs_contracting_dims={0}"),
    "inner product": ("7", "7", "", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    "outer product": ("3", "5", "3,5", "lhs_contracting_dims={}, rhs_contracting_dims={}"),
    "batch inside": (
        "4,3,5", "5,3,6", "3,4,6",
        "lhs_batch_dims={1}, lhs_contracting_dims={2}, rhs_batch_dims={1}, rhs_contracting_dims={0}",
    ),
    "two contracted": (
        "3,4,5", "5,3,2", "4,2", "lhs_contracting_dims={0,2}, rhs_contracting_dims={1,0}",
    ),
}  # fmt: skip


def _text(
    case: tuple[str, str, str, str], types: tuple[str, str, str] = ("f32",) * 3, tail: str = HIGHEST
) -> str:
    x, y, result, attrs = case
    a, b, c = types
    return (
        f"HloModule m\nENTRY e {{\n  x = {a}[{x}] parameter(0)\n  y = {b}[{y}] parameter(1)\n"
        f"  ROOT d = {c}[{result}] dot(x, y), {attrs}{tail}\n}}\n"
    )


def _inputs(text: str) -> list[Array]:
    rng = np.random.default_rng(3)
    shapes = [p.array for p in parse_module(text).entry.parameters]
    return [rng.standard_normal(s.dims).astype(s.dtype.numpy) for s in shapes]


def _is_left(text: str, precision: str = "default") -> bool:
    """Whether the pass leaves a dot of its module."""
    module = parse_module(text)
    run_pipeline(module, load_chip("v5e"), passes=PASS, precision=precision)
    return any(i.opcode == "dot" for i in module.entry)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    text = _text(CASES[name])
    inputs = _inputs(text)
    assert_close(reference(text, inputs), expanded(text, inputs, PASS, ["dot"]), 1e-6)


def test_half_precision_is_summed_in_f32() -> None:
    text = _text(MATRICES, ("f16", "f32", "f16"))
    inputs = _inputs(text)
    want = (inputs[0].astype(np.float64) @ inputs[1].astype(np.float64)).astype(np.float16)
    (got,) = expanded(text, inputs, PASS, ["dot"])
    assert_close([want], [got], 2e-3)


def test_sums_that_cancel_are_rounded_like_a_loop() -> None:
    text = _text(("4,3", "3,6", "4,6", MATRICES[3]), tail="")
    x, y = _inputs(text)
    y[-1] -= (x[0] @ y) / x[0, -1]
    want = x[:, 0, None] * y[0] + x[:, 1, None] * y[1] + x[:, 2, None] * y[2]
    np.testing.assert_array_equal(on_machine(text, [x, y])[0], want)


@pytest.mark.parametrize("dims", [(10, 32, 100), (9, 20, 1), (1, 32, 9)])
def test_the_error_is_that_of_f32_sums(dims: tuple[int, int, int]) -> None:
    m, k, n = dims
    text = _text((f"{m},{k}", f"{k},{n}", f"{m},{n}", MATRICES[3]), tail="")
    x, y = _inputs(text)
    want = x.astype(np.float64) @ y.astype(np.float64)
    bound = k * 2.0**-24 * (np.abs(x).astype(np.float64) @ np.abs(y))
    got = on_machine(text, [x, y])[0].astype(np.float64)
    assert np.all(np.abs(got - want) <= bound)


def test_precision_decides() -> None:
    bare = _text(MATRICES, tail="")
    assert _is_left(bare)
    assert not _is_left(bare, "high")
    assert not _is_left(bare, "highest")
    assert not _is_left(_text(MATRICES))


@pytest.mark.parametrize(
    "case",
    [
        ("30", "50", "30,50", "lhs_contracting_dims={}, rhs_contracting_dims={}"),
        ("300,1", "1,500", "300,500", MATRICES[3]),
        (
            "6", "6,300", "6,300",
            "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={}, rhs_contracting_dims={}",
        ),
    ],
)  # fmt: skip
def test_outer_products_of_any_size_and_precision_are_products(
    case: tuple[str, str, str, str],
) -> None:
    text = _text(case, tail="")
    x, y = _inputs(text)
    (got,) = expanded(text, [x, y], PASS, ["dot"])
    want = x[:, None] * y if case[0] == "6" else x.reshape(-1, 1) * y.reshape(1, -1)
    np.testing.assert_array_equal(got, want)


def test_what_one_pass_computes_exactly_stays() -> None:
    assert _is_left(_text(MATRICES, ("bf16", "bf16", "f32")), "highest")
    assert not _is_left(_text(MATRICES, ("bf16", "f32", "f32")), "highest")


@pytest.mark.parametrize(
    ("x", "y", "result"),
    [
        ("4,33", "33,6", "4,6"),
        ("8,32", "32,129", "8,129"),
        ("9,32", "32,128", "9,128"),
        ("4,0", "0,6", "4,6"),
        ("0,4", "4,6", "0,6"),
    ],
)
def test_large_and_empty_ones_stay(x: str, y: str, result: str) -> None:
    assert _is_left(_text((x, y, result, MATRICES[3])))


def test_integers_stay() -> None:
    assert _is_left(_text(MATRICES, ("s32", "s32", "s32"), tail=""), "highest")


LONG = {
    "normal equations": (
        "9000,4", "9000,3", "4,3", "lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    ),
    "inner product": ("8192", "8192", "", "lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
    "two contracted": (
        "3,100,90", "100,3,90,2", "2", "lhs_contracting_dims={1,0,2}, rhs_contracting_dims={0,1,2}",
    ),
    "numbers and planes": (
        "5", "5,96,100", "96,100", "lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    ),
    "narrow matrix and vector": (
        "9000,5", "5", "9000", "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "colours of pixels": (
        "3,3", "3,96,100", "3,96,100", "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
    "spins in the middle": (
        "96,8,100", "4,8", "96,100,4", "lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    ),
    "two contracted of numbers": (
        "2,3,4", "3,96,2,100", "4,96,100", "lhs_contracting_dims={0,1}, rhs_contracting_dims={2,0}",
    ),
    "row and narrow matrix": (
        "1,16", "16,8192", "1,8192", "lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("tail", ["", HIGHEST], ids=["default", "highest"])
@pytest.mark.parametrize("name", LONG)
def test_few_results_of_long_sums_are_rounded_as_the_matrix_unit_rounds(
    name: str, tail: str
) -> None:
    text = _text(LONG[name], tail=tail)
    inputs = [i + 1 for i in _inputs(text)]
    assert not _is_left(text)
    want = evaluate(parse_module(text), inputs, "default")
    assert_close(want, expanded(text, inputs, PASS, ["dot"]), 2e-5)


def test_many_results_of_long_sums_stay_on_the_matrix_unit() -> None:
    assert _is_left(_text(("9000,8", "9000,4", "8,4", LONG["normal equations"][3]), tail=""))


def test_a_matrix_of_many_numbers_stays_on_the_matrix_unit() -> None:
    assert _is_left(_text(("9000,8", "8,5", "9000,5", MATRICES[3]), tail=""))


@pytest.mark.parametrize(
    "name", ["numbers and planes", "two contracted", "colours of pixels", "spins in the middle"]
)
def test_long_dimensions_stay_apart(name: str) -> None:
    """Merged, rows of one array would lie in the lanes of another."""
    module = parse_module(_text(LONG[name], tail=""))
    expand_small_dots(module, PassContext(load_chip("v5e")))
    merged = [i for i in module.entry.instructions if i.opcode == "reshape"]
    assert all(max(i.array.dims, default=1) <= 128 for i in merged)


PAIRS = {
    "lanes summed": (
        "4,3,40", "3,40,4", "3,4",
        "lhs_batch_dims={1,0}, lhs_contracting_dims={2}, rhs_batch_dims={0,2}, rhs_contracting_dims={1}",
    ),
    "rows summed": (
        "5,40,1,6", "40,6,5,1", "5,6,1,1",
        "lhs_batch_dims={0,3}, lhs_contracting_dims={1}, rhs_batch_dims={2,1}, rhs_contracting_dims={0}",
    ),
    "two contracted": (
        "3,7,9", "9,3,7", "3", "lhs_batch_dims={0}, lhs_contracting_dims={2,1}, "
        "rhs_batch_dims={1}, rhs_contracting_dims={0,2}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("tail", ["", HIGHEST], ids=["rounded", "exact"])
def test_one_row_by_one_column_of_each_batch_is_a_sum_of_products(name: str, tail: str) -> None:
    text = _text(PAIRS[name], tail=tail)
    inputs = _inputs(text)
    want = evaluate(parse_module(text), inputs, "default")
    assert_close(want, expanded(text, inputs, PASS, ["dot"]), 1e-6)


COMBINED = (
    "lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0}, rhs_contracting_dims={1}"
)


@pytest.mark.parametrize("tail", ["", HIGHEST])
def test_one_row_by_a_matrix_along_the_lanes_of_each_batch_is_a_sum_of_products(tail: str) -> None:
    text = _text(("13,8,200", "13,8", "13,200", COMBINED), tail=tail)
    inputs = _inputs(text)
    assert not _is_left(text)
    error = 1e-6 if tail else 1e-2
    assert_close(reference(text, inputs), expanded(text, inputs, PASS, ["dot"]), error)


@pytest.mark.parametrize(
    ("x", "y", "result"),
    [("13,8,40", "13,8", "13,40"), ("13,33,200", "13,33", "13,200"), ("9,32,999", "9,32", "9,999")],
    ids=["narrow", "long sums", "large"],
)
def test_other_matrices_of_batches_stay_on_the_matrix_unit(x: str, y: str, result: str) -> None:
    assert _is_left(_text((x, y, result, COMBINED), tail=""))


def test_outer_products_merge_no_dimensions() -> None:
    attrs = "lhs_batch_dims={0,2}, lhs_contracting_dims={}, rhs_batch_dims={1,0}, rhs_contracting_dims={}"
    text = _text(("4,5,6", "6,4", "4,6,5", attrs))
    inputs = _inputs(text)
    module = parse_module(text)
    run_pipeline(module, load_chip("v5e"), passes=PASS)
    assert not any(i.opcode in ("dot", "reshape") for i in module.entry)
    assert_close(reference(text, inputs), expanded(text, inputs, PASS, ["dot"]), 1e-6)


def test_an_array_by_itself() -> None:
    attrs = (
        "lhs_batch_dims={0}, lhs_contracting_dims={}, rhs_batch_dims={0}, rhs_contracting_dims={}"
    )
    text = _text(("4,5", "4,5", "4,5,5", attrs)).replace("dot(x, y)", "dot(x, x)")
    inputs = _inputs(text)
    assert_close(reference(text, inputs), expanded(text, inputs, PASS, ["dot"]), 1e-6)
