"""argmax and argmin: registers are folded by their best value, then by the least position of it."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.analysis.reducers import position_kind
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.scalar_computations import position_reducer
from tests.support.expansions import on_machine, reference

_NAN = "  n = pred[] compare(a, a), direction=NE\n"


def _reducer(value: str, place: str, direction: str) -> str:
    """As JAX writes it."""
    is_float = BY_NAME[value].is_float
    takes = "  t = pred[] or(g, n)\n" if is_float else ""
    first = "t" if is_float else "g"
    return (
        f"f {{\n  a = {value}[] parameter(0)\n  i = {place}[] parameter(1)\n"
        f"  b = {value}[] parameter(2)\n  j = {place}[] parameter(3)\n"
        f"  g = pred[] compare(a, b), direction={direction}\n{_NAN if is_float else ''}{takes}"
        f"  q = pred[] compare(a, b), direction=EQ\n  l = pred[] compare(i, j), direction=LT\n"
        f"  s = pred[] and(q, l)\n  o = pred[] or({first}, s)\n"
        f"  v = {value}[] select({first}, a, b)\n  p = {place}[] select(o, i, j)\n"
        f"  ROOT r = ({value}[], {place}[]) tuple(v, p)\n}}\n"
    )


def _text(value: str, place: str, dims: str, reduced: str, direction: str) -> str:
    sizes = dims.split(",")
    kept = ",".join(n for d, n in enumerate(sizes) if str(d) not in reduced.split(","))
    along = reduced.split(",")[-1]
    dtype = BY_NAME[value]
    worst = {"GT": "-inf", "LT": "inf"}[direction]
    if not dtype.is_float:
        ends = np.iinfo(dtype.numpy)
        worst = str(ends.min if direction == "GT" else ends.max)
    result = f"({value}[{kept}], {place}[{kept}])"
    return (
        f"HloModule m\n{_reducer(value, place, direction)}ENTRY e {{\n"
        f"  x = {value}[{dims}] parameter(0)\n  k = {place}[{dims}] iota(), iota_dimension={along}\n"
        f"  w = {value}[] constant({worst})\n  z = {place}[] constant(0)\n"
        f"  ROOT r = {result} reduce(x, k, w, z), dimensions={{{reduced}}}, to_apply=f\n}}\n"
    )


def _values(value: str, dims: str) -> np.ndarray:
    """Few different ones, so that there are ties, and the ends of the type."""
    rng = np.random.default_rng(3)
    shape = tuple(map(int, dims.split(",")))
    dtype = BY_NAME[value]
    if dtype.is_float:
        some = np.array([-1, 0, 1, 2, np.inf, -np.inf, np.nan], np.float32)
        return rng.choice(some, shape, p=[0.3, 0.3, 0.3, 0.085, 0.005, 0.005, 0.005]).astype(
            dtype.numpy
        )
    ends = np.iinfo(dtype.numpy)
    return rng.choice(np.array([ends.min, 0, 1, ends.max], dtype.numpy), shape)


@pytest.mark.parametrize("direction", ["GT", "LT"])
@pytest.mark.parametrize("place", ["s32", "u32"])
@pytest.mark.parametrize("value", ["f32", "bf16", "f16", "s32", "u32", "s8", "u8"])
@pytest.mark.parametrize(
    ("dims", "reduced"), [("70,300", "1"), ("300,70", "0"), ("5,33,130", "1"), ("1500", "0")]
)
def test_as_the_evaluator(value: str, place: str, dims: str, reduced: str, direction: str) -> None:
    text, x = _text(value, place, dims, reduced, direction), _values(value, dims)
    for want, got in zip(reference(text, [x]), on_machine(text, [x]), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def test_nothing_but_the_worst_gives_the_first_place() -> None:
    text = _text("f32", "s32", "3,200", "1", "GT")
    got = on_machine(text, [np.full((3, 200), -np.inf, np.float32)])
    np.testing.assert_array_equal(got[1], np.zeros(3, np.int32))


@pytest.mark.parametrize(("direction", "kind"), [("GT", "maximum"), ("LT", "minimum")])
@pytest.mark.parametrize("value", ["f32", "s32"])
def test_kinds(value: str, direction: str, kind: str) -> None:
    made = position_reducer(HloModule("m"), "r", BY_NAME[value], BY_NAME["s32"], direction)
    assert position_kind(made) == kind


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("compare(a, b), direction=GT", "compare(a, b), direction=GE"),
        ("compare(a, b), direction=EQ", "compare(a, b), direction=NE"),
        ("compare(i, j), direction=LT", "compare(i, j), direction=GT"),
        ("select(g, a, b)", "select(g, b, a)"),
        ("select(o, i, j)", "select(o, j, i)"),
    ],
)
def test_other_computations_are_none(before: str, after: str) -> None:
    text = _text("s32", "s32", "8,8", "1", "GT")
    assert before in text
    body = parse_module(text.replace(before, after), "t.hlo").computations["f"]
    assert position_kind(body) is None
    assert position_kind(parse_module(text, "t.hlo").computations["f"]) == "maximum"
