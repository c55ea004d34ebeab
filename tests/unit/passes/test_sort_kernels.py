"""Sorts as kernels of their own: keys of comparators, words of types, forms of lines, values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import run_pipeline
from compiler.passes.sort_kernels.keys import keys_of
from tests.support.expansions import expanded, on_machine, reference
from tpu_sim.isa.chips import load_chip

Array = npt.NDArray[np.generic]
PASSES = ["sort-kernels"]
TOTAL = ", type=TOTALORDER"


def _simple(t: str, direction: str, order: str = "") -> str:
    return f"""  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = pred[] compare(a, b), direction={direction}{order}"""


def _others(types: list[str], comparator: str) -> str:
    return "\n".join(
        f"  x{i} = {t}[] parameter({2 * i})\n  y{i} = {t}[] parameter({2 * i + 1})"
        for i, t in enumerate(types)
        if f"parameter({2 * i})" not in comparator
    )


def _module(types: list[str], dims: str, dim: int, comparator: str) -> str:
    shapes = [f"{t}[{dims}]" for t in types]
    result = shapes[0] if len(shapes) == 1 else f"({', '.join(shapes)})"
    lines = "\n".join(f"  p{i} = {s} parameter({i})" for i, s in enumerate(shapes))
    names = ", ".join(f"p{i}" for i in range(len(types)))
    return f"""HloModule m
