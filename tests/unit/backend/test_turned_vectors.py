"""Arrays of one dimension read along and across the rows that they stand for, turned."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.api import compile as compile_model
from tests.support.run_hlo import check_text, normal

SHAPES = [(2, 256, 256), (1, 384, 128), (3, 130, 70), (1, 64, 1024), (2, 8, 512), (1, 200, 96)]


def _text(shape: tuple[int, int, int], dtype: str) -> str:
    b, r, c = shape
    return f"""HloModule m
ENTRY e {{
  x = {dtype}[{b},{c},{r}] parameter(0)
  p = {dtype}[{b * r * c}] parameter(1)
  m = {dtype}[{b},{r},{c}] reshape(p)
  t = {dtype}[{b},{c},{r}] transpose(m), dimensions={{0,2,1}}
  ROOT o = {dtype}[{b},{c},{r}] maximum(x, t)
}}
"""


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s16", "u8", "pred"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_vector_of_rows_turned(shape: tuple[int, int, int], dtype: str) -> None:
    b, r, c = shape
    names = {"f32": "float32", "bf16": "bfloat16"}
    if dtype in names:
        inputs = [
            normal(i, *dims, dtype=names[dtype]) for i, dims in ((1, (b, c, r)), (2, (b * r * c,)))
        ]
    else:
        rng = np.random.default_rng(3)
        kind = {"s16": np.int16, "u8": np.uint8, "pred": np.bool_}[dtype]
        draw = [
            rng.integers(0, 2 if dtype == "pred" else 200, n) for n in ((b, c, r), (b * r * c,))
        ]
        inputs = [a.astype(kind) for a in draw]
    for machine in ("numpy", "llvm"):
        check_text(_text(shape, dtype), inputs, "default", machine, tolerance=0.0)


def test_it_goes_through_the_transpose_unit() -> None:
    text = compile_model(_text((2, 256, 256), "f32")).text("llo")
    assert "vxpose.read" in text and "vld.idx" not in text
