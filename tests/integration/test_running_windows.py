"""Windows of all before, or behind, of a computation that does not commute: beside the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.run_hlo import compile_text, expected, run_compiled

AFFINE = """affine {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  p = s32[] multiply(a, c)
  m = s32[] multiply(c, b)
  q = s32[] add(m, d)
  ROOT r = (s32[], s32[]) tuple(p, q)
}"""
"""First ``x -> a x + b``, then ``x -> c x + d``."""
WINDOWS = {
    "before": "size=1x37 pad=0_0x36_0",
    "behind": "size=1x37 pad=0_0x0_36",
    "rows before": "size=17x1 pad=16_0x0_0",
    "rows behind": "size=17x1 pad=0_16x0_0",
}


@pytest.mark.parametrize("window", WINDOWS)
def test_values(window: str) -> None:
    text = f"""HloModule m
{AFFINE}
ENTRY main {{
  x = s32[17,37] parameter(0)
  y = s32[17,37] parameter(1)
  two = s32[] constant(2)
  one = s32[] constant(1)
  w = (s32[17,37], s32[17,37]) reduce-window(x, y, two, one),
    window={{{WINDOWS[window]}}}, to_apply=affine
  u = s32[17,37] get-tuple-element(w), index=0
  v = s32[17,37] get-tuple-element(w), index=1
  ROOT r = s32[17,37] add(u, v)
}}
"""
    rng = np.random.default_rng(len(window))
    inputs = [
        rng.integers(low, high, (17, 37)).astype(np.int32) for low, high in ((-1, 2), (-3, 4))
    ]
    (made,) = run_compiled(compile_text(text), inputs, "llvm").outputs
    (wanted,) = expected(text, inputs)
    assert np.array_equal(made, wanted)
