"""Ragged products block by block: the groups' borders, rows of no group, what is not finite, other orders."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from compiler.passes.context import PassContext
from compiler.passes.expanders.simple_expansions import expand_simple
from runtime.api import compile as compile_model
from tpu_sim.isa.chips import load_chip

ROWS = "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}"
FORMS = {
    "rows": ("{t}[300,24]", "{t}[5,24,16]", "{t}[300,16]", ROWS),
    "turned groups": ("{t}[300,24]", "{t}[5,16,24]", "{t}[300,16]", ROWS.replace(
        "rhs_contracting_dims={1}", "rhs_contracting_dims={2}")),
    "turned rows, groups last": (
        "{t}[24,300]", "{t}[24,16,5]", "{t}[300,16]",
        "lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={1}, rhs_group_dims={2}",
    ),
    "summed": (
        "{t}[300,24]", "{t}[300,16]", "{t}[5,24,16]",
        "lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}",
    ),
    "turned and summed": (
        "{t}[24,300]", "{t}[16,300]", "{t}[5,24,16]",
        "lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={1}",
    ),
}  # fmt: skip
SIZES = {
    "even": (60, 60, 60, 60, 60),
    "empty ones": (0, 130, 0, 170, 0),
    "at borders of blocks": (128, 0, 128, 44, 0),
    "rows of no group": (1, 2, 3, 150, 1),
    "one": (0, 0, 0, 0, 300),
    "none": (0, 0, 0, 0, 0),
}


def _text(form: str, dtype: str) -> str:
    left, right, result, attrs = (
        part.format(t=dtype) if "{t}" in part else part for part in FORMS[form]
    )
    return f"""HloModule m
ENTRY main {{
  x = {left} parameter(0)
  y = {right} parameter(1)
  s = s32[5] parameter(2)
  ROOT r = {result} ragged-dot(x, y, s), {attrs}
}}
"""


def _expanded(text: str) -> HloModule:
    module = parse_module(text)
    expand_simple(module, PassContext(load_chip("v5e")))
    verify(module)
    assert sum(i.opcode == "while" for i in module.entry) == 1
    assert any(i.opcode == "dynamic-update-slice" for c in module.computations.values() for i in c)
    return module


def _inputs(text: str, sizes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    shapes = [p.array for p in parse_module(text).entry.parameters[:2]]
    made = [rng.integers(-3, 4, s.dims).astype(s.dtype.numpy) for s in shapes]
    return [*made, np.array(sizes, np.int32)]


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("form", FORMS)
def test_blocks_mean_the_same(form: str, sizes: tuple[int, ...]) -> None:
    text = _text(form, "f32")
    inputs = _inputs(text, sizes)
    (wanted,) = evaluate(parse_module(text), inputs, "highest")
    (found,) = evaluate(_expanded(text), inputs, "highest")
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("form", ["rows", "summed"])
def test_what_is_not_finite_stays_in_its_group(form: str) -> None:
    text = _text(form, "f32")
    inputs = _inputs(text, SIZES["rows of no group"])
    inputs[0][4], inputs[1][3, 2], inputs[0][200] = np.inf, np.nan, np.nan
    (wanted,) = evaluate(parse_module(text), inputs, "highest")
    (found,) = evaluate(_expanded(text), inputs, "highest")
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("rows", "groups"), [(0, 5), (16, 0), (0, 0)])
def test_nothing_to_multiply_is_zeros(rows: int, groups: int) -> None:
    text = f"""HloModule m
ENTRY main {{
  x = f32[{rows},24] parameter(0)
  y = f32[{groups},24,16] parameter(1)
  s = s32[{groups}] parameter(2)
  ROOT r = f32[{rows},16] ragged-dot(x, y, s), {ROWS}
}}
"""
    module = parse_module(text)
    expand_simple(module, PassContext(load_chip("v5e")))
    verify(module)
    inputs = [np.ones(p.array.dims, p.array.dtype.numpy) for p in module.entry.parameters]
    (found,) = evaluate(module, inputs)
    np.testing.assert_array_equal(found, np.zeros((rows, 16), np.float32))


@pytest.mark.parametrize("dtype", ["bf16", "s32", "f16"])
@pytest.mark.parametrize("form", ["rows", "summed"])
def test_the_chip_computes_the_same(form: str, dtype: str) -> None:
    text = _text(form, dtype)
    inputs = _inputs(text, SIZES["rows of no group"])
    (wanted,) = evaluate(parse_module(text), inputs)
    (found,) = compile_model(text, target="v5e")(*inputs)
    np.testing.assert_array_equal(np.asarray(found).astype(np.float64), wanted.astype(np.float64))
