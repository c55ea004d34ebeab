"""Loops whose weights are rounded before they begin, beside the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.run_hlo import compile_text, expected, run_compiled

LOOP = """HloModule m
condition {{
  p = ({state}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  p = ({state}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  h = f32[9,136] get-tuple-element(p), index=1
  w = f32[136,136] get-tuple-element(p), index=2
  v = f32[136,136] get-tuple-element(p), index=3
  t = f32[136,136] transpose(w), dimensions={{1,0}}
  d = f32[9,136] dot(h, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  e = f32[9,136] dot(d, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  f = f32[9,136] tanh(e)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = ({state}) tuple(j, f, w, {last})
}}
ENTRY main {{
  h = f32[9,136] parameter(0)
  w = f32[136,136] parameter(1)
  v = f32[136,136] parameter(2)
  zero = s32[] constant(0)
  s = ({state}) tuple(zero, h, w, v)
  l = ({state}) while(s), condition=condition, body=body
  g = f32[9,136] get-tuple-element(l), index=1
  x = f32[136,136] get-tuple-element(l), index=2
  y = f32[136,136] get-tuple-element(l), index=3
  ROOT r = (f32[9,136], f32[136,136], f32[136,136]) tuple(g, x, y)
}}
"""


@pytest.mark.parametrize("last", ["v", "t"], ids=["both stay", "one changes"])
@pytest.mark.parametrize("precision", ["default", "highest"])
def test_weights_of_a_loop(last: str, precision: str) -> None:
    state = "s32[], f32[9,136], f32[136,136], f32[136,136]"
    text = LOOP.format(state=state, trips=5, last=last)
    rng = np.random.default_rng(2)
    inputs = [
        rng.standard_normal(dims).astype(np.float32) for dims in ((9, 136), *[(136, 136)] * 2)
    ]
    inputs[1:] = [x / 12 for x in inputs[1:]]
    made = compile_text(text, precision=precision)
    got = run_compiled(made, inputs, "llvm").outputs
    want = expected(text, inputs, precision)
    for g, w in zip(got[1:], want[1:], strict=True):
        assert np.array_equal(g, w)  # what the loop hands on keeps all its bits
    assert np.abs(got[0] - want[0]).max() < (1e-5 if precision == "highest" else 2e-2)
