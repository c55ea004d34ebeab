"""Start values that are no identity count once, whatever the tiles of a kernel leave over."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module

SATURATED = """
  most = u8[] constant(250)
  p = u8[] minimum(a, most)
  q = u8[] minimum(b, most)
  room = u8[] subtract(most, p)
  t = u8[] minimum(q, room)
  ROOT r = u8[] add(p, t)
"""
LENGTH = """
  p = f32[] multiply(a, a)
  q = f32[] multiply(b, b)
  s = f32[] add(p, q)
  ROOT r = f32[] sqrt(s)
"""


@pytest.mark.parametrize("dims, over", [((3, 300), 1), ((37, 300), 0), ((5, 1), 1), ((2, 9000), 1)])
@pytest.mark.parametrize(
    "dtype, body, start", [("u8", SATURATED, "3"), ("f32", LENGTH, "2"), ("f32", LENGTH, "-0.5")]
)
def test_a_start_counts_once(
    dtype: str, body: str, start: str, dims: tuple[int, int], over: int
) -> None:
    text = f"""HloModule m
f {{
  a = {dtype}[] parameter(0)
  b = {dtype}[] parameter(1)
{body}}}
ENTRY e {{
  x = {dtype}[{dims[0]},{dims[1]}] parameter(0)
  s = {dtype}[] constant({start})
  ROOT r = {dtype}[{dims[1 - over]}] reduce(x, s), dimensions={{{over}}}, to_apply=f
}}
"""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, dims).astype(np.uint8 if dtype == "u8" else np.float32)
    (got,) = tpuc.compile(text)(x)
    (want,) = evaluate(parse_module(text), [x])
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-5)
