"""Edge cases of single opcodes, where XLA's answer is not NumPy's."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import tpuc
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.evaluator import evaluate
from compiler.hlo.evaluator.context import Array
from compiler.hlo.parser import parse_module

BF16 = np.dtype(ml_dtypes.bfloat16)
MIN = -(2**31)


def run(text: str, *args: Array, precision: str = "highest") -> list[Array]:
    return evaluate(parse_module(text), args, precision)


def binary(opcode: str, dtype: str, a: Array, b: Array) -> Array:
    shape = f"{dtype}[{a.size}]"
    text = (
        f"ENTRY e {{ a = {shape} parameter(0) b = {shape} parameter(1) "
        f"ROOT r = {shape} {opcode}(a, b) }}"
    )
    return run(text, a, b)[0]


def unary(opcode: str, source: str, target: str, a: Array, attributes: str = "") -> Array:
    text = (
        f"ENTRY e {{ a = {source}[{a.size}] parameter(0) "
        f"ROOT r = {target}[{a.size}] {opcode}(a){attributes} }}"
    )
    return run(text, a)[0]


def s32(*values: int) -> Array:
    return np.array(values, np.int32)


def test_integer_division_truncates_and_by_zero_is_all_ones() -> None:
    a, b = s32(7, -7, 7, -7, 5, MIN, MIN), s32(2, 2, -2, -2, 0, -1, 0)
    np.testing.assert_array_equal(binary("divide", "s32", a, b), [3, -3, -3, 3, -1, MIN, -1])
    unsigned = binary("divide", "u32", np.array([7], np.uint32), np.array([0], np.uint32))
    assert unsigned[0] == 2**32 - 1


def test_remainder_has_the_dividends_sign_and_by_zero_is_the_dividend() -> None:
    a, b = s32(7, -7, 7, -7, 5, MIN), s32(2, 2, -2, -2, 0, -1)
    np.testing.assert_array_equal(binary("remainder", "s32", a, b), [1, -1, 1, -1, 5, 0])


@pytest.mark.parametrize(
    ("opcode", "want"),
    [
        ("shift-left", [2, 0, 0, 0]),
        ("shift-right-logical", [2**31 - 1, 0, 0, 0]),
        ("shift-right-arithmetic", [-1, -1, -1, -1]),
    ],
)
def test_shifts_past_the_width(opcode: str, want: list[int]) -> None:
    value = s32(1, 1, 1, 1) if opcode == "shift-left" else s32(-1, -1, -1, -1)
    np.testing.assert_array_equal(binary(opcode, "s32", value, s32(1, 32, 99, -1)), want)


def test_integer_power_of_negative_exponents() -> None:
    got = binary("power", "s32", s32(2, -1, -1, 1, 0, 3), s32(-1, -3, -4, -9, -1, 5))
    np.testing.assert_array_equal(got, [0, -1, 1, 1, 0, 243])


def test_maximum_propagates_nan() -> None:
    a, b = np.array([math.nan, 1], np.float32), np.array([1, math.nan], np.float32)
    assert np.isnan(binary("maximum", "f32", a, b)).all()


def test_float_to_integer_clamps() -> None:
    values = np.array([math.nan, math.inf, -math.inf, 3e9, -1.5, 255.9], np.float32)
    got = unary("convert", "f32", "s32", values)
    np.testing.assert_array_equal(got, [0, 2**31 - 1, MIN, 2**31 - 1, -1, 255])
    np.testing.assert_array_equal(unary("convert", "f32", "u8", values), [0, 255, 0, 255, 0, 255])


def test_both_roundings_of_ties() -> None:
    values = np.array([0.5, 1.5, -0.5, -2.5, 0.49999997], np.float32)
    np.testing.assert_array_equal(
        unary("round-nearest-afz", "f32", "f32", values), [1, 2, -1, -3, 0]
    )
    np.testing.assert_array_equal(
        unary("round-nearest-even", "f32", "f32", values), [0, 2, 0, -2, 0]
    )


def test_total_order_compares_nan_and_signed_zero() -> None:
    text = """ENTRY e { a = f32[3] parameter(0) b = f32[3] parameter(1)
      ROOT r = pred[3] compare(a, b), direction=LT, type=TOTALORDER }"""
    a = np.array([-0.0, 1.0, -math.nan], np.float32)
    b = np.array([0.0, math.nan, -math.inf], np.float32)
    np.testing.assert_array_equal(run(text, a, b)[0], [True, True, True])


def test_narrow_integers_wrap() -> None:
    s4 = np.dtype(ml_dtypes.int4)
    got = binary("add", "s4", np.array([7, -8], s4), np.array([1, -1], s4))
    np.testing.assert_array_equal(got.astype(np.int8), [-8, 7])


def test_erf_is_accurate_to_f32() -> None:
    values = np.linspace(-7, 7, 4001, dtype=np.float32)
    want = np.array([math.erf(float(v)) for v in values])
    np.testing.assert_allclose(unary("erf", "f32", "f32", values), want, 1.2e-7, 1e-45)
    special = unary("erf", "f32", "f32", np.array([math.nan, math.inf, -0.0], np.float32))
    assert np.isnan(special[0])
    assert special[1] == 1
    assert np.signbit(special[2])


def test_reduce_precision_to_f16_agrees_with_f16() -> None:
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(500) * 10.0 ** rng.integers(-1, 5, 500)).astype(np.float32)
    got = unary("reduce-precision", "f32", "f32", values, ", exponent_bits=5, mantissa_bits=10")
    half = values.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(got, np.where(np.abs(half) < 2.0**-14, half * 0, half))


def test_stochastic_convert_rounds_by_the_random_bits() -> None:
    text = """ENTRY e { a = f32[4] parameter(0) r = u32[4] parameter(1)
      ROOT c = s32[4] stochastic-convert(a, r) }"""
    values = np.array([1.25, 1.25, -1.25, math.nan], np.float32)
    bits = np.array([2**30 - 1, 2**30 + 1, 0, 0], np.uint32)
    np.testing.assert_array_equal(run(text, values, bits)[0], [2, 1, -2, 0])
    values = np.array([1e-20, 3 * 2.0**-33, 3 * 2.0**-33, -(2.0**-32)], np.float32)
    np.testing.assert_array_equal(run(text, values, np.uint32([0, 0, 1, 0]))[0], [0, 1, 0, -1])


def test_bitcast_reorders_as_the_layouts_do() -> None:
    text = """ENTRY e { a = f32[2,3]{0,1} parameter(0) ROOT r = f32[3,2]{1,0} bitcast(a) }"""
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(run(text, a)[0], a.T)


def test_pad_with_negative_edges_and_interior() -> None:
    text = """ENTRY e { a = f32[4] parameter(0) z = f32[] constant(9)
      ROOT r = f32[6] pad(a, z), padding=-2_1_1 }"""
    np.testing.assert_array_equal(
        run(text, np.array([1, 2, 3, 4], np.float32))[0], [2, 9, 3, 9, 4, 9]
    )


def test_dynamic_size_must_be_the_static_one() -> None:
    text = """ENTRY e { a = f32[4] parameter(0) n = s32[] parameter(1)
      ROOT r = f32[<=4] set-dimension-size(a, n), dimensions={0} }"""
    with pytest.raises(UnsupportedError, match="dynamic dimensions"):
        run(text, np.zeros(4, np.float32), np.int32(3))


DOT = """ENTRY e { a = f32[8,64] parameter(0) b = f32[64,8] parameter(1)
  ROOT d = f32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}%s }"""


def dot_error(precision: str, attributes: str = "") -> float:
    rng = np.random.default_rng(3)
    a = rng.standard_normal((8, 64)).astype(np.float32)
    b = rng.standard_normal((64, 8)).astype(np.float32)
    (got,) = run(DOT % attributes, a, b, precision=precision)
    return float(np.abs(got - a.astype(np.float64) @ b.astype(np.float64)).max())


def test_each_precision_has_its_error() -> None:
    assert 1e-3 < dot_error("default") < 1e-1
    assert 1e-6 < dot_error("high") < 2e-3
    assert dot_error("highest") < 1e-5
    assert dot_error("high") < dot_error("default") / 20


def test_attributes_of_the_dot_win_over_the_option() -> None:
    assert dot_error("default", ", operand_precision={highest,highest}") == dot_error("highest")
    assert dot_error("highest", ", algorithm=dot_bf16_bf16_f32") == dot_error("default")
    assert dot_error("default", ", algorithm=dot_bf16_bf16_f32_x3") == dot_error("high")


def test_default_precision_is_the_dot_of_bf16_operands() -> None:
    rng = np.random.default_rng(4)
    a = rng.standard_normal((8, 64)).astype(np.float32)
    b = rng.standard_normal((64, 8)).astype(np.float32)
    (got,) = run(DOT % "", a, b, precision="default")
    want = a.astype(BF16).astype(np.float64) @ b.astype(BF16).astype(np.float64)
    np.testing.assert_allclose(got, want, 1e-5, 1e-5)


def test_high_precision_of_infinite_operands_is_not_nan() -> None:
    a = np.zeros((8, 64), np.float32)
    a[0, 0] = math.inf
    (got,) = run(DOT % "", a, np.ones((64, 8), np.float32), precision="high")
    assert np.isposinf(got[0]).all()
    assert (got[1:] == 0).all()


def test_integer_dot_wraps_and_is_exact() -> None:
    text = """ENTRY e { a = s32[1,2] parameter(0) b = s32[2,1] parameter(1)
      ROOT d = s32[1,1] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    a, b = np.array([[2**31 - 1, 3]], np.int32), np.array([[2**31 - 1], [5]], np.int32)
    assert run(text, a, b)[0][0, 0] == 16


def test_a_reducer_with_a_loop_runs_element_by_element() -> None:
    text = """
    cond { p = (f32[], f32[]) parameter(0) x = f32[] get-tuple-element(p), index=0
      y = f32[] get-tuple-element(p), index=1 ROOT c = pred[] compare(x, y), direction=LT }
    body { p = (f32[], f32[]) parameter(0) x = f32[] get-tuple-element(p), index=0
      y = f32[] get-tuple-element(p), index=1 one = f32[] constant(1) z = f32[] add(x, one)
      ROOT t = (f32[], f32[]) tuple(z, y) }
    climb { x = f32[] parameter(0) y = f32[] parameter(1) t = (f32[], f32[]) tuple(x, y)
      w = (f32[], f32[]) while(t), condition=cond, body=body
      ROOT r = f32[] get-tuple-element(w), index=0 }
    ENTRY e { a = f32[3,4] parameter(0) z = f32[] constant(0)
      ROOT r = f32[3] reduce(a, z), dimensions={1}, to_apply=climb }"""
    a = np.array([[1, 3, 2, 0], [5, 1, 1, 1], [0, 0, 0, 7]], np.float32)
    np.testing.assert_array_equal(run(text, a)[0], a.max(1))


def test_argmax_style_reduce_is_quick_and_takes_the_first_of_equals() -> None:
    text = """
    best { a = f32[] parameter(0) i = s32[] parameter(1) b = f32[] parameter(2)
      j = s32[] parameter(3) gt = pred[] compare(a, b), direction=GT
      eq = pred[] compare(a, b), direction=EQ lt = pred[] compare(i, j), direction=LT
      tie = pred[] and(eq, lt) first = pred[] or(gt, tie) v = f32[] select(first, a, b)
      k = s32[] select(first, i, j) ROOT t = (f32[], s32[]) tuple(v, k) }
    ENTRY e { x = f32[4096,256] parameter(0) n = s32[4096,256] iota(), iota_dimension=1
      low = f32[] constant(-inf) zero = s32[] constant(0)
      ROOT r = (f32[4096], s32[4096]) reduce(x, n, low, zero), dimensions={1}, to_apply=best }"""
    x = np.random.default_rng(0).integers(0, 50, (4096, 256)).astype(np.float32)
    values, positions = run(text, x)
    np.testing.assert_array_equal(values, x.max(1))
    np.testing.assert_array_equal(positions, x.argmax(1))


def test_bf16_sums_accumulate_in_f32() -> None:
    text = """add { x = bf16[] parameter(0) y = bf16[] parameter(1) ROOT s = bf16[] add(x, y) }
    ENTRY e { a = bf16[1000] parameter(0) z = bf16[] constant(0)
      ROOT r = bf16[] reduce(a, z), dimensions={0}, to_apply=add }"""
    assert run(text, np.ones(1000, BF16))[0] == 1000


def test_sort_keeps_equal_keys_in_order() -> None:
    text = """
    by { a = s32[] parameter(0) b = s32[] parameter(1) i = s32[] parameter(2)
      j = s32[] parameter(3) m = s32[] constant(10) x = s32[] remainder(a, m)
      y = s32[] remainder(b, m) ROOT r = pred[] compare(x, y), direction=LT }
    ENTRY e { k = s32[100] parameter(0) v = s32[100] iota(), iota_dimension=0
      ROOT s = (s32[100], s32[100]) sort(k, v), dimensions={0}, is_stable=true, to_apply=by }"""
    keys = np.random.default_rng(1).integers(0, 1000, 100).astype(np.int32)
    _, order = run(text, keys)
    np.testing.assert_array_equal(order, np.argsort(keys % 10, kind="stable"))


def test_sort_by_the_bits_of_floats() -> None:
    text = """
    by { a = bf16[] parameter(0) b = bf16[] parameter(1) x = s16[] bitcast-convert(a)
      y = s16[] bitcast-convert(b) ROOT r = pred[] compare(x, y), direction=GT }
    ENTRY e { k = bf16[3,40] parameter(0)
      ROOT s = bf16[3,40] sort(k), dimensions={1}, to_apply=by }"""
    keys = np.random.default_rng(1).normal(size=(3, 40)).astype(BF16)
    keys[0, :4] = [np.nan, np.inf, -np.inf, -0.0]
    (got,) = run(text, keys)
    np.testing.assert_array_equal(got.view(np.int16), np.sort(keys.view(np.int16), 1)[:, ::-1])


def test_cholesky_of_an_indefinite_matrix_is_nan() -> None:
    text = "ENTRY e { a = f32[2,2] parameter(0) ROOT c = f32[2,2] cholesky(a), lower=true }"
    (got,) = run(text, np.array([[1, 2], [2, 1]], np.float32))
    assert np.isnan(got[np.tril_indices(2)]).all()
    assert got[0, 1] == 0


def test_batch_norm_training_and_its_gradient() -> None:
    text = """ENTRY e { x = f32[6,3] parameter(0) s = f32[3] parameter(1) o = f32[3] parameter(2)
      g = f32[6,3] parameter(3)
      t = (f32[6,3], f32[3], f32[3]) batch-norm-training(x, s, o), epsilon=0.001, feature_index=1
      m = f32[3] get-tuple-element(t), index=1 v = f32[3] get-tuple-element(t), index=2
      d = (f32[6,3], f32[3], f32[3]) batch-norm-grad(x, s, m, v, g), epsilon=0.001, feature_index=1
      y = f32[6,3] get-tuple-element(t), index=0
      ROOT r = (f32[6,3], (f32[6,3], f32[3], f32[3])) tuple(y, d) }"""
    rng = np.random.default_rng(2)
    x, g = (rng.standard_normal((6, 3)).astype(np.float32) for _ in range(2))
    scale, offset = (rng.standard_normal(3).astype(np.float32) for _ in range(2))
    y, dx, dscale, doffset = run(text, x, scale, offset, g)

    def forward(x: Array, s: Array, o: Array) -> Array:
        return np.asarray((x - x.mean(0)) / np.sqrt(x.var(0) + 0.001) * s + o)

    x64, s64, o64 = x.astype(float), scale.astype(float), offset.astype(float)
    np.testing.assert_allclose(y, forward(x64, s64, o64), 1e-4, 1e-5)
    np.testing.assert_allclose(doffset, g.sum(0), 1e-4, 1e-5)
    step = 1e-6
    for place in ((0, 0), (4, 2)):
        moved = x64.copy()
        moved[place] += step
        slope = ((forward(moved, s64, o64) - forward(x64, s64, o64)) * g).sum() / step
        np.testing.assert_allclose(dx[place], slope, 1e-3, 1e-4)
    moved_scale = s64 + np.array([step, 0, 0])
    slope = ((forward(x64, moved_scale, o64) - forward(x64, s64, o64)) * g).sum() / step
    np.testing.assert_allclose(dscale[0], slope, 1e-3, 1e-4)


def test_the_exponential_of_an_infinite_angle_is_no_number() -> None:
    numbers = np.array([complex(-np.inf, np.inf), complex(np.inf, np.nan), 0], np.complex64)
    module = parse_module("ENTRY e { x = c64[3] parameter(0) ROOT y = c64[3] exponential(x) }")
    found = evaluate(module, [numbers])[0]
    assert np.isnan(found[:2].real).all()
    assert np.isnan(found[:2].imag).all()
    assert found[2] == 1


def test_a_broadcast_may_permute() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    text = """ENTRY e { x = f32[2,3] parameter(0)
      ROOT b = f32[3,4,2] broadcast(x), dimensions={2,0} }"""
    want = np.broadcast_to(x.T[:, None, :], (3, 4, 2))
    np.testing.assert_array_equal(run(text, x)[0], want)


def test_a_reduction_of_nothing_is_its_start_value() -> None:
    text = """add { a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] add(a, b) }
    ENTRY e { x = f32[0,2] parameter(0)
      s = f32[] constant(-0)
      ROOT r = f32[2] reduce(x, s), dimensions={0}, to_apply=add }"""
    found = run(text, np.zeros((0, 2), np.float32))[0]
    np.testing.assert_array_equal(np.signbit(found), [True, True])


def test_an_update_of_a_four_bit_scalar() -> None:
    four = np.dtype(ml_dtypes.int4)
    text = """ENTRY e { x = s4[] parameter(0)
      y = s4[] negate(x)
      ROOT u = s4[] dynamic-update-slice(y, x) }"""
    assert run(text, np.asarray(3, four))[0] == 3


def test_complex_quotients_by_infinity_and_zero() -> None:
    x = np.array([3, complex(np.inf, 1), 1, 0], np.complex64)
    y = np.array([complex(-np.inf, np.inf), 2, 0, 0], np.complex64)
    found = binary("divide", "c64", x, y)
    assert found[0] == 0
    assert np.isinf(found[1])
    assert found[2].real == np.inf
    assert np.isnan(found[3])
    small = unary("rsqrt", "c64", "c64", np.array([complex(7, np.inf)], np.complex64))
    assert small[0] == 0


def test_the_sign_of_the_smallest_complex_number() -> None:
    found = unary("sign", "c64", "c64", np.array([complex(2.8e-45, -1.4e-45)], np.complex64))
    np.testing.assert_allclose(found, [(2 - 1j) / np.sqrt(5)], rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("f8e4m3b11fnuz", [0x80, 0xD8, 0x00, 0x58]),  # NaN, -1, 0, 1
        ("f8e5m2fnuz", [0x80, 0xC0, 0x00, 0x40]),
        ("f8e5m2", [0xFE, 0xFC, 0x80, 0x00, 0x7C, 0x7E]),  # -NaN, -inf, -0, 0, inf, NaN
        ("f8e4m3fn", [0xFF, 0xB8, 0x80, 0x00, 0x38, 0x7F]),
        ("f8e8m0fnu", [0x00, 0x7F, 0x80, 0xFE, 0xFF]),  # 2^-127, 1, 2, 2^127, NaN
    ],
)
def test_total_order_of_narrow_floats(dtype: str, bits: list[int]) -> None:
    count = len(bits)
    text = f"""HloModule m
ENTRY e {{
  x = {dtype}[{count}] parameter(0)
  a = {dtype}[{count},{count}] broadcast(x), dimensions={{0}}
  b = {dtype}[{count},{count}] broadcast(x), dimensions={{1}}
  ROOT c = pred[{count},{count}] compare(a, b), direction=LT, type=TOTALORDER
}}"""
    values = np.array(bits, np.uint8).view(BY_NAME[dtype].numpy)
    (less,) = evaluate(parse_module(text), [values])
    np.testing.assert_array_equal(less, np.triu(np.ones((count, count), bool), 1))
    (got,) = tpuc.compile(text)(values)
    np.testing.assert_array_equal(got, less)


