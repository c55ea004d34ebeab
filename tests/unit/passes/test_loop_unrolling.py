"""Short loops of arithmetic, written out, against the evaluator on both machines."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from tests.support.against_evaluator import check

ROUNDS = """HloModule m
cond {{
  p = (s32[], {x}, {x}, u32[2], u32[2], f32[{dims}]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  p = (s32[], {x}, {x}, u32[2], u32[2], f32[{dims}]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  a = {x} get-tuple-element(p), index=1
  b = {x} get-tuple-element(p), index=2
  k = u32[2] get-tuple-element(p), index=3
  h = u32[2] get-tuple-element(p), index=4
  f = f32[{dims}] get-tuple-element(p), index=5
  sum = {x} add(a, b)
  part = u32[1] slice(k), slice={{[1:2]}}
  r = u32[] reshape(part)
  rs = {x} broadcast(r), dimensions={{}}
  width = u32[] constant(32)
  left = u32[] subtract(width, r)
  ls = {x} broadcast(left), dimensions={{}}
  up = {x} shift-left(b, rs)
  down = {x} shift-right-logical(b, ls)
  turned = {x} or(up, down)
  mixed = {x} xor(sum, turned)
  g = f32[{dims}] convert(mixed)
  scale = f32[] constant(0.25)
  scales = f32[{dims}] broadcast(scale), dimensions={{}}
  small = f32[{dims}] multiply(f, scales)
  ff = f32[{dims}] subtract(g, small)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  u = u32[] convert(j)
  us = {x} broadcast(u), dimensions={{}}
  next = {x} add(mixed, us)
  ROOT t = (s32[], {x}, {x}, u32[2], u32[2], f32[{dims}]) tuple(j, sum, next, h, k, ff)
}}
ENTRY e {{
  a = {x} parameter(0)
  b = {x} parameter(1)
  f = f32[{dims}] parameter(2)
  k = u32[2] constant({{13, 26}})
  h = u32[2] constant({{6, 17}})
  zero = s32[] constant(0)
  s = (s32[], {x}, {x}, u32[2], u32[2], f32[{dims}]) tuple(zero, a, b, k, h, f)
  w = (s32[], {x}, {x}, u32[2], u32[2], f32[{dims}]) while(s), condition=cond, body=body
  ra = {x} get-tuple-element(w), index=1
  rb = {x} get-tuple-element(w), index=2
  rk = u32[2] get-tuple-element(w), index=3
  rf = f32[{dims}] get-tuple-element(w), index=5
  ROOT r = ({x}, {x}, u32[2], f32[{dims}]) tuple(ra, rb, rk, rf)
}}
"""


@pytest.mark.parametrize("dims", [(1,), (2, 130), (9, 257), (3, 1, 7)])
def test_rounds_keep_their_values(dims: tuple[int, ...]) -> None:
    words = ",".join(map(str, dims))
    text = ROUNDS.format(x=f"u32[{words}]", dims=words)
    rng = np.random.default_rng(len(dims))
    bits = [rng.integers(0, 1 << 32, dims, np.uint32) for _ in range(2)]
    check(text, [*bits, rng.standard_normal(dims).astype(np.float32)])


def test_rounds_are_one_kernel() -> None:
    text = ROUNDS.format(x="u32[64,256]", dims="64,256")
    kernels = [k.name for k in tpuc.compile(text).estimate().kernels]
    assert [name for name in kernels if not name.startswith("copy")] == ["fusion"]
