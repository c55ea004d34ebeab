"""Dots of integers are exact."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.driver import compile_module
from compiler.hlo.parser import parse_module
from compiler.passes.expanders.integer_dot_expander import MAX_DOTS
from compiler.passes.pipeline import run_pipeline
from tests.support.expansions import Array, expanded, on_machine
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.chips import load_chip

TYPES = {"s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16, "s32": np.int32,
         "u32": np.uint32}  # fmt: skip
TEXT = """HloModule m
ENTRY e {{
  x = {a}[{m},{k}] parameter(0)
  y = {b}[{k},{n}] parameter(1)
  ROOT d = {c}[{m},{n}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
WIDENED = """HloModule m
ENTRY e {
  x = s8[3,40] parameter(0)
  y = u8[40,5] parameter(1)
  p = s32[3,40] convert(x)
  q = s32[40,5] convert(y)
  ROOT d = s32[3,5] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def _extremes(dtype: str, *dims: int) -> Array:
    """Random values, most of them the extreme ones, so that sums are as large as they get."""
    rng = np.random.default_rng(sum(dims))
    info = np.iinfo(TYPES[dtype])
    drawn = rng.integers(info.min, info.max, dims, TYPES[dtype], endpoint=True)
    return np.where(rng.random(dims) < 0.7, TYPES[dtype](info.min or info.max), drawn)


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ("s8", "s8", "s32"),
        ("u8", "u8", "s32"),
        ("s8", "u8", "s8"),
        ("s16", "u16", "s16"),
        ("s32", "s32", "s32"),
        ("u32", "s8", "u32"),
    ],
)
@pytest.mark.parametrize("dims", [(3, 9, 5), (64, 1500, 64), (9, 5000, 7), (1, 70001, 5)])
def test_every_pair_of_types(a: str, b: str, c: str, dims: tuple[int, int, int]) -> None:
    m, k, n = dims
    x, y = _extremes(a, m, k), _extremes(b, k, n)
    text = TEXT.format(a=a, b=b, c=c, m=m, k=k, n=n)
    want = (x.astype(np.int64) @ y.astype(np.int64)).astype(TYPES[c])
    (got,) = expanded(text, [x, y], ["integer-dot-expander"])
    np.testing.assert_array_equal(want, got)
    if dims[0] == 64 and a in ("u8", "s16"):
        np.testing.assert_array_equal(want, on_machine(text, [x, y])[0])


def test_dots_do_not_grow_in_number_with_what_is_contracted() -> None:
    counts = []
    for k in (5_000, 5_000_000):
        module = parse_module(TEXT.format(a="s16", b="s16", c="s32", m=2, k=k, n=3))
        run_pipeline(module, load_chip("v5e"), passes=["integer-dot-expander"])
        counts.append(sum(instr.opcode == "dot" for instr in module.entry))
    assert counts[1] <= 4 * MAX_DOTS
    assert counts[0] <= counts[1]


def test_widened_operands_count_as_narrow() -> None:
    x, y = _extremes("s8", 3, 40), _extremes("u8", 40, 5)
    want = x.astype(np.int32) @ y.astype(np.int32)
    np.testing.assert_array_equal(want, on_machine(WIDENED, [x, y])[0])


BYTES = """HloModule m
ENTRY e {{
  x = {a}[{x}] parameter(0)
  y = {a}[{y}] parameter(1)
  ROOT d = s32[{m},{n}] dot(x, y), lhs_contracting_dims={{{p}}}, rhs_contracting_dims={{{q}}}
}}
"""


@pytest.mark.parametrize(
    ("a", "m", "k", "n", "p", "q"),
    [
        ("s8", 64, 300, 200, 1, 0),
        ("u8", 70, 129, 200, 1, 1),
        ("s8", 257, 1100, 130, 0, 0),
        ("s8", 48, 64, 130, 1, 0),
    ],
)
def test_bytes_are_multiplied_as_such(a: str, m: int, k: int, n: int, p: int, q: int) -> None:
    x = _extremes(a, *((m, k) if p else (k, m)))
    y = _extremes(a, *((n, k) if q else (k, n)))
    left, right = x if p else x.T, y.T if q else y
    want = left.astype(np.int32) @ right.astype(np.int32)
    dims = {"x": ",".join(map(str, x.shape)), "y": ",".join(map(str, y.shape))}
    text = BYTES.format(a=a, m=m, n=n, p=p, q=q, **dims)
    instructions = _instructions(text, "v5e")
    assert f"vmatmul.{a} " in instructions
    assert "vmatmul.bf16" not in instructions
    np.testing.assert_array_equal(want, on_machine(text, [x, y])[0])


def test_a_chip_without_passes_of_bytes_multiplies_digits() -> None:
    text = BYTES.format(a="s8", x="64,300", y="300,200", m=64, n=200, p=1, q=0)
    instructions = _instructions(text, "v4")
    assert "vmatmul.bf16" in instructions
    assert "vmatmul.s8" not in instructions


def _instructions(text: str, chip: str) -> str:
    return print_program(compile_module(parse_module(text), load_chip(chip)).program)
