"""chlo's operations against the C library and SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from compiler.diagnostics import CompileError
from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.hlo.evaluator import evaluate

Array = npt.NDArray[np.generic]
NAMES = {
    np.dtype(np.float32): "f32",
    np.dtype(ml_dtypes.bfloat16): "bf16",
    np.dtype(np.bool_): "i1",
}
NAMES |= {np.dtype(np.complex64): "complex<f32>", np.dtype(np.int32): "i32"}


def kind(array: Array) -> str:
    return f"tensor<{'x'.join([*map(str, array.shape), NAMES[array.dtype]])}>"


def run(op: str, *arguments: Array, like: Array | None = None, attributes: str = "") -> Array:
    parameters = ", ".join(f"%a{i}: {kind(a)}" for i, a in enumerate(arguments))
    names = ", ".join(f"%a{i}" for i in range(len(arguments)))
    result = kind(arguments[0] if like is None else like)
    types = ", ".join(map(kind, arguments))
    text = f"""func.func @main({parameters}) -> {result} {{
      %0 = chlo.{op} {names} {attributes} : ({types}) -> {result}
      return %0 : {result}
    }}"""
    return evaluate(parse_stablehlo(text), list(arguments), "highest")[0]


def samples(low: float, high: float, *special: float) -> npt.NDArray[np.float32]:
    rng = np.random.default_rng(1)
    return np.concatenate([rng.uniform(low, high, 500), special]).astype(np.float32)


def check(found: Array, want: Array, rtol: float) -> None:
    with np.errstate(over="ignore"):
        rounded = want.astype(np.float32)
    np.testing.assert_allclose(found.astype(np.float32), rounded, rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("erf", math.erf),
        ("asinh", math.asinh),
        ("atan", math.atan),
        ("sinh", math.sinh),
        ("cosh", math.cosh),
        ("tan", math.tan),
        ("erfc", math.erfc),
    ],
)
def test_functions_of_the_c_library(op: str, function: Callable[[float], float]) -> None:
    x = samples(-6, 6, 0.0)
    check(run(op, x), np.vectorize(function)(x.astype(np.float64)), 4e-6)


def test_erfc_keeps_its_digits_in_the_tail() -> None:
    x = samples(2, 9)
    want = np.vectorize(math.erfc)(x.astype(np.float64))
    np.testing.assert_allclose(run("erfc", x).astype(np.float64), want, rtol=1e-5)
    assert run("erfc", np.float32([np.inf, -np.inf])).tolist() == [0.0, 2.0]


def test_lgamma() -> None:
    x = samples(-8, 40, 0.0, 1.0, 2.0, -3.0, np.inf, np.nan)
    want = [math.inf if v <= 0 and v == int(v) else math.lgamma(v) for v in x[:-2].tolist()]
    check(run("lgamma", x), np.array([*want, np.inf, np.nan]), 5e-6)


def test_inverse_error_function_undoes_the_error_function() -> None:
    x = samples(-0.9999, 0.9999, 0.0)
    back = np.vectorize(math.erf)(run("erf_inv", x).astype(np.float64))
    np.testing.assert_allclose(back, x, atol=1e-6)
    assert run("erf_inv", np.float32([1, -1])).tolist() == [np.inf, -np.inf]
    assert np.isnan(run("erf_inv", np.float32([1.5]))).all()


def test_digamma_satisfies_its_recurrence() -> None:
    x = samples(0.1, 30)
    check(run("digamma", x + 1), run("digamma", x) + 1 / x, 4e-6)
    assert np.isnan(run("digamma", np.float32([0, -2]))).all()
    euler = -0.57721566490153286
    check(run("digamma", np.float32([1, 0.5])), np.array([euler, euler - 2 * math.log(2)]), 1e-6)


def test_zeta_and_polygamma_at_known_values() -> None:
    found = run("zeta", np.float32([2, 4, 2, 1, 0.5]), np.float32([1, 1, 2, 3, 3]))
    want = [math.pi**2 / 6, math.pi**4 / 90, math.pi**2 / 6 - 1, np.inf, np.nan]
    check(found, np.array(want), 1e-6)
    found = run("polygamma", np.float32([1, 2, 0, 1.5]), np.float32([1, 1, 1, 1]))
    check(found, np.array([math.pi**2 / 6, -2 * 1.2020569031595942, -0.5772156649, np.nan]), 2e-6)


def test_zeta_at_poles_and_where_it_is_not_defined() -> None:
    nan, inf = np.nan, np.inf
    x = np.float32([2, 3, nan, inf, 0, -2, -2, 2, 2.5, 100, 1e10])
    q = np.float32([0, -3, 0, 0, -1, -4, -4.5, -0.5, -0.5, 0.5, 2])
    want = [inf, nan, nan, nan, inf, inf, nan, math.pi**2 / 2 + 4, nan, 1.2676506e30, nan]
    check(run("zeta", x, q), np.array(want), 1e-5)


def test_bessel_i1e() -> None:
    def series(x: float) -> float:
        terms = [
            (x / 2) ** (2 * k + 1) / (math.factorial(k) * math.factorial(k + 1)) for k in range(60)
        ]
        return math.exp(-abs(x)) * math.fsum(terms)

    x = samples(-20, 20, 0.0, 8.0)
    check(run("bessel_i1e", x), np.array([series(v) for v in x.tolist()]), 3e-6)


def test_next_after_counts_bit_patterns() -> None:
    x = np.float32([1, -1, 0, 0, np.inf, 3, np.nan])
    y = np.float32([2, 0, -1, 0, 0, 3, 1])
    np.testing.assert_array_equal(run("next_after", x, y), np.nextafter(x, y))


def test_narrow_types_compute_in_f32_and_round_once() -> None:
    x = samples(0.5, 8).astype(ml_dtypes.bfloat16)
    want = np.vectorize(math.lgamma)(x.astype(np.float64)).astype(ml_dtypes.bfloat16)
    found = run("lgamma", x)
    assert found.dtype == x.dtype
    assert (found == want).mean() > 0.98


def test_classification_of_infinities() -> None:
    x = np.float32([np.inf, -np.inf, np.nan, 1])
    flags = np.zeros(4, np.bool_)
    assert run("is_inf", x, like=flags).tolist() == [True, True, False, False]
    assert run("is_pos_inf", x, like=flags).tolist() == [True, False, False, False]
    assert run("is_neg_inf", x, like=flags).tolist() == [False, True, False, False]


def test_broadcasting_aligns_the_last_dimensions() -> None:
    x, y = np.float32([[1], [2]]), np.float32([10, 20, 30])
    found = run("broadcast_add", x, y, like=np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(found, x + y)
    flags = run(
        "broadcast_compare",
        y,
        np.float32(20).reshape(()),
        like=np.zeros(3, np.bool_),
        attributes="{comparison_direction = #chlo<comparison_direction LT>}",
    )
    assert flags.tolist() == [True, False, False]
    with pytest.raises(CompileError, match="do not broadcast"):
        run("broadcast_add", np.zeros(2, np.float32), y, like=y)


def test_broadcast_dimensions_place_the_smaller_operand() -> None:
    x, y = np.float32([[1, 2], [3, 4]]), np.float32([10, 20])
    found = run("broadcast_multiply", x, y, attributes="{broadcast_dimensions = array<i64: 0>}")
    np.testing.assert_array_equal(found, x * y[:, None])


def test_square_conj_and_constants() -> None:
    z = np.complex64([1 + 2j, -3j])
    np.testing.assert_array_equal(run("square", z), z * z)
    np.testing.assert_array_equal(run("conj", z), z.conj())
    x = np.float32([4, 5])
    assert run("constant_like", x, attributes="{value = 3.5 : f32}").tolist() == [3.5, 3.5]


def test_top_k_in_both_directions() -> None:
    text = """func.func @main(%x: tensor<2x4xf32>) -> (tensor<2x2xf32>, tensor<2x2xi32>) {
      %v, %i = chlo.top_k(%x, k = 2) LARGEST : tensor<2x4xf32> -> (tensor<2x2xf32>, tensor<2x2xi32>)
      return %v, %i : tensor<2x2xf32>, tensor<2x2xi32>
    }"""
    x = np.float32([[3, 1, 4, 1], [5, 9, 2, 6]])
    values, indices = evaluate(parse_stablehlo(text.replace("LARGEST", "")), [x])
    assert values.tolist() == [[4, 3], [9, 6]]
    assert indices.tolist() == [[2, 0], [1, 3]]


def test_special_functions_of_integers_are_refused() -> None:
    with pytest.raises(CompileError, match=r"chlo\.lgamma: s32 operands"):
        run("lgamma", np.int32([1]))


SCAN_BODY = """{
  ^bb0(%x: tensor<i32>, %c: tensor<i32>):
    %s = stablehlo.add %x, %c : tensor<i32>
    %d = stablehlo.multiply %s, %x : tensor<i32>
    stablehlo.return %d, %s : tensor<i32>, tensor<i32>
  }"""


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("is_generic", [False, True])
def test_scan(is_generic: bool, is_reverse: bool) -> None:
    types = "(tensor<4xi32>, tensor<i32>) -> (tensor<4xi32>, tensor<i32>)"
    if is_generic:
        sizes = "operandSegmentSizes = array<i32: 1, 1>"
        reverse = ", is_reverse = true" if is_reverse else ""
        scan = f'"chlo.scan"(%a, %b) <{{dimension = 0 : i64{reverse}, {sizes}}}> ({SCAN_BODY})'
    else:
        reverse = "attributes {is_reverse = true}" if is_reverse else ""
        scan = f"chlo.scan(%a) inits (%b) dimension=0 {reverse} {SCAN_BODY}"
    text = f"""func.func @main(%a: tensor<4xi32>, %b: tensor<i32>) -> (tensor<4xi32>, tensor<i32>) {{
      %0:2 = {scan} : {types}
      return %0#0, %0#1 : tensor<4xi32>, tensor<i32>
    }}"""
    values = np.array([3, 1, 4, 2], np.int32)
    outputs, carry = evaluate(parse_stablehlo(text), [values, np.array(10, np.int32)])
    order = slice(None, None, -1) if is_reverse else slice(None)
    sums = 10 + np.cumsum(values[order])
    np.testing.assert_array_equal(outputs, (sums * values[order])[order])
    assert carry == sums[-1]


def test_square_of_large_complex_numbers() -> None:
    big = np.float32(3e38)
    numbers = np.array([3 + 4j, -2 - 2j, complex(big, big), complex(np.inf, big)], np.complex64)
    found = run("square", numbers)
    assert found[0] == -7 + 24j
    assert found[1] == 8j
    assert (found[2].real, found[2].imag) == (0, np.inf)
    assert (found[3].real, found[3].imag) == (np.inf, np.inf)


def test_broadcast_dimensions_out_of_range_are_refused() -> None:
    text = """func.func @main(%a: tensor<2xf32>, %b: tensor<2x2xf32>) -> tensor<2x2xf32> {
      %0 = "chlo.broadcast_add"(%a, %b) <{broadcast_dimensions = array<i64: 2>}>
        : (tensor<2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
      return %0 : tensor<2x2xf32>
    }"""
    with pytest.raises(CompileError, match="want dimensions below 2"):
        parse_stablehlo(text)
