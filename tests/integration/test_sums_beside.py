"""Sums in the kernel that makes what they add up, which is stored as well: shapes, types, steps."""

from __future__ import annotations

import pytest

from tests.support.run_hlo import check_text, normal, small_blocks

TEXT = """HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}}
ENTRY main {{
  x = {dtype}[{dims}] parameter(0)
  y = f32[{dims}] parameter(1)
  z = f32[] constant(0)
  w = f32[{dims}] convert(x)
  d = f32[{dims}] multiply(w, y)
  e = f32[{dims}] multiply(d, y)
  first = f32[{kept}] reduce(d, z), dimensions={{{reduced}}}, to_apply=add
  second = f32[{kept}] reduce(e, z), dimensions={{{reduced}}}, to_apply=add
  s = {dtype}[{dims}] convert(d)
  ROOT r = ({dtype}[{dims}], f32[{kept}], f32[{kept}]) tuple(s, first, second)
}}
"""
CASES = [
    ((1, 128), (0,)),
    ((7, 1), (0,)),
    ((129, 127), (0,)),
    ((520, 129), (0,)),
    ((3, 40, 8), (1,)),
    ((3, 40, 129), (0, 1)),
    ((5, 9, 24), (0, 2)),
    ((2, 17, 8, 130), (0, 1, 2)),
]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("dims", "reduced"), CASES)
def test_sums_beside_what_they_add_up(
    dims: tuple[int, ...], reduced: tuple[int, ...], dtype: str
) -> None:
    kept = [n for d, n in enumerate(dims) if d not in reduced]
    text = TEXT.format(
        dtype=dtype,
        dims=",".join(map(str, dims)),
        kept=",".join(map(str, kept)),
        reduced=",".join(map(str, reduced)),
    )
    inputs = [normal(0, *dims, dtype="bfloat16" if dtype == "bf16" else "float32")]
    inputs.append(normal(1, *dims))
    with small_blocks(4):
        run = check_text(text, inputs)
    assert len(run.notes) <= 3
