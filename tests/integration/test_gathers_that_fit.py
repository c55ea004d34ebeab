"""Gathers of which a kernel would hold more than VMEM has: slices are sent for one by one then."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.run_hlo import compile_text, expected, run_compiled
from tpu_sim.isa.chips import load_chip

SLICES = """HloModule m
ENTRY e {{
  x = {dtype}[{dims}] parameter(0)
  i = s32[15,1] parameter(1)
  g = {dtype}[15,{window}] gather(x, i), offset_dims={{1,2,3}}, collapsed_slice_dims={{0}},
    start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{window}}}
  ROOT t = {dtype}[{turned},15] transpose(g), dimensions={{1,2,3,0}}
}}
"""
EACH_MAJOR = """HloModule m
ENTRY e {
  x = f32[1342,4,3,130] parameter(0)
  i = s32[26,1] parameter(1)
  y = f32[1342,4,3,130] negate(x)
  ROOT g = f32[1342,26,3,130] gather(y, i), offset_dims={0,2,3}, collapsed_slice_dims={1},
    start_index_map={1}, index_vector_dim=1, slice_sizes={1342,1,3,130}
}
"""


@pytest.mark.parametrize(
    ("dtype", "vmem"), [("bf16", "256KiB"), ("s8", "512KiB"), ("f32", "256KiB")]
)
@pytest.mark.parametrize("window", [(3001, 3, 3), (3, 2, 3001), (3, 3001, 2)], ids=str)
def test_slices_of_few_rows_of_a_long_dimension(
    dtype: str, vmem: str, window: tuple[int, ...]
) -> None:
    dims = ",".join(map(str, window))
    text = SLICES.format(dtype=dtype, dims=f"2,{dims}", window=dims, turned=dims)
    values = np.random.default_rng(1).integers(-50, 50, (2, *window))
    check(text, values.astype(BY_NAME[dtype].numpy), np.arange(15) % 3 - 1, vmem)


def test_indices_are_staged_in_parts_where_they_do_not_fit_whole() -> None:
    """A row of each component of 34,892 index vectors takes eight rows of VMEM."""
    values = np.random.default_rng(1).integers(-50, 50, (1342, 4, 3, 130))
    check(EACH_MAJOR, values.astype(np.float32), np.arange(26) % 5, "1MiB")


def check(text: str, values: np.ndarray, indices: np.ndarray, vmem: str) -> None:
    """Compare with the evaluator on a chip of so much VMEM."""
    inputs = [values, indices.astype(np.int32)[:, None]]
    compiled = compile_text(text, chip=load_chip(f"v5e{{vmem={vmem}}}"))
    run = run_compiled(compiled, inputs, "llvm")
    for found, wanted in zip(run.outputs, expected(text, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)
