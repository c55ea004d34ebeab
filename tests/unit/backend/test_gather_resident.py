"""Gathers of many rows or matrices from an operand that lies in VMEM, against the evaluator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.analysis import gather_dims
from compiler.backend import custom_gather_resident, custom_gather_rows
from compiler.driver import compile_module
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.parser import parse_module
from tests.support.against_evaluator import check, random_values, tupled
from tests.support.run_hlo import compile_text, run_compiled
from tpu_sim.isa.chips import load_chip

Dims = tuple[int, ...]
CASES = {
    # type, operand, indices, result, attributes
    "rows": ("f32", (50, 128), (100, 1), (100, 128), "offset_dims={1}, start_index_map={0}"),
    "wide rows, a part of a tile": (
        "f32", (50, 300), (3, 37, 1), (3, 37, 300), "offset_dims={2}, start_index_map={0}",
    ),
    "rows by two indices": (
        "s32", (5, 9, 40), (70, 2), (70, 40), "offset_dims={1}, start_index_map={1,0}",
    ),
    "rows of a batch": (
        "f32", (3, 30, 64), (3, 40, 1), (3, 40, 64),
        "offset_dims={2}, start_index_map={1}, operand_batching_dims={0}, "
        "start_indices_batching_dims={0}",
    ),
    "packed rows": ("bf16", (50, 128), (200, 1), (200, 128), "offset_dims={1}, start_index_map={0}"),
    "packed rows, a part of a tile": (
        "bf16", (50, 300), (3, 70, 1), (3, 70, 300), "offset_dims={2}, start_index_map={0}",
    ),
    "packed rows of a batch": (
        "bf16", (3, 30, 64), (3, 75, 1), (3, 75, 64),
        "offset_dims={2}, start_index_map={1}, operand_batching_dims={0}, "
        "start_indices_batching_dims={0}",
    ),
    "rows of bytes by two indices": (
        "s8", (5, 9, 140), (170, 2), (170, 140), "offset_dims={1}, start_index_map={1,0}",
    ),
    "tiles": ("f32", (20, 8, 32), (70, 1), (70, 8, 32), "offset_dims={1,2}, start_index_map={0}"),
    "matrices of packed elements": (
        "bf16", (20, 20, 130), (66, 1), (66, 20, 130), "offset_dims={1,2}, start_index_map={0}",
    ),
    "matrices of bytes by two indices": (
        "s8", (4, 6, 3, 5), (9, 8, 2), (9, 8, 3, 5), "offset_dims={2,3}, start_index_map={0,1}",
    ),
    "single elements": ("f32", (300, 1), (80, 1), (80, 1), "offset_dims={1}, start_index_map={0}"),
    "predicates": (
        "pred", (12, 4, 8), (64, 1), (64, 4, 8), "offset_dims={1,2}, start_index_map={0}",
    ),
}  # fmt: skip


def text_of(name: str) -> tuple[list[str], dict[str, str]]:
    dtype, operand, indices, result, attributes = CASES[name]
    shapes = [f"{dtype}[{','.join(map(str, d))}]" for d in (operand, result)]
    start = attributes.split("start_index_map={")[1].split("}")[0].split(",")
    batch = "operand_batching_dims" in attributes
    gone = {int(d) for d in start} | ({0} if batch else set())
    sizes = ",".join("1" if d in gone else str(n) for d, n in enumerate(operand))
    lines = [
        f"x = {shapes[0]} parameter(0)",
        f"i = s32[{','.join(map(str, indices))}] parameter(1)",
        f"g = {shapes[1]} gather(x, i), {attributes}, "
        f"collapsed_slice_dims={{{','.join(sorted(start))}}}, "
        f"index_vector_dim={len(indices) - 1}, slice_sizes={{{sizes}}}",
    ]
    return lines, {"g": shapes[1]}


@pytest.mark.parametrize("is_large", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, is_large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`is_large`: indices are staged in parts, results leave in several blocks."""
    if is_large:
        monkeypatch.setattr(gather_dims, "STAGED_WORDS", 16)
        monkeypatch.setattr(custom_gather_rows, "_STREAMED_VECTORS", 32)
        monkeypatch.setattr(custom_gather_resident, "_RESULT_TILES", 16)
    dtype, operand, indices, *_ = CASES[name]
    lines, results = text_of(name)
    text = tupled(lines, results)
    values = random_values(BY_NAME[dtype], operand, 1)
    places = np.random.default_rng(5).integers(-3, max(operand) + 3, indices).astype(np.int32)
    check(text, [values, places])
    assert "out." in _windows(text)
    assert "rows" not in _windows(text).split()


def _windows(text: str) -> str:
    """Names of all windows; a transfer for each slice from HBM to HBM needs none for results."""
    kernels = compile_text(text, "default").program.kernels.values()
    return " ".join(window.name for kernel in kernels for window in kernel.windows)


def test_few_slices_stay_in_hbm() -> None:
    lines, _ = text_of("rows")
    text = tupled([line.replace("[100,", "[10,") for line in lines], {"g": "f32[10,128]"})
    assert "out." not in _windows(text)


def test_rows_whose_blocks_do_not_fit_beside_the_operand_come_one_by_one() -> None:
    """Operand, a block of the result and the indices are more than 1 MiB together."""
    text = """HloModule m
ENTRY e {
  t = f32[554,146] parameter(0)
  k = s32[554,1] parameter(1)
  ROOT g = f32[554,146] gather(t, k), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,146}
}
"""
    chip = replace(load_chip("v5e"), vmem_bytes=1 << 20)
    compiled = compile_module(parse_module(text), chip)
    rng = np.random.default_rng(0)
    table = rng.standard_normal((554, 146)).astype(np.float32)
    places = rng.integers(0, 554, (554, 1)).astype(np.int32)
    (found,) = run_compiled(compiled, [table, places], "llvm").outputs
    np.testing.assert_array_equal(found, table[places[:, 0]])


def test_indices_come_in_parts_where_the_scalar_unit_has_little_memory() -> None:
    """The 4,096 words of SMEM of a v2 hold few of 5,000 indices."""
    lines = [
        "x = f32[700,128] parameter(0)",
        "i = s32[5000,1] parameter(1)",
        "g = f32[5000,128] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1,128}",
    ]
    places = np.random.default_rng(5).integers(-3, 703, (5000, 1)).astype(np.int32)
    values = random_values(BY_NAME["f32"], (700, 128), 1)
    check(tupled(lines, {"g": "f32[5000,128]"}), [values, places], target="v2")
