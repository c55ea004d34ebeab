"""Sums of products over the trips of a loop that become one product behind it: beside the evaluator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.summed_products import sum_products_once
from tests.support.run_hlo import Array, compile_text, expected, run_compiled
from tpu_sim.isa.chips import load_chip

TRIPS, ROWS, M, N = 6, 3, 40, 130
SIZES = {"x": f"f32[{TRIPS},{ROWS},{M}]", "y": f"f32[{TRIPS},{ROWS},{N}]", "w": f"f32[{M},{N}]"}


@dataclass(frozen=True)
class Case:
    """A loop that makes %a of %sum by `step`, from slices %xs of a stack at `read`,
    which `others` make, %ys of another, and values %g and %hn that depend on the trip before."""

    step: str
    read: str = "bitcast(i)"
    others: str = ""
    sums: int = 1
    trips: str = str(TRIPS)

    @property
    def text(self) -> str:
        state = f"(s32[], f32[{M},{N}], f32[{ROWS},{N}], {SIZES['x']}, {SIZES['y']}, s32[])"
        return f"""HloModule m
condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] {"constant(" + self.trips + ")" if self.trips != "n" else "get-tuple-element(s), index=5"}
  ROOT c = pred[] compare(i, n), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  sum = f32[{M},{N}] get-tuple-element(s), index=1
  h = f32[{ROWS},{N}] get-tuple-element(s), index=2
  x = {SIZES["x"]} get-tuple-element(s), index=3
  y = {SIZES["y"]} get-tuple-element(s), index=4
  n = s32[] get-tuple-element(s), index=5
  one = s32[] constant(1)
  z = s32[] constant(0)
  last = s32[] constant({TRIPS - 1})
  {self.others}
  p = s32[] {self.read}
  xp = f32[1,{ROWS},{M}] dynamic-slice(x, p, z, z), dynamic_slice_sizes={{1,{ROWS},{M}}}
  xs = f32[{ROWS},{M}] reshape(xp)
  yp = f32[1,{ROWS},{N}] dynamic-slice(y, i, z, z), dynamic_slice_sizes={{1,{ROWS},{N}}}
  ys = f32[{ROWS},{N}] reshape(yp)
  g = f32[{ROWS},{N}] add(h, ys)
  two = f32[] constant(2)
  twos = f32[{ROWS},{N}] broadcast(two), dimensions={{}}
  hn = f32[{ROWS},{N}] remainder(g, twos)
  {self.step}
  j = s32[] add(i, one)
  ROOT r = {state} tuple(j, a, hn, x, y, n)
}}
ENTRY e {{
  x = {SIZES["x"]} parameter(0)
  y = {SIZES["y"]} parameter(1)
  w = {SIZES["w"]} parameter(2)
  n = s32[] parameter(3)
  i = s32[] constant(0)
  o = f32[] constant(1)
  h = f32[{ROWS},{N}] broadcast(o), dimensions={{}}
  t = {state} tuple(i, w, h, x, y, n)
  loop = {state} while(t), condition=condition, body=body
  a = f32[{M},{N}] get-tuple-element(loop), index=1
  b = f32[{ROWS},{N}] get-tuple-element(loop), index=2
  ROOT r = (f32[{M},{N}], f32[{ROWS},{N}]) tuple(a, b)
}}
"""

    @property
    def inputs(self) -> list[Array]:
        rng = np.random.default_rng(len(self.step))
        sizes = ((TRIPS, ROWS, M), (TRIPS, ROWS, N), (M, N))
        values = [rng.integers(-4, 5, size).astype(np.float32) for size in sizes]
        return [*values, np.asarray(TRIPS, np.int32)]


def _dot(left: str, right: str, at: tuple[int, int] = (0, 0), dims: str = f"{M},{N}") -> str:
    sides = f"lhs_contracting_dims={{{at[0]}}}, rhs_contracting_dims={{{at[1]}}}"
    return f"f32[{dims}] dot({left}, {right}), {sides}"


ONE = f"d = {_dot('xs', 'g')}\n  a = f32[{M},{N}] add(sum, d)"
TURNED = f"""d = {_dot("g", "xs", dims=f"{N},{M}")}
  e = f32[{M},{N}] transpose(d), dimensions={{1,0}}
  a = f32[{M},{N}] add(e, sum)"""
TWO = f"""d = {_dot("xs", "g")}
  e = {_dot("xs", "hn")}
  b = f32[{M},{N}] add(d, sum)
  a = f32[{M},{N}] add(b, e)"""
BATCH = f"""q = f32[1,{ROWS},{M}] reshape(xs)
  v = f32[1,{ROWS},{N}] reshape(g)
  d = {_dot("q", "v", (1, 1), f"1,{M},{N}")}, lhs_batch_dims={{0}}, rhs_batch_dims={{0}}
  e = f32[{M},{N}] reshape(d)
  a = f32[{M},{N}] add(sum, e)"""
PART = f"""d = {_dot("xs", "g")}
  e = f32[{M},{N}] abs(d)
  a = f32[{M},{N}] add(sum, e)"""
NUMPY = f"""less = s32[] subtract(last, i)
  m = pred[] compare(less, z), direction=LT
  count = s32[] constant({TRIPS})
  more = s32[] add(less, count)"""
CASES = {
    "in order": Case(ONE),
    "last first": Case(ONE, "subtract(last, i)"),
    "as NumPy indexes": Case(ONE, "select(m, more, less)", NUMPY),
    "both are there, in two orders": Case(ONE.replace("g)", "ys)"), "subtract(last, i)"),
    "turned": Case(TURNED),
    "two products": Case(TWO),
    "of a batch": Case(BATCH),
    "some trips alone": Case(ONE, trips=str(TRIPS - 2)),
    "read elsewhere": Case(ONE, "remainder(i, one)"),
    "trips are not known": Case(ONE, trips="n", sums=0),
    "not the product itself": Case(PART, sums=0),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    case = CASES[name]
    context = PassContext(load_chip("v5e"))
    sum_products_once(parse_module(case.text, "test.hlo"), context)
    assert context.counts["sums"] == case.sums
    got = run_compiled(compile_text(case.text), case.inputs, "llvm").outputs
    for made, wanted in zip(got, expected(case.text, case.inputs), strict=True):
        assert np.array_equal(made, wanted)