less {{
{comparator}
{_others(types, comparator)}
}}
ENTRY e {{
{lines}
  ROOT s = {result} sort({names}), dimensions={{{dim}}}, is_stable=true, to_apply=less
}}
"""


LEXICOGRAPHIC = """  a = s32[] parameter(0)
  b = s32[] parameter(1)
  x1 = f32[] parameter(2)
  y1 = f32[] parameter(3)
  lt = pred[] compare(a, b), direction=LT
  eq = pred[] compare(b, a), direction=EQ
  gt = pred[] compare(x1, y1), direction=GT, type=TOTALORDER
  next = pred[] and(eq, gt)
  ROOT r = pred[] or(next, lt)"""

BY_SIZE = """  a = s32[] parameter(0)
  b = s32[] parameter(1)
  p = s32[] abs(a)
  q = s32[] abs(b)
  ROOT r = pred[] compare(q, p), direction=GT"""

AS_JAX = """  a = f32[] parameter(0)
  b = f32[] parameter(1)
  zero = f32[] constant(0)
  nan = f32[] constant(nan)
  za = pred[] compare(a, zero), direction=EQ
  ca = f32[] select(za, zero, a)
  na = pred[] compare(a, a), direction=NE
  ka = f32[] select(na, nan, ca)
  zb = pred[] compare(b, zero), direction=EQ
  cb = f32[] select(zb, zero, b)
  nb = pred[] compare(b, b), direction=NE
  kb = f32[] select(nb, nan, cb)
  ROOT r = pred[] compare(ka, kb), direction=LT, type=TOTALORDER"""

EITHER_OPERAND = """  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] add(a, b)
  ROOT r = pred[] compare(a, c), direction=LT"""

BY_LESSER = """  a = s32[] parameter(0)
  b = s32[] parameter(1)
  c = s32[] minimum(a, b)
  ROOT r = pred[] compare(c, b), direction=LT"""


def _values(t: str, shape: tuple[int, ...], seed: int) -> Array:
    """Few values with their ties, and what types end with."""
    rng = np.random.default_rng(seed)
    dtype = BY_NAME[t]
    if not dtype.is_float:
        if t == "pred":
            return rng.integers(0, 2, shape).astype(bool)
        ends = np.iinfo(dtype.numpy)
        some = [*rng.integers(ends.min, ends.max, 40, dtype.numpy), ends.min, ends.max]
        return rng.choice(np.array(some, dtype.numpy), shape)
    ends_of = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan]
    floats = np.array([*rng.standard_normal(40), *ends_of], np.float32)
    return rng.choice(floats, shape).astype(dtype.numpy)


def _same(want: list[Array], got: list[Array]) -> None:
    for a, b in zip(want, got, strict=True):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


def _opcodes(text: str) -> set[str]:
    module = parse_module(text, "t.hlo")
    run_pipeline(module, load_chip("v5e"), passes=PASSES)
    return {i.opcode for i in module.entry}


@pytest.mark.parametrize("t", ["s32", "u32", "s8", "u8", "s16", "u16", "pred", "f32", "bf16"])
@pytest.mark.parametrize("direction", ["LT", "GT", "LE"])
def test_types(t: str, direction: str) -> None:
    order = TOTAL if BY_NAME[t].is_float else ""
    text = _module([t], "300,70", 1, _simple(t, direction, order))
    x = _values(t, (300, 70), 0)
    assert "network-sort" in _opcodes(text)
    _same(reference(text, [x]), expanded(text, [x], PASSES, ["sort"]))


@pytest.mark.parametrize(
    ("dims", "dim"),
    [
        ("2000", 0),
        ("3,1500", 1),
        ("1500,3", 0),
        ("60,4000", 0),
        ("300,2,40", 2),
        ("4,300,150", 1),
        ("6,300,20", 1),
        ("3000,9", 1),
    ],
)
@pytest.mark.parametrize(
    ("types", "comparator"),
    [(["s32"], BY_SIZE), (["f32"], AS_JAX), (["s32", "f32", "bf16"], LEXICOGRAPHIC)],
)
def test_shapes(dims: str, dim: int, types: list[str], comparator: str) -> None:
    shape = tuple(map(int, dims.split(",")))
    text = _module(types, dims, dim, comparator)
    inputs = [_values(t, shape, i) for i, t in enumerate(types)]
    assert "network-sort" in _opcodes(text)
    _same(reference(text, inputs), expanded(text, inputs, PASSES, ["sort"]))


def test_places_are_no_operand() -> None:
    """argsort: the kernel gives the places, and its operand is the key alone."""
    text = _module(["f32", "s32"], "300,70", 1, AS_JAX).replace(
        "p1 = s32[300,70] parameter(1)", "p1 = s32[300,70] iota(), iota_dimension=1"
    )
    module = parse_module(text, "t.hlo")
    run_pipeline(module, load_chip("v5e"), passes=PASSES)
    (made,) = (i for i in module.entry if i.opcode == "network-sort")
    assert len(made.operands) == 2
    x = _values("f32", (300, 70), 0)
    _same(reference(text, [x]), expanded(text, [x], PASSES, ["sort"]))


@pytest.mark.parametrize(
    ("dims", "dim", "types", "comparator"),
    [
        ("130,33", 1, ["f32"], AS_JAX),
        ("1500", 0, ["bf16"], _simple("bf16", "GT", TOTAL)),
        ("5,600", 1, ["u32", "u8"], _simple("u32", "LT")),
    ],
)
def test_on_the_machine(dims: str, dim: int, types: list[str], comparator: str) -> None:
    text = _module(types, dims, dim, comparator)
    shape = tuple(map(int, dims.split(",")))
    inputs = [_values(t, shape, i) for i, t in enumerate(types)]
    _same(reference(text, inputs), on_machine(text, inputs))


@pytest.mark.parametrize("comparator", [_simple("s32", "LT"), BY_LESSER])
@pytest.mark.parametrize(("count", "length"), [(9, 1), (9, 2), (9, 64), (30, 64)])
def test_many_operands(count: int, length: int, comparator: str) -> None:
    """A network of whole arrays once asked for more spill slots than there are."""
    text = _module(["s32"] * count, str(length), 0, comparator)
    inputs = [_values("s32", (length,), i) for i in range(count)]
    _same(reference(text, inputs), on_machine(text, inputs))


@pytest.mark.parametrize(
    ("comparator", "count"),
    [(BY_SIZE, 1), (AS_JAX, 1), (LEXICOGRAPHIC, 2), (EITHER_OPERAND, 0)],
)
def test_keys(comparator: str, count: int) -> None:
    types = {AS_JAX: ["f32"], LEXICOGRAPHIC: ["s32", "f32"]}.get(comparator, ["s32"])
    text = _module(types, "64,64", 1, comparator)
    keys = keys_of(parse_module(text, "t.hlo").entry.root_instruction.to_apply)
    assert len(keys or ()) == count


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (_module(["s32"], "2", 0, _simple("s32", "LT")), "small"),
        (_module(["s32"], "300,70", 1, EITHER_OPERAND), "no keys"),
        (_module(["s64"], "300,70", 1, _simple("s64", "LT")), "64 bits"),
        (_module(["s32"], "33554432", 0, _simple("s32", "LT")), "larger than VMEM"),
    ],
)
def test_left_to_the_expander(text: str, why: str) -> None:
    assert "sort" in _opcodes(text), why
