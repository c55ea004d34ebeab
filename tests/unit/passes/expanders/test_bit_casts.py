"""bitcast-convert to wider and narrower types, against the evaluator.

NaN is equal to NaN here: one that passes through arithmetic has other bits.
"""

from __future__ import annotations

import numpy as np
import pytest

from compiler.diagnostics import VerifyError
from compiler.hlo.device_types import SUB_BYTE
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from tests.support.against_evaluator import check

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
    ("u8", "s64"),
    ("s16", "u64"),
    ("u64", "bf16"),
    ("s64", "s8"),
    ("f4e2m1fn", "f32"),
    ("f32", "f4e2m1fn"),
    ("f4e2m1fn", "s64"),
    ("s64", "f4e2m1fn"),
    ("f8e8m0fnu", "s32"),
    ("bf16", "f8e8m0fnu"),
    ("f8e8m0fnu", "u64"),
    ("u64", "f8e8m0fnu"),
    ("u2", "f6e3m2fn"),
    ("s2", "f6e2m3fn"),
    ("f6e3m2fn", "s2"),
    ("f6e2m3fn", "u2"),
]


@pytest.mark.parametrize(("source", "target"), CASES)
def test_other_width(source: str, target: str) -> None:
    wide = (3, 7)
    bits = BY_NAME[source].bits, BY_NAME[target].bits
    narrow = (*wide, max(bits) // min(bits))
    before, after = (narrow, wide) if bits[0] < bits[1] else (wide, narrow)
    dims = {True: ",".join(map(str, before)), False: ",".join(map(str, after))}
    text = f"""HloModule m
ENTRY e {{
  x = {source}[{dims[True]}] parameter(0)
  ROOT r = {target}[{dims[False]}] bitcast-convert(x)
}}
"""
    rng = np.random.default_rng(0)
    dtype = BY_NAME[source]
    raw = rng.integers(0, 1 << min(dtype.bits, 63), before, np.int64)
    value = raw.astype(f"u{max(dtype.bits // 8, 1)}")
    value = value.astype(dtype.numpy) if dtype.name in SUB_BYTE else value.view(dtype.numpy)
    if dtype.is_float:
        value = np.where(np.isnan(value.astype(np.float32)), np.ones((), value.dtype), value)
    check(text, [value])


def test_bits_that_are_no_whole_number_of_elements() -> None:
    text = """HloModule m
ENTRY e {
  x = u8[3] parameter(0)
  ROOT r = f6e2m3fn[3] bitcast-convert(x)
}
"""
    with pytest.raises(VerifyError, match="8 bits and 6 bits"):
        verify(parse_module(text, "test.hlo"))
