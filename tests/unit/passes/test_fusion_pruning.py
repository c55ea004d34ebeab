"""Results that are computed again rather than stored keep their values."""

from __future__ import annotations

import numpy as np

import tpuc
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module

_SWISH = """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  x = f32[4096,128] parameter(0)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  ones = f32[4096,128] broadcast(one), dimensions={}
  n = f32[4096,128] negate(x)
  e = f32[4096,128] exponential(n)
  d = f32[4096,128] add(ones, e)
  logistic = f32[4096,128] divide(ones, d)
  y = f32[4096,128] multiply(x, logistic)
  total = f32[128] reduce(y, zero), dimensions={0}, to_apply=sum
  totals = f32[4096,128] broadcast(total), dimensions={1}
  rest = f32[4096,128] subtract(ones, logistic)
  slope = f32[4096,128] multiply(y, rest)
  grad = f32[4096,128] add(logistic, slope)
  down = f32[4096,128] multiply(totals, grad)
  ROOT t = (f32[4096,128], f32[4096,128]) tuple(y, down)
}
"""


def test_a_swish_of_a_large_array_moves_less_and_keeps_its_values() -> None:
    module = parse_module(_SWISH)
    x = np.random.default_rng(7).normal(size=(4096, 128)).astype(np.float32)
    executable = tpuc.compile(_SWISH, "v5e{vmem=1MiB}")
    for found, wanted in zip(executable(x), evaluate(module, [x], "highest"), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=2e-5, atol=1e-3)
    report = executable.report
    assert report is not None
    assert report.hbm_bytes < 4.5 * x.nbytes, "x is read twice, and both results are stored"
