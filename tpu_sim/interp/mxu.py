"""The MXU's arithmetic (`tpu_sim.isa.rows.mxu`) on NumPy: all chains of a pass side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from tpu_sim.interp.exact import F32, sum_round_to_odd
from tpu_sim.isa.geometry import UNIT_DIM
from tpu_sim.isa.rows.mxu import CANONICAL_NAN

U32 = npt.NDArray[np.uint32]

_CHAIN_BLOCK = 32
"""k whose products are summed in two chains of their own."""
_NAN = np.uint32(CANONICAL_NAN).view(np.float32)
_SMALLEST_NORMAL = np.float32(2.0**-126)
_TINY_BELOW = 2.0**-126 - 2.0**-151
"""A sum at least this big rounds to a normal number when the exponent is unbounded."""


def halves(packed: U32) -> tuple[F32, F32]:
    """The low and high bf16 of each word as f32."""
    low = (packed << np.uint32(16)).view(np.float32)
    high = (packed & np.uint32(0xFFFF0000)).view(np.float32)
    return low, high


def flush_inputs(x: F32) -> F32:
    """Denormals become zeros of their sign."""
    return np.where(np.abs(x) < _SMALLEST_NORMAL, np.copysign(np.float32(0), x), x)


def pass_rows(rows: F32, weights: F32) -> F32:
    """``rows`` (16, 128) times ``weights`` (128, 128)."""
    blocks = UNIT_DIM // _CHAIN_BLOCK
    # dimensions: pair of a block, even or odd k, block, row, column
    left = flush_inputs(rows).astype(np.float64).reshape(-1, blocks, _CHAIN_BLOCK // 2, 2, 1)
    left = left.transpose(2, 3, 1, 0, 4)
    right = (
        flush_inputs(weights).astype(np.float64).reshape(blocks, _CHAIN_BLOCK // 2, 2, 1, UNIT_DIM)
    )
    right = right.transpose(1, 2, 0, 3, 4)
    chains = np.zeros((2, blocks, rows.shape[0], UNIT_DIM), np.float32)
    for a, b in zip(left, right, strict=True):
        chains = _fma_flushed(a * b, chains)
    total = np.zeros((rows.shape[0], UNIT_DIM), np.float32)
    for even, odd in zip(*chains, strict=True):
        total = flush_inputs(total + flush_inputs(even + odd))  # a denormal sum of f32 is exact
    return np.where(np.isnan(total), _NAN, total)


def integer_pass_rows(rows: F32, weights: F32, *, is_signed: bool) -> U32:
    """The same of the 16-bit halves that the values are in, each two 8-bit integers; s32 results."""
    total = np.zeros((len(rows), UNIT_DIM), np.float64)  # holds every sum exactly
    for left, right in zip(_bytes(rows, is_signed), _bytes(weights, is_signed), strict=True):
        total += left @ right
    return total.astype(np.int64).astype(np.uint32)


def _bytes(values: F32, is_signed: bool) -> list[npt.NDArray[np.float64]]:
    """The low and the high byte of the upper half of each word."""
    words = np.ascontiguousarray(values).view(np.uint32)
    kind = np.int8 if is_signed else np.uint8
    parts = (words >> np.uint32(shift) for shift in (16, 24))
    return [part.astype(np.uint8).view(kind).astype(np.float64) for part in parts]


PASSES: dict[str, Callable[[F32, F32], U32]] = {
    "bf16": lambda rows, weights: pass_rows(rows, weights).view(np.uint32),
    "s8": partial(integer_pass_rows, is_signed=True),
    "u8": partial(integer_pass_rows, is_signed=False),
}
"""By format (`tpu_sim.isa.rows.mxu.PASS_FORMATS`) a pass as words."""


def _fma_flushed(product: npt.NDArray[np.float64], addend: F32) -> F32:
    wide = sum_round_to_odd(product, addend.astype(np.float64))
    result = wide.astype(np.float32)
    return np.where(np.abs(wide) < _TINY_BELOW, np.copysign(np.float32(0), result), result)
