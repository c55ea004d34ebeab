"""Operations are marked for what they are, and not for what they only look like."""

from __future__ import annotations

import pytest

from compiler.analysis.operation_marks import marks_of
from compiler.hlo.parser import parse_module
from tpu_sim.isa.kernel_facts import ONE_HOT_ROWS, OUTER_SUM

_PRODUCT = """HloModule m
ENTRY e {{
  x = s32[{given}] parameter(0)
  t = f32[64,8] parameter(1)
  n = s32[256,64] {numbers}
  p = s32[256,64] iota(), iota_dimension=1
  c = pred[256,64] compare(n, p), direction=EQ
  h = f32[256,64] convert(c)
  ROOT r = f32[256,8] dot(h, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
_SUM = """HloModule m
add {{
  a = {sums}[] parameter(0)
  b = {sums}[] parameter(1)
  ROOT s = {sums}[] add(a, b)
}}
ENTRY e {{
  x = f32[32,8] parameter(0)
  y = f32[64,8] parameter(1)
  a = f32[32,64,8] broadcast(x), dimensions={{0,2}}
  b = f32[32,64,8] broadcast(y), dimensions={{1,2}}
  q = f32[32,64,8] multiply(a, b)
  w = {sums}[32,64,8] convert(q)
  z = {sums}[] constant(0)
  ROOT r = {sums}[32,64] reduce(w, z), dimensions={{2}}, to_apply=add
}}
"""


@pytest.mark.parametrize(
    ("given", "numbers", "marked"),
    [
        ("256", "broadcast(x), dimensions={0}", True),
        ("256,64", "copy(x)", False),  # any number of ones in a row
        ("64", "broadcast(x), dimensions={1}", False),
        ("256", "iota(), iota_dimension=0", True),
        ("256", "iota(), iota_dimension=1", False),
    ],
)
def test_rows_of_one_one(given: str, numbers: str, *, marked: bool) -> None:
    module = parse_module(_PRODUCT.format(given=given, numbers=numbers))
    assert (ONE_HOT_ROWS in marks_of(module.entry.root_instruction)) == marked


@pytest.mark.parametrize(("sums", "marked"), [("f32", True), ("bf16", True), ("s32", False)])
def test_sums_of_what_is_cut_off_are_no_products(sums: str, *, marked: bool) -> None:
    module = parse_module(_SUM.format(sums=sums))
    assert (OUTER_SUM in marks_of(module.entry.root_instruction)) == marked
