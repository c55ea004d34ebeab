"""Values of convolutional programs whose images lie several side by side along the lanes."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.driver import CompileOptions
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from runtime.api import compile as compile_model

TEXT = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
most { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] maximum(a, b) }
ge { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE }
ENTRY main {
  x = f32[8,10,32,32] parameter(0)
  k = f32[3,3,32,64] parameter(1)
  d = f32[3,3,1,64] parameter(2)
  p = f32[1,1,64,32] parameter(3)
  g = f32[64] parameter(4)
  m = f32[32,64] parameter(5)
  i = f32[32] parameter(6)
  zero = f32[] constant(0)
  least = f32[] constant(-inf)
  twice = f32[8,10,32,32] add(x, x)
  c = f32[8,10,32,64] convolution(twice, k), window={size=3x3 pad=1_1x1_1}, dim_labels=01bf_01io->01bf
  bias = f32[8,10,32,64] broadcast(g), dimensions={3}
  each = f32[8,10,32,64] broadcast(m), dimensions={2,3}
  image = f32[8,10,32,64] broadcast(i), dimensions={2}
  s = f32[8,10,32,64] add(c, bias)
  t = f32[8,10,32,64] subtract(s, each)
  n = f32[8,10,32,64] subtract(t, image)
  merged = f32[80,32,64] reshape(n)
  square = f32[80,32,64] multiply(merged, merged)
  total = f32[64] reduce(square, zero), dimensions={0,1}, to_apply=add
  means = f32[32,64] reduce(square, zero), dimensions={0}, to_apply=add
  rows = f32[8,10,32] reduce(n, zero), dimensions={3}, to_apply=add
  best = f32[8,64] reduce(n, least), dimensions={1,2}, to_apply=most
  pool = f32[4,5,32,64] reduce-window(n, least), window={size=2x2x1x1 stride=2x2x1x1}, to_apply=most
  sown = f32[8,10,32,64] select-and-scatter(n, pool, zero),
    window={size=2x2x1x1 stride=2x2x1x1}, select=ge, scatter=add
  w = f32[8,10,32,64] convolution(n, d), window={size=3x3 pad=1_1x1_1}, dim_labels=01bf_01io->01bf,
    feature_group_count=64
  q = f32[8,10,32,32] convolution(w, p), window={size=1x1}, dim_labels=01bf_01io->01bf
  residual = f32[8,10,32,32] add(q, x)
  wide = f32[10,10,32,32] pad(residual, zero), padding=1_1x0_0x0_0x0_0
  half = f32[10,5,32,32] slice(wide), slice={[0:10], [0:10:2], [0:32], [0:32]}
  turned = f32[10,5,32,32] reverse(half), dimensions={0}
  both = f32[10,10,32,32] concatenate(half, turned), dimensions={1}
  dk = f32[3,3,32,64] convolution(x, sown), window={size=8x10 pad=1_1x1_1}, dim_labels=01fb_01io->01bf
  ROOT r = (f32[10,10,32,32], f32[64], f32[32,64], f32[8,10,32], f32[8,64], f32[3,3,32,64])
    tuple(both, total, means, rows, best, dk)
}
"""


@pytest.mark.parametrize("precision", ["highest", "default"])
@pytest.mark.parametrize("odd", [0.0, np.inf, np.nan], ids=["finite", "inf", "nan"])
def test_values_are_those_of_the_evaluator(precision: str, odd: float) -> None:
    executable = compile_model(TEXT, options=CompileOptions(precision=precision))
    assert "f32[8,10,16,128]" in executable.text("hlo")
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-2, 3, port.shape.dims).astype("float32") for port in executable.inputs]
    if odd:
        arrays[0][3, 7, 5, 2] = odd
    outputs = executable(*arrays)
    for found, wanted in zip(outputs, evaluate(parse_module(TEXT), arrays, precision), strict=True):
        largest = np.nanmax(np.abs(wanted[np.isfinite(wanted)]), initial=1)
        near = 1e-4 if precision == "highest" else 1e-2
        np.testing.assert_allclose(found, wanted, rtol=near, atol=near * largest)
