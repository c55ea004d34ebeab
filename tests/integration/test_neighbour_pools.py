"""Pools of neighbours in rows and lanes, of elements of any width: beside the evaluator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.run_hlo import ADD, MAX, compile_text, expected, run_compiled

TYPES: dict[str, npt.DTypeLike] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "u8": np.uint8}


@pytest.mark.parametrize("count", [2, 3, 4, 8])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("reducer", [ADD, MAX], ids=["add", "max"])
def test_values(reducer: str, dtype: str, count: int) -> None:
    """Small whole numbers, whose sums are exact in any order."""
    rows, lanes = 24, 128
    name, start = ("add", "0") if reducer is ADD else ("max", "-inf")
    text = f"""HloModule m
{reducer}
ENTRY main {{
  a = {dtype}[2,{rows * count},{lanes * 2}] parameter(0)
  w = f32[2,{rows * count},{lanes * 2}] convert(a)
  r = f32[2,{rows},{count},{lanes},2] reshape(w)
  z = f32[] constant({start})
  ROOT s = f32[2,{rows},{lanes}] reduce(r, z), dimensions={{2,4}}, to_apply={name}_f32
}}
"""
    a = np.random.default_rng(count).integers(0, 100, (2, rows * count, lanes * 2))
    inputs = [a.astype(TYPES[dtype])]
    (made,) = run_compiled(compile_text(text), inputs, "llvm").outputs
    (wanted,) = expected(text, inputs)
    assert np.array_equal(made, wanted)
