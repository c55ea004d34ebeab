"""Reduces of values made in the kernel, and reduces that their own fusion reads.

The NumPy machine runs checked here: memory that is read and was never written is an error.
"""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.run_hlo import Array, compile_text, expected, run_text, small_blocks

NARROW = ("u8", "s8", "s16", "u16", "f16", "bf16")
GENERATED = {
    "iota": "i = {t}[40,96] iota(), iota_dimension=1",
    "rows": "i = {t}[40,96] iota(), iota_dimension=0",
    "one-hot": """wide = s32[40,96] broadcast(y), dimensions={{0}}
  place = s32[40,96] iota(), iota_dimension=1
  mask = pred[40,96] compare(wide, place), direction=EQ
  i = {t}[40,96] convert(mask)""",
    "vectors": """a = {t}[40,96] broadcast(x), dimensions={{0}}
  b = {t}[40,96] broadcast(v), dimensions={{1}}
  i = {t}[40,96] maximum(a, b)""",
}
REDUCED = """HloModule m
op {{
  p = {t}[] parameter(0)
  q = {t}[] parameter(1)
  ROOT r = {t}[] {op}(p, q)
}}
ENTRY main {{
  x = {t}[40] parameter(0)
  y = s32[40] parameter(1)
  v = {t}[96] parameter(2)
  {made}
  zero = {t}[] constant(0)
  r = {t}[40] reduce(i, zero), dimensions={{1}}, to_apply=op
  ROOT o = {t}[40] maximum(x, r)
}}
"""


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
@pytest.mark.parametrize("made", GENERATED)
@pytest.mark.parametrize("dtype", NARROW)
def test_a_narrow_reduce_of_generated_values_is_read(dtype: str, made: str, machine: str) -> None:
    op = "add" if made == "one-hot" else "maximum"
    text = REDUCED.format(t=dtype, op=op, made=GENERATED[made].format(t=dtype))
    source, kind = np.random.default_rng(0), BY_NAME[dtype].numpy
    inputs: list[Array] = [
        np.zeros(40, kind),
        source.integers(-2, 99, 40).astype(np.int32),
        source.integers(0, 9, 96).astype(kind),
    ]
    (got,) = run_text(text, inputs, machine=machine).outputs
    (want,) = expected(text, inputs)
    assert np.array_equal(got, want)
    assert want.any()


ARGMAX = """HloModule m
best {{
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  same = pred[] compare(a, b), direction=EQ
  first = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, first)
  left = pred[] or(more, tie)
  v = f32[] select(left, a, b)
  n = s32[] select(left, i, j)
  ROOT t = (f32[], s32[]) tuple(v, n)
}}
ENTRY main {{
  x = f32[{dims}] parameter(0)
  place = s32[{dims}] iota(), iota_dimension=1
  low = f32[] constant(-inf)
  zero = s32[] constant(0)
  r = (f32[{rows}], s32[{rows}]) reduce(x, place, low, zero), dimensions={{1}}, to_apply=best
  ROOT n = s32[{rows}] get-tuple-element(r), index=1
}}
"""
TOP = """HloModule m
ENTRY main {{
  x = f32[{dims}] parameter(0)
  ROOT t = (f32[{rows},{k}], s32[{rows},{k}]) topk(x), k={k}, largest=true
}}
"""
VOCABULARIES = ((16, 50256), (16, 50257), (128, 50257), (1, 128256), (1, 50257))


@pytest.mark.parametrize("k", [0, 1, 3])
@pytest.mark.parametrize(("rows", "columns"), VOCABULARIES)
def test_long_rows_have_windows(rows: int, columns: int, k: int) -> None:
    text = (TOP if k else ARGMAX).format(dims=f"{rows},{columns}", rows=rows, k=k)
    assert compile_text(text).program.kernels


@pytest.mark.parametrize("k", [0, 1, 3])
def test_the_first_of_long_rows(k: int) -> None:
    text = (TOP if k else ARGMAX).format(dims="3,50257", rows=3, k=k)
    x = np.random.default_rng(1).integers(0, 30000, (3, 50257)).astype(np.float32)  # with ties
    got = run_text(text, [x], machine="llvm").outputs
    for value, want in zip(got, expected(text, [x]), strict=True):
        assert np.array_equal(value, want)


@pytest.mark.parametrize("rows", [3, 9])
def test_a_cut_reduce_with_a_result_that_nothing_takes(rows: int) -> None:
    text = ARGMAX.format(dims=f"{rows},70000", rows=rows)
    x = np.random.default_rng(1).integers(0, 30000, (rows, 70000)).astype(np.float32)
    with small_blocks(8):
        run = run_text(text, [x])
    assert np.array_equal(run.outputs[0], expected(text, [x])[0])
    assert not any(note.endswith("grid 1x1") for note in run.notes)
