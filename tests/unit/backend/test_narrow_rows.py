"""Column tiles of few rows share the registers that are looked up."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from runtime.api import compile as compile_model
from tests.support.against_evaluator import check, random_values, tupled


def gather(dtype: str, rows: int, columns: int, count: int) -> str:
    """Columns of `[rows, columns]` at places that are data."""
    shape = f"{dtype}[{rows},{count}]"
    lines = [
        f"x = {dtype}[{rows},{columns}] parameter(0)",
        f"i = s32[{count}] parameter(1)",
        f"g = {shape} gather(x, i), offset_dims={{0}}, collapsed_slice_dims={{1}}, "
        f"start_index_map={{1}}, index_vector_dim=1, slice_sizes={{{rows},1}}",
    ]
    return tupled(lines, {"g": shape})


CASES = {
    "one row": ("f32", 1, 900, 2048),
    "pairs, part of a tile left over": ("s32", 2, 500, 1300),
    "positions, one tile left over": ("f32", 3, 1000, 1152),
    "four rows": ("f32", 4, 257, 1024),
    "fewer tiles than share a register": ("f32", 2, 300, 300),
    "five rows": ("f32", 5, 300, 1024),
    "half words": ("bf16", 3, 300, 1024),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    dtype, rows, columns, count = CASES[name]
    kind = BY_NAME[dtype]
    places = np.random.default_rng(3).integers(-2, columns + 2, count).astype(np.int32)
    check(gather(dtype, rows, columns, count), [random_values(kind, (rows, columns), 1), places])


def test_values_of_several_matrices_at_places_of_two_components() -> None:
    lines = [
        "x = f32[2,3,40,20] parameter(0)",
        "i = s32[2,1100] parameter(1)",
        "g = f32[2,3,1100] gather(x, i), offset_dims={0,1}, collapsed_slice_dims={2,3}, "
        "start_index_map={3,2}, index_vector_dim=0, slice_sizes={2,3,1,1}",
    ]
    places = np.random.default_rng(4).integers(-2, 42, (2, 1100)).astype(np.int32)
    operand = random_values(BY_NAME["f32"], (2, 3, 40, 20), 1)
    check(tupled(lines, {"g": "f32[2,3,1100]"}), [operand, places])


@pytest.mark.parametrize(
    ("rows", "looked_up"), [(2, 2), (3, 4), (4, 4), (5, 8)], ids=["two", "three", "four", "five"]
)
def test_a_register_is_looked_up_once_for_as_many_tiles_as_fit(rows: int, looked_up: int) -> None:
    """Eight tiles of 128 columns, all in straight code."""
    text = compile_model(gather("f32", rows, 1000, 1024)).text("llo")
    assert text.count("vld.idx") == looked_up
