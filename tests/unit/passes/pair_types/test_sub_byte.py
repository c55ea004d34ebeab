"""2- and 4-bit integers held in bytes: all pairs of values, every operation."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from compiler.analysis.host_ports import host_ports
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from compiler.passes.context import PassContext
from compiler.passes.expanders.bit_casts import change_width
from compiler.passes.expanders.driver import expand
from compiler.passes.pair_types.sub_byte import widen_sub_byte
from tpu_sim.isa.chips import load_chip

Array = npt.NDArray[np.generic]
NARROW = {"s4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "s2": ml_dtypes.int2, "u2": ml_dtypes.uint2}
HELD = {"s4": np.int8, "u4": np.uint8, "s2": np.int8, "u2": np.uint8}
BINARY = (
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor",
    "power", "shift-left", "shift-right-logical", "shift-right-arithmetic",
)  # fmt: skip
WIDE = {
    "bf16": ml_dtypes.bfloat16, "u16": np.uint16, "s32": np.int32, "f32": np.float32,
    "s64": np.int64,
}  # fmt: skip
OTHERS = {"pred": np.bool_, "s8": np.int8, "u8": np.uint8, "s32": np.int32, "f32": np.float32}


def widened(text: str) -> HloModule:
    module = parse_module(text, "test.hlo")
    context = PassContext(load_chip("v5e"))
    expand(module, context, {"bitcast-convert": change_width})
    assert widen_sub_byte(module, context)
    verify(module)
    names = {leaf.dtype.name for p in module.entry.parameters for leaf in [p.array]}
    assert not names & NARROW.keys()
    return module


def check(text: str, *inputs: Array) -> None:
    wanted = evaluate(parse_module(text, "test.hlo"), list(inputs))
    held = [x.astype(_held(x.dtype)) for x in inputs]
    found = evaluate(widened(text), held)
    for want, got in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(
            np.asarray(got).astype(np.float64), np.asarray(want).astype(np.float64)
        )


def _held(dtype: np.dtype[np.generic]) -> npt.DTypeLike:
    return next((HELD[n] for n, t in NARROW.items() if np.dtype(t) == dtype), dtype)


def pairs(name: str) -> tuple[Array, Array]:
    bits = int(name[1])
    low = -(1 << (bits - 1)) if name[0] == "s" else 0
    span = range(low, low + (1 << bits))
    columns = zip(*itertools.product(span, span), strict=True)
    a, b = (np.array(column).astype(np.int8).astype(NARROW[name]) for column in columns)
    return a, b


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("opcode", BINARY)
def test_binary(opcode: str, dtype: str) -> None:
    a, b = pairs(dtype)
    n = a.size
    check(
        f"HloModule m\nENTRY e {{\n  x = {dtype}[{n}] parameter(0)\n  y = {dtype}[{n}] parameter(1)\n"
        f"  ROOT r = {dtype}[{n}] {opcode}(x, y)\n}}\n",
        a,
        b,
    )


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    "opcode", ["abs", "negate", "not", "sign", "popcnt", "count-leading-zeros"]
)
def test_unary(opcode: str, dtype: str) -> None:
    a, _ = pairs(dtype)
    check(
        f"HloModule m\nENTRY e {{\n  x = {dtype}[{a.size}] parameter(0)\n"
        f"  ROOT r = {dtype}[{a.size}] {opcode}(x)\n}}\n",
        a,
    )


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("other", OTHERS)
def test_convert_both_ways(other: str, dtype: str) -> None:
    values = (np.arange(-30, 31) * 1.3).astype(np.int32).astype(OTHERS[other])
    text = (
        f"HloModule m\nENTRY e {{\n  x = {other}[61] parameter(0)\n  y = {dtype}[61] convert(x)\n"
        f"  z = {other}[61] convert(y)\n  ROOT t = ({dtype}[61], {other}[61]) tuple(y, z)\n}}\n"
    )
    check(text, values)


@pytest.mark.parametrize("opcode", ["add", "multiply", "maximum"])
@pytest.mark.parametrize("dtype", NARROW)
def test_reduce_wraps(dtype: str, opcode: str) -> None:
    a, _ = pairs(dtype)
    check(
        f"""HloModule m
f {{
  a = {dtype}[] parameter(0)
  b = {dtype}[] parameter(1)
  ROOT r = {dtype}[] {opcode}(a, b)
}}
ENTRY e {{
  x = {dtype}[{a.size}] parameter(0)
  c = {dtype}[] constant(1)
  i = {dtype}[{a.size}] iota(), iota_dimension=0
  s = {dtype}[{a.size}] add(x, i)
  ROOT r = {dtype}[] reduce(s, c), dimensions={{0}}, to_apply=f
}}
""",
        a,
    )


def test_an_entry_that_looks_like_a_reducer_wraps() -> None:
    text = "HloModule m\nENTRY e {\n  x = s4[] parameter(0)\n  y = s4[] parameter(1)\n"
    check(text + "  ROOT r = s4[] add(x, y)\n}\n", *(np.int8(7).astype(ml_dtypes.int4),) * 2)


def test_operations_in_a_row() -> None:
    a, b = pairs("s4")
    check(
        f"""HloModule m
ENTRY e {{
  x = s4[{a.size}] parameter(0)
  y = s4[{a.size}] parameter(1)
  s = s4[{a.size}] add(x, y)
  p = s4[{a.size}] popcnt(s)
  q = s4[{a.size}] shift-right-logical(s, p)
  u = u4[{a.size}] bitcast-convert(s)
  f = f32[{a.size}] convert(u)
  ROOT t = (s4[{a.size}], f32[{a.size}]) tuple(q, f)
}}
""",
        a,
        b,
    )


def test_bits_of_a_byte() -> None:
    check(
        """HloModule m
ENTRY e {
  x = s8[256] parameter(0)
  y = s4[256,2] bitcast-convert(x)
  z = u8[256] bitcast-convert(y)
  w = u2[256,2,2] bitcast-convert(y)
  ROOT t = (s4[256,2], u8[256], u2[256,2,2]) tuple(y, z, w)
}
""",
        np.arange(256).astype(np.uint8).view(np.int8),
    )


@pytest.mark.parametrize("narrow", NARROW)
@pytest.mark.parametrize("wide", WIDE)
def test_bits_of_several_bytes(wide: str, narrow: str) -> None:
    dtype = np.dtype(WIDE[wide])
    count = 8 * dtype.itemsize // int(narrow[1])
    words = np.random.default_rng(0).integers(0, 256, (3, 130 * dtype.itemsize), np.uint8)
    check(
        f"""HloModule m
ENTRY e {{
  x = {wide}[3,130] parameter(0)
  y = {narrow}[3,130,{count}] bitcast-convert(x)
  u = {narrow}[3,130,{count}] add(y, y)
  z = {wide}[3,130] bitcast-convert(u)
  r = u{8 * dtype.itemsize}[3,130] bitcast-convert(z)
  ROOT t = ({narrow}[3,130,{count}], u{8 * dtype.itemsize}[3,130]) tuple(y, r)
}}
""",
        words.view(dtype),
    )


def test_the_host_keeps_its_type() -> None:
    module = widened(
        "HloModule m\nENTRY e {\n  x = s4[5] parameter(0)\n  ROOT r = s32[5] convert(x)\n}\n"
    )
    assert host_ports(module).parameters == ("s4[5]",)
    assert host_ports(module).results == ("",)
