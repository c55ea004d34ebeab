"""Reduces whose start value is computed, among them by another reduce; scales of odd shapes."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.diagnostics import VerifyError
from tests.support.run_hlo import ADD, check_text, compile_text

PAIR = """
%totals (a: f32[], i: s32[], b: f32[], j: s32[]) -> (f32[], s32[]) {
  %a = f32[] parameter(0)
  %i = s32[] parameter(1)
  %b = f32[] parameter(2)
  %j = s32[] parameter(3)
  %x = f32[] add(%a, %b)
  %k = s32[] add(%i, %j)
  ROOT %r = (f32[], s32[]) tuple(%x, %k)
}
"""
STARTS = {
    "a sum": (
        "z = f32[] constant(2)\n a = f32[] reduce(x, z), dimensions={0,1}, to_apply=add_f32",
        "f32[] reduce(x, a), dimensions={0,1}, to_apply=add_f32",
    ),
    "made of a sum": (
        "z = f32[] constant(2)\n s = f32[] reduce(x, z), dimensions={0,1}, to_apply=add_f32\n"
        "h = f32[] constant(0.5)\n a = f32[] multiply(s, h)",
        "f32[16] reduce(x, a), dimensions={1}, to_apply=add_f32",
    ),
    "one row's sum": (
        "z = f32[] constant(2)\n s = f32[16] reduce(x, z), dimensions={1}, to_apply=add_f32\n"
        "c = f32[1] slice(s), slice={[3:4]}\n a = f32[] reshape(c)",
        "f32[16] reduce(x, a), dimensions={1}, to_apply=add_f32",
    ),
    "one column's sum": (
        "z = f32[] constant(2)\n s = f32[200] reduce(x, z), dimensions={0}, to_apply=add_f32\n"
        "c = f32[1] slice(s), slice={[3:4]}\n a = f32[] reshape(c)",
        "f32[200] reduce(x, a), dimensions={0}, to_apply=add_f32",
    ),
    "an element": (
        "c = f32[1,1] slice(x), slice={[3:4],[5:6]}\n e = f32[] reshape(c)\n a = f32[] exponential(e)",
        "f32[200] reduce(x, a), dimensions={0}, to_apply=add_f32",
    ),
}


@pytest.mark.parametrize("case", STARTS)
def test_start_values(case: str) -> None:
    start, last = STARTS[case]
    text = f"HloModule m\n{ADD}\nENTRY e {{\n x = f32[16,200] parameter(0)\n {start}\n ROOT b = {last}\n}}\n"
    data = np.random.default_rng(0).integers(-9, 9, (16, 200)).astype(np.float32)
    check_text(text, [data])


@pytest.mark.parametrize("dims", ["0", "1", "0,1"])
def test_a_start_value_of_several_sums_counts_once(dims: str) -> None:
    kept = {"0": "200", "1": "16", "0,1": ""}[dims]
    text = f"""HloModule m
{PAIR}
ENTRY e {{
  x = f32[16,200] parameter(0)
  k = s32[16,200] iota(), iota_dimension=1
  i = f32[] constant(3)
  j = s32[] constant(7)
  ROOT r = (f32[{kept}], s32[{kept}]) reduce(x, k, i, j), dimensions={{{dims}}}, to_apply=totals
}}
"""
    data = np.random.default_rng(0).integers(-9, 9, (16, 200)).astype(np.float32)
    check_text(text, [data])


def test_scales_of_another_rank_are_refused_by_name() -> None:
    text = """HloModule m
ENTRY e {
  a = f32[2,8] parameter(0)
  b = f32[8,2] parameter(1)
  s = f32[2,2,2] parameter(2)
  ROOT d = f32[2,2] scaled-dot(a, b, s, s), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    with pytest.raises(
        VerifyError, match=r"%d: scaled-dot: scales f32\[2,2,2\] of an operand f32\[2,8\]"
    ):
        compile_text(text)
