"""Rows that are combined eight at a time, and rows that are copied in VMEM, beside the evaluator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.against_evaluator import binary
from tests.support.run_hlo import compile_text, expected, run_compiled
from tpu_sim.isa.chips import load_chip

# operand, number of updates, combination, type, KiB of VMEM
ADDED = {
    "a register and a bit": ((21, 128), 77, "add", "f32", 131072),
    "narrower than a tile": ((40, 100), 64, "maximum", "f32", 131072),
    "several tiles across": ((33, 300), 131, "add", "s32", 131072),
    "a tile and a lane": ((50, 1024), 70, "minimum", "s32", 131072),
    "found by two components": ((7, 19, 130), 90, "add", "f32", 131072),
    "in several chunks": ((64, 128), 3001, "add", "f32", 1024),
    "in blocks": ((1536, 256), 1203, "add", "f32", 2048),
    "multiplied": ((9, 200), 15, "multiply", "f32", 131072),
}


def scatter(dims: tuple[int, ...], count: int, combine: str, dtype: str) -> str:
    *majors, width = dims
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    mapped = ",".join(map(str, range(len(majors))))
    return f"""HloModule m
{binary("f", combine, dtype)}
ENTRY e {{
  x = {shape} parameter(0)
  i = s32[{count},{len(majors)}] parameter(1)
  u = {dtype}[{count},{width}] parameter(2)
  ROOT r = {shape} scatter(x, i, u), inserted_window_dims={{{mapped}}}, index_vector_dim=1,
    update_window_dims={{1}}, scatter_dims_to_operand_dims={{{mapped}}}, to_apply=f
}}
"""


def places(dims: tuple[int, ...], count: int, seed: int) -> np.ndarray:
    """Index vectors of which some lie outside, and many are the same in and across eight."""
    rng = np.random.default_rng(seed)
    found = np.stack([rng.integers(-2, size + 2, count) for size in dims[:-1]], axis=1)
    found[1::3] = found[:5][rng.integers(0, 5, len(found[1::3]))]
    found[7] = -(1 << 31)
    return found.astype(np.int32)


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("machine", ["numpy", "llvm"])
def test_rows_meet_in_registers(name: str, machine: str) -> None:
    dims, count, combine, dtype, vmem = ADDED[name]
    text = scatter(dims, count, combine, dtype)
    rng = np.random.default_rng(len(name))
    most = 2 if combine == "multiply" else 9
    kind = {"f32": np.float32, "s32": np.int32}[dtype]
    values = [rng.integers(-most, most, size).astype(kind) for size in (dims, (count, dims[-1]))]
    inputs = [values[0], places(dims, count, 3), values[1]]
    made = compile_text(text, chip=replace(load_chip("v5e"), vmem_bytes=vmem << 10))
    assert any("by rows" in kernel.note for kernel in made.program.kernels.values())
    (got,) = run_compiled(made, inputs, machine).outputs
    assert np.array_equal(got, expected(text, inputs)[0])


# operand, number of updates, KiB of VMEM
OF_BATCHES = {
    "each its own rows": ((3, 21, 128), 77, 131072),
    "found by two components": ((2, 5, 9, 130), 40, 131072),
    "in chunks and blocks": ((2, 1536, 256), 1203, 2048),
}


@pytest.mark.parametrize("name", OF_BATCHES)
@pytest.mark.parametrize("machine", ["numpy", "llvm"])
def test_rows_of_batches_meet_in_registers(name: str, machine: str) -> None:
    (batches, *dims), count, vmem = OF_BATCHES[name]
    shape = f"f32[{','.join(map(str, (batches, *dims)))}]"
    mapped = ",".join(str(1 + d) for d in range(len(dims) - 1))
    text = f"""HloModule m
{binary("f", "add", "f32")}
ENTRY e {{
  x = {shape} parameter(0)
  i = s32[{batches},{count},{len(dims) - 1}] parameter(1)
  u = f32[{batches},{count},{dims[-1]}] parameter(2)
  ROOT r = {shape} scatter(x, i, u), inserted_window_dims={{{mapped}}}, index_vector_dim=2,
    update_window_dims={{2}}, scatter_dims_to_operand_dims={{{mapped}}}, input_batching_dims={{0}},
    scatter_indices_batching_dims={{0}}, to_apply=f
}}
"""
    rng = np.random.default_rng(len(name))
    sizes = ((batches, *dims), (batches, count, dims[-1]))
    x, u = (rng.integers(-9, 9, size).astype(np.float32) for size in sizes)
    index = np.stack([places(tuple(dims), count, 3 + n) for n in range(batches)])
    made = compile_text(text, chip=replace(load_chip("v5e"), vmem_bytes=vmem << 10))
    assert any("by rows" in kernel.note for kernel in made.program.kernels.values())
    (got,) = run_compiled(made, [x, index, u], machine).outputs
    assert np.array_equal(got, expected(text, [x, index, u])[0])


def test_nothing_is_added_elsewhere() -> None:
    """What an update outside brings goes nowhere, though it be no number; zeros keep their sign."""
    text = scatter((16, 128), 24, "add", "f32")
    x = np.full((16, 128), -0.0, np.float32)
    index = np.full((24, 1), 99, np.int32)
    index[5] = 3
    u = np.full((24, 128), np.nan, np.float32)
    u[5] = np.inf
    made = compile_text(text)
    (got,) = run_compiled(made, [x, index, u], "llvm").outputs
    assert np.array_equal(got[3], u[5])
    others = np.delete(got, 3, axis=0)
    assert np.all(others == 0) and np.all(np.signbit(others))


# operand, dimensions of the indices, whether they are a batch's own
GATHERED = {
    "of one tile": ((50, 128), (203,)),
    "of several tiles": ((50, 300), (77,)),
    "numbered in two dimensions": ((50, 100), (5, 37)),
    "found by two components": ((6, 11, 130), (99,)),
    "more than are staged at once": ((20, 128), (131081,)),
}


@pytest.mark.parametrize("name", GATHERED)
def test_rows_are_copied(name: str) -> None:
    dims, numbers = GATHERED[name]
    components = len(dims) - 1
    result = f"f32[{','.join(map(str, (*numbers, dims[-1])))}]"
    mapped = ",".join(map(str, range(components)))
    ones = ",".join("1" * components)
    text = f"""HloModule m
ENTRY e {{
  x = f32[{",".join(map(str, dims))}] parameter(0)
  i = s32[{",".join(map(str, (*numbers, components)))}] parameter(1)
  ROOT r = {result} gather(x, i), offset_dims={{{len(numbers)}}}, collapsed_slice_dims={{{mapped}}},
    start_index_map={{{mapped}}}, index_vector_dim={len(numbers)}, slice_sizes={{{ones},{dims[-1]}}}
}}
"""
    rng = np.random.default_rng(5)
    x = rng.standard_normal(dims).astype(np.float32)
    count = int(np.prod(numbers))
    index = np.stack([rng.integers(-3, n + 3, count) for n in dims[:-1]], axis=1).astype(np.int32)
    inputs = [x, index.reshape(*numbers, components)]
    (got,) = run_compiled(compile_text(text), inputs, "llvm").outputs
    assert np.array_equal(got, expected(text, inputs)[0])
