"""Gathers of a loop, a turn ahead or before it: the values of the loop as it was written."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from compiler.options import CompileOptions
from runtime.machines import MachineOptions
from runtime.slice_executable import SliceExecutable

TRIPS = 5
LOOP = f"""HloModule m, replica_count=4
condition {{
  s = (s32[], f32[512,512], f32[{TRIPS},128,512], f32[128,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(START_AND_TRIPS)
  ROOT l = pred[] compare(i, n), direction=LT
}}
body {{
  s = (s32[], f32[512,512], f32[{TRIPS},128,512], f32[128,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[512,512] get-tuple-element(s), index=1
  w = f32[{TRIPS},128,512] get-tuple-element(s), index=2
  v = f32[128,512] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  own = f32[1,128,512] dynamic-slice(w, PLACE, zero, zero), dynamic_slice_sizes={{1,128,512}}
  part = f32[128,512] reshape(own)
  g = f32[512,512] all-gather(part), replica_groups={{}}, dimensions={{0}}
  h = f32[512,512] all-gather(v), replica_groups={{}}, dimensions={{0}}
  a = f32[512,512] dot(x, g), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  t = f32[512,512] tanh(a)
  b = f32[512,512] dot(t, h), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  c = f32[512,512] dot(b, h), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  y = f32[512,512] tanh(c)
  ROOT r = (s32[], f32[512,512], f32[{TRIPS},128,512], f32[128,512]) tuple(j, y, w, v)
}}
ENTRY main {{
  x = f32[512,512] parameter(0)
  w = f32[{TRIPS},128,512] parameter(1)
  v = f32[128,512] parameter(2)
  start = s32[] constant(START)
  s = (s32[], f32[512,512], f32[{TRIPS},128,512], f32[128,512]) tuple(start, x, w, v)
  l = (s32[], f32[512,512], f32[{TRIPS},128,512], f32[128,512]) while(s), condition=condition, body=body
  ROOT y = f32[512,512] get-tuple-element(l), index=1
}}
"""


def compiled(text: str, skip: tuple[str, ...] = ()) -> SliceExecutable:
    options = CompileOptions(skip=skip)
    exe = tpuc.compile(text, target="v5e:2x2", machine=MachineOptions(), options=options)
    assert isinstance(exe, SliceExecutable)
    return exe


@pytest.mark.parametrize("place", ["i", "j"])  # at the end of the loop the last slice comes again
def test_gathers_leave_their_loop_or_go_a_turn_ahead(place: str) -> None:
    text = LOOP.replace("START_AND_TRIPS", str(TRIPS)).replace("START", "0")
    text = text.replace("PLACE", place)
    ahead, plain = compiled(text), compiled(text, skip=("loop-exchanges",))
    assert plain.text("hlo").count(" all-gather(") == 2
    assert ahead.text("hlo").count(" all-gather(") == 3  # one for the first turn
    assert ahead.estimate().cycles < plain.estimate().cycles
    rng = np.random.default_rng(0)
    arguments = [
        rng.normal(size=(4, *dims)).astype(np.float32) / 16
        for dims in ((512, 512), (TRIPS, 128, 512), (128, 512))
    ]
    (got,), (want,) = ahead(*arguments), plain(*arguments)
    np.testing.assert_array_equal(got, want)
    assert np.abs(want).max() > 0.01


def test_what_is_permuted_into_each_others_place_does_not_wait_for_itself() -> None:
    state = "(s32[], f32[512,512], f32[512,512], f32[512,512])"
    text = f"""HloModule m, replica_count=4
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({TRIPS})
  ROOT l = pred[] compare(i, n), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[512,512] get-tuple-element(s), index=1
  y = f32[512,512] get-tuple-element(s), index=2
  z = f32[512,512] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  a = f32[512,512] collective-permute(x), source_target_pairs={{{{0,1}},{{1,2}},{{2,3}},{{3,0}}}}
  b = f32[512,512] collective-permute(y), source_target_pairs={{{{1,0}},{{2,1}},{{3,2}},{{0,3}}}}
  d = f32[512,512] dot(z, z), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = {state} tuple(j, b, a, d)
}}
ENTRY main {{
  x = f32[512,512] parameter(0)
  y = f32[512,512] parameter(1)
  z = f32[512,512] parameter(2)
  start = s32[] constant(0)
  s = {state} tuple(start, x, y, z)
  ROOT l = {state} while(s), condition=condition, body=body
}}
"""
    rng = np.random.default_rng(0)
    x, y, z = (rng.normal(size=(4, 512, 512)).astype(np.float32) / 32 for _ in range(3))
    _, a, b, _ = compiled(text)(x, y, z)
    for _ in range(TRIPS):
        x, y = np.roll(y, -1, axis=0), np.roll(x, 1, axis=0)
    np.testing.assert_array_equal(a, x)
    np.testing.assert_array_equal(b, y)
