"""Elements put apart along the lanes, once and twice, in few columns and in many: beside the evaluator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.run_hlo import compile_text, expected, run_compiled

TYPES: dict[str, npt.DTypeLike] = {
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "s8": np.int8,
}


def _agrees(text: str, inputs: list[npt.NDArray[np.generic]]) -> None:
    (made,) = run_compiled(compile_text(text), inputs, "llvm").outputs
    (wanted,) = expected(text, inputs)
    assert np.array_equal(made, wanted)


def _numbers(*dims: int, dtype: str) -> npt.NDArray[np.generic]:
    seed = sum(dims)
    return np.random.default_rng(seed).integers(-60, 60, dims).astype(TYPES[dtype])


@pytest.mark.parametrize("lanes", [256, 2 * 8320, 36000], ids=["few", "runs", "many"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("is_reversed", [False, True], ids=["forwards", "reversed"])
def test_pads_of_pads(is_reversed: bool, dtype: str, lanes: int) -> None:
    """An associative scan's last steps: where a column begins in a tile is known at run time only."""
    half, quarter = lanes // 2, lanes // 4
    last = f"{dtype}[9,{lanes}] reverse(s), dimensions={{1}}" if is_reversed else ""
    text = f"""HloModule m
ENTRY main {{
  a = {dtype}[9,{half}] parameter(0)
  b = {dtype}[9,{quarter}] parameter(1)
  c = {dtype}[9,{quarter}] parameter(2)
  z = {dtype}[] constant(0)
  one = {dtype}[] constant(1)
  pa = {dtype}[9,{lanes}] pad(a, z), padding=0_0x0_1_1
  pb = {dtype}[9,{half}] pad(b, z), padding=0_0x0_1_1
  pc = {dtype}[9,{half}] pad(c, one), padding=0_0x1_0_1
  bc = {dtype}[9,{half}] add(pb, pc)
  pp = {dtype}[9,{lanes}] pad(bc, one), padding=0_0x1_0_1
  s = {dtype}[9,{lanes}] subtract(pa, pp)
  {"ROOT r = " + last if is_reversed else f"ROOT r = {dtype}[9,{lanes}] negate(s)"}
}}
"""
    _agrees(
        text,
        [_numbers(9, n, dtype=dtype) for n in (half, quarter, quarter)],
    )


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("dtype", TYPES)
def test_taking_turns(dtype: str, count: int) -> None:
    lanes = 200
    parts = "\n".join(
        f"  p{k} = {dtype}[2,8,{lanes}] parameter({k})\n  r{k} = {dtype}[2,8,{lanes},1] reshape(p{k})"
        for k in range(count)
    )
    names = ", ".join(f"r{k}" for k in range(count))
    text = f"""HloModule m
ENTRY main {{
{parts}
  s = {dtype}[2,8,{lanes},{count}] concatenate({names}), dimensions={{3}}
  r = {dtype}[16,{lanes * count}] reshape(s)
  ROOT n = {dtype}[16,{lanes * count}] negate(r)
}}
"""
    _agrees(text, [_numbers(2, 8, lanes, dtype=dtype) + k for k in range(count)])
