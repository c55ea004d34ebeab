"""Loops that carry constants and what nobody needs, against the evaluator on both machines."""

from __future__ import annotations

import numpy as np

from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.loop_state import simplify_loop_state
from tests.support.against_evaluator import check
from tpu_sim.isa.chips import load_chip

NESTED = """HloModule m
inner_cond {
  p = (s32[], f32[3], s32[3], f32[3], u32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  k = s32[3] get-tuple-element(p), index=2
  s = s32[1] slice(k), slice={[1:2]}
  n = s32[] reshape(s)
  ROOT r = pred[] compare(i, n), direction=LT
}
inner {
  p = (s32[], f32[3], s32[3], f32[3], u32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[3] get-tuple-element(p), index=1
  k = s32[3] get-tuple-element(p), index=2
  b = f32[3] get-tuple-element(p), index=3
  u = u32[] get-tuple-element(p), index=4
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[3] add(x, b)
  v = u32[] add(u, u)
  ROOT r = (s32[], f32[3], s32[3], f32[3], u32[]) tuple(j, y, k, b, v)
}
outer_cond {
  p = (s32[], f32[3], s32[3], f32[3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT r = pred[] compare(i, n), direction=LT
}
outer {
  p = (s32[], f32[3], s32[3], f32[3], f32[3]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[3] get-tuple-element(p), index=1
  k = s32[3] get-tuple-element(p), index=2
  b = f32[3] get-tuple-element(p), index=3
  z = f32[3] get-tuple-element(p), index=4
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  u = u32[] constant(3)
  t = (s32[], f32[3], s32[3], f32[3], u32[]) tuple(zero, x, k, b, u)
  w = (s32[], f32[3], s32[3], f32[3], u32[]) while(t), condition=inner_cond, body=inner
  y = f32[3] get-tuple-element(w), index=1
  k2 = s32[3] get-tuple-element(w), index=2
  ROOT r = (s32[], f32[3], s32[3], f32[3], f32[3]) tuple(j, y, k, b, y)
}
ENTRY e {
  x = f32[3] parameter(0)
  k = s32[3] constant({7, 2, 9})
  h = f32[] constant(0.5)
  b = f32[3] broadcast(h), dimensions={}
  zero = s32[] constant(0)
  t = (s32[], f32[3], s32[3], f32[3], f32[3]) tuple(zero, x, k, b, x)
  w = (s32[], f32[3], s32[3], f32[3], f32[3]) while(t), condition=outer_cond, body=outer
  y = f32[3] get-tuple-element(w), index=1
  kk = s32[3] get-tuple-element(w), index=2
  ROOT r = (f32[3], s32[3]) tuple(y, kk)
}
"""


def test_only_the_counters_and_the_sum_are_carried() -> None:
    module = parse_module(NESTED)
    context = PassContext(load_chip("v5e"))
    assert simplify_loop_state(module, context)
    states = [len(i.operands[0].operands) for c in module.computations.values() for i in c
              if i.opcode == "while"]  # fmt: skip
    assert states == [2, 2]
    assert not simplify_loop_state(module, PassContext(load_chip("v5e")))


def test_values_stay() -> None:
    check(NESTED, [np.array([1, -2, 3], np.float32)])
