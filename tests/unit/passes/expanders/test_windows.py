"""Reduce-windows of any kind, and select-and-scatter."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.parser import parse_module
from compiler.passes.context import PassContext
from compiler.passes.expanders.select_and_scatter_expander import expand_select_and_scatters
from tests.support.expansions import assert_close, expanded, on_machine, reference
from tpu_sim.isa.chips import load_chip

BODIES = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
logaddexp {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  top = f32[] maximum(a, b)
  gap = f32[] subtract(a, b)
  size = f32[] abs(gap)
  minus = f32[] negate(size)
  exp = f32[] exponential(minus)
  log = f32[] log-plus-one(exp)
  ROOT r = f32[] add(top, log)
}
argmax {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=GT
  same = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, before)
  first = pred[] or(more, tie)
  value = f32[] select(first, a, b)
  place = s32[] select(first, i, j)
  ROOT r = (f32[], s32[]) tuple(value, place)
}
totals {
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  x = f32[] add(a, b)
  k = s32[] add(i, j)
  ROOT r = (f32[], s32[]) tuple(x, k)
}
ge {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=GE
}
"""
ONE = """HloModule m
{bodies}
ENTRY e {{
  x = f32[6,40] parameter(0)
  i = f32[] constant({init})
  ROOT r = f32[{result}] reduce-window(x, i), window={{{window}}}, to_apply={body}
}}
"""
ONES = {
    "generic": ("logaddexp", "-1e9", "6,38", "size=1x3"),
    "start value counts": ("add", "5", "6,40", "size=1x3 pad=0_0x1_1"),
    "generic, padded": ("logaddexp", "0", "6,42", "size=1x3 pad=0_0x3_1"),
    "long": ("logaddexp", "-1e9", "6,21", "size=1x20"),
    "long, strided, dilated": ("add", "0", "6,6", "size=1x12 stride=1x3 rhs_dilate=1x2"),
    "base dilated": ("add", "0", "11,77", "size=1x3 lhs_dilate=2x2"),
    "disjoint": ("add", "0", "6,2", "size=1x20 stride=1x20"),
    "both": ("add", "2", "3,4", "size=2x10 stride=2x10"),
}
VARIADIC = f"""HloModule m
{BODIES}
ENTRY e {{
  x = f32[6,40] parameter(0)
  k = s32[6,40] iota(), iota_dimension=1
  low = f32[] constant(-inf)
  last = s32[] constant(2147483647)
  ROOT r = (f32[6,37], s32[6,37]) reduce-window(x, k, low, last), window={{size=1x4}},
    to_apply=argmax
}}
"""
PASSES = ["dce", "tap-expander", "reduce-window-expander"]


def _input() -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return np.random.default_rng(0).integers(-4, 5, (6, 40)).astype(np.float32)


@pytest.mark.parametrize("case", ONES)
def test_one_operand(case: str) -> None:
    body, init, result, window = ONES[case]
    text = ONE.format(bodies=BODIES, body=body, init=init, result=result, window=window)
    want = reference(text, [_input()])
    assert_close(want, expanded(text, [_input()], PASSES, ["reduce-window"]), 1e-6)


def test_several_operands() -> None:
    want = reference(VARIADIC, [_input()])
    assert_close(want, expanded(VARIADIC, [_input()], PASSES, ["reduce-window"]), 0)
    assert_close(want, on_machine(VARIADIC, [_input()]), 0)


PADDED = """HloModule m
{bodies}
ENTRY e {{
  x = f32[6,40] parameter(0)
  k = s32[6,40] iota(), iota_dimension=1
  i = f32[] constant(3)
  j = s32[] constant(7)
  ROOT r = (f32[{dims}], s32[{dims}]) reduce-window(x, k, i, j), window={{{window}}},
    to_apply={body}
}}
"""


