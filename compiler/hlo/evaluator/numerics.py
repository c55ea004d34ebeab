"""Rounding, widening and bit views: how XLA's element types are computed with in NumPy.

Floats narrower than 32 bits compute in float32 and round once per operation; integers narrower
than 8 bits compute in 8 bits and wrap.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import DType, from_numpy
from compiler.hlo.representability import has_nan

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


def widen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array in a type NumPy computes in: float32 for narrow floats, 8-bit for s4 etc."""
    dtype = from_numpy(array.dtype)
    if dtype.is_float and dtype.bits < 32:
        return array.astype(np.float32)
    if dtype.is_integer and dtype.bits < 8:
        return array.astype(np.int8 if dtype.is_signed else np.uint8)
    return array


def cast_exactly_once(array: npt.NDArray[Any], target: np.dtype[np.generic]) -> npt.NDArray[Any]:
    """Cast a computed array to its result type; narrow integers wrap, floats round to nearest.

    A NaN of either sign becomes -0 in a type without NaN, as in XLA.
    """
    if array.dtype == target:
        return array
    dtype = from_numpy(target)
    if dtype.is_integer and dtype.bits < 8:
        return wrap_narrow(array, dtype)
    if np.iscomplexobj(array) and not dtype.is_complex:
        array = array.real
    if dtype.is_float and array.dtype.kind == "f" and not has_nan(dtype):
        array = np.where(np.isnan(array), array.dtype.type(-0.0), array)
    return array.astype(target)


def wrap_narrow(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Reduce integers modulo 2**bits into a 2- or 4-bit type."""
    shift = np.uint8(8 - dtype.bits)
    raised = np.left_shift(array.astype(np.uint8), shift)
    if dtype.is_signed:
        return np.right_shift(raised.view(np.int8), np.int8(shift)).astype(dtype.numpy)
    return np.right_shift(raised, shift).astype(dtype.numpy)


def unsigned_view(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The bits of an 8- to 64-bit array as unsigned integers (no copy when contiguous)."""
    return np.ascontiguousarray(array).reshape(array.shape).view(_UNSIGNED[array.itemsize * 8])


def unsigned_bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The bits of any array as unsigned integers; types below 8 bits occupy the low bits."""
    dtype = from_numpy(array.dtype)
    if dtype.bits >= 8:
        return unsigned_view(array)
    mask = np.uint8((1 << dtype.bits) - 1)
    if dtype.is_integer:
        return array.astype(np.int8).view(np.uint8) & mask
    return array.view(np.uint8) & mask


def from_unsigned_bits(bits: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """The inverse of `unsigned_bits`."""
    if dtype.bits < 8 and dtype.is_integer:
        return wrap_narrow(bits, dtype)
    return np.ascontiguousarray(bits).reshape(bits.shape).view(dtype.numpy)


def round_to_bf16(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Round float32 values to bf16 (nearest, ties to even), kept as float32."""
    narrow: npt.NDArray[np.float32] = array.astype(_BFLOAT16).astype(np.float32)
    return narrow


def split_bf16(
    array: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Split ``x = hi + mid + ...`` by truncation to 8 significant bits; mid of inf, NaN is 0."""
    high = truncate_to_bf16(array)
    rest = np.where(np.isfinite(high), array - high, np.float32(0))
    return high, truncate_to_bf16(rest)


def truncate_to_bf16(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Clear the low 16 bits of float32 values; a NaN stays a NaN."""
    cleared = (unsigned_view(array) & np.uint32(0xFFFF0000)).view(np.float32)
    return np.where(np.isnan(array), array, cleared)


def total_order_key(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Map values to integers in XLA's total order: -NaN < -inf < -0 < +0 < inf < NaN.

    Bits of narrow types are not in this order: the one NaN of f8e4m3fnuz lies where -0 does
    elsewhere, and f8e8m0fnu has no sign. They are ordered as f32, a NaN by its sign bit.
    """
    dtype = from_numpy(array.dtype)
    if not dtype.is_float:
        return widen(array)
    if dtype.bits <= 8:
        wide = widen(array).astype(np.float32)
        has_sign = dtype.name != "f8e8m0fnu"
        is_negative = has_sign & (unsigned_bits(array) >> (dtype.bits - 1) == 1)
        sign = np.where(is_negative, np.float32(-1), np.float32(1))
        return total_order_key(np.where(np.isnan(wide), np.copysign(wide, sign), wide))
    bits = unsigned_view(array).view(_SIGNED[dtype.bits])
    top = np.iinfo(bits.dtype).max
    return np.where(bits < 0, bits ^ top, bits)


def multiply_add(
    a: npt.NDArray[Any], b: npt.NDArray[Any], c: npt.NDArray[Any]
) -> npt.NDArray[np.float32]:
    """``a * b + c`` of f32 with one rounding, to nearest even.

    The product is exact in f64; the sum is rounded to odd there, so that the second rounding errs
    nowhere.
    """
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = np.asarray(product + addend)
    back = total - product
    error = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64)
    is_short = (error != 0) & (bits & 1 == 0) & np.isfinite(total)
    away = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where(is_short, bits + away, bits).view(np.float64)
    return np.asarray(odd.astype(np.float32))


def float_to_integer(array: npt.NDArray[Any], dtype: DType) -> npt.NDArray[Any]:
    """Truncate floats towards zero into an integer type: out of range clamps, NaN becomes 0."""
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    high = (1 << (dtype.bits - (1 if dtype.is_signed else 0))) - 1
    limit = float(high + 1)  # a power of two, exact in f64
    holder = np.int64 if dtype.is_signed else np.uint64
    whole = np.trunc(array.astype(np.float64))
    inside = (whole >= float(low)) & (whole < limit)
    result = np.where(inside, whole, 0.0).astype(holder)
    result = np.where(whole >= limit, holder(high), result)
    result = np.where(whole < float(low), holder(low), result)
    return cast_exactly_once(result, dtype.numpy)


def convert(array: npt.NDArray[Any], target: DType) -> npt.NDArray[Any]:
    """XLA's convert between any two element types."""
    source = from_numpy(array.dtype)
    if source == target:
        return array
    if target.name == "pred":
        return np.asarray(widen(array) != 0)
    if source.is_complex and not target.is_complex:
        return convert(np.real(array), target)
    if source.is_float and target.is_integer:
        return float_to_integer(array, target)
    if target.bits < 16 and target.is_float and source.is_integer:
        return array.astype(np.float32).astype(target.numpy)
    return cast_exactly_once(widen(array), target.numpy)
