"""Stacks that a loop makes of others, made again by the loop that reads them: beside the evaluator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from compiler.hlo.parser import parse_module
from compiler.passes.derived_stacks import derive_stacks
from tests.support.run_hlo import compile_text, expected, run_compiled

TRIPS, ROWS, LANES = 5, 8, 130
SLAB, STACK = f"f32[{ROWS},{LANES}]", f"f32[{TRIPS},{ROWS},{LANES}]"


@dataclass(frozen=True)
class Case:
    """A loop that stacks %h and a %d made of it; one that goes back makes %c of slabs %h and %d."""

    made: str
    place: str = "add(i, z)"
    trips: int = TRIPS
    read: str = f"d = {SLAB} reshape(d1)\n  a = {SLAB} multiply(g, d)\n  c = {SLAB} add(a, h)"
    gone: int = 1

    @property
    def text(self) -> str:
        first = f"(s32[], {SLAB}, {STACK}, {STACK})"
        return f"""HloModule m
up {{
  s = {first} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({self.trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}
forward {{
  s = {first} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = {SLAB} get-tuple-element(s), index=1
  hs = {STACK} get-tuple-element(s), index=2
  ds = {STACK} get-tuple-element(s), index=3
  z = s32[] constant(0)
  one = s32[] constant(1)
  last = s32[] constant({TRIPS - 1})
  unit = f32[] constant(1)
  ones = {SLAB} broadcast(unit), dimensions={{}}
  y = {SLAB} add(x, ones)
  h = {SLAB} sine(y)
  {self.made}
  p = s32[] {self.place}
  h1 = f32[1,{ROWS},{LANES}] reshape(h)
  d1 = f32[1,{ROWS},{LANES}] reshape(d)
  hs1 = {STACK} dynamic-update-slice(hs, h1, i, z, z)
  ds1 = {STACK} dynamic-update-slice(ds, d1, p, z, z)
  j = s32[] add(i, one)
  ROOT r = {first} tuple(j, h, hs1, ds1)
}}
down {{
  s = {first} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({TRIPS})
  ROOT c = pred[] compare(i, n), direction=LT
}}
back {{
  s = {first} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  g = {SLAB} get-tuple-element(s), index=1
  hs = {STACK} get-tuple-element(s), index=2
  ds = {STACK} get-tuple-element(s), index=3
  z = s32[] constant(0)
  one = s32[] constant(1)
  last = s32[] constant({TRIPS - 1})
  p = s32[] subtract(last, i)
  h1 = f32[1,{ROWS},{LANES}] dynamic-slice(hs, p, z, z), dynamic_slice_sizes={{1,{ROWS},{LANES}}}
  d1 = f32[1,{ROWS},{LANES}] dynamic-slice(ds, p, z, z), dynamic_slice_sizes={{1,{ROWS},{LANES}}}
  h = {SLAB} reshape(h1)
  {self.read}
  j = s32[] add(i, one)
  ROOT r = {first} tuple(j, c, hs, ds)
}}
ENTRY main {{
  x = {SLAB} parameter(0)
  z = s32[] constant(0)
  o = f32[] constant(3)
  zs = {STACK} broadcast(o), dimensions={{}}
  t = {first} tuple(z, x, zs, zs)
  w = {first} while(t), condition=up, body=forward
  y = {SLAB} get-tuple-element(w), index=1
  hs = {STACK} get-tuple-element(w), index=2
  ds = {STACK} get-tuple-element(w), index=3
  u = {first} tuple(z, y, hs, ds)
  v = {first} while(u), condition=down, body=back
  ROOT g = {SLAB} get-tuple-element(v), index=1
}}
"""


SQUARE = f"e = {SLAB} dot(d, h), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}".replace(
    SLAB, f"f32[{ROWS},{ROWS}]", 1
)
MULTIPLIED = f"""d = {SLAB} reshape(d1)
  {SQUARE}
  k = {SLAB} dot(e, h), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  c = {SLAB} sine(k)"""
TANH = f"d = {SLAB} subtract(ones, h)"
CASES = {
    "tanh": Case(TANH),
    "sigmoid": Case(f"e = {SLAB} subtract(ones, h)\n  d = {SLAB} multiply(h, e)"),
    "negative": Case(f"d = {SLAB} negate(h)"),
    "dear": Case(f"d = {SLAB} exponential(h)", gone=0),
    "of what is not stacked": Case(f"d = {SLAB} subtract(ones, y)", gone=0),
    "in another order": Case(TANH, "subtract(last, i)", gone=0),
    "not all slabs": Case(TANH, trips=TRIPS - 1, gone=0),
    "an operand of a product": Case(TANH, read=MULTIPLIED, gone=0),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    case = CASES[name]
    assert derive_stacks(parse_module(case.text, "test.hlo")) == case.gone
    x = np.random.default_rng(7).normal(size=(ROWS, LANES)).astype(np.float32)
    (made,) = run_compiled(compile_text(case.text), [x], "llvm").outputs
    (wanted,) = expected(case.text, [x])
    np.testing.assert_allclose(made, wanted, rtol=1e-3, atol=1e-3)


def test_a_state_that_is_handed_on_whole_keeps_its_stacks() -> None:
    text = Case(TANH).text
    made, behind = text.split(f"  y = {SLAB} get-tuple-element(w), index=1")
    up, down = made.split("\ndown {")
    more = down.replace(f"constant({TRIPS})", f"constant({TRIPS + 3})", 1)
    text = f"{up}\ndown {{{more}" + behind[behind.index("  v = (s32[]") :].replace("(u)", "(w)")
    assert derive_stacks(parse_module(text, "test.hlo")) == 0
    x = np.ones((ROWS, LANES), np.float32)
    (made,) = run_compiled(compile_text(text), [x], "llvm").outputs
    np.testing.assert_allclose(made, expected(text, [x])[0], rtol=1e-3, atol=1e-3)
