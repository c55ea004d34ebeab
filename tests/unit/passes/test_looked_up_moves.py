"""Lanes that are moved twice by kernels of their own: the same numbers, without an indexed load."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.driver import CompileOptions
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from runtime.api import compile as compile_model

TURNED_AND_CUT = """HloModule m
ENTRY e {
  x = f32[64,50,100] parameter(0)
  w = f32[50,100] parameter(1)
  t = f32[64,100,50] transpose(x), dimensions={0,2,1}
  rows = f32[64,5000] reshape(t)
  turned = f32[100,50] transpose(w), dimensions={1,0}
  row = f32[5000] reshape(turned)
  factors = f32[64,5000] broadcast(row), dimensions={1}
  products = f32[64,5000] multiply(rows, factors)
  ROOT r = f32[64,50,100] reshape(products)
}
"""
PICKED_AND_TURNED = """HloModule m
ENTRY e {
  x = f32[8,32,6005] parameter(0)
  a = f32[8,32,1200] slice(x), slice={[0:8], [0:32], [0:5996:5]}
  b = f32[8,32,1200] slice(x), slice={[0:8], [0:32], [1:5997:5]}
  c = f32[8,32,1200] slice(x), slice={[0:8], [0:32], [2:5998:5]}
  rows = f32[8,96,1200] concatenate(a, b, c), dimensions={1}
  ROOT r = f32[8,1200,96] transpose(rows), dimensions={0,2,1}
}
"""
TURNED_AND_JOINED = """HloModule m
ENTRY e {
  x = f32[8,32,6005] parameter(0)
  t = f32[8,6005,32] transpose(x), dimensions={0,2,1}
  a = f32[8,1200,32] slice(t), slice={[0:8], [0:5996:5], [0:32]}
  b = f32[8,1200,32] slice(t), slice={[0:8], [1:5997:5], [0:32]}
  ROOT r = f32[8,1200,64] concatenate(a, b), dimensions={2}
}
"""
TEXTS = {
    "turned, and rows cut anew": TURNED_AND_CUT,
    "picked, and turned": PICKED_AND_TURNED,
    "turned, and joined": TURNED_AND_JOINED,
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_same_numbers(name: str) -> None:
    module = parse_module(TEXTS[name])
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=p.array.dims).astype(np.float32) for p in module.entry.parameters]
    executable = compile_model(TEXTS[name])
    (wanted,) = evaluate(module, inputs, "highest")
    (found,) = executable(*inputs)
    np.testing.assert_array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_is_looked_up_that_a_move_brings(name: str) -> None:
    """But for the few elements that are repeated."""
    whole = compile_model(TEXTS[name], options=CompileOptions(skip=("fusion-legalizer",)))
    cut = compile_model(TEXTS[name])
    assert "lanes move more than once" in " ".join(cut.estimate().remarks)
    assert "vld.idx" in whole.text("llo")
    assert cut.text("llo").count("vld.idx") < whole.text("llo").count("vld.idx")
    assert cut.estimate().cycles < 0.7 * whole.estimate().cycles
