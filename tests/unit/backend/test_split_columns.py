"""Columns that a reshape splits into more, turned: the lane says from which column tile an element is."""

from __future__ import annotations

import pytest

from runtime.api import compile as compile_model
from tests.support.run_hlo import check_text, normal


def _text(rows: int, across: int, columns: int, dtype: str) -> str:
    """``[rows, across * columns]`` as ``[rows, columns, across]``."""
    return f"""HloModule m
ENTRY main {{
  p = {dtype}[2,{rows},{across * columns}] parameter(0)
  r = {dtype}[2,{rows},{across},{columns}] reshape(p)
  ROOT t = {dtype}[2,{rows},{columns},{across}] transpose(r), dimensions={{0,1,3,2}}
}}
"""


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8"])
@pytest.mark.parametrize(
    ("rows", "across", "columns"), [(5, 40, 128), (3, 130, 128), (4, 3, 384), (9, 20, 64)]
)
def test_values(rows: int, across: int, columns: int, dtype: str) -> None:
    kinds = {"f32": "float32", "bf16": "bfloat16", "s8": "int8"}
    values = (10 * normal(1, 2, rows, across * columns)).astype("int8").astype(kinds[dtype])
    for machine in ("numpy", "llvm"):
        check_text(_text(rows, across, columns, dtype), [values], "default", machine)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_whole_column_tiles_go_through_the_transpose_units(dtype: str) -> None:
    text = compile_model(_text(16, 40, 128, dtype)).text("llo")
    assert "vxpose.push" in text
    assert "vld.idx" not in text
