"""Value ranges hold every value that the evaluator finds, for all types of four and eight bits."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from compiler.analysis.value_range import type_range, value_range
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module

TYPES = ("s4", "u4", "s8", "u8", "s16", "u16", "s32", "u32")
NARROW = ("s4", "u4", "s8", "u8")


def everything(name: str) -> np.ndarray:
    """All numbers of a narrow type, some of a wide one."""
    low, high = type_range(BY_NAME[name])
    numbers = range(low, high + 1) if high - low < 256 else [low, low + 1, -1 % high, 0, 7, high]
    return np.array(list(numbers), np.int64).astype(BY_NAME[name].numpy)


def check(body: str, values: np.ndarray, name: str) -> tuple[int, int]:
    """The range of the root is one; returns it."""
    text = f"HloModule m\nENTRY e {{\n  x = {name}[{len(values)}] parameter(0)\n{body}\n}}\n"
    module = parse_module(text)
    found = value_range(module.entry.root_instruction)
    assert found is not None
    (got,) = evaluate(module, [values])
    numbers = [int(v) for v in np.asarray(got).reshape(-1)]
    assert found[0] <= min(numbers), text
    assert max(numbers) <= found[1], text
    return found


@pytest.mark.parametrize("name", NARROW)
def test_clamps_with_bounds_in_any_order(name: str) -> None:
    values = everything(name)
    bounds = [int(v) for v in values[:: len(values) // 16]]
    for low, high in itertools.product(bounds, bounds):
        body = f"""
  a = {name}[] constant({low})
  b = {name}[] constant({high})
  ROOT c = {name}[{len(values)}] clamp(a, x, b)"""
        found = check(body, values, name)
        assert found == (min(low, high), high)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("size", [1, 7, 8, 9, 15, 16, 17, 127, 128, 129, 255, 256, 257, 300])
def test_iotas_that_wrap_around(name: str, size: int) -> None:
    check(f"  ROOT i = {name}[2,{size}] iota(), iota_dimension=1", everything(name), name)


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(TYPES, 2)))
def test_conversions_that_wrap_around(source: str, target: str) -> None:
    values = everything(source)
    check(f"  ROOT c = {target}[{len(values)}] convert(x)", values, source)
    low, high = 3, 200 if BY_NAME[source].bits > 8 else 7
    body = f"""
  a = {source}[] constant({low})
  b = {source}[] constant({high})
  i = {source}[{len(values)}] clamp(a, x, b)
  c = {target}[{len(values)}] convert(i)
  ROOT r = {target}[{len(values)}] reverse(c), dimensions={{0}}"""
    check(body, values, source)


_ARITHMETIC = (
    "add",
    "subtract",
    "multiply",
    "maximum",
    "minimum",
    "divide",
    "remainder",
    "and",
)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("opcode", _ARITHMETIC)
def test_arithmetic_of_bounded_values(name: str, opcode: str) -> None:
    values = everything(name)
    bounds = [int(values[0]), 1, int(values[-1]) - 1]
    for low, high, other in itertools.product(bounds, bounds, [*bounds, 3]):
        body = f"""
  a = {name}[] constant({low})
  b = {name}[] constant({high})
  c = {name}[] constant({other})
  i = {name}[{len(values)}] clamp(a, x, b)
  j = {name}[{len(values)}] broadcast(c), dimensions={{}}
  ROOT r = {name}[{len(values)}] {opcode}(i, j)"""
        check(body, values, name)


def test_places_from_the_end_and_repeated() -> None:
    body = """
  n = s32[64] iota(), iota_dimension=0
  two = s32[] constant(2)
  t = s32[64] broadcast(two), dimensions={}
  odd = s32[64] multiply(n, t)
  zero = s32[64] subtract(n, n)
  below = pred[64] compare(odd, zero), direction=LT
  from-end = s32[64] add(odd, t)
  either = s32[64] select(below, from-end, odd)
  half = s32[64] divide(either, t)
  ROOT r = s32[128] concatenate(half, odd), dimensions={0}"""
    assert check(body, everything("s32"), "s32") == (0, 126)


def test_what_has_no_elements_or_is_no_integer() -> None:
    text = """HloModule m
ENTRY e {
  f = f32[4] parameter(0)
  p = pred[4] compare(f, f), direction=LT
  n = s32[4] convert(p)
  ROOT t = (f32[4], pred[4], s32[4]) tuple(f, p, n)
}
"""
    f, p, n = parse_module(text).entry.root_instruction.operands
    assert value_range(f) is None
    assert value_range(p) is None
    assert value_range(n) == (0, 1)


COMPUTATIONS = """
less (a: s8[], b: s8[], i: s8[], j: s8[]) -> pred[] {
  a = s8[] parameter(0)
  b = s8[] parameter(1)
  i = s8[] parameter(2)
  j = s8[] parameter(3)
  ROOT r = pred[] compare(a, b), direction=LT
}
best (a: s8[], i: s8[], b: s8[], j: s8[]) -> (s8[], s8[]) {
  a = s8[] parameter(0)
  i = s8[] parameter(1)
  b = s8[] parameter(2)
  j = s8[] parameter(3)
  c = pred[] compare(a, b), direction=GE
  x = s8[] select(c, a, b)
  k = s8[] select(c, i, j)
  ROOT r = (s8[], s8[]) tuple(x, k)
}
sums (a: s8[], i: s8[], b: s8[], j: s8[]) -> (s8[], s8[]) {
  a = s8[] parameter(0)
  i = s8[] parameter(1)
  b = s8[] parameter(2)
  j = s8[] parameter(3)
  x = s8[] maximum(a, b)
  k = s8[] add(i, j)
  ROOT r = (s8[], s8[]) tuple(x, k)
}
"""
PLACES = {
    "topk": ("t = (s8[4], s32[4]) topk(x), k=4, largest=true", "s32[4]", (0, 99)),
    "sort": (
        "t = (s8[100], s8[100]) sort(x, n), dimensions={0}, to_apply=less",
        "s8[100]",
        (0, 99),
    ),
    "greatest": (
        "t = (s8[], s8[]) reduce(x, n, z, m), dimensions={0}, to_apply=best",
        "s8[]",
        (-3, 99),
    ),
    "sum": (
        "t = (s8[], s8[]) reduce(x, n, z, m), dimensions={0}, to_apply=sums",
        "s8[]",
        (-128, 127),
    ),
}


@pytest.mark.parametrize("kind", PLACES)
def test_places_that_are_only_moved_about(kind: str) -> None:
    made, shape, wanted = PLACES[kind]
    body = f"""HloModule m
{COMPUTATIONS}
ENTRY e {{
  x = s8[100] parameter(0)
  n = s8[100] iota(), iota_dimension=0
  z = s8[] constant(-128)
  m = s8[] constant(-3)
  {made}
  ROOT r = {shape} get-tuple-element(t), index=1
}}
"""
    module = parse_module(body)
    assert value_range(module.entry.root_instruction) == wanted
    values = np.random.default_rng(0).integers(-128, 128, 100).astype(np.int8)
    (got,) = evaluate(module, [values])
    assert wanted[0] <= int(np.min(got))
    assert int(np.max(got)) <= wanted[1]
