"""Loops that carry stacks as they lie outside compute what they computed."""

from __future__ import annotations

import pytest

from tests.support.run_hlo import Run, check_text, normal

LOOP = """HloModule m
body {{
  s = (s32[], f32[3,5,4,16], f32[3,5,4,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  xs = f32[3,5,4,16] get-tuple-element(s), index=1
  ys = f32[3,5,4,16] get-tuple-element(s), index=2
  z = s32[] constant(0)
  x = f32[1,5,4,16] dynamic-slice(xs, i, z, z, z), dynamic_slice_sizes={{1,5,4,16}}
  y = f32[1,5,4,16] dynamic-slice(ys, i, z, z, z), dynamic_slice_sizes={{1,5,4,16}}
  a = f32[1,5,4,16] subtract(y, x)
  u = f32[3,5,4,16] dynamic-update-slice(ys, a, i, z, z, z)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = (s32[], f32[3,5,4,16], f32[3,5,4,16]) tuple(j, xs, u)
}}
condition {{
  s = (s32[], f32[3,5,4,16], f32[3,5,4,16]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}}
ENTRY main {{
  p = f32[5,3,4,16] parameter(0)
  q = f32[5,3,4,16] parameter(1)
  i = s32[] constant(0)
  xs = f32[3,5,4,16] transpose(p), dimensions={{1,0,2,3}}
  one = f32[] constant(1)
  ys = f32[3,5,4,16] {start}
  s = (s32[], f32[3,5,4,16], f32[3,5,4,16]) tuple(i, xs, ys)
  w = (s32[], f32[3,5,4,16], f32[3,5,4,16]) while(s), condition=condition, body=body
  o = f32[3,5,4,16] get-tuple-element(w), index=2
  ROOT r = {result}
}}
"""
SPLAT = "broadcast(one), dimensions={}"
TURNED = "transpose(q), dimensions={1,0,2,3}"
BACK = "f32[5,3,4,16] transpose(o), dimensions={1,0,2,3}"
OTHER = "f32[4,16,3,5] transpose(o), dimensions={2,3,0,1}"


def turned(run: Run) -> int:
    timings = {t.name: t for t in run.compiled.passes}
    return timings["stacked-order"].counts.get("arrays", 0)


@pytest.mark.parametrize(
    "start, result, count",
    [
        (SPLAT, BACK, 2),
        (TURNED, BACK, 2),
        (SPLAT, "f32[3,5,4,16] negate(o)", 1),  # what comes out is used as it is
        (TURNED, "f32[3,5,4,16] negate(o)", 1),  # a transpose goes, another would come
        (SPLAT, OTHER, 1),  # dimensions of one slice would share tiles with others
    ],
)
def test_stacks_are_turned_where_transposes_go(start: str, result: str, count: int) -> None:
    inputs = [normal(0, 5, 3, 4, 16), normal(1, 5, 3, 4, 16)]
    run = check_text(LOOP.format(start=start, result=result), inputs, tolerance=0)
    assert turned(run) == count
