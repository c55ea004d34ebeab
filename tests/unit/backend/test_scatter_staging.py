"""Scatters whose index words come to a small SMEM in parts, against the evaluator on both machines."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from compiler.hlo.dtypes import BY_NAME
from tests.support.against_evaluator import check, random_values

TEXT = """HloModule m
both {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) ROOT r = {dtype}[] {combiner}(a, b) }}
ENTRY e {{
  x = {dtype}[{operand}] parameter(0)
  i = s32[{indices}] parameter(1)
  u = {dtype}[{updates}] parameter(2)
  ROOT r = {dtype}[{operand}] scatter(x, i, u), {attributes}, to_apply=both
}}
"""
ELEMENTS = """update_window_dims={}, inserted_window_dims={0,1},
    scatter_dims_to_operand_dims={1,0}, index_vector_dim=0"""
ROWS = """update_window_dims={1}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1"""
CASES = {
    # type, combiner, operand, indices, updates, attributes
    "bytes": ("s8", "subtract", (64, 2), (2, 1792), (1792,), ELEMENTS),
    "halves": ("bf16", "subtract", (9, 130), (2, 2500), (2500,), ELEMENTS),
    "words": ("s32", "add", (9, 130), (2, 5000), (5000,), ELEMENTS),
    "rows": ("s32", "add", (30, 40), (5000, 1), (5000, 40), ROWS),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    """The 4,096 words of SMEM of a v2 hold fewer index vectors than a block of updates has."""
    dtype, combiner, operand, indices, updates, attributes = CASES[name]
    shapes = {
        key: ",".join(map(str, dims))
        for key, dims in {"operand": operand, "indices": indices, "updates": updates}.items()
    }
    text = TEXT.format(dtype=dtype, combiner=combiner, attributes=attributes, **shapes)
    places = np.random.default_rng(5).integers(-3, max(operand) + 3, indices).astype(np.int32)
    values = [random_values(BY_NAME[dtype], dims, 1) for dims in (operand, updates)]
    check(text, [values[0], places, values[1]], target="v2")
    if name == "bytes":  # a tile of bytes is 4,096 updates: their indices cannot come at once
        assert "staged" in tpuc.compile(text, "v2").text("llo")
