"""Gathers whose slices are whole before an indexed dimension: one slice for each place there."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.against_evaluator import check, random_values

Dims = tuple[int, ...]
CASES: dict[str, tuple[str, Dims, Dims, Dims, str]] = {
    "matrices of layers": (
        "bf16", (3, 4, 5, 9, 20), (4, 6, 1), (3, 4, 6, 9, 20),
        "offset_dims={0,3,4}, collapsed_slice_dims={2}, start_index_map={2}, index_vector_dim=2, "
        "operand_batching_dims={1}, start_indices_batching_dims={0}, slice_sizes={3,1,1,9,20}",
    ),
    "rows, indices without a dimension of components": (
        "f32", (3, 40, 200), (17,), (17, 3, 200),
        "offset_dims={1,2}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, "
        "slice_sizes={3,1,200}",
    ),
    "the slice's dimensions around the numbers": (
        "s32", (2, 7, 3, 5, 130), (2, 6, 11), (2, 6, 3, 11, 130),
        "offset_dims={0,2,4}, collapsed_slice_dims={1,3}, start_index_map={3,1}, index_vector_dim=0, "
        "slice_sizes={2,1,3,1,130}",
    ),
    "trailing dimensions apart": (
        "f32", (3, 9, 4, 12), (5, 1), (3, 4, 5, 12),
        "offset_dims={0,1,3}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, "
        "slice_sizes={3,1,4,12}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_slices_of_each_place(name: str) -> None:
    dtype, operand, indices, result, attributes = CASES[name]
    sizes = [",".join(map(str, dims)) for dims in (operand, indices, result)]
    text = f"""HloModule m
ENTRY e {{
  x = {dtype}[{sizes[0]}] parameter(0)
  i = s32[{sizes[1]}] parameter(1)
  ROOT r = {dtype}[{sizes[2]}] gather(x, i), {attributes}
}}
"""
    places = np.random.default_rng(5).integers(-2, 9, indices).astype(np.int32)
    check(text, [random_values(BY_NAME[dtype], operand, 1), places])
