"""Reductions that leave fewer elements than whole tiles of their results: the grid cuts them all the same."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.run_hlo import compile_text, expected, run_compiled
from tpu_sim.isa.chips import load_chip

FIRST_LARGEST = """HloModule m
f {{
  a = {dtype}[] parameter(0)
  i = s32[] parameter(1)
  b = {dtype}[] parameter(2)
  j = s32[] parameter(3)
  g = pred[] compare(a, b), direction=GT
  e = pred[] compare(a, b), direction=EQ
  l = pred[] compare(i, j), direction=LT
  k = pred[] and(e, l)
  t = pred[] or(g, k)
  v = {dtype}[] select(t, a, b)
  p = s32[] select(t, i, j)
  ROOT r = ({dtype}[], s32[]) tuple(v, p)
}}
ENTRY e {{
  x = {dtype}[{dims}] parameter(0)
  y = {dtype}[{dims}] {operation}
  n = s32[{dims}] iota(), iota_dimension={reduced}
  least = {dtype}[] constant({least})
  none = s32[] constant({none})
  ROOT r = ({dtype}[{kept}], s32[{kept}]) reduce(y, n, least, none), dimensions={{{reduced}}}, to_apply=f
}}
"""
SMALL = "v5e{vmem=512KiB}"


SHAPES = [((40, 9001), 0), ((3, 70001), 0), ((20001, 2), 1), ((3, 40, 3001), 1), ((5, 3, 9001), 1)]
"""Dimensions, and which of them is reduced."""


@pytest.mark.parametrize(("dims", "reduced"), SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["f32", "s8"])
def test_values_and_positions_of_the_largest(
    dims: tuple[int, ...], reduced: int, dtype: str
) -> None:
    check(dtype, dims, reduced, "copy(x)")


@pytest.mark.parametrize("dtype", ["bf16", "s32", "u16"])
@pytest.mark.parametrize("operation", ["copy(x)", "reverse(x), dimensions={1}"])
def test_of_other_types(dtype: str, operation: str) -> None:
    check(dtype, *SHAPES[0], operation)


def test_what_no_windows_hold_is_reduced_in_parts() -> None:
    """Rows of two elements that lie along the lanes, a thousand of which are a register each."""
    remarks = check("f32", (20001, 2), 1, "reverse(x), dimensions={0}")
    assert "in parts, by loops" in remarks
    assert "reduce" in remarks


def check(dtype: str, dims: tuple[int, ...], reduced: int, operation: str) -> str:
    """Compare with the evaluator on a chip of little VMEM; returns the program's remarks."""
    kept = [n for d, n in enumerate(dims) if d != reduced]
    text = FIRST_LARGEST.format(
        dtype=dtype,
        operation=operation,
        dims=",".join(map(str, dims)),
        kept=",".join(map(str, kept)),
        reduced=reduced,
        least=0 if dtype == "u16" else -120,
        none=99,
    )
    values = np.random.default_rng(1).integers(0 if dtype == "u16" else -50, 50, dims)
    inputs = [values.astype(BY_NAME[dtype].numpy)]
    compiled = compile_text(text, chip=load_chip(SMALL))
    run = run_compiled(compiled, inputs)
    for found, wanted in zip(run.outputs, expected(text, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)
    return compiled.program.metadata.get("remarks", "")
