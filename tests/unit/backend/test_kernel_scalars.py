"""Rank-0 code on the scalar unit, against the evaluator, op by op and in control flow."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.run_hlo import Array, expected, run_text

_S32 = ["add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor",
        "shift-left", "shift-right-arithmetic", "shift-right-logical"]  # fmt: skip
_U32 = ["divide", "remainder", "maximum", "minimum"]
_F32 = ["add", "subtract", "multiply", "divide", "maximum", "minimum"]
_SPECIAL = {
    "s32": [0, 1, -1, 7, -(2**31), 2**31 - 1],
    "u32": [0, 1, 7, 2**31, 2**32 - 1],
    "f32": [0.0, -0.0, 1.5, -2.25, float("inf"), float("nan"), 1e-40],
}
_NUMPY = {"s32": np.int32, "u32": np.uint32, "f32": np.float32}


def same(text: str, inputs: list[Array]) -> None:
    run = run_text(text, inputs)
    assert all("copy" in note for note in run.notes), "the scalar unit needs no other kernel"
    for want, got in zip(expected(text, inputs), run.outputs, strict=True):
        np.testing.assert_array_equal(got, want)


def binary(opcodes: list[str], dtype: str) -> str:
    lines = "\n".join(f"  %o{n} = {dtype}[] {opcode}(%a, %b)" for n, opcode in enumerate(opcodes))
    names = ", ".join(f"%o{n}" for n in range(len(opcodes)))
    shapes = ", ".join(f"{dtype}[]" for _ in opcodes)
    return f"""HloModule m
ENTRY %e (a: {dtype}[], b: {dtype}[]) -> ({shapes}) {{
  %a = {dtype}[] parameter(0)
  %b = {dtype}[] parameter(1)
{lines}
  ROOT %t = ({shapes}) tuple({names})
}}
"""


@pytest.mark.parametrize(("opcodes", "dtype"), [(_S32, "s32"), (_U32, "u32"), (_F32, "f32")])
def test_binary_operations_on_special_values(opcodes: list[str], dtype: str) -> None:
    values = np.array(_SPECIAL[dtype], _NUMPY[dtype])
    text = binary(opcodes, dtype)
    for a, b in zip(values, np.roll(values, 1), strict=True):
        same(text, [a, b])


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -3.5e9, 3e9, float("nan"), float("-inf")])
def test_unary_operations_and_conversions_of_f32(value: float) -> None:
    text = """HloModule m
ENTRY %e (a: f32[]) -> (f32[], f32[], f32[], s32[], u32[], pred[], pred[], s32[]) {
  %a = f32[] parameter(0)
  %n = f32[] negate(%a)
  %b = f32[] abs(%a)
  %s = f32[] sign(%a)
  %i = s32[] convert(%a)
  %u = u32[] convert(%a)
  %p = pred[] convert(%a)
  %f = pred[] is-finite(%a)
  %r = s32[] bitcast-convert(%a)
  ROOT %t = (f32[], f32[], f32[], s32[], u32[], pred[], pred[], s32[])
    tuple(%n, %b, %s, %i, %u, %p, %f, %r)
}
"""
    same(text, [np.float32(value)])


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 7])
def test_an_indexed_conditional_takes_its_last_branch_when_out_of_range(index: int) -> None:
    text = """HloModule m
%b0 (x: s32[]) -> s32[] {
  %x = s32[] parameter(0)
  ROOT %n = s32[] negate(%x)
}
%b1 (y: s32[]) -> s32[] {
  %y = s32[] parameter(0)
  ROOT %m = s32[] multiply(%y, %y)
}
%b2 (z: s32[]) -> s32[] {
  %z = s32[] parameter(0)
  %k = s32[] constant(100)
  ROOT %s = s32[] add(%z, %k)
}
ENTRY %e (i: s32[], a: s32[]) -> s32[] {
  %i = s32[] parameter(0)
  %a = s32[] parameter(1)
  ROOT %c = s32[] conditional(%i, %a, %a, %a), branch_computations={%b0, %b1, %b2}
}
"""
    same(text, [np.int32(index), np.int32(13)])


@pytest.mark.parametrize("limit", [0, 1, 9])
def test_a_while_loop_runs_as_often_as_its_condition_says(limit: int) -> None:
    text = """HloModule m
%test (s: (s32[], s32[], f32[8,128])) -> pred[] {
  %s = (s32[], s32[], f32[8,128]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] get-tuple-element(%s), index=1
  ROOT %p = pred[] compare(%i, %n), direction=LT
}
%body (s: (s32[], s32[], f32[8,128])) -> (s32[], s32[], f32[8,128]) {
  %s = (s32[], s32[], f32[8,128]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] get-tuple-element(%s), index=1
  %x = f32[8,128] get-tuple-element(%s), index=2
  %one = s32[] constant(1)
  %j = s32[] add(%i, %one)
  %y = f32[8,128] add(%x, %x)
  ROOT %t = (s32[], s32[], f32[8,128]) tuple(%j, %n, %y)
}
ENTRY %e (n: s32[], x: f32[8,128]) -> (s32[], f32[8,128]) {
  %n = s32[] parameter(0)
  %x = f32[8,128] parameter(1)
  %zero = s32[] constant(0)
  %t = (s32[], s32[], f32[8,128]) tuple(%zero, %n, %x)
  %w = (s32[], s32[], f32[8,128]) while(%t), condition=%test, body=%body
  %i = s32[] get-tuple-element(%w), index=0
  %y = f32[8,128] get-tuple-element(%w), index=2
  ROOT %r = (s32[], f32[8,128]) tuple(%i, %y)
}
"""
    x = np.arange(1024, dtype=np.float32).reshape(8, 128)
    count, result = run_text(text, [np.int32(limit), x]).outputs
    assert count == limit
    np.testing.assert_array_equal(result, x * np.float32(2**limit))
