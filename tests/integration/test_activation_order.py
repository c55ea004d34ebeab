"""Values of convolutional programs whose arrays lie with the batch next to the features."""

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
  x = f32[8,12,10,32] parameter(0)
  k = f32[3,3,32,40] parameter(1)
  p = f32[1,1,40,32] parameter(2)
  d = f32[3,3,1,32] parameter(3)
  g = f32[40] parameter(4)
  zero = f32[] constant(0)
  least = f32[] constant(-inf)
  c = f32[8,12,10,40] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  bias = f32[8,12,10,40] broadcast(g), dimensions={3}
  s = f32[8,12,10,40] add(c, bias)
  square = f32[8,12,10,40] multiply(s, s)
  total = f32[40] reduce(square, zero), dimensions={0,1,2}, to_apply=add
  rows = f32[8,12,10] reduce(s, zero), dimensions={3}, to_apply=add
  spread = f32[8,12,10,40] broadcast(rows), dimensions={0,1,2}
  n = f32[8,12,10,40] subtract(s, spread)
  groups = f32[8,12,10,4,10] reshape(n)
  sums = f32[8,4] reduce(groups, zero), dimensions={1,2,4}, to_apply=add
  back = f32[8,12,10,4,10] broadcast(sums), dimensions={0,3}
  centred = f32[8,12,10,4,10] subtract(groups, back)
  flat = f32[8,12,10,40] reshape(centred)
  pool = f32[8,6,5,40] reduce-window(n, least), window={size=1x2x2x1 stride=1x2x2x1}, to_apply=most
  sown = f32[8,12,10,40] select-and-scatter(n, pool, zero),
    window={size=1x2x2x1 stride=1x2x2x1}, select=ge, scatter=add
  q = f32[8,12,10,32] convolution(n, p), window={size=1x1}, dim_labels=b01f_01io->b01f
  w = f32[8,12,10,32] convolution(q, d), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f,
    feature_group_count=32
  residual = f32[8,12,10,32] add(w, x)
  wide = f32[8,14,10,32] pad(residual, zero), padding=0_0x1_1x0_0x0_0
  half = f32[8,7,10,32] slice(wide), slice={[0:8], [0:14:2], [0:10], [0:32]}
  turned = f32[8,7,10,32] reverse(half), dimensions={2}
  both = f32[8,7,20,32] concatenate(half, turned), dimensions={2}
  dk = f32[3,3,32,40] convolution(x, flat), window={size=12x10 pad=1_1x1_1}, dim_labels=f01b_i01o->01bf
  rk = f32[3,3,32,40] reverse(k), dimensions={0,1}
  dx = f32[8,12,10,32] convolution(sown, rk), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01oi->b01f
  first = f32[8,7,20,32] transpose(both), dimensions={0,1,2,3}
  lies = f32[8,32,7,20] transpose(first), dimensions={0,3,1,2}
  ROOT r = (f32[8,32,7,20], f32[40], f32[3,3,32,40], f32[8,12,10,32], f32[8,6,5,40])
    tuple(lies, total, dk, dx, pool)
}
"""


@pytest.mark.parametrize("skipped", [(), ("activation-order",)], ids=["made", "off"])
@pytest.mark.parametrize("odd", [0.0, np.inf, np.nan], ids=["finite", "inf", "nan"])
def test_values_are_those_of_the_evaluator(skipped: tuple[str, ...], odd: float) -> None:
    options = CompileOptions(precision="highest", skip=skipped)
    executable = compile_model(TEXT, options=options)
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-2, 3, port.shape.dims).astype("float32") for port in executable.inputs]
    if odd:
        arrays[0][3, 7, 5, 2] = odd
    outputs = executable(*arrays)
    for found, wanted in zip(outputs, evaluate(parse_module(TEXT), arrays, "highest"), strict=True):
        largest = np.nanmax(np.abs(wanted[np.isfinite(wanted)]), initial=1)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * largest)


def test_the_order_spreads() -> None:
    text = compile_model(TEXT).text("hlo")
    assert "[12,10,8,40]" in text
    assert "[8,12,10,40]" not in text
