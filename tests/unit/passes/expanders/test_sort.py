"""Sorts as networks."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from compiler.passes.expanders.sort_parts import stages
from tests.support.expansions import assert_close, expanded, on_machine, reference

LESS = """less {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = pred[] compare(a, b), direction={direction}{kind}
}}
"""
ONE = """HloModule m
{less}
ENTRY e {{
  x = {t}[{dims}] parameter(0)
  ROOT s = {t}[{dims}] sort(x), dimensions={{{dim}}}, to_apply=less, is_stable=true
}}
"""
PAIR = """HloModule m
less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  i = f32[] parameter(2)
  j = f32[] parameter(3)
  three = s32[] constant(3)
  c = s32[] remainder(a, three)
  d = s32[] remainder(b, three)
  ROOT r = pred[] compare(c, d), direction=GT
}
ENTRY e {
  x = s32[4,37] parameter(0)
  y = f32[4,37] parameter(1)
  ROOT s = (s32[4,37], f32[4,37]) sort(x, y), dimensions={1}, to_apply=less, is_stable=true
}
"""


SMALL = "v5e{vmem=64KiB}"
"""A part of a sort has 26 kB there."""


def _text(t: str, dims: str, dim: int, direction: str = "LT", kind: str = "") -> str:
    return ONE.format(
        less=LESS.format(t=t, direction=direction, kind=kind), t=t, dims=dims, dim=dim
    )


def test_stages_sort_every_sequence_of_zeros_and_ones() -> None:
    for bits in range(256):
        values = np.array([bits >> k & 1 for k in range(8)])
        for stage in stages(8):
            place = np.arange(8)
            partner = place ^ (2 * stage.distance - 1 if stage.is_mirror else stage.distance)
            low = place & stage.distance == 0
            values = np.where(
                low, np.minimum(values, values[partner]), np.maximum(values, values[partner])
            )
        assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize(("dims", "dim"), [("1", 0), ("2,9", 1), ("9,2", 0), ("3,70,2", 1)])
@pytest.mark.parametrize("direction", ["LT", "GT", "LE"])
def test_one_operand(dims: str, dim: int, direction: str) -> None:
    shape = [int(n) for n in dims.split(",")]
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    text = _text("f32", dims, dim, direction)
    assert_close(reference(text, [x]), expanded(text, [x], ["sort-expander"], ["sort"]), 0)


def test_total_order_puts_nan_last() -> None:
    x = np.array([1, np.nan, -np.inf, -0.0, 0.0, 3], np.float32)
    text = _text("f32", "6", 0, kind=", type=TOTALORDER")
    (got,) = expanded(text, [x], ["sort-expander"])
    np.testing.assert_array_equal(got, np.array([-np.inf, -0.0, 0.0, 1, 3, np.nan], np.float32))
    assert np.signbit(got[1])
    assert not np.signbit(got[2])


def test_equal_keys_keep_their_order_with_their_operands() -> None:
    rng = np.random.default_rng(1)
    inputs = [rng.integers(0, 50, (4, 37)).astype(np.int32), rng.random((4, 37), np.float32)]
    want = reference(PAIR, inputs)
    assert_close(want, expanded(PAIR, inputs, ["sort-expander"], ["sort"]), 0)
    assert_close(want, on_machine(PAIR, inputs), 0)


def test_long_sort_is_a_loop_on_the_machine() -> None:
    x = np.random.default_rng(2).integers(-1000, 1000, (1, 300)).astype(np.int32)
    text = _text("s32", "1,300", 1)
    assert_close([np.sort(x, 1)], on_machine(text, [x]), 0)


@pytest.mark.parametrize(
    ("dims", "dim"),
    [("50,100", 1), ("1100", 0), ("3,1100", 1), ("130,300", 0), ("3,130,300", 1), ("9,130,2", 1)],
)
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_what_is_larger_than_vmem_is_sorted_by_parts(dims: str, dim: int, direction: str) -> None:
    rng = np.random.default_rng(3)
    shape = [int(n) for n in dims.split(",")]
    inputs = [rng.integers(-40, 40, shape).astype(np.int32), rng.random(shape).astype(np.float32)]
    text = PAIR.replace("direction=GT", f"direction={direction}").replace(
        "dimensions={1}", f"dimensions={{{dim}}}"
    )
    text = text.replace("4,37", dims)
    want = reference(text, inputs)
    assert_close(want, expanded(text, inputs, ["sort-expander"], ["sort"], SMALL), 0)


@pytest.mark.parametrize(("dims", "dim"), [("40,300", 1), ("5000", 0), ("300,260", 0)])
def test_parts_on_the_machine(dims: str, dim: int) -> None:
    shape = [int(n) for n in dims.split(",")]
    x = np.random.default_rng(4).integers(-1000, 1000, shape).astype(np.int32)
    text = _text("s32", dims, dim)
    assert_close([np.sort(x, dim)], on_machine(text, [x], "v5e{vmem=128KiB}"), 0)


def test_empty_sort() -> None:
    x = np.zeros((3, 0), np.float32)
    (got,) = expanded(_text("f32", "3,0", 1), [x], ["sort-expander"], ["sort"])
    assert got.shape == (3, 0)


QUOTIENTS = """HloModule m
order {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  i = u8[] parameter(2)
  j = u8[] parameter(3)
  zero = bf16[] constant(0)
  is_zero = pred[] compare(b, zero), direction=EQ
  key = bf16[] select(is_zero, zero, b)
  first = pred[] compare(a, key), direction=GT
  equal = pred[] compare(a, key), direction=EQ
  later = pred[] compare(i, j), direction=GT
  both = pred[] and(equal, later)
  ROOT r = pred[] or(first, both)
}
ENTRY e {
  x = bf16[5] parameter(0)
  u = u8[5,8] parameter(1)
  one = bf16[] constant(1)
  ones = bf16[5] broadcast(one), dimensions={}
  q = bf16[5] divide(ones, x)
  wide = bf16[5,8] broadcast(q), dimensions={0}
  s = (bf16[5,8], u8[5,8]) sort(wide, u), dimensions={1}, to_apply=order
  ROOT r = u8[5,8] get-tuple-element(s), index=1
}
"""


def test_a_pair_sees_one_order_of_what_is_computed_in_bf16() -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(1, 9, 5).astype(ml_dtypes.bfloat16)
    u = rng.integers(0, 250, (5, 8)).astype(np.uint8)
    (found,) = on_machine(QUOTIENTS, [x, u])
    np.testing.assert_array_equal(found, -np.sort(-u.astype(int), axis=1))
