"""4- and 6-bit floats and f8e8m0fnu: every code and edge value, on both machines."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.against_evaluator import binary, check, tupled

TYPES = ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn", "f8e8m0fnu")


def codes(dtype: str) -> np.ndarray:
    kind = BY_NAME[dtype]
    return np.arange(1 << kind.bits, dtype=np.uint8).view(kind.numpy)


@pytest.mark.parametrize("dtype", TYPES)
def test_conversions_to_and_from(dtype: str) -> None:
    x = codes(dtype)
    rng = np.random.default_rng(1)
    powers = 2.0 ** np.arange(-126, 128)
    near = np.concatenate([powers * f for f in (1, 1.25, 1.4999999, 1.5, 1.75, 1.7500001)])
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 100.0, 6.5, 7.0, 28.5]
    with np.errstate(all="ignore"):
        y = np.concatenate([near, -near, special, rng.standard_normal(600) * 4]).astype(np.float32)
    n, m = len(x), len(y)
    lines = [f"x = {dtype}[{n}] parameter(0)", f"y = f32[{m}] parameter(1)"]
    lines += [f"a = {dtype}[{m}] convert(y)", f"b = f32[{m}] convert(a)"]
    results = {"a": f"{dtype}[{m}]", "b": f"f32[{m}]", "x": f"{dtype}[{n}]"}
    for target in ("f32", "bf16", "s32", "f8e5m2", "pred"):
        results[f"c.{target}"] = f"{target}[{n}]"
        lines.append(f"c.{target} = {target}[{n}] convert(x)")
    check(tupled(lines, results), [x, y])


@pytest.mark.parametrize("dtype", TYPES)
def test_arithmetic_rounds_once(dtype: str) -> None:
    x = codes(dtype)
    a, b = (g.reshape(-1) for g in np.meshgrid(x[:: max(1, len(x) // 64)], x[::3]))
    shape = f"{dtype}[{len(a)}]"
    made = {
        "s": "add(x, y)", "d": "subtract(x, y)", "p": "multiply(x, y)", "q": "multiply(s, s)",
        "m": "maximum(x, y)", "n": "negate(p)", "c": "clamp(y, p, x)", "g": "abs(d)",
    }  # fmt: skip
    lines = [f"x = {shape} parameter(0)", f"y = {shape} parameter(1)"]
    lines += [f"{name} = {shape} {text}" for name, text in made.items()]
    lines.append(f"l = pred[{len(a)}] compare(s, y), direction=LT")
    lines += [f"i = {dtype}[20] iota(), iota_dimension=0", f"k = {dtype}[3] constant({{1, 2, 4}})"]
    results = dict.fromkeys(made, shape) | {"l": f"pred[{len(a)}]", "i": f"{dtype}[20]"}
    check(tupled(lines, results | {"k": f"{dtype}[3]"}), [a, b])


@pytest.mark.parametrize("dtype", TYPES)
def test_products_reductions_and_moves(dtype: str) -> None:
    x = np.resize(codes(dtype)[1:4], (8, 40)).copy()
    w = np.resize(codes(dtype)[[2, 3]], (40, 16)).copy()
    lines = [
        f"x = {dtype}[8,40] parameter(0)", f"w = {dtype}[40,16] parameter(1)",
        f"i = {dtype}[] parameter(2)", "t = f32[8,16] dot(x, w), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}",
        f"d = {dtype}[8,16] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        f"m = {dtype}[8] reduce(x, i), dimensions={{1}}, to_apply=f",
        f"r = {dtype}[40,8] transpose(x), dimensions={{1,0}}",
        f"o = {dtype}[320] reshape(r)", f"j = {dtype}[10,40] pad(x, i), padding=1_1x0_0",
        f"h = {dtype}[10,80] concatenate(j, j), dimensions={{1}}",
    ]  # fmt: skip
    results = {
        "t": "f32[8,16]", "d": f"{dtype}[8,16]", "m": f"{dtype}[8]", "o": f"{dtype}[320]",
        "h": f"{dtype}[10,80]",
    }  # fmt: skip
    check(tupled(lines, results, binary("f", "maximum", dtype)), [x, w, x[0, 1]])


@pytest.mark.parametrize("dtype", TYPES)
def test_codes(dtype: str) -> None:
    kind = BY_NAME[dtype]
    x = codes(dtype)
    n = len(x)
    if kind.bits == 6:
        other = "f6e3m2fn" if dtype == "f6e2m3fn" else "f6e2m3fn"
        text = f"HloModule m\nENTRY e {{\n x = {dtype}[{n}] parameter(0)\n"
        check(text + f" ROOT r = {other}[{n}] bitcast-convert(x)\n}}\n", [x])
        return
    word = f"u{kind.bits}"
    values = np.arange(n, dtype=np.uint8).astype(BY_NAME[word].numpy)
    lines = [f"x = {dtype}[{n}] parameter(0)", f"u = {word}[{n}] parameter(1)"]
    lines += [f"a = {word}[{n}] bitcast-convert(x)", f"b = {dtype}[{n}] bitcast-convert(u)"]
    check(tupled(lines, {"a": f"{word}[{n}]", "b": f"{dtype}[{n}]"}), [x, values])


def test_pairs_of_four_bits_in_a_byte() -> None:
    text = """HloModule m
ENTRY e {
  u = u8[64] parameter(0)
  x = f4e2m1fn[64,2] bitcast-convert(u)
  f = f32[64,2] convert(x)
  b = u8[64] bitcast-convert(x)
  ROOT r = (f32[64,2], u8[64]) tuple(f, b)
}
"""
    check(text, [np.arange(0, 256, 4, dtype=np.uint8) + 3])
