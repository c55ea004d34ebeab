"""Transposes of what loops do not change, against the evaluator on both machines."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.invariant_turns import turn_before_loops
from tests.support.against_evaluator import check
from tpu_sim.isa.chips import load_chip

LOOP = """HloModule m
body {
  p = (s32[], f32[8,256,3], f32[8,256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8,256,3] get-tuple-element(p), index=1
  d = f32[8,256] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  nought = s32[] constant(0)
  row = f32[8,1,3] dynamic-slice(x, nought, i, nought), dynamic_slice_sizes={8,1,3}
  point = f32[8,3] reshape(row)
  column = f32[3,8] transpose(point), dimensions={1,0}
  wide = f32[3,8,256] broadcast(column), dimensions={0,1}
  turned = f32[3,8,256] transpose(x), dimensions={2,0,1}
  apart = f32[3,8,256] subtract(turned, wide)
  squares = f32[3,8,256] multiply(apart, apart)
  zero = f32[] constant(0)
  far = f32[8,256] reduce(squares, zero), dimensions={0}, to_apply=sum
  nearer = f32[8,256] minimum(d, far)
  ROOT r = (s32[], f32[8,256,3], f32[8,256]) tuple(next, CARRIED, nearer)
}
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
condition {
  p = (s32[], f32[8,256,3], f32[8,256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(TRIPS)
  ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY main {
  x = f32[8,256,3] parameter(0)
  d = f32[8,256] parameter(1)
  zero = s32[] constant(0)
  state = (s32[], f32[8,256,3], f32[8,256]) tuple(zero, x, d)
  loop = (s32[], f32[8,256,3], f32[8,256]) while(state), condition=condition, body=body
  ROOT r = f32[8,256] get-tuple-element(loop), index=2
}
"""


def _text(trips: int = 12, carried: str = "x") -> str:
    text = LOOP.replace("TRIPS", str(trips)).replace("CARRIED", carried)
    return (
        text
        if carried == "x"
        else text.replace("  ROOT r = (s32[]", f"{_NEGATED}  ROOT r = (s32[]")
    )


_NEGATED = "  other = f32[8,256,3] negate(x)\n"


def _moved(module: HloModule) -> int:
    context = PassContext(chip=load_chip("v5e"))
    turn_before_loops(module, context)
    return context.counts["transposes"]


def test_invariant_is_turned_once() -> None:
    module = parse_module(_text())
    assert _moved(module) == 1
    loop = next(i for i in module.entry if i.opcode == "while")
    assert [str(o.array.dims) for o in loop.operands[0].operands[1:]] == [
        "(8, 256, 3)",
        "(8, 256)",
        "(3, 8, 256)",
    ]


@pytest.mark.parametrize(("trips", "carried"), [(1, "x"), (12, "other")])
def test_stays_where_it_does_not_pay_or_changes(trips: int, carried: str) -> None:
    assert _moved(parse_module(_text(trips, carried))) == 0


@pytest.mark.parametrize("carried", ["x", "other"])
def test_values(carried: str) -> None:
    random = np.random.default_rng(7)
    x, d = random.integers(-9, 9, (8, 256, 3)), random.integers(0, 99, (8, 256))
    check(_text(carried=carried), [x.astype(np.float32), d.astype(np.float32)])
