"""Reductions that combine every element with its start value and nothing else."""

from __future__ import annotations

import pytest

from tests.support.run_hlo import check_text, normal

REDUCERS = {
    "a monoid": "ROOT c = f32[] maximum(a, b)",
    "an order of its operands": "ROOT c = f32[] subtract(a, b)",
    "several operations": "d = f32[] add(a, b)\n  ROOT c = f32[] multiply(d, a)",
}
TEXT = """HloModule m
f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  {reducer}
}}
ENTRY e {{
  x = f32[{dims}] parameter(0)
  z = f32[] constant(5)
  ROOT y = f32[{kept}] reduce(x, z), dimensions={{{reduced}}}, to_apply=f
}}
"""
VARIADIC = """HloModule m
f {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = f32[] parameter(2)
  d = f32[] parameter(3)
  e = f32[] subtract(a, d)
  g = f32[] multiply(b, c)
  ROOT r = (f32[], f32[]) tuple(e, g)
}
ENTRY e {
  x = f32[300,1] parameter(0)
  w = f32[300,1] parameter(1)
  z = f32[] constant(5)
  t = f32[] constant(2)
  ROOT y = (f32[300], f32[300]) reduce(x, w, z, t), dimensions={1}, to_apply=f
}
"""


@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize(
    ("dims", "reduced", "kept"),
    [
        ("", "", ""),
        ("300", "", "300"),
        ("5,7", "", "5,7"),
        ("1,1", "1", "1"),
        ("1,300", "0", "300"),
        ("4,1,9", "1", "4,9"),
    ],
)
def test_one_element_and_the_start(dims: str, reduced: str, kept: str, reducer: str) -> None:
    text = TEXT.format(reducer=REDUCERS[reducer], dims=dims, reduced=reduced, kept=kept)
    check_text(text, [normal(0, *(int(d) for d in dims.split(",") if d))], machine="llvm")


def test_several_operands() -> None:
    check_text(VARIADIC, [normal(0, 300, 1), normal(1, 300, 1)], machine="llvm")


@pytest.mark.parametrize("start", ["5", "-inf"])
def test_a_wider_computation(start: str) -> None:
    text = TEXT.format(reducer=REDUCERS["a monoid"], dims="4,1,9", reduced="1", kept="4,9")
    text = text.replace("x = f32", "x = bf16").replace("constant(5)", f"constant({start})")
    check_text(text, [normal(0, 4, 1, 9, dtype="bfloat16")], machine="llvm")
