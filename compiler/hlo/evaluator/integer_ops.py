"""Integer arithmetic with XLA's answers where C has none.

x / 0 = -1 (all ones when unsigned); x % 0 = x; MIN / -1 = MIN; MIN % -1 = 0; a shift by the width
or more gives 0, or the sign when arithmetic.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


def divide(x: Array, y: Array) -> Array:
    """Division truncated towards zero."""
    is_zero = y == 0
    divisor = np.where(is_zero, y.dtype.type(1), y)
    quotient = np.floor_divide(x, divisor)
    if x.dtype.kind == "i":
        inexact = quotient * divisor != x
        quotient = quotient + (inexact & ((x < 0) != (divisor < 0))).astype(x.dtype)
    all_ones = np.invert(y.dtype.type(0))
    return np.where(is_zero, all_ones, quotient)


def remainder(x: Array, y: Array) -> Array:
    """The remainder with the dividend's sign."""
    is_zero = y == 0
    divisor = np.where(is_zero, y.dtype.type(1), y)
    return np.where(is_zero, x, np.fmod(x, divisor))


def power(x: Array, y: Array) -> Array:
    """``x ** y`` modulo the width; a negative exponent gives the truncated reciprocal."""
    base, exponent = np.broadcast_arrays(x, y)
    result = np.ones(base.shape, x.dtype)
    square = base.copy()
    left = np.where(exponent < 0, y.dtype.type(0), exponent)
    while left.any():
        result = np.where(left & 1, result * square, result)
        square = square * square
        left = left >> 1
    if y.dtype.kind == "u":
        return result
    odd = (exponent & 1) != 0
    reciprocal = np.where(base == -1, np.where(odd, -1, 1), np.where(base == 1, 1, 0))
    return np.where(exponent < 0, reciprocal.astype(x.dtype), result)


def multiply_high(x: Array, y: Array) -> Array:
    """The upper half of the double-width product."""
    bits = x.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if x.dtype.kind == "i" else np.uint64
        product = x.astype(wide) * y.astype(wide)
        return (product >> wide(bits)).astype(x.dtype)
    exact = x.astype(object) * y.astype(object) >> bits
    return np.asarray(exact).astype(x.dtype)


def shift_left(bits: Array, amount: Array, width: int) -> Array:
    """Shift raw bits left; `amount` is unsigned."""
    capped = np.minimum(amount, amount.dtype.type(width - 1))
    return np.asarray(np.where(amount >= width, bits.dtype.type(0), np.left_shift(bits, capped)))


def shift_right_logical(bits: Array, amount: Array, width: int) -> Array:
    """Shift raw bits right, filling with zeros."""
    capped = np.minimum(amount, amount.dtype.type(width - 1))
    return np.asarray(np.where(amount >= width, bits.dtype.type(0), np.right_shift(bits, capped)))


def shift_right_arithmetic(bits: Array, amount: Array, width: int) -> Array:
    """Shift raw bits right, filling with the sign bit."""
    holder = bits.dtype.itemsize * 8
    raise_by = bits.dtype.type(holder - width)
    signed = np.left_shift(bits, raise_by).view(np.dtype(f"i{bits.dtype.itemsize}"))
    capped = np.minimum(amount, amount.dtype.type(width - 1)).astype(signed.dtype)
    shifted = np.right_shift(np.right_shift(signed, signed.dtype.type(raise_by)), capped)
    return np.asarray(shifted).view(bits.dtype)


def count_leading_zeros(bits: Array, width: int) -> Array:
    """Zeros above the highest set bit of a `width`-bit value."""
    smeared = bits
    step = 1
    while step < width:
        smeared = smeared | np.right_shift(smeared, smeared.dtype.type(step))
        step *= 2
    return np.asarray(width - np.bitwise_count(smeared).astype(np.int64))
