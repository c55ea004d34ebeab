"""Division of 64-bit integers, by estimates in f32.

    q += n * (1/d) rounded down;  n -= that * d     four times: 19 bits of quotient each
    if n >= d:  q += 1;  n -= d

An estimate is never too large: the reciprocal is lowered by 2**-19, more than all roundings of
conversion, division and product together. After four rounds what is left is below 2 d.

x / 0 is -1 (all ones when unsigned), x % 0 is x; MIN / -1 is MIN, MIN % -1 is 0.
"""

from __future__ import annotations

from compiler.hlo.dtypes import BY_NAME, F32, U32
from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.int64_arithmetic import Int64
from compiler.passes.pair_types.values import Pair

Instr = HloInstruction
_U64 = BY_NAME["u64"]
_ROUNDS = 4
_LOWERED = 1 - 2.0**-19
_WORD = 2.0**32


def divide(i: Int64, a: Pair, b: Pair) -> Pair:
    """The quotient, truncated towards zero."""
    if not a.dtype.is_signed:
        quotient, _ = _divide_unsigned(i, a, b)
        return i.select(i.is_zero(b), i.constant(-1, a.dims, a.dtype), quotient)
    size, _ = _divide_unsigned(i, i.absolute(a), i.absolute(b))
    is_negative = i.e.ne(i.e.sra(a.second, 31), i.e.sra(b.second, 31))
    quotient = i.select(is_negative, i.negate(size), size).retyped(a.dtype)
    return i.select(i.is_zero(b), i.constant(-1, a.dims, a.dtype), quotient)


def remainder(i: Int64, a: Pair, b: Pair) -> Pair:
    """The remainder, with the dividend's sign."""
    if not a.dtype.is_signed:
        _, rest = _divide_unsigned(i, a, b)
        return i.select(i.is_zero(b), a, rest)
    _, size = _divide_unsigned(i, i.absolute(a), i.absolute(b))
    rest = i.select(i.is_negative(a), i.negate(size), size).retyped(a.dtype)
    return i.select(i.is_zero(b), a, rest)


def _divide_unsigned(i: Int64, a: Pair, b: Pair) -> tuple[Pair, Pair]:
    """Quotient and remainder of u64; anything when the divisor is zero."""
    e = i.e
    n, d = a.retyped(_U64), b.retyped(_U64)
    one = e.f32(_LOWERED, n.dims)
    reciprocal = e.div(one, _estimate(i, d))
    quotient = i.constant(0, n.dims, _U64)
    for _ in range(_ROUNDS):
        part = _whole(i, e.mul(_estimate(i, n), reciprocal))
        quotient = i.add(quotient, part)
        n = i.subtract(n, i.multiply(part, d))
    is_left = i.compare("GE", n, d)
    final = i.widened(e.convert(is_left, U32), _U64)
    quotient = i.add(quotient, final)
    rest = i.select(is_left, i.subtract(n, d), n)
    return quotient.retyped(a.dtype), rest.retyped(a.dtype)


def _estimate(i: Int64, a: Pair) -> Instr:
    """About the value of a u64, as f32."""
    e = i.e
    high = e.mul(e.convert(a.second, F32), e.f32(_WORD, a.dims))
    return e.add(high, e.convert(a.first, F32))


def _whole(i: Int64, x: Instr) -> Pair:
    """A non-negative f32 below 2**64, truncated: exact."""
    e = i.e
    dims = x.array.dims
    high = e.convert(e.mul(x, e.f32(1 / _WORD, dims)), U32)
    rest = e.sub(x, e.mul(e.convert(high, F32), e.f32(_WORD, dims)))
    return Pair(e.convert(rest, U32), high, _U64)
