"""Scatters of single elements, a register of updates at a time, on both machines against the evaluator."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from compiler import driver
from compiler.backend.kernel_options import KernelOptions
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.parser import parse_module
from tests.support.against_evaluator import binary, check, random_values
from tests.support.run_hlo import compile_text

TAKE = "f {{\n  f.a = {0}[] parameter(0)\n  ROOT f.b = {0}[] parameter(1)\n}}\n"


def scatter(dtype: str, dims: tuple[int, ...], count: int, combine: str) -> str:
    """A scatter of `count` elements into `dims` at places that are all data."""
    rank = len(dims)
    every = ",".join(map(str, range(rank)))
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    called = TAKE.format(dtype) if combine == "take" else binary("f", combine, dtype)
    return f"""HloModule m
{called}
ENTRY e {{
  x = {shape} parameter(0)
  i = s32[{count},{rank}] parameter(1)
  u = {dtype}[{count}] parameter(2)
  ROOT r = {shape} scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{{every}}},
    scatter_dims_to_operand_dims={{{every}}}, index_vector_dim=1, to_apply=f
}}
"""


def places(dims: tuple[int, ...], count: int, seed: int) -> np.ndarray:
    """Places of which some lie outside; a third of them are the same few."""
    rng = np.random.default_rng(seed)
    found = np.stack([rng.integers(-1, size + 1, count) for size in dims], axis=1)
    found[::3] = found[:3][rng.integers(0, 3, found[::3].shape[0])]
    return found.astype(np.int32)


CASES = {
    "sums": ("f32", (3000,), 5000, "add"),
    "sums of integers": ("s32", (1100,), 2048, "add"),
    "maxima": ("f32", (2500,), 3001, "maximum"),
    "unsigned minima": ("u32", (2500,), 1500, "minimum"),
    "bits": ("u32", (1500,), 1024, "xor"),
    "products": ("s32", (1500,), 1100, "multiply"),
    "the last one": ("f32", (2000,), 3000, "take"),
    "rows and columns": ("f32", (20, 300), 2500, "add"),
    "rows and columns, the last one": ("s32", (9, 130), 1500, "take"),
    "three components": ("f32", (3, 17, 140), 2600, "add"),
    "many chunks": ("f32", (1100,), 37000, "add"),
    "many chunks of pairs": ("s32", (40, 50), 36500, "add"),
}


@pytest.mark.parametrize("name", CASES)
def test_elements_meet_in_registers(name: str) -> None:
    dtype, dims, count, combine = CASES[name]
    text = scatter(dtype, dims, count, combine)
    kind = BY_NAME[dtype]
    updates = random_values(kind, (count,), 2, whole=True)
    check(text, [random_values(kind, dims, 1, whole=True), places(dims, count, 3), updates])
    assert "together" in _notes(text)


def narrow(dtype: str, dims: tuple[int, ...], window: tuple[int, ...], count: int, by: str) -> str:
    """A scatter of rows of few elements at places of `dims` that are data, and a gather there."""
    rank, lanes = len(dims), ",".join(map(str, window))
    shape = f"{dtype}[{','.join(map(str, (*dims, *window)))}]"
    called = TAKE.format(dtype) if by == "take" else binary("f", by, dtype)
    places = ",".join(map(str, range(rank)))
    behind = ",".join(str(1 + i) for i in range(len(window)))
    ones = ",".join("1" for _ in dims)
    return f"""HloModule m
{called}
ENTRY e {{
  x = {shape} parameter(0)
  i = s32[{count},{rank}] parameter(1)
  u = {dtype}[{count},{lanes}] parameter(2)
  v = {dtype}[{count},{lanes}] add(u, u)
  s = {shape} scatter(x, i, v), update_window_dims={{{behind}}}, inserted_window_dims={{{places}}},
    scatter_dims_to_operand_dims={{{places}}}, index_vector_dim=1, to_apply=f
  g = {dtype}[{count},{lanes}] gather(x, i), offset_dims={{{behind}}}, collapsed_slice_dims={{{places}}},
    start_index_map={{{places}}}, index_vector_dim=1, slice_sizes={{{ones},{lanes}}}
  h = {dtype}[{count},{lanes}] subtract(g, u)
  ROOT r = ({shape}, {dtype}[{count},{lanes}]) tuple(s, h)
}}
"""


NARROW = {
    "positions": ("f32", (300,), (3,), 5000, "add"),
    "a part of the last chunk": ("f32", (1000,), (8,), 7001, "add"),
    "two registers high": ("f32", (257,), (11,), 4099, "maximum"),
    "a row each, the last one": ("s32", (2000,), (5,), 3000, "take"),
    "places on a grid": ("f32", (12, 40), (4,), 3000, "add"),
    "tensors": ("f32", (150,), (3, 3), 4000, "add"),
    "integers": ("s32", (200,), (7,), 2500, "add"),
    "two tiles in a register, one left over": ("f32", (300,), (3,), 4200, "add"),
    "four tiles in a register, three left over": ("f32", (700,), (2,), 5500, "maximum"),
    "pairs in many chunks": ("s32", (1300,), (2,), 37100, "add"),
    "four rows, the last one": ("s32", (500,), (4,), 3000, "take"),
    "pairs of pairs": ("f32", (150,), (2, 2), 4700, "add"),
}


@pytest.mark.parametrize("name", NARROW)
def test_narrow_rows_go_by_elements(name: str) -> None:
    dtype, dims, window, count, combine = NARROW[name]
    text = narrow(dtype, dims, window, count, combine)
    kind = BY_NAME[dtype]
    updates = random_values(kind, (count, *window), 2, whole=True)
    operand = random_values(kind, (*dims, *window), 1, whole=True)
    check(text, [operand, places(dims, count, 3), updates])
    assert "together" in _notes(text)


PARTS = {
    "vectors": scatter("f32", (60000,), 1500, "add"),
    "columns": scatter("f32", (16, 16, 300), 1500, "maximum"),
    "rows": narrow("f32", (1500,), (20,), 1100, "add"),
    "the last one": scatter("s32", (300000,), 1500, "take"),
}


@pytest.mark.parametrize("name", PARTS)
def test_results_larger_than_vmem_are_made_in_parts(name: str) -> None:
    module = parse_module(PARTS[name])
    dims = module.entry.parameters[0].array.dims
    updates = module.entry.parameters[2].array
    operand = random_values(updates.dtype, dims, 1, whole=True)
    changes = random_values(updates.dtype, updates.dims, 2, whole=True)
    rank = module.entry.parameters[1].array.dims[1]
    index = places(dims[:rank], updates.dims[0], 3)
    check(PARTS[name], [operand, index, changes], target="v5e{vmem=2MiB}")


def test_narrow_rows_are_rows_where_vmem_is_small() -> None:
    text = narrow("f32", (3000,), (3,), 5000, "add")
    updates = random_values(BY_NAME["f32"], (5000, 3), 2, whole=True)
    operand = random_values(BY_NAME["f32"], (3000, 3), 1, whole=True)
    check(text, [operand, places((3000,), 5000, 3), updates], target="v5e{vmem=2MiB}")


def test_infinities_and_nan_stay_where_they_fall() -> None:
    text = scatter("f32", (1500,), 2048, "add")
    updates = random_values(BY_NAME["f32"], (2048,), 2, whole=True)
    updates[5:9] = np.inf, -np.inf, np.nan, -0.0
    operand = np.full((1500,), -0.0, np.float32)
    check(text, [operand, places((1500,), 2048, 4), updates])


@pytest.mark.parametrize("target", ["v4", "v5p"])
def test_on_chips_of_less_vmem(target: str) -> None:
    text = scatter("f32", (30000,), 4096, "add")
    updates = random_values(BY_NAME["f32"], (4096,), 2, whole=True)
    operand = random_values(BY_NAME["f32"], (30000,), 1, whole=True)
    check(text, [operand, places((30000,), 4096, 3), updates], target=target)


def test_elements_may_be_left_to_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    text = scatter("f32", (3000,), 5000, "add")
    monkeypatch.setattr(driver, "KernelOptions", partial(KernelOptions, elements_together=False))
    assert "together" not in _notes(text)


def _notes(text: str) -> str:
    program = compile_text(text, "default").program
    return " ".join(kernel.note for kernel in program.kernels.values())


@pytest.mark.parametrize("vmem", ["2MiB", "4MiB"])
def test_updates_along_their_numbers_into_many_parts(vmem: str) -> None:
    """Parts of fewer than eight rows would begin within a tile of the updates."""
    text = f"""HloModule m
{binary("f", "add", "f32")}
ENTRY e {{
  x = f32[32,4,4000] parameter(0)
  i = s32[2,1024] parameter(1)
  u = f32[32,1024] parameter(2)
  ROOT r = f32[32,4,4000] scatter(x, i, u), update_window_dims={{0}}, inserted_window_dims={{1,2}},
    scatter_dims_to_operand_dims={{1,2}}, index_vector_dim=0, to_apply=f
}}
"""
    operand, updates = (
        random_values(BY_NAME["f32"], s, 3, whole=True) for s in ((32, 4, 4000), (32, 1024))
    )
    check(
        text, [operand, places((4, 4000), 1024, 5).T.copy(), updates], target=f"v5e{{vmem={vmem}}}"
    )
