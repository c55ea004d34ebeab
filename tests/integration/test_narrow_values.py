"""Narrow types live in wider registers: every use of a value must see one of its type."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.against_evaluator import binary, check, random_values, tupled

FLOATS = (
    "f16", "f8e5m2", "f8e4m3", "f8e3m4", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz",
)  # fmt: skip


@pytest.mark.parametrize("dtype", [*FLOATS, "bf16"])
def test_positions_are_values_of_their_type(dtype: str) -> None:
    lines, results = [], {}
    for n, (dims, along) in enumerate((("2100", 0), ("3,700", 1), ("300,5", 0), ("9,200", 1))):
        lines.append(f"i{n} = {dtype}[{dims}] iota(), iota_dimension={along}")
        for target in ("f32", "s32", "f8e5m2"):
            results[f"r{n}.{target}"] = f"{target}[{dims}]"
            lines.append(f"r{n}.{target} = {target}[{dims}] convert(i{n})")
    check(tupled(lines, results))


@pytest.mark.parametrize("dtype", FLOATS)
def test_results_of_operations_are_rounded_before_they_are_used(dtype: str) -> None:
    kind = BY_NAME[dtype]
    bits = f"u{kind.bits}"
    shape = "[33,40]"
    lines = [f"{v} = {dtype}{shape} parameter({n})" for n, v in enumerate("xyz")]
    made = {
        "s": "add(x, y)", "p": "multiply(x, y)", "d": "divide(x, y)", "a": "add(s, z)",
        "m": "subtract(a, p)", "n": "negate(m)", "q": "sqrt(x)", "r": "floor(m)", "g": "sign(n)",
        "e": "remainder(s, z)", "c": "clamp(y, s, z)", "h": "multiply(q, d)",
    }  # fmt: skip
    lines += [f"{name} = {dtype}{shape} {text}" for name, text in made.items()]
    results = {}
    for name in made:
        results |= {
            f"{name}.f": f"f32{shape}",
            f"{name}.i": f"s32{shape}",
            f"{name}.b": f"{bits}{shape}",
        }
        results[f"{name}.l"] = f"pred{shape}"
        lines += [
            f"{name}.f = f32{shape} convert({name})", f"{name}.i = s32{shape} convert({name})",
            f"{name}.l = pred{shape} compare({name}, z), direction=LT",
        ]  # fmt: skip
        # a NaN may have any payload
        lines += [f"{name}.n = pred{shape} compare({name}, {name}), direction=EQ"]
        lines += [f"{name}.k = {bits}{shape} bitcast-convert({name})"]
        lines += [f"{name}.o = {bits}{shape} convert({name}.n)"]
        lines += [f"{name}.b = {bits}{shape} multiply({name}.k, {name}.o)"]
    args = [random_values(kind, (33, 40), n) for n in range(3)]
    check(tupled(lines, results), args)


@pytest.mark.parametrize("dtype", ["f16", "f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz"])
def test_dots_and_sums_are_rounded_before_they_are_used(dtype: str) -> None:
    kind = BY_NAME[dtype]
    lines = [
        f"x = {dtype}[24,40] parameter(0)", f"y = {dtype}[40,130] parameter(1)",
        f"d = {dtype}[24,130] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        "d.f = f32[24,130] convert(d)", f"zero = {dtype}[] constant(0)",
        f"t = {dtype}[24] reduce(x, zero), dimensions={{1}}, to_apply=f", "t.f = f32[24] convert(t)",
        f"w = {dtype}[24,130] broadcast(t), dimensions={{0}}", f"u = {dtype}[24,130] add(d, w)",
        "u.f = f32[24,130] convert(u)",
    ]  # fmt: skip
    results = {
        "d.f": "f32[24,130]",
        "t.f": "f32[24]",
        "u.f": "f32[24,130]",
        "d": f"{dtype}[24,130]",
    }
    x, y = (random_values(kind, d, n, whole=True) for n, d in enumerate(((24, 40), (40, 130))))
    for precision in ("default", "highest"):
        check(tupled(lines, results, binary("f", "add", dtype)), [x, y], precision=precision)


@pytest.mark.parametrize("dtype", ["s4", "u4", "s8", "u8", "s16", "u16"])
def test_integers_wrap_before_they_are_used(dtype: str) -> None:
    kind = BY_NAME[dtype]
    shape = "[64,40]"
    made = {
        "s": "add(x, y)", "p": "multiply(x, y)", "d": "divide(s, p)", "m": "remainder(p, s)",
        "l": "shift-left(s, y)", "ra": "shift-right-arithmetic(p, x)", "a": "subtract(x, s)",
        "rl": "shift-right-logical(p, y)", "n": "negate(p)", "z": "count-leading-zeros(p)",
        "b": "popcnt(n)", "g": "maximum(p, l)", "w": "power(p, x)", "i": "not(s)",
        "c": "clamp(x, p, s)",
    }  # fmt: skip
    lines = [f"{v} = {dtype}{shape} parameter({n})" for n, v in enumerate("xy")]
    results = {}
    for name, text in made.items():
        results |= {
            f"{name}.i": f"s32{shape}",
            f"{name}.f": f"f32{shape}",
            f"{name}.l": f"pred{shape}",
        }
        lines += [
            f"{name} = {dtype}{shape} {text}", f"{name}.i = s32{shape} convert({name})",
            f"{name}.f = f32{shape} convert({name})",
            f"{name}.l = pred{shape} compare({name}, y), direction=GE",
        ]  # fmt: skip
    args = [random_values(kind, (64, 40), n) for n in range(2)]
    check(tupled(lines, results), args)


def test_a_reducer_that_narrows_is_not_a_plain_sum() -> None:
    """The sum of what 8 bits keep of numbers is not what 8 bits keep of their sum."""
    text = """HloModule m
f {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  b8 = s8[] convert(b)
  b32 = s32[] convert(b8)
  a8 = s8[] convert(a)
  a32 = s32[] convert(a8)
  ROOT s = s32[] maximum(a32, b32)
}
ENTRY e {
  x = s32[5,7] parameter(0)
  i = s32[] constant(-128)
  ROOT r = s32[5] reduce(x, i), dimensions={1}, to_apply=f
}
"""
    x = np.arange(35, dtype=np.int32).reshape(5, 7) * 37
    check(text, [x])


def test_eight_bit_numbers_stay_what_they_are_through_floats() -> None:
    text = """HloModule m
ENTRY e {
  x = u8[256] parameter(0)
  f = f32[256] convert(x)
  ROOT r = s8[256] convert(f)
}
"""
    (want,) = check(text, [np.arange(256, dtype=np.uint8)])
    assert want[200] == 127
    assert ml_dtypes.finfo(ml_dtypes.float8_e4m3fn).max == 448
