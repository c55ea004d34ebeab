"""64-bit integers as pairs of words: every operation agrees with the evaluator's 64-bit one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.pair_checks import before_and_after, same

Array = npt.NDArray[np.generic]
COUNT = 600
TYPES = {"s64": np.int64, "u64": np.uint64}
EDGES = [0, 1, 2, 3, 2**24 + 1, 2**31, 2**32 - 1, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1]


def numbers(dtype: str, seed: int) -> Array:
    """Numbers of all sizes, of both signs, and every pair of edges with the other seed's."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2**64, COUNT, dtype=np.uint64)
    bits >>= rng.integers(0, 64, COUNT, dtype=np.uint64)
    negative = rng.random(COUNT) < 0.4
    bits = np.where(negative, ~bits + np.uint64(1), bits)
    edges = np.array(EDGES, np.uint64)
    count = len(edges) ** 2
    bits[:count] = np.tile(edges, len(edges)) if seed % 2 else np.repeat(edges, len(edges))
    return bits.view(TYPES[dtype])


def text_of(opcode: str, result: str, *operands: str, tail: str = "", count: int = COUNT) -> str:
    parameters = "".join(
        f"  p{k} = {dtype}[{count}] parameter({k})\n" for k, dtype in enumerate(operands)
    )
    names = ", ".join(f"p{k}" for k in range(len(operands)))
    root = f"  ROOT r = {result}[{count}] {opcode}({names}){tail}\n"
    return f"HloModule m\nENTRY e {{\n{parameters}{root}}}\n"


def check(text: str, *inputs: Array) -> None:
    ((want, got),) = before_and_after(text, inputs)
    wrong = np.flatnonzero(~((want == got) | ((want != want) & (got != got))))[:3]
    details = [(tuple(x[k] for x in inputs), want[k], got[k]) for k in wrong]
    assert same(want, got), details


BINARY = (
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor",
    "mulhi",
)  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("opcode", BINARY)
def test_binary(opcode: str, dtype: str) -> None:
    check(text_of(opcode, dtype, dtype, dtype), numbers(dtype, 1), numbers(dtype, 2))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "opcode", ["abs", "count-leading-zeros", "negate", "not", "popcnt", "sign"]
)
def test_unary(opcode: str, dtype: str) -> None:
    check(text_of(opcode, dtype, dtype), numbers(dtype, 1))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("opcode", ["shift-left", "shift-right-logical", "shift-right-arithmetic"])
def test_shift_by_any_amount(opcode: str, dtype: str) -> None:
    amounts = np.arange(COUNT).astype(TYPES[dtype]) % TYPES[dtype](80)
    amounts[:144] = numbers(dtype, 2)[:144]
    check(text_of(opcode, dtype, dtype, dtype), numbers(dtype, 1), amounts)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
def test_compare(direction: str, dtype: str) -> None:
    text = text_of("compare", "pred", dtype, dtype, tail=f", direction={direction}")
    check(text, numbers(dtype, 1), numbers(dtype, 2))


@pytest.mark.parametrize("dtype", TYPES)
def test_power(dtype: str) -> None:
    count = 144
    text = text_of("power", dtype, dtype, dtype, count=count)
    check(text, numbers(dtype, 1)[:count], numbers(dtype, 2)[:count])


@pytest.mark.parametrize("dtype", TYPES)
def test_clamp_with_scalar_bounds(dtype: str) -> None:
    text = f"""HloModule m
ENTRY e {{
  x = {dtype}[{COUNT}] parameter(0)
  low = {dtype}[] constant(5)
  high = {dtype}[] constant(5000000000)
  ROOT r = {dtype}[{COUNT}] clamp(low, x, high)
}}
"""
    check(text, numbers(dtype, 1))


HOST = {
    "pred": np.bool_, "s8": np.int8, "u8": np.uint8, "s16": np.int16, "s32": np.int32,
    "u32": np.uint32, "s64": np.int64, "u64": np.uint64, "f16": np.float16,
    "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
    "c64": np.complex64,
}  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("target", HOST)
def test_convert_to(target: str, dtype: str) -> None:
    check(text_of("convert", target, dtype), numbers(dtype, 1))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("source", [name for name in HOST if name not in ("s64", "u64")])
def test_convert_from(source: str, dtype: str) -> None:
    rng = np.random.default_rng(3)
    if HOST[source] in (np.int8, np.uint8, np.int16, np.int32, np.uint32):
        values = numbers("s64", 1).astype(HOST[source])
    else:
        values = rng.standard_normal(COUNT) * 10.0 ** rng.uniform(-3, 24, COUNT)
        values[:7] = [np.nan, np.inf, -np.inf, 2.0**63, -(2.0**63), 2.0**64, -0.5]
        with np.errstate(over="ignore"):
            values = values.astype(HOST[source])
    check(text_of("convert", dtype, source), values)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("other", ["u32", "s32", "f32"])
def test_bitcast_convert_both_ways(other: str, dtype: str) -> None:
    shape = "[600,2]"
    text = f"""HloModule m
ENTRY e {{
  x = {dtype}[600] parameter(0)
  y = {other}{shape} bitcast-convert(x)
  z = {dtype}[600] bitcast-convert(y)
  ROOT r = ({other}{shape}, {dtype}[600]) tuple(y, z)
}}
"""
    for want, got in before_and_after(text, [numbers(dtype, 1)]):
        assert want.tobytes() == got.tobytes()
