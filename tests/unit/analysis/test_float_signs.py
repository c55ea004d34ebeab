"""Signs of floats by how they are made."""

from __future__ import annotations

import pytest

from compiler.analysis.float_signs import has_sign, is_only_rounded
from compiler.hlo.ir import HloInstruction
from compiler.hlo.parser import parse_module

HEAD = """HloModule m
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT top = f32[] maximum(a, b)
}
ENTRY e {
  x = f32[8,16] parameter(0)
  y = f32[8,16] parameter(1)
  two = f32[] constant(2)
  c = f32[8,16] broadcast(two), dimensions={}
  low = f32[] constant(-inf)
  m = f32[8] reduce(x, low), dimensions={1}, to_apply=max
  n = f32[16] reduce(x, low), dimensions={0}, to_apply=max
  mb = f32[8,16] broadcast(m), dimensions={0}
  nb = f32[8,16] broadcast(n), dimensions={1}
  rv = f32[8] reverse(m), dimensions={0}
  rb = f32[8,16] broadcast(rv), dimensions={0}
  xx = f32[8,16] multiply(x, x)
  xy = f32[8,16] multiply(x, y)
  ax = f32[8,16] abs(x)
  mx = f32[8,16] maximum(mb, y)
  negated = f32[8,16] negate(ax)
"""


def _node(line: str) -> HloInstruction:
    return parse_module(f"{HEAD}  ROOT r = {line}\n}}\n").entry.root_instruction


@pytest.mark.parametrize(
    ("line", "is_below"),
    [
        ("f32[8,16] subtract(x, mb)", True),
        ("f32[8,16] subtract(x, nb)", True),
        ("f32[8,16] subtract(x, mx)", True),
        ("f32[8,16] subtract(x, rb)", False),  # the maxima of other rows
        ("f32[8,16] subtract(y, mb)", False),
        ("f32[8,16] subtract(mb, x)", False),
        ("f32[8,16] negate(xx)", True),
        ("f32[8,16] negate(xy)", False),
        ("f32[8,16] negate(c)", True),
        ("f32[8,16] minimum(y, y)", False),
        ("f32[8,16] divide(negated, c)", True),
        ("f32[8,16] divide(negated, ax)", False),  # which may be -0 where it is a root
        ("f32[16,8] transpose(y), dimensions={1,0}", False),
    ],
)
def test_never_positive(line: str, *, is_below: bool) -> None:
    assert has_sign(_node(line), -1) == is_below


@pytest.mark.parametrize(
    ("line", "is_above"),
    [
        ("f32[8,16] subtract(mb, x)", True),
        ("f32[8,16] maximum(x, ax)", True),
        ("f32[8,16] minimum(x, ax)", False),
        ("f32[8,16] multiply(ax, xx)", True),
        ("f32[8,16] add(ax, x)", False),
        ("f32[8,16] divide(ax, c)", True),
        ("f32[8,16] divide(ax, ax)", False),
        ("f32[8,16] multiply(negated, negated)", True),
    ],
)
def test_never_negative(line: str, *, is_above: bool) -> None:
    assert has_sign(_node(line), 1) == is_above


def test_only_rounded() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  q = f32[8] divide(x, x)
  p = f32[8] add(x, x)
  h = bf16[8] convert(q)
  g = bf16[8] convert(p)
  ROOT t = (bf16[8], bf16[8], f32[8]) tuple(h, g, p)
}
"""
    nodes = {node.name: node for node in parse_module(text).entry}
    assert is_only_rounded(nodes["q"])
    assert not is_only_rounded(nodes["p"])
    assert is_only_rounded(nodes["h"])
    assert not is_only_rounded(nodes["x"])
