"""Sums over rows of packed types that the grid cuts within a tile: each row counts once."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.run_hlo import check_text

TEXT = """HloModule m
f {{
  a = {wide}[] parameter(0)
  b = {wide}[] parameter(1)
  ROOT c = {wide}[] {kind}(a, b)
}}
ENTRY e {{
  x = {dtype}[{rows},{columns}] parameter(0)
  w = {wide}[{rows},{columns}] convert(x)
  z = {wide}[] constant({start})
  ROOT y = {wide}[{kept}] reduce(w, z), dimensions={{{dims}}}, to_apply=f
}}
"""


@pytest.mark.parametrize(("dtype", "wide"), [("s8", "s32"), ("bf16", "f32"), ("u16", "s32")])
@pytest.mark.parametrize(("rows", "columns"), [(1000, 1100), (8008, 130)])
@pytest.mark.parametrize(("kind", "start"), [("add", 0), ("maximum", -1000)])
@pytest.mark.parametrize("dims", ["0", "0,1"])
def test_each_row_counts_once(
    dtype: str, wide: str, rows: int, columns: int, kind: str, start: int, dims: str
) -> None:
    kept = columns if dims == "0" else ""
    text = TEXT.format(
        dtype=dtype, wide=wide, rows=rows, columns=columns, kind=kind, start=start, kept=kept,
        dims=dims,
    )  # fmt: skip
    low, high = (0, 2) if dtype == "u16" or kind == "add" else (-90, -3)
    values = np.random.default_rng(1).integers(low, high, (rows, columns))
    check_text(text, [values.astype(BY_NAME[dtype].numpy)], machine="llvm")
