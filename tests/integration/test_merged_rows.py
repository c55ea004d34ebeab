"""Values of products of merged odd sequences, and of arrays that only products read."""

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
ENTRY main {
  x = f32[16,29,48] parameter(0)
  w = f32[48,64] parameter(1)
  b = f32[64] parameter(2)
  g = f32[16,29,64] parameter(3)
  v = f32[64,40] parameter(4)
  zero = f32[] constant(0)
  y = f32[16,29,48] multiply(x, x)
  rows = f32[464,48] reshape(y)
  d = f32[464,64] dot(rows, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bias = f32[464,64] broadcast(b), dimensions={1}
  s = f32[464,64] add(d, bias)
  total = f32[464] reduce(s, zero), dimensions={1}, to_apply=add
  spread = f32[464,64] broadcast(total), dimensions={0}
  q = f32[464,64] subtract(s, spread)
  p = f32[464,40] dot(q, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  parted = f32[16,29,40] reshape(p)
  gs = f32[16,29,64] negate(g)
  grows = f32[464,64] reshape(gs)
  t = f32[464,64] multiply(grows, s)
  column = f32[64] reduce(t, zero), dimensions={0}, to_apply=add
  turned = f32[64,464] transpose(t), dimensions={1,0}
  dv = f32[64,48] dot(turned, rows), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  lies = f32[64,16,29] transpose(gs), dimensions={2,0,1}
  flat = f32[64,464] reshape(lies)
  dw = f32[64,48] dot(flat, rows), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[16,29,40], f32[64], f32[64,48], f32[64,48], f32[464]) tuple(parted, column, dv, dw, total)
}
"""


@pytest.mark.parametrize(
    "skipped", [(), ("row-alignment", "operand-rounding")], ids=["made", "off"]
)
@pytest.mark.parametrize("precision", ["default", "highest"])
@pytest.mark.parametrize("odd", [0.0, np.inf, np.nan], ids=["finite", "inf", "nan"])
def test_values_are_those_of_the_evaluator(
    skipped: tuple[str, ...], precision: str, odd: float
) -> None:
    options = CompileOptions(precision=precision, skip=skipped)
    executable = compile_model(TEXT, options=options)
    rng = np.random.default_rng(2)
    arrays = [rng.integers(-2, 3, port.shape.dims).astype("float32") for port in executable.inputs]
    if odd:
        arrays[0][3, 28, 5] = odd
    outputs = executable(*arrays)
    for found, wanted in zip(outputs, evaluate(parse_module(TEXT), arrays, precision), strict=True):
        np.testing.assert_allclose(
            found,
            wanted,
            rtol=1e-2,
            atol=1e-2 * np.nanmax(np.abs(wanted[np.isfinite(wanted)]), initial=1),
        )


def test_both_passes_have_something_to_do() -> None:
    text = compile_model(TEXT).text("hlo")
    assert "[16,32,48]" in text
    assert "bf16[" in text