@pytest.mark.parametrize(("opcode", "want"), [("minimum", -0.0), ("maximum", 0.0)])
@pytest.mark.parametrize("operands", [(-0.0, 0.0), (0.0, -0.0)])
def test_extremes_of_zeros_of_both_signs(
    opcode: str, want: float, operands: tuple[float, float]
) -> None:
    start, element = operands
    text = f"""extreme {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] {opcode}(a, b) }}
    ENTRY e {{ x = f32[3] parameter(0) s = f32[] parameter(1)
      whole = f32[] reduce(x, s), dimensions={{0}}, to_apply=extreme
      slid = f32[3] reduce-window(x, s), window={{size=1}}, to_apply=extreme
      ROOT r = (f32[], f32[3]) tuple(whole, slid) }}"""
    x, s = np.full(3, element, np.float32), np.float32(start)
    for got in (*run(text, x, s), *tpuc.compile(text)(x, s)):
        assert (np.signbit(got) == np.signbit(want)).all()


@pytest.mark.parametrize("dtype", ["f4e2m1fn", "f6e2m3fn", "f6e3m2fn"])
def test_nan_of_either_sign_is_minus_zero_in_a_type_without(dtype: str) -> None:
    text = f"""ENTRY e {{ a = f32[2] parameter(0) b = {dtype}[2] convert(a) ROOT c = f32[2] convert(b) }}"""
    nan = np.array([0x7FC00000, 0xFFC00000], np.uint32).view(np.float32)
    for got in (run(text, nan)[0], tpuc.compile(text)(nan)[0]):
        assert (got == 0).all() and np.signbit(got).all()
