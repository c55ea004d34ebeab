"""Conversions between 64-bit integers and other types, each rounded once."""

from __future__ import annotations

from compiler.hlo.dtypes import F32, PRED, S32, U32, DType
from compiler.hlo.expression import Expr
from compiler.passes.pair_types.formulas import is_negative, select, sra
from compiler.passes.pair_types.int64_arithmetic import Int64, widened

_WORD = 2.0**32


def to_int64(x: Expr, dtype: DType) -> Int64:
    """Any real type that a lane holds, as s64 or u64; floats truncate and saturate, NaN is 0."""
    source = x.dtype
    if source.is_float:
        return _from_float(x.convert(F32), dtype)
    if source.is_signed:
        low = x.convert(S32).bits(U32)
        return Int64(low, sra(low, 31), dtype)
    return widened(x.convert(U32), dtype)


def from_int64(a: Int64, dtype: DType) -> Expr:
    """A 64-bit integer as any real type that a lane holds; integers wrap."""
    if dtype == PRED:
        return ~a.is_zero()
    if dtype.is_integer:
        return a.first.convert(dtype)
    if dtype.bits == 32:
        return _to_float(a)
    if dtype.bits == 16:
        return _to_float(a, is_odd=True).convert(dtype)
    return _to_float(a).convert(dtype)  # XLA makes 8-bit floats from f32


def _from_float(x: Expr, dtype: DType) -> Int64:
    size = abs(x)
    high = (size * (1 / _WORD)).convert(U32)
    rest = size - high.convert(F32) * _WORD
    value = Int64(rest.convert(U32), high, dtype)
    bits = 63 if dtype.is_signed else 64
    if dtype.is_signed:
        value = select(x < 0.0, -value, value)
    top = value.like((1 << bits) - 1)
    bottom = value.like(-(1 << 63) if dtype.is_signed else 0)
    value = select(x >= 2.0**bits, top, value)
    low_limit = -(2.0**63) if dtype.is_signed else 0.0
    value = select(x <= low_limit, bottom, value)
    return select(x.differs(x), value.like(0), value)


def _to_float(a: Int64, *, is_odd: bool = False) -> Expr:
    """f32, rounded to nearest even; with `is_odd` to odd, so that it may be rounded again.

    The number is shifted until its top bit is bit 63. What lies below the upper word only
    matters as "there is something": it is or'ed into the lowest bit.
    """
    sign = a.is_negative() if a.dtype.is_signed else None
    size = a if sign is None else select(sign, -a, a)
    zeros = size.leading_zeros()
    raised = size.shift_left(zeros)
    sticky = raised.first.differs(0).convert(U32)
    word = raised.second | sticky
    if is_odd:
        tail = word & 0xFF
        odd = tail.differs(0).convert(U32) << 8
        word = (word & 0xFFFFFF00) | odd
    exponent = 127 + 32 - zeros
    value = word.convert(F32) * (exponent << 23).bits(F32)
    return value if sign is None else sign.where(-value, value)


def saturated_index(a: Int64) -> Expr:
    """A 64-bit index as s32: the nearest one, which is as far outside of any array."""
    low = a.first.bits(S32)
    top = low.like((1 << 31) - 1)
    if not a.dtype.is_signed:
        is_small = a.second.equals(0) & ~is_negative(a.first)
        return is_small.where(low, top)
    fits = a.second.equals(sra(a.first, 31))
    bottom = low.like(-(1 << 31))
    return fits.where(low, is_negative(a.second).where(bottom, top))
