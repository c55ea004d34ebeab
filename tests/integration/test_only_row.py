"""Sums of the only row that are read as a scalar and as a row."""

from __future__ import annotations

import numpy as np

import tpuc

TEXT = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT total = f32[] add(a, b)
}
ENTRY e {
  x = f32[1,16] parameter(0)
  zero = f32[] constant(0)
  eps = f32[] constant(0.5)
  square = f32[1,16] multiply(x, x)
  s = f32[1] reduce(square, zero), dimensions={1}, to_apply=add
  rows = f32[1,16] broadcast(s), dimensions={0}
  c = f32[] reshape(s)
  more = f32[] add(c, eps)
  all = f32[1,16] broadcast(more), dimensions={}
  scaled = f32[1,16] multiply(rows, square)
  ROOT r = f32[1,16] divide(scaled, all)
}
"""


def test_a_sum_of_one_row_as_a_scalar() -> None:
    x = np.arange(16, dtype=np.float32).reshape(1, 16)
    total = np.square(x).sum()
    (result,) = tpuc.compile(TEXT)(x)
    np.testing.assert_allclose(np.asarray(result), total * x * x / (total + 0.5), rtol=1e-6)
