"""Matches at which a rewrite was wrong, smallest forms."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import run_pipeline
from tests.support.pair_checks import before_and_after
from tpu_sim.isa.chips import load_chip

GATHER = (
    "collapsed_slice_dims={1}, start_index_map={1}, operand_batching_dims={0}, "
    "start_indices_batching_dims={0}, index_vector_dim=1, slice_sizes={1,1}"
)

TEXTS = {
    "a sum of all rows of one element, seen as one row": """
      add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
      ENTRY e { x = f32[24,1] iota(), iota_dimension=0
      y = f32[24,1] negate(x)
      r = f32[24] reshape(y)
      m = f32[24] multiply(r, r)
      z = f32[] constant(0)
      ROOT s = f32[] reduce(m, z), dimensions={0}, to_apply=add }""",
    "a sum of columns of one row, seen with one more dimension": """
      add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
      ENTRY e { x = f32[1,4,6,1] iota(), iota_dimension=2
      r = f32[24] reshape(x)
      m = f32[24] multiply(r, r)
      z = f32[] constant(0)
      ROOT s = f32[] reduce(m, z), dimensions={0}, to_apply=add }""",
    "a gather with vectors of no indices": """ENTRY e { x = f32[] constant(3)
      i = s32[2,0] constant({ {}, {} })
      ROOT g = f32[2] gather(x, i), offset_dims={}, collapsed_slice_dims={}, start_index_map={},
        index_vector_dim=1, slice_sizes={} }""",
    "a row longer than its index counts": f"""ENTRY e {{
      x = s32[2,300] iota(), iota_dimension=1
      i = u8[2] constant({{250, 7}})
      ROOT g = s32[2] gather(x, i), offset_dims={{}}, {GATHER} }}""",
    "an empty slice of a strided one": """ENTRY e { x = f32[7] iota(), iota_dimension=0
      s = f32[1] slice(x), slice={[5:7:3]}
      ROOT t = f32[0] slice(s), slice={[1:1]} }""",
    "an iota that wraps": """ENTRY e { x = s8[300] iota(), iota_dimension=0
      z = s8[] constant(0)
      b = s8[300] broadcast(z), dimensions={}
      ROOT c = pred[300] compare(x, b), direction=LT }""",
    "a clamp with low above high": """ENTRY e { x = s32[4] iota(), iota_dimension=0
      low = s32[] constant(9)
      high = s32[] constant(2)
      y = s32[4] clamp(low, x, high)
      b = s32[4] constant({5, 5, 5, 5})
      ROOT c = pred[4] compare(y, b), direction=GE }""",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_the_simplifier_keeps_values(text: str) -> None:
    module = parse_module(text)
    (want,) = evaluate(module, [])
    run_pipeline(module, load_chip("v5e"), passes=["algebraic-simplifier"])
    (found,) = evaluate(module, [])
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("opcode", ["asin", "acos", "asinh", "acosh", "cbrt"])
def test_complex_functions_next_to_one_and_at_the_ends(opcode: str) -> None:
    tiny, huge = 1.4e-45, 3e38
    x = np.array([complex(1, tiny), complex(1, 1e-42), complex(tiny, -1), complex(-1, 1e-38),
                  complex(tiny, tiny), complex(huge, huge)], np.complex64)  # fmt: skip
    text = f"ENTRY e {{ x = c64[6] parameter(0)\n ROOT r = c64[6] {opcode}(x) }}"
    ((want, found),) = before_and_after(text, [x])
    np.testing.assert_allclose(found.real, want.real, rtol=1e-6, atol=1e-45)
    np.testing.assert_allclose(found.imag, want.imag, rtol=1e-6, atol=1e-45)
