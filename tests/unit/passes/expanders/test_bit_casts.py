"""bitcast-convert to wider and narrower types, against the evaluator.

NaN is equal to NaN here: one that passes through arithmetic has other bits.
"""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.run_hlo import expected, run_text

CASES = [
    ("u8", "f32"),
    ("s8", "bf16"),
    ("f16", "s32"),
    ("u4", "s8"),
    ("s4", "u32"),
    ("f8e5m2", "f32"),
    ("f32", "u8"),
    ("bf16", "s8"),
    ("s32", "f16"),
    ("s8", "u4"),
    ("u32", "s4"),
    ("f32", "f8e4m3fn"),
]


@pytest.mark.parametrize(("source", "target"), CASES)
def test_other_width(source: str, target: str) -> None:
    wide = (3, 7)
    ratio = BY_NAME[target].bits / BY_NAME[source].bits
    before, after = ((*wide, int(ratio)), wide) if ratio > 1 else (wide, (*wide, int(1 / ratio)))
    dims = {True: ",".join(map(str, before)), False: ",".join(map(str, after))}
    text = f"""HloModule m
ENTRY e {{
  x = {source}[{dims[True]}] parameter(0)
  ROOT r = {target}[{dims[False]}] bitcast-convert(x)
}}
"""
    rng = np.random.default_rng(0)
    dtype = BY_NAME[source]
    raw = rng.integers(0, 1 << min(dtype.bits, 31), before, np.int64)
    value = raw.astype(f"u{max(dtype.bits // 8, 1)}").view(dtype.numpy)
    value = np.where(np.isnan(value.astype(np.float32)), np.ones((), value.dtype), value)
    got = run_text(text, [value], machine="llvm").outputs[0]
    want = expected(text, [value])[0]
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
