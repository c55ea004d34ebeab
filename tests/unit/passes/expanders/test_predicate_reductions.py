"""Whether any, or all, of many: reductions of predicates that no kernel holds at once."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.expanders.simple_expansions import expand_simple
from tests.support.run_hlo import check_text
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
f {{
  a = pred[] parameter(0)
  b = pred[] parameter(1)
  ROOT c = pred[] {kind}(a, b)
}}
ENTRY e {{
  x = s8[{rows},1100] parameter(0)
  n = s8[] constant(5)
  m = s8[{rows},1100] broadcast(n), dimensions={{}}
  p = pred[{rows},1100] compare(x, m), direction=LT
  z = pred[] constant({start})
  ROOT y = pred[{kept}] reduce(p, z), dimensions={{{dims}}}, to_apply=f
}}
"""


@pytest.mark.parametrize("kind", ["or", "and", "xor", "add", "multiply"])
@pytest.mark.parametrize("start", ["false", "true"])
@pytest.mark.parametrize(("kept", "dims"), [("", "0,1"), ("1000", "1"), ("1100", "0")])
def test_many_predicates(kind: str, start: str, kept: str, dims: str) -> None:
    text = TEXT.format(kind=kind, start=start, kept=kept, dims=dims, rows=1000)
    is_any = kind not in ("and", "multiply")
    x = np.full((1000, 1100), 9 if is_any else 1, np.int8)
    x[700, 900] = 3 if is_any else 7
    check_text(text, [x], machine="llvm")


def test_few_stay_predicates() -> None:
    module = parse_module(TEXT.format(kind="or", start="false", kept="", dims="0,1", rows=10))
    assert not expand_simple(module, PassContext(load_chip("v5e")))


@pytest.mark.parametrize("kind", ["or", "and", "xor", "add", "multiply"])
def test_many_are_numbers(kind: str) -> None:
    text = TEXT.format(kind=kind, start="false", kept="", dims="0,1", rows=1000)
    assert expand_simple(parse_module(text), PassContext(load_chip("v5e")))