@pytest.mark.parametrize(
    ("body", "dims", "window"),
    [
        ("totals", "4,40", "size=5x1 stride=2x1 pad=4_2x0_0"),
        ("totals", "6,52", "size=1x12 pad=0_0x11_12"),
        ("totals", "8,81", "size=3x2 lhs_dilate=1x2 pad=2_2x2_1"),
        ("argmax", "7,21", "size=2x4 stride=1x2 pad=1_1x2_2"),
    ],
)
def test_padding_does_not_count_whatever_the_start_value(body: str, dims: str, window: str) -> None:
    text = PADDED.format(bodies=BODIES, body=body, dims=dims, window=window)
    want = reference(text, [_input()])
    assert_close(want, expanded(text, [_input()], PASSES, ["reduce-window"]), 1e-6)
    assert_close(want, on_machine(text, [_input()]), 1e-6)


SCATTER = """HloModule m
{bodies}
ENTRY e {{
  x = f32[6,40] parameter(0)
  s = f32[{source}] parameter(1)
  i = f32[] constant({init})
  ROOT r = f32[6,40] select-and-scatter(x, s, i), window={{{window}}}, select=ge, scatter=add
}}
"""


@pytest.mark.parametrize(
    ("source", "window", "init"),
    [
        ("3,20", "size=2x2 stride=2x2", "0"),
        ("4,38", "size=3x3", "0"),
        ("3,14", "size=3x4 stride=2x3 pad=0_1x1_2", "7"),
    ],
)
def test_select_and_scatter(source: str, window: str, init: str) -> None:
    text = SCATTER.format(bodies=BODIES, source=source, window=window, init=init)
    dims = [int(n) for n in source.split(",")]
    inputs = [_input(), np.random.default_rng(1).standard_normal(dims).astype(np.float32)]
    want = reference(text, inputs)
    names = ["select-and-scatter-expander"]
    assert_close(want, expanded(text, inputs, names, ["select-and-scatter"]), 1e-6)
    if init == "7":
        assert_close(want, on_machine(text, inputs), 1e-6)


MANY = """HloModule m
{bodies}
ENTRY e {{
  x = f32[{dims}] parameter(0)
  s = f32[{source}] parameter(1)
  i = f32[] constant(1)
  ROOT r = f32[{dims}] select-and-scatter(x, s, i), window={{{window}}}, select=ge, scatter=add
}}
"""


@pytest.mark.parametrize(
    ("dims", "source", "window"),
    [
        ("2,14,13,5", "2,1,1,5", "size=1x14x13x1"),
        ("40,33", "11,24", "size=30x10"),
        ("40,33", "25,30", "size=30x15 pad=7_7x5_6"),
        ("70,70", "11,13", "size=40x30 stride=4x4 pad=5_5x4_6"),
        ("3,1500", "3,1500", "size=1x1335 pad=0_0x1334_0"),
        ("3,300", "3,97", "size=1x200 pad=0_0x-2_-2"),
    ],
)
def test_windows_of_many_elements_are_looked_at_in_a_loop(
    dims: str, source: str, window: str
) -> None:
    text = MANY.format(bodies=BODIES, dims=dims, source=source, window=window)
    shapes = [tuple(int(n) for n in d.split(",")) for d in (dims, source)]
    rng = np.random.default_rng(2)
    inputs = [rng.integers(-9, 10, shape).astype(np.float32) for shape in shapes]
    made = parse_module(text)
    expand_select_and_scatters(made, PassContext(load_chip("v5e")))
    assert sum(i.opcode == "while" for i in made.entry) == 2
    assert_close(reference(text, inputs), on_machine(text, inputs), 0)


def test_elements_as_far_apart_as_windows_meet_the_same_taps() -> None:
    """Each tap is looked at for as many elements as there are windows, and nothing is spread out."""
    window = "size=1x3x3x1 stride=1x2x2x1 pad=0_0x0_1x0_1x0_0"
    text = f"""HloModule m
{BODIES}
ENTRY main {{
  x = f32[2,16,16,8] parameter(0)
  s = f32[2,8,8,8] parameter(1)
  z = f32[] constant(0)
  ROOT r = f32[2,16,16,8] select-and-scatter(x, s, z), window={{{window}}}, select=ge, scatter=add
}}
"""
    made = parse_module(text)
    expand_select_and_scatters(made, PassContext(load_chip("v5e")))
    pads = [i for i in made.entry if i.opcode == "pad" and i.array.dims == (2, 8, 8, 8)]
    assert len(pads) == 18
    assert all(inner == 0 for pad in pads for _, _, inner in pad.padding)
