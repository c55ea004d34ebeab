"""Exact f32 arithmetic that NumPy lacks: the fused multiply-add, and IEEE maximum and minimum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
U32 = npt.NDArray[np.uint32]


def sum_round_to_odd(product: F64, addend: F64) -> F64:
    """``product + addend`` rounded to odd in f64, so that rounding again to f32 is exact.

    The product of two f32 is exact in f64. The two-sum's error says whether the f64 sum is inexact;
    if so and its last bit is 0, its neighbour on the error's side has last bit 1.
    """
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64)
    wrong = (error != 0) & ((bits & 1) == 0) & np.isfinite(total)
    if wrong.any():
        away = np.where((error > 0) == (total > 0), np.int64(1), np.int64(-1))
        bits += np.where(wrong, away, np.int64(0))
    return total


def fma(a: F32, b: F32, c: F32) -> F32:
    """``a * b + c`` with one rounding, to nearest even."""
    product = np.atleast_1d(a.astype(np.float64) * b.astype(np.float64))
    total = sum_round_to_odd(product, c.astype(np.float64))
    return total.astype(np.float32).reshape(np.broadcast_shapes(a.shape, b.shape, c.shape))


def maximum(a: F32, b: F32) -> F32:
    """IEEE 754-2019 maximum: NaN if either is, and +0 above -0."""
    return _extreme(a, b, a > b, a.view(np.uint32) & b.view(np.uint32))


def minimum(a: F32, b: F32) -> F32:
    """IEEE 754-2019 minimum: NaN if either is, and -0 below +0."""
    return _extreme(a, b, a < b, a.view(np.uint32) | b.view(np.uint32))


def _extreme(a: F32, b: F32, takes_a: npt.NDArray[np.bool_], equal_bits: U32) -> F32:
    chosen = np.where(takes_a, a, b)
    chosen = np.where(a == b, equal_bits.view(np.float32), chosen)
    return np.where((a != a) | (b != b), np.float32(np.nan), chosen)
