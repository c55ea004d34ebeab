"""State that a kernel changes in each trip of a loop stays in VMEM, changed where it lies."""

from __future__ import annotations

import re

import numpy as np
import pytest

from compiler.driver import CompileOptions, compile_module
from compiler.hlo.parser import parse_module
from tests.support.module_checks import inputs_for
from tests.support.run_hlo import expected, run_compiled
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
body {
  s = (s32[], TYPE[ROWS,COLS], TYPE[ROWS,COLS], TYPE[ROWS,COLS]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  x = TYPE[ROWS,COLS] get-tuple-element(s), index=1
  y = TYPE[ROWS,COLS] get-tuple-element(s), index=2
  t = TYPE[ROWS,COLS] get-tuple-element(s), index=3
  up = s32[ROWS,1] iota(), iota_dimension=0
  late = s32[ROWS,1] broadcast(j), dimensions={}
  k = s32[ROWS,1] add(up, late)
  g = TYPE[ROWS,COLS] gather(t, k), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,COLS}
  n = TYPE[ROWS,COLS] maximum(y, g)
  m = TYPE[ROWS,COLS] minimum(x, g)
  ROOT r = (s32[], TYPE[ROWS,COLS], TYPE[ROWS,COLS], TYPE[ROWS,COLS]) tuple(j, n, m, t)
}
condition {
  s = (s32[], TYPE[ROWS,COLS], TYPE[ROWS,COLS], TYPE[ROWS,COLS]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  last = s32[] constant(5)
  ROOT c = pred[] compare(i, last), direction=LT
}
ENTRY main {
  p = TYPE[ROWS,COLS] parameter(0)
  q = TYPE[ROWS,COLS] parameter(1)
  z = s32[] constant(0)
  a = TYPE[ROWS,COLS] negate(p)
  b = TYPE[ROWS,COLS] add(q, p)
  state = (s32[], TYPE[ROWS,COLS], TYPE[ROWS,COLS], TYPE[ROWS,COLS]) tuple(z, a, b, q)
  loop = (s32[], TYPE[ROWS,COLS], TYPE[ROWS,COLS], TYPE[ROWS,COLS]) while(state),
    condition=condition, body=body
  u = TYPE[ROWS,COLS] get-tuple-element(loop), index=1
  v = TYPE[ROWS,COLS] get-tuple-element(loop), index=2
  ROOT o = TYPE[ROWS,COLS] subtract(u, v)
}
"""


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "s32", "s16"])
@pytest.mark.parametrize(("rows", "cols"), [(64, 256), (37, 200), (520, 128)])
def test_two_states_that_read_each_other_are_changed_in_vmem(
    rows: int, cols: int, dtype: str, machine: str
) -> None:
    sizes = {"TYPE": dtype, "ROWS": str(rows), "COLS": str(cols)}
    text = re.sub("|".join(sizes), lambda found: sizes[found[0]], TEXT)
    compiled = compile_module(parse_module(text), load_chip("v5e"), CompileOptions())
    inputs = inputs_for(text)
    outputs = run_compiled(compiled, inputs, machine).outputs
    for found, wanted in zip(outputs, expected(text, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)
    updates = re.findall(r"= \((.*?)\) fusion\(.*kind=kLoop", compiled.hlo_text())
    assert any(update.count("S(1)") == 2 for update in updates)


SUM = """HloModule m
body {
  s = (s32[], TYPE[ROWS,COLS], TYPE[ROWS,DEPTH], TYPE[DEPTH,COLS]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  sum = TYPE[ROWS,COLS] get-tuple-element(s), index=1
  t = TYPE[ROWS,DEPTH] get-tuple-element(s), index=2
  w = TYPE[DEPTH,COLS] get-tuple-element(s), index=3
  up = s32[ROWS,1] iota(), iota_dimension=0
  late = s32[ROWS,1] broadcast(j), dimensions={}
  k = s32[ROWS,1] add(up, late)
  g = TYPE[ROWS,DEPTH] gather(t, k), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,DEPTH}
  d = TYPE[ROWS,COLS] dot(g, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  n = TYPE[ROWS,COLS] subtract(d, sum)
  ROOT r = (s32[], TYPE[ROWS,COLS], TYPE[ROWS,DEPTH], TYPE[DEPTH,COLS]) tuple(j, n, t, w)
}
condition {
  s = (s32[], TYPE[ROWS,COLS], TYPE[ROWS,DEPTH], TYPE[DEPTH,COLS]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  last = s32[] constant(5)
  ROOT c = pred[] compare(i, last), direction=LT
}
ENTRY main {
  p = TYPE[ROWS,COLS] parameter(0)
  t = TYPE[ROWS,DEPTH] parameter(1)
  w = TYPE[DEPTH,COLS] parameter(2)
  z = s32[] constant(0)
  a = TYPE[ROWS,COLS] negate(p)
  state = (s32[], TYPE[ROWS,COLS], TYPE[ROWS,DEPTH], TYPE[DEPTH,COLS]) tuple(z, a, t, w)
  loop = (s32[], TYPE[ROWS,COLS], TYPE[ROWS,DEPTH], TYPE[DEPTH,COLS]) while(state),
    condition=condition, body=body
  u = TYPE[ROWS,COLS] get-tuple-element(loop), index=1
  ROOT o = TYPE[ROWS,COLS] subtract(u, p)
}
"""
"""Each trip takes what was summed up from a product: a tile that is stored twice would show."""


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("rows", "cols", "depth"),
    [(8, 128, 64), (136, 256, 40), (40, 200, 130), (520, 384, 24), (9, 130, 300), (264, 1152, 16)],
)
def test_a_sum_of_products_stays_in_vmem(
    rows: int, cols: int, depth: int, dtype: str, machine: str
) -> None:
    sizes = {"TYPE": dtype, "ROWS": str(rows), "COLS": str(cols), "DEPTH": str(depth)}
    text = re.sub("|".join(sizes), lambda found: sizes[found[0]], SUM)
    compiled = compile_module(parse_module(text), load_chip("v5e"), CompileOptions())
    rng = np.random.default_rng(rows)
    inputs = [rng.integers(-1, 2, array.shape).astype(array.dtype) for array in inputs_for(text)]
    outputs = run_compiled(compiled, inputs, machine).outputs
    for found, wanted in zip(outputs, expected(text, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert re.search(r"S\(1\)} fusion\(.*kind=kOutput", compiled.hlo_text())
