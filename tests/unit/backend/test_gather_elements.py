"""Gathers whose index vectors would lie among padding, brought into flat form, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.analysis import gather_dims
from compiler.hlo.dtypes import BY_NAME
from tests.support.against_evaluator import check, random_values, tupled
from tests.support.run_hlo import compile_text

Dims = tuple[int, ...]
CASES = {
    # type, operand, indices, result, attributes
    "a window of one": (
        "f32", (256,), (1300, 1), (1300, 1),
        "offset_dims={1}, collapsed_slice_dims={}, start_index_map={0}, slice_sizes={1}",
    ),
    "by two, last first": (
        "u8", (9, 40), (7, 150, 2), (7, 150),
        "offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={1,0}, slice_sizes={1,1}",
    ),
    "of a batch": (
        "bf16", (3, 8, 12), (3, 130, 2), (3, 130),
        "offset_dims={}, collapsed_slice_dims={1,2}, start_index_map={1,2}, "
        "operand_batching_dims={0}, start_indices_batching_dims={0}, slice_sizes={1,1,1}",
    ),
    "a window of one before a batch": (
        "s32", (3, 50, 5), (3, 40, 1), (1, 3, 5, 40),
        "offset_dims={0,2}, collapsed_slice_dims={}, start_index_map={1}, "
        "operand_batching_dims={0}, start_indices_batching_dims={0}, slice_sizes={1,1,5}",
    ),
    "a part of a row": (
        "f32", (20, 60), (90, 2), (90, 4),
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0,1}, slice_sizes={1,4}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few bytes the padding takes."""
    monkeypatch.setattr(gather_dims, "_LEAST_PADDED", 1)
    dtype, operand, indices, result, attributes = CASES[name]
    one, other = (f"{dtype}[{','.join(map(str, d))}]" for d in (operand, result))
    lines = [
        f"x = {one} parameter(0)",
        f"i = s32[{','.join(map(str, indices))}] parameter(1)",
        f"g = {other} gather(x, i), {attributes}, index_vector_dim={len(indices) - 1}",
    ]
    values = random_values(BY_NAME[dtype], operand, 1)
    places = np.random.default_rng(5).integers(-3, max(operand) + 3, indices).astype(np.int32)
    check(tupled(lines, {"g": other}), [values, places])


def test_one_element_of_a_large_array_is_sent_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather_dims, "_BYTES_AN_ELEMENT", 100)
    lines = [
        "x = f32[3000] parameter(0)",
        "i = s32[3,1] parameter(1)",
        "g = f32[3] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1}",
    ]
    values = random_values(BY_NAME["f32"], (3000,), 1)
    places = np.array([[7], [2999], [-4]], np.int32)
    text = tupled(lines, {"g": "f32[3]"})
    check(text, [values, places])
    kernels = compile_text(text).program.kernels.values()
    assert any(kernel.note.endswith("streamed") for kernel in kernels)


def test_columns_of_a_large_array_are_rows_of_a_turned_one() -> None:
    lines = [
        "x = f32[24,30,5,40] parameter(0)",
        "i = s32[300,2] parameter(1)",
        "g = f32[24,300,5] gather(x, i), offset_dims={0,2}, collapsed_slice_dims={1,3}, "
        "start_index_map={3,1}, index_vector_dim=1, slice_sizes={24,1,5,1}",
    ]
    values = random_values(BY_NAME["f32"], (24, 30, 5, 40), 1)
    rng = np.random.default_rng(1)
    places = np.stack([rng.integers(-2, 43, 300), rng.integers(-2, 33, 300)], 1).astype(np.int32)
    text = tupled(lines, {"g": "f32[24,300,5]"})
    check(text, [values, places], target="v5e{vmem=1MiB}")
