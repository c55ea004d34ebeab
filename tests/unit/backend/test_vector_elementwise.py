"""Elementwise opcodes: exact ones bit for bit, transcendental ones within units in the last place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from compiler.hlo.dtypes import BF16, BY_NAME
from tests.support.vector_runs import Array, Run, assert_close

SPECIALS = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-38, 1e38,
     3, -3, 88.7, -103, 4, 9, 1e-20, -1e20, 0.75, 1.0000001, 0.99999994],
    np.float32,
)  # fmt: skip


def floats(seed: int, spread: float = 3.0) -> npt.NDArray[np.float32]:
    """[24, 256]: normal values of several sizes, and special ones."""
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((24, 256)) * spread
    data[8:12] *= 1e-4
    data[12:16] *= 10
    result = data.astype(np.float32)
    result[16, : len(SPECIALS)] = rng.permutation(SPECIALS)
    return result


def integers(dtype: str, seed: int, small: bool = False) -> Array:
    rng = np.random.default_rng(seed)
    info = np.iinfo(dtype)
    low, high = (max(info.min, -9), 9) if small else (info.min, info.max)
    data = rng.integers(low, high, (40, 70), endpoint=True).astype(dtype)
    data[0, :3] = (info.min, info.max, 0)
    return data


def run(text: str, *args: Array, ulp: float = 0) -> Run:
    result = Run(text, args)
    result.check(ulp)
    return result


UNARY = {
    "abs": 0, "ceil": 0, "floor": 0, "negate": 0, "round-nearest-even": 0, "sign": 0,
    "round-nearest-afz": 0, "exponential": 3, "exponential-minus-one": 3, "log": 3,
    "log-plus-one": 3, "logistic": 4, "cbrt": 3, "erf": 3, "rsqrt": 2, "sqrt": 1, "tanh": 3,
    "sine": 3, "cosine": 3, "tan": 4, "atan": 3, "asinh": 3, "sinh": 4, "cosh": 4,
}  # fmt: skip


@pytest.mark.parametrize("opcode", UNARY)
def test_unary_f32(opcode: str) -> None:
    text = f"p = f32[24,256] parameter(0)\nROOT r = f32[24,256] {opcode}(p)"
    run(text, floats(0), ulp=UNARY[opcode])


@pytest.mark.parametrize("opcode", ["acos", "asin", "atanh"])
def test_inverse_functions_inside_one(opcode: str) -> None:
    text = f"p = f32[24,256] parameter(0)\nROOT r = f32[24,256] {opcode}(p)"
    run(text, np.clip(floats(0), -1, 1), ulp=4)


@pytest.mark.parametrize("opcode", ["sine", "cosine"])
def test_huge_angles_are_reduced_exactly(opcode: str) -> None:
    text = f"p = f32[24,256] parameter(0)\nROOT r = f32[24,256] {opcode}(p)"
    rng = np.random.default_rng(3)
    angles = (2.0 ** rng.uniform(10, 127.9, (24, 256))).astype(np.float32)
    run(text, angles * rng.choice([-1, 1], angles.shape).astype(np.float32), ulp=3)


BINARY = {
    "add": 0, "subtract": 0, "multiply": 0, "maximum": 0, "minimum": 0, "divide": 1,
    "remainder": 0, "power": 3, "atan2": 3,
}  # fmt: skip


@pytest.mark.parametrize("opcode", BINARY)
def test_binary_f32(opcode: str) -> None:
    text = f"""p = f32[24,256] parameter(0)
        q = f32[24,256] parameter(1)
        ROOT r = f32[24,256] {opcode}(p, q)"""
    run(text, floats(0), floats(1), ulp=BINARY[opcode])


def test_power_of_negative_bases_and_whole_exponents() -> None:
    text = """p = f32[24,256] parameter(0)
        q = f32[24,256] parameter(1)
        ROOT r = f32[24,256] power(p, q)"""
    run(text, floats(0), np.round(floats(1, 5.0)), ulp=3)


def test_constant_powers_multiply() -> None:
    text = """p = f32[24,256] parameter(0)
        k = f32[] constant(3)
        b = f32[24,256] broadcast(k), dimensions={}
        ROOT r = f32[24,256] power(p, b)"""
    result = run(text, floats(0), ulp=2)
    assert result.count("vlog2.f32") == 0


INTEGER_BINARY = [
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor",
    "shift-left", "shift-right-logical", "shift-right-arithmetic", "power",
]  # fmt: skip
TYPES = {"s8": "int8", "u8": "uint8", "s16": "int16", "u16": "uint16", "s32": "int32",
         "u32": "uint32"}  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("opcode", INTEGER_BINARY)
def test_integer_binary(opcode: str, dtype: str) -> None:
    text = f"""p = {dtype}[40,70] parameter(0)
        q = {dtype}[40,70] parameter(1)
        ROOT r = {dtype}[40,70] {opcode}(p, q)"""
    is_small = opcode.startswith("shift") or opcode == "power"
    run(text, integers(TYPES[dtype], 0), integers(TYPES[dtype], 1, small=is_small))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "opcode", ["abs", "negate", "not", "sign", "popcnt", "count-leading-zeros"]
)
def test_integer_unary(opcode: str, dtype: str) -> None:
    if dtype.startswith("u") and opcode == "abs":
        pytest.skip("abs is for signed types")
    text = f"p = {dtype}[40,70] parameter(0)\nROOT r = {dtype}[40,70] {opcode}(p)"
    run(text, integers(TYPES[dtype], 0))


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
@pytest.mark.parametrize("dtype", ["f32", "s32", "u32", "u8", "pred"])
def test_compares(direction: str, dtype: str) -> None:
    text = f"""p = {dtype}[40,70] parameter(0)
        q = {dtype}[40,70] parameter(1)
        ROOT r = pred[40,70] compare(p, q), direction={direction}"""
    if dtype == "pred":
        rng = np.random.default_rng(0)
        run(text, rng.random((40, 70)) < 0.5, rng.random((40, 70)) < 0.5)
    elif dtype == "f32":
        data = floats(0).reshape(-1)[:2800].reshape(40, 70)
        run(text, data, np.where(floats(1).reshape(-1)[:2800].reshape(40, 70) > 0, data, 1))
    else:
        run(text, integers(TYPES[dtype], 0, small=True), integers(TYPES[dtype], 1, small=True))


def test_total_order_compare() -> None:
    text = """p = f32[24,256] parameter(0)
        q = f32[24,256] parameter(1)
        ROOT r = pred[24,256] compare(p, q), direction=LT, type=TOTALORDER"""
    run(text, floats(0), floats(0)[::-1].copy())


CONVERSIONS = ["f32", "bf16", "f16", "f8e5m2", "f8e4m3fn", "s32", "u32", "s8", "u8", "s16", "pred"]


@pytest.mark.parametrize("source", ["f32", "bf16", "s32", "u32", "s8", "u8", "pred"])
@pytest.mark.parametrize("target", CONVERSIONS)
def test_conversions(source: str, target: str) -> None:
    text = f"p = {source}[40,70] parameter(0)\nROOT r = {target}[40,70] convert(p)"
    if source in TYPES:
        run(text, integers(TYPES[source], 0))
    elif source == "pred":
        run(text, np.random.default_rng(0).random((40, 70)) < 0.5)
    else:
        wide = floats(0, 40.0).reshape(-1)[:2800].reshape(40, 70)
        narrow = (
            wide
            if source == "f32"
            else Run("p=f32[40,70] parameter(0)\nROOT r=bf16[40,70] convert(p)", (wide,)).expected[
                0
            ]
        )
        run(text, narrow)


@pytest.mark.parametrize("dtype", ["f16", "f8e5m2", "f8e4m3fn"])
def test_every_code_of_small_floats_converts_exactly(dtype: str) -> None:
    text = f"p = {dtype}[64,1024] parameter(0)\nROOT r = f32[64,1024] convert(p)"
    from_text = f"p = u16[64,1024] parameter(0)\nROOT r = {dtype}[64,1024] bitcast-convert(p)"
    if dtype == "f16":
        codes = np.arange(65536, dtype=np.uint16).reshape(64, 1024)
        run(from_text, codes)
        run(text, codes.view(np.float16))
        return
    codes8 = np.tile(np.arange(256, dtype=np.uint8), 256).reshape(64, 1024)
    run(text, codes8.view(BY_NAME[dtype].numpy))


def test_reduce_precision_and_is_finite() -> None:
    text = """p = f32[24,256] parameter(0)
        a = f32[24,256] reduce-precision(p), exponent_bits=5, mantissa_bits=10
        b = pred[24,256] is-finite(a)
        ROOT t = (f32[24,256], pred[24,256]) tuple(a, b)"""
    run(text, floats(0, 1e4))


def test_clamp_with_scalar_bounds_and_select_with_scalar_predicate() -> None:
    text = """p = f32[24,256] parameter(0)
        c = pred[] parameter(1)
        lo = f32[] constant(-1)
        hi = f32[] constant(1)
        a = f32[24,256] clamp(lo, p, hi)
        ROOT r = f32[24,256] select(c, a, p)"""
    for choice in (True, False):
        run(text, floats(0), np.bool_(choice))


def test_bf16_chains_round_once_at_the_end() -> None:
    text = """p = bf16[24,256] parameter(0)
        q = bf16[24,256] parameter(1)
        a = bf16[24,256] multiply(p, q)
        ROOT r = bf16[24,256] add(a, p)"""
    x, y = (np.nan_to_num(np.clip(floats(s), -99, 99)).astype(BF16.numpy) for s in (0, 1))
    result = Run(text, (x, y))
    exact = x.astype(np.float32) * y.astype(np.float32) + x.astype(np.float32)
    assert_close(result.results[0], exact.astype(BF16.numpy), 0)
