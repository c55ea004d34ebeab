"""Values that a sum would compute for each copy of an element are stored; the same numbers come out."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from compiler.hlo.parser import parse_module
from compiler.passes.summed_copies import is_copied_into_sum
from tpu_sim.isa.chips import load_chip

OPS = 12


def module_text(
    copies: int, lanes: int = 2048, wide: str = "broadcast(y), dimensions={0,1,3}"
) -> str:
    """A sum over products of exponentials, `copies` of each on the left; `wide` is the right side."""
    shape = f"f32[64,{copies},64,{lanes}]"
    return f"""HloModule m
    add {{
      l = f32[] parameter(0)
      r = f32[] parameter(1)
      ROOT s = f32[] add(l, r)
    }}
    ENTRY e {{
      x = f32[64,64,{lanes}] parameter(0)
      y = f32[64,{copies},{lanes}] parameter(1)
      z = {shape} parameter(2)
      value = f32[64,64,{lanes}] exponential(x)
      left = {shape} broadcast(value), dimensions={{0,2,3}}
      right = {shape} {wide}
      products = {shape} multiply(left, right)
      zero = f32[] constant(0)
      ROOT sum = f32[{copies},64,{lanes}] reduce(products, zero), dimensions={{0}}, to_apply=add
    }}"""


def is_stored(text: str, chip: str) -> bool:
    entry = parse_module(text).entry
    value = next(i for i in entry if i.opcode == "exponential")
    return is_copied_into_sum(value, OPS, load_chip(chip))


@pytest.mark.parametrize(
    ("chip", "copies", "expected"),
    [("v5e", 4, False), ("v5e", 5, True), ("7x", 2, False), ("7x", 3, True)],
    ids=str,
)
def test_copies_are_weighed_against_the_chips_memory(
    chip: str, copies: int, expected: bool
) -> None:
    """Twelve operations take 4.8 cycles; on v5e a register takes 17 to be written and read, on 7x 6."""
    assert is_stored(module_text(copies), chip) is expected


def test_a_kernel_more_costs_too_much_for_few_elements() -> None:
    assert not is_stored(module_text(16, lanes=4), "v5e")
    assert is_stored(module_text(16, lanes=16), "v5e")


def test_work_is_hidden_behind_an_array_that_is_as_large_as_what_is_summed() -> None:
    assert not is_stored(module_text(16, wide="negate(z)"), "v5e")


@pytest.mark.parametrize(("summed", "expected"), [(0, True), (2, False)], ids=["rows", "lanes"])
def test_one_value_a_row_stays_in_registers_where_the_row_is_summed(
    summed: int, expected: bool
) -> None:
    kept = ",".join(str(size) for d, size in enumerate((512, 1024, 256)) if d != summed)
    text = f"""HloModule m
    add {{
      l = f32[] parameter(0)
      r = f32[] parameter(1)
      ROOT s = f32[] add(l, r)
    }}
    ENTRY e {{
      x = f32[512,1024] parameter(0)
      y = f32[512,256] parameter(1)
      value = f32[512,1024] exponential(x)
      rows = f32[512,1024,256] broadcast(value), dimensions={{0,1}}
      columns = f32[512,1024,256] broadcast(y), dimensions={{0,2}}
      products = f32[512,1024,256] multiply(rows, columns)
      zero = f32[] constant(0)
      ROOT sum = f32[{kept}] reduce(products, zero), dimensions={{{summed}}}, to_apply=add
    }}"""
    assert is_stored(text, "v5e") is expected


def test_products_of_matrices_in_logarithms() -> None:
    text = """HloModule m
    add {
      l = f32[] parameter(0)
      r = f32[] parameter(1)
      ROOT s = f32[] add(l, r)
    }
    ENTRY e {
      x = f32[16,16,512] parameter(0)
      y = f32[16,16,512] parameter(1)
      a = f32[16,16,512] exponential(x)
      b = f32[16,16,512] exponential(y)
      left = f32[16,16,16,512] broadcast(a), dimensions={0,2,3}
      right = f32[16,16,16,512] broadcast(b), dimensions={0,1,3}
      products = f32[16,16,16,512] multiply(left, right)
      zero = f32[] constant(0)
      sum = f32[16,16,512] reduce(products, zero), dimensions={0}, to_apply=add
      ROOT result = f32[16,16,512] log(sum)
    }"""
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(16, 16, 512)).astype(np.float32) for _ in range(2))
    (result,) = tpuc.compile(text)(x, y)
    wanted = np.log(np.einsum("kjn,kin->ijn", np.exp(x), np.exp(y)))
    np.testing.assert_allclose(np.asarray(result), wanted, rtol=2e-6, atol=2e-6)
