"""Stacks that a loop updates slice by slice, where they lie: values, and what moves."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.against_evaluator import check

REPLACE = """
replace {
  a = f32[] parameter(0)
  ROOT b = f32[] parameter(1)
}
"""
UPDATES = {
    # how one slice f32[8,2,128], %old, is updated; %token f32[5,128] is what the loop carries
    "a row at a place that is data": """
  u = f32[1,1,128] slice(wide), slice={[0:1], [1:2], [0:128]}
  new = f32[8,2,128] dynamic-update-slice(old, u, place, z, z)""",
    "rows by a scatter": """
  u = f32[5,128] add(token, token)
  new = f32[8,2,128] scatter(old, places, u),
    update_window_dims={1}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1},
    index_vector_dim=1, to_apply=replace""",
    "one row by indices of one component": """
  u = f32[2,128] slice(token), slice={[1:3], [0:128]}
  one.1 = s32[1] reshape(place)
  new = f32[8,2,128] scatter(old, one.1, u),
    update_window_dims={0,1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},
    index_vector_dim=0, to_apply=replace""",
    "twice": """
  u = f32[1,1,128] slice(wide), slice={[0:1], [1:2], [0:128]}
  first = f32[8,2,128] dynamic-update-slice(old, u, place, z, z)
  w = f32[5,128] add(token, token)
  new = f32[8,2,128] scatter(first, places, w),
    update_window_dims={1}, inserted_window_dims={0,1}, scatter_dims_to_operand_dims={0,1},
    index_vector_dim=1, to_apply=replace""",
}  # fmt: skip
STATE = "(s32[], f32[6,8,2,128], f32[6,8,2,128], f32[5,128], s32[5,2], s32[])"


def text_of(update: str, made: int) -> str:
    """A loop over the slices of element 1 of its state, stacked as element `made`."""
    other = "k" if made == 2 else "l"
    parts = {1: "all, l", 2: "k, all"}[made]
    return f"""HloModule m
{REPLACE}
most {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}}
body {{
  s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  k = f32[6,8,2,128] get-tuple-element(s), index=1
  l = f32[6,8,2,128] get-tuple-element(s), index=2
  token = f32[5,128] get-tuple-element(s), index=3
  places = s32[5,2] get-tuple-element(s), index=4
  place = s32[] get-tuple-element(s), index=5
  z = s32[] constant(0)
  wide = f32[1,5,128] reshape(token)
  piece = f32[1,8,2,128] dynamic-slice(k, i, z, z, z), dynamic_slice_sizes={{1,8,2,128}}
  old = f32[8,2,128] reshape(piece)
{update}
  back = f32[1,8,2,128] reshape(new)
  all = f32[6,8,2,128] dynamic-update-slice({"l" if made == 2 else "k"}, back, i, z, z, z)
  f = f32[] constant(0)
  seen = f32[128] reduce(new, f), dimensions={{0,1}}, to_apply=most
  spread = f32[5,128] broadcast(seen), dimensions={{1}}
  eighth = f32[] constant(0.125)
  eighths = f32[5,128] broadcast(eighth), dimensions={{}}
  less = f32[5,128] multiply(spread, eighths)
  next = f32[5,128] subtract(less, token)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = {STATE} tuple(j, {parts}, next, places, place)
}}
condition {{
  s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT c = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  k = f32[6,8,2,128] parameter(0)
  token = f32[5,128] parameter(1)
  places = s32[5,2] parameter(2)
  place = s32[] parameter(3)
  z = s32[] constant(0)
  f = f32[] constant(0)
  l = f32[6,8,2,128] broadcast(f), dimensions={{}}
  s = {STATE} tuple(z, k, l, token, places, place)
  w = {STATE} while(s), condition=condition, body=body
  a = f32[6,8,2,128] get-tuple-element(w), index={made}
  b = f32[5,128] get-tuple-element(w), index=3
  c = f32[6,8,2,128] negate({other if made == 2 else "k"})
  ROOT r = (f32[6,8,2,128], f32[5,128], f32[6,8,2,128]) tuple(a, b, c)
}}
"""


@pytest.mark.parametrize("place", [3, -2, 9])
@pytest.mark.parametrize("made", [1, 2])
@pytest.mark.parametrize("name", UPDATES)
def test_values(name: str, made: int, place: int) -> None:
    """The stack that is read is used after the loop, too; places outside are none, or clamped."""
    rng = np.random.default_rng(7)
    stack = rng.integers(-8, 8, (6, 8, 2, 128)).astype(np.float32)
    token = rng.integers(-8, 8, (5, 128)).astype(np.float32)
    places = np.array([[1, 0], [7, 1], [1, 0], [8, 0], [4, place]], np.int32)
    check(text_of(UPDATES[name], made), [stack, token, places, np.array(place, np.int32)])
