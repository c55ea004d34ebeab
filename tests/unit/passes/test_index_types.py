"""Indices of every integer type, inside and outside of what they index, in every kind of access.

First the simplifier alone, before anything has widened the indices, then the whole compiler.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tpuc
from compiler.analysis.value_range import type_range
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import run_pipeline
from tests.support.same_values import assert_same
from tpu_sim.isa.chips import load_chip

TYPES = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64", "s4", "u4")
ROWS = 300
NEW = "u {{ a = f32[] parameter(0)\n  ROOT b = f32[] parameter(1) }}\n"
ONE_PER_ROW = (
    "operand_batching_dims={{0}}, start_indices_batching_dims={{0}}, offset_dims={{}}, "
    "collapsed_slice_dims={{1}}, start_index_map={{1}}, index_vector_dim=1, slice_sizes={{1,1}}"
)
PROGRAMS = {
    "gather one of each row": """
ENTRY e {{
  x = f32[{n},300] parameter(0)
  i = {T}[{n}] parameter(1)
  ROOT g = f32[{n}] gather(x, i), """
    + ONE_PER_ROW
    + "\n}}",
    "gather rows": """
ENTRY e {{
  x = f32[300,4] parameter(0)
  i = {T}[{n}] parameter(1)
  ROOT g = f32[{n},4] gather(x, i), offset_dims={{1}}, collapsed_slice_dims={{0}},
    start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,4}}
}}""",
    "scatter one of each row": NEW
    + """
ENTRY e {{
  x = f32[{n},300] parameter(0)
  i = {T}[{n}] parameter(1)
  y = f32[{n}] constant({{{ones}}})
  ROOT s = f32[{n},300] scatter(x, i, y), to_apply=u, update_window_dims={{}},
    inserted_window_dims={{1}}, scatter_dims_to_operand_dims={{1}}, index_vector_dim=1,
    input_batching_dims={{0}}, scatter_indices_batching_dims={{0}}
}}""",
    "scatter rows": NEW
    + """
ENTRY e {{
  x = f32[300,4] parameter(0)
  i = {T}[{n}] parameter(1)
  y = f32[{n},4] negate(z)
  z = f32[{n},4] slice(x), slice={{[0:{n}], [0:4]}}
  ROOT s = f32[300,4] scatter(x, i, y), to_apply=u, update_window_dims={{1}},
    inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1
}}""",
}
ONE_INDEX = {
    "dynamic slice": """
ENTRY e {{
  x = f32[300,4] parameter(0)
  i = {T}[] parameter(1)
  z = {T}[] constant(1)
  ROOT d = f32[7,2] dynamic-slice(x, i, z), dynamic_slice_sizes={{7,2}}
}}""",
    "dynamic update": """
ENTRY e {{
  x = f32[300,4] parameter(0)
  i = {T}[] parameter(1)
  z = {T}[] constant(1)
  y = f32[7,2] constant({{ {{1,2}}, {{3,4}}, {{5,6}}, {{7,8}}, {{9,10}}, {{11,12}}, {{13,14}} }})
  ROOT d = f32[300,4] dynamic-update-slice(x, y, i, z)
}}""",
    "gather of one box": """
ENTRY e {{
  x = f32[300,4] parameter(0)
  i = {T}[] parameter(1)
  j = {T}[1] reshape(i)
  ROOT g = f32[5,4] gather(x, j), offset_dims={{0,1}}, collapsed_slice_dims={{}},
    start_index_map={{0}}, index_vector_dim=0, slice_sizes={{5,4}}
}}""",
}


def numbers(name: str) -> list[int]:
    """Indices around both ends of the array and of the type."""
    low, high = type_range(BY_NAME[name])
    wanted = {low, low + 1, -2, -1, 0, 1, 5, 127, 128, 255, 256, 298, 299, 300, 301, high - 1, high}
    wanted |= {(1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 5}
    return sorted(n for n in wanted if low <= n <= high)


def operands(text: str, index: np.ndarray) -> list[np.ndarray]:
    dims = parse_module(text).entry.parameters[0].array.dims
    values = np.arange(np.prod(dims), dtype=np.float32).reshape(dims)
    return [values - 50, index]


def check(text: str, indices: list[np.ndarray]) -> None:
    """Simplifier and machine agree with the evaluator on each of the index operands."""
    module = parse_module(text)
    run_pipeline(module, load_chip("v5e"), passes=("algebraic-simplifier", "constant-folding"))
    compiled = tpuc.compile(text, precision="highest")
    for index in indices:
        inputs = operands(text, index)
        (want,) = evaluate(parse_module(text), inputs)
        (simplified,) = evaluate(module, inputs)
        assert_same(np.asarray(simplified), np.asarray(want), f"simplified, {index}")
        assert_same(np.asarray(compiled(*inputs)[0]), np.asarray(want), f"machine, {index}")


@pytest.mark.parametrize(("kind", "name"), list(itertools.product(PROGRAMS, TYPES)))
def test_many_indices(kind: str, name: str) -> None:
    found = numbers(name)
    ones = ",".join(str(k + 0.5) for k in range(len(found)))
    text = "HloModule m\n" + PROGRAMS[kind].format(T=name, n=len(found), ones=ones)
    check(text, [np.array(found, object).astype(BY_NAME[name].numpy)])


@pytest.mark.parametrize(("kind", "name"), list(itertools.product(ONE_INDEX, TYPES)))
def test_one_index(kind: str, name: str) -> None:
    text = "HloModule m\n" + ONE_INDEX[kind].format(T=name)
    check(text, [np.array(n, object).astype(BY_NAME[name].numpy) for n in numbers(name)])
