"""Conversions between 64-bit integers and other types, each rounded once."""

from __future__ import annotations

from compiler.hlo.dtypes import F32, PRED, S32, U32, DType
from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.emitter import Emitter
from compiler.passes.pair_types.int64_arithmetic import Int64
from compiler.passes.pair_types.values import Pair

Instr = HloInstruction
_WORD = 2.0**32


def to_int64(i: Int64, x: Instr, dtype: DType) -> Pair:
    """Any real type that a lane holds, as s64 or u64; floats truncate and saturate, NaN is 0."""
    e = i.e
    source = x.array.dtype
    if source.is_float:
        return _from_float(i, e.convert(x, F32), dtype)
    if source.is_signed:
        low = e.bitcast(e.convert(x, S32), U32)
        return Pair(low, e.sra(low, 31), dtype)
    return i.widened(e.convert(x, U32), dtype)


def from_int64(i: Int64, a: Pair, dtype: DType) -> Instr:
    """A 64-bit integer as any real type that a lane holds; integers wrap."""
    e = i.e
    if dtype == PRED:
        return e.not_(i.is_zero(a))
    if dtype.is_integer:
        return e.convert(a.first, dtype)
    if dtype.bits == 32:
        return _to_float(i, a)
    if dtype.bits == 16:
        return e.convert(_to_float(i, a, is_odd=True), dtype)
    return e.convert(_to_float(i, a), dtype)  # XLA makes 8-bit floats from f32


def _from_float(i: Int64, x: Instr, dtype: DType) -> Pair:
    e = i.e
    dims = x.array.dims
    size = e.abs(x)
    high = e.convert(e.mul(size, e.f32(1 / _WORD, dims)), U32)
    rest = e.sub(size, e.mul(e.convert(high, F32), e.f32(_WORD, dims)))
    value = Pair(e.convert(rest, U32), high, dtype)
    is_negative = e.lt(x, 0.0)
    bits = 63 if dtype.is_signed else 64
    if dtype.is_signed:
        value = i.select(is_negative, i.negate(value), value)
    top = i.constant((1 << bits) - 1, dims, dtype)
    bottom = i.constant(-(1 << 63) if dtype.is_signed else 0, dims, dtype)
    value = i.select(e.compare("GE", x, 2.0**bits), top, value)
    low_limit = -(2.0**63) if dtype.is_signed else 0.0
    value = i.select(e.compare("LE", x, low_limit), bottom, value)
    return i.select(e.ne(x, x), i.constant(0, dims, dtype), value)


def _to_float(i: Int64, a: Pair, *, is_odd: bool = False) -> Instr:
    """f32, rounded to nearest even; with `is_odd` to odd, so that it may be rounded again.

    The number is shifted until its top bit is bit 63. What lies below the upper word only
    matters as "there is something": it is or'ed into the lowest bit.
    """
    e = i.e
    is_negative = i.is_negative(a) if a.dtype.is_signed else None
    size = a if is_negative is None else i.select(is_negative, i.negate(a), a)
    zeros = i.leading_zeros(size)
    raised = i.shift_left(size, zeros)
    sticky = e.convert(e.ne(raised.first, 0), U32)
    word = e.or_(raised.second, sticky)
    if is_odd:
        tail = e.and_(word, e.like(word, 0xFF))
        odd = e.shl(e.convert(e.ne(tail, 0), U32), 8)
        word = e.or_(e.and_(word, e.like(word, 0xFFFFFF00)), odd)
    exponent = e.sub(e.like(zeros, 127 + 32), zeros)
    value = e.mul(e.convert(word, F32), e.bitcast(e.shl(exponent, 23), F32))
    return value if is_negative is None else e.select(is_negative, e.neg(value), value)


def saturated_index(e: Emitter, a: Pair) -> Instr:
    """A 64-bit index as s32: the nearest one, which is as far outside of any array."""
    low = e.bitcast(a.first, S32)
    top = e.like(low, (1 << 31) - 1)
    if not a.dtype.is_signed:
        is_small = e.and_(e.eq(a.second, 0), e.not_(e.is_negative(a.first)))
        return e.select(is_small, low, top)
    fits = e.eq(a.second, e.sra(a.first, 31))
    bottom = e.like(low, -(1 << 31))
    return e.select(fits, low, e.select(e.is_negative(a.second), bottom, top))
