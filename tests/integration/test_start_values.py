"""Reductions whose start value is known only at run time, in every type: it takes part once."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.against_evaluator import binary, check, random_values, tupled

TYPES = (
    "pred", "s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64",
    "bf16", "f16", "f32", "f8e5m2", "f8e4m3", "f8e3m4", "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz",
    "f8e4m3fnuz",
)  # fmt: skip
BITWISE = ("and", "or", "xor")
ORDERS = ("maximum", "minimum")


def reducers(dtype: str) -> tuple[str, ...]:
    """The operations that reduce a type without rounding."""
    if dtype == "pred":
        return BITWISE
    return ORDERS if BY_NAME[dtype].is_float else (*ORDERS, *BITWISE, "add", "multiply")


@pytest.mark.parametrize("dtype", TYPES)
def test_start_values_of_reduces_and_windows(dtype: str) -> None:
    dims = {"0": "[3]", "1": "[5]", "0,1": "[]"}
    shape = f"{dtype}[5,3]"
    lines = [f"x = {shape} parameter(0)", f"one = {dtype}[1,1] parameter(1)"]
    lines += [f"i = {dtype}[] parameter(2)"]
    results: dict[str, str] = {}
    text = ""
    for op in reducers(dtype):
        text += binary(f"f.{op}", op, dtype)
        for n, (reduced, result) in enumerate(dims.items()):
            name = f"r.{op}.{n}"
            results[name] = f"{dtype}{result}"
            lines.append(
                f"{name} = {results[name]} reduce(x, i), dimensions={{{reduced}}}, to_apply=f.{op}"
            )
        results[f"o.{op}"] = f"{dtype}[]"
        lines.append(f"o.{op} = {dtype}[] reduce(one, i), dimensions={{0,1}}, to_apply=f.{op}")
        results[f"w.{op}"] = f"{dtype}[3,3]"
        window = "window={size=3x2 stride=2x1 pad=1_1x0_1}"
        lines.append(f"w.{op} = {dtype}[3,3] reduce-window(x, i), {window}, to_apply=f.{op}")
    kind = BY_NAME[dtype]
    args = [random_values(kind, dims, n, whole=True) for n, dims in enumerate([(5, 3), (1, 1), ()])]
    check(tupled(lines, results, text), args)


@pytest.mark.parametrize("dtype", ["s8", "u16", "bf16", "f8e5m2"])
def test_start_values_of_several_results(dtype: str) -> None:
    """An argmax-like pair: both start values are parameters and of narrow types."""
    text = f"""HloModule m
pick {{
  a = {dtype}[] parameter(0)
  ai = s16[] parameter(1)
  b = {dtype}[] parameter(2)
  bi = s16[] parameter(3)
  above = pred[] compare(b, a), direction=GT
  equal = pred[] compare(b, a), direction=EQ
  first = pred[] compare(bi, ai), direction=LT
  tied = pred[] and(equal, first)
  more = pred[] or(above, tied)
  r = {dtype}[] select(more, b, a)
  ri = s16[] select(more, bi, ai)
  ROOT t = ({dtype}[], s16[]) tuple(r, ri)
}}
ENTRY e {{
  x = {dtype}[4,140] parameter(0)
  k = s16[4,140] parameter(1)
  i = {dtype}[] parameter(2)
  j = s16[] parameter(3)
  ROOT r = ({dtype}[4], s16[4]) reduce(x, k, i, j), dimensions={{1}}, to_apply=pick
}}
"""
    kind = BY_NAME[dtype]
    values = np.arange(560).reshape(4, 140) % 61 / 8
    with np.errstate(all="ignore"):
        x = values.astype(kind.numpy)
    places = np.arange(560, dtype=np.int16).reshape(4, 140)
    for start in (-3, 100):
        i = np.asarray(max(start, 0) if kind.kind == "unsigned" else start).astype(kind.numpy)
        check(text, [x, places, i, np.asarray(-7, np.int16)])


@pytest.mark.parametrize("dtype", ["s8", "bf16"])
def test_start_values_of_large_reductions(dtype: str) -> None:
    """Cut by the grid: the start value is taken in by the step that ends a sum."""
    shape = f"{dtype}[2048,640]"
    lines = [f"x = {shape} parameter(0)", f"i = {dtype}[] parameter(1)"]
    lines.append(f"r = {dtype}[640] reduce(x, i), dimensions={{0}}, to_apply=f")
    lines.append(f"s = {dtype}[] reduce(x, i), dimensions={{0,1}}, to_apply=f")
    text = tupled(lines, {"r": f"{dtype}[640]", "s": f"{dtype}[]"}, binary("f", "maximum", dtype))
    kind = BY_NAME[dtype]
    x = random_values(kind, (2048, 640), whole=True)
    check(text, [x, np.asarray(101).astype(kind.numpy)])
