"""Rows of narrow tables that are looked up and trained: values, and how little of HBM they move."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from tests.support.against_evaluator import check

GATHER = (
    "offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, "
    "slice_sizes={1,WIDTH}"
)
SCATTER = (
    "update_window_dims={2}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, "
    "index_vector_dim=2"
)
STEP = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ENTRY main {
  table = f32[<rows>,<width>] parameter(0)
  i = s32[<batch>,<fields>,1] parameter(1)
  w = f32[<batch>,<features>] parameter(2)
  g = f32[<batch>,<fields>,<width>] gather(table, i), <gather>
  f = f32[<batch>,<features>] reshape(g)
  y = f32[<batch>,<features>] multiply(f, w)
  u = f32[<batch>,<fields>,<width>] reshape(y)
  zero = f32[] constant(0)
  none = f32[<rows>,<width>] broadcast(zero), dimensions={}
  d = f32[<rows>,<width>] scatter(none, i, u), <scatter>, to_apply=add
  new = f32[<rows>,<width>] subtract(table, d)
  ROOT r = (f32[<rows>,<width>], f32[<batch>,<features>]) tuple(new, y)
}
"""


def step(rows: int, width: int, batch: int, fields: int) -> str:
    values = {
        "gather": GATHER.replace("WIDTH", str(width)),
        "scatter": SCATTER,
        "rows": rows,
        "width": width,
        "batch": batch,
        "fields": fields,
        "features": width * fields,
    }
    text = STEP
    for name, value in values.items():
        text = text.replace(f"<{name}>", str(value))
    return text


@pytest.mark.parametrize("width", [16, 11])
def test_features_side_by_side_keep_their_values(width: int) -> None:
    """Whole numbers: the order in which updates of one row are added is free."""
    rng = np.random.default_rng(width)
    table = rng.integers(-8, 8, (8000, width)).astype(np.float32)
    indices = rng.integers(-3, 8005, (1500, 9, 1)).astype(np.int32)
    weights = rng.integers(-4, 4, (1500, 9 * width)).astype(np.float32)
    check(step(8000, width, 1500, 9), [table, indices, weights])


def test_neither_the_table_nor_its_rows_are_padded() -> None:
    report = tpuc.compile(step(200000, 16, 4096, 39)).estimate()
    least = 4 * (2 * 200000 * 16 + 2 * 4096 * 39 * 16 + 4096 * 39)
    assert report.hbm_bytes < 4 * least
    assert report.cycles < 1_500_000
