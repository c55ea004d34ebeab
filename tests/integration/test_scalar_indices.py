"""Start indices of every integer type, and of scalars that the scalar unit cannot compute: the
machine equals the evaluator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tpuc
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module

ROWS = np.arange(128, dtype=np.float32).reshape(16, 8)
SLICE = "ROOT r = f32[2,8] dynamic-slice(x, i, z), dynamic_slice_sizes={2,8}"
UPDATE = "u = f32[2,8] broadcast(o), dimensions={}\n  ROOT r = f32[16,8] dynamic-update-slice(x, u, i, z)"
BOTH = (
    "y = f32[2,8] dynamic-slice(x, i, z), dynamic_slice_sizes={2,8}\n  k = f32[] convert(i)\n"
    "  s = f32[2,8] broadcast(k), dimensions={}\n  ROOT r = f32[2,8] add(y, s)"
)
USES = {"slice": SLICE, "update": UPDATE, "slice and value": BOTH}
VALUES: dict[str, tuple[int, ...]] = {
    "s2": (-2, 1), "u2": (3,), "s4": (-2, 7), "u4": (15,), "s8": (-128, 5, 127), "u8": (9, 255),
    "s16": (-3, 14, 3000), "u16": (5, 65535), "s32": (-5, 5, 99), "u32": (5, 2**31 + 3),
    "s64": (-1, 5, 2**33 + 1), "u64": (5, 2**63),
}  # fmt: skip
COMPUTED = {
    "reshaped": ("q = s8[1,1] parameter(1) e = s8[] reshape(q) i = s32[] convert(e)", [[3]]),
    "of a slice": (
        "q = s8[4] parameter(1) e = s8[1] slice(q), slice={[2:3]} f = s8[] reshape(e) "
        "i = s32[] convert(f)",
        [1, 2, 3, 4],
    ),
    "narrow in between": (
        "q = s32[] parameter(1) e = s8[] convert(q) f = s8[] add(e, e) i = s32[] convert(f)",
        260,
    ),
    "narrow shift": ("q = s8[] parameter(1) e = s8[] shift-left(q, q) i = s32[] convert(e)", 2),
    "of a pred": ("q = pred[] parameter(1) e = s8[] convert(q) i = s32[] convert(e)", 1),
    "bf16": ("q = bf16[] parameter(1) e = bf16[] add(q, q) i = s32[] convert(e)", 1.5),
    "f8": ("q = f8e4m3fn[] parameter(1) i = s32[] convert(q)", 2.5),
    "exponential": ("q = f32[] parameter(1) e = f32[] exponential(q) i = s32[] convert(e)", 1.5),
    "popcnt": ("q = s32[] parameter(1) i = s32[] popcnt(q)", 7),
    "power": ("q = s32[] parameter(1) i = s32[] power(q, q)", 2),
    "vector of one": (
        "q = s32[] parameter(1) b = s32[1] broadcast(q), dimensions={} n = s32[1] negate(b) "
        "m = s32[1] negate(n) i = s32[] reshape(m)",
        3,
    ),
}


def check(text: str, *inputs: npt.NDArray[np.generic]) -> None:
    want = evaluate(parse_module(text), list(inputs), "highest")
    for got, wanted in zip(tpuc.compile(text)(*inputs), want, strict=True):
        np.testing.assert_array_equal(np.asarray(got), wanted)


def module(lines: str, use: str, zero: str = "s32") -> str:
    return (
        f"HloModule m\nENTRY e {{\n  x = f32[16,8] parameter(0)\n  z = {zero}[] constant(0)\n"
        f"  o = f32[] constant(3)\n  {lines}\n  {USES[use]}\n}}\n"
    )


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("dtype", VALUES)
def test_parameters(dtype: str, use: str) -> None:
    text = module(f"i = {dtype}[] parameter(1)", use, dtype)
    for value in VALUES[dtype]:
        check(text, ROWS, np.array(value).astype(BY_NAME[dtype].numpy))


@pytest.mark.parametrize("dtype", VALUES)
def test_arithmetic_and_one_element(dtype: str) -> None:
    text = (
        f"HloModule m\nENTRY e {{\n  x = f32[128] parameter(0)\n  i = {dtype}[] parameter(1)\n"
        f"  j = {dtype}[] add(i, i)\n"
        "  ROOT r = f32[1] dynamic-slice(x, j), dynamic_slice_sizes={1}\n}\n"
    )
    for value in VALUES[dtype]:
        check(text, ROWS.reshape(-1), np.array(value).astype(BY_NAME[dtype].numpy))


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", COMPUTED)
def test_scalars_that_kernels_compute(name: str, use: str) -> None:
    lines, value = COMPUTED[name]
    dtype = lines.split()[2].partition("[")[0]
    check(module(lines, use), ROWS, np.array(value).astype(BY_NAME[dtype].numpy))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, ml_dtypes.int4])
def test_numpy_scalars_index_traced_arrays(dtype: type[np.generic]) -> None:
    @tpuc.jit
    def row(x: npt.NDArray[np.float32], i: np.generic) -> npt.NDArray[np.float32]:
        return x[i] + x[i - 1]

    got = np.asarray(row(ROWS, np.asarray(5).astype(dtype)))
    np.testing.assert_array_equal(got, ROWS[5] + ROWS[4])
