"""Gathers of single elements whose operand, indices and result stay in VMEM between kernels."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.support.run_hlo import compile_text, expected, run_compiled

# operand, its type, indices, what the gather says
CASES = {
    "of a vector": (
        (5000,), "f32", (3000,),
        "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}",
    ),
    "of a matrix, by both": (
        (37, 300), "s32", (2, 2500),
        "offset_dims={}, collapsed_slice_dims={0,1}, start_index_map={0,1}, index_vector_dim=0, "
        "slice_sizes={1,1}",
    ),
    "of each row its own": (
        (9, 700), "f32", (9, 400),
        "offset_dims={}, collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=2, "
        "operand_batching_dims={0}, start_indices_batching_dims={0}, slice_sizes={1,1}",
    ),
    "of 16 bits": (
        (4000,), "bf16", (17, 200),
        "offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2, slice_sizes={1}",
    ),
    "windows": (
        (40, 300), "f32", (2, 300),
        "offset_dims={1,2}, collapsed_slice_dims={}, start_index_map={0,1}, index_vector_dim=0, "
        "slice_sizes={3,5}",
    ),
}  # fmt: skip
NUMPY = {"f32": np.float32, "s32": np.int32, "bf16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("machine", ["numpy", "llvm"])
def test_elements_of_arrays_that_stay(name: str, machine: str) -> None:
    dims, dtype, numbers, attributes = CASES[name]
    result = (300, 3, 5) if name == "windows" else numbers
    if "both" in name:
        result = numbers[1:]
    x, i, r = (",".join(map(str, d)) for d in (dims, numbers, result))
    text = f"""HloModule m
ENTRY e {{
  x = {dtype}[{x}] parameter(0)
  i = s32[{i}] parameter(1)
  y = {dtype}[{x}] add(x, x)
  two = s32[] constant(2)
  twos = s32[{i}] broadcast(two), dimensions={{}}
  j = s32[{i}] subtract(i, twos)
  g = {dtype}[{r}] gather(y, j), {attributes}
  h = {dtype}[{r}] multiply(g, g)
  k = s32[{i}] negate(j)
  z = {dtype}[{x}] negate(y)
  ROOT t = ({dtype}[{r}], s32[{i}], {dtype}[{x}]) tuple(h, k, z)
}}
"""
    rng = np.random.default_rng(len(name))
    values = rng.integers(-9, 9, dims).astype(NUMPY[dtype])
    index = rng.integers(-5, max(dims) + 7, numbers).astype(np.int32)
    made = compile_text(text)
    assert "S(1)} fusion" in next(
        line for line in made.hlo_text().splitlines() if "kCustom" in line
    )
    got = run_compiled(made, [values, index], machine).outputs
    for g, w in zip(got, expected(text, [values, index]), strict=True):
        assert np.array_equal(g, w)
