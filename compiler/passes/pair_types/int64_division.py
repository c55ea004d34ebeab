"""Division of 64-bit integers, by estimates in f32.

    q += n * (1/d) rounded down;  n -= that * d     four times: 19 bits of quotient each
    if n >= d:  q += 1;  n -= d

An estimate is never too large: the reciprocal is lowered by 2**-19, more than all roundings of
conversion, division and product together. After four rounds what is left is below 2 d.

x / 0 is -1 (all ones when unsigned), x % 0 is x; MIN / -1 is MIN, MIN % -1 is 0.
"""

from __future__ import annotations

from compiler.hlo.dtypes import BY_NAME, F32, U32
from compiler.hlo.expression import Expr
from compiler.passes.pair_types.formulas import select, sra
from compiler.passes.pair_types.int64_arithmetic import Int64, widened

_U64 = BY_NAME["u64"]
_ROUNDS = 4
"""Each leaves a remainder of at most 2^-18 of the one before: four bring 2^64 below one."""
_LOWERED = 1 - 2.0**-19
_WORD = 2.0**32


def divide(a: Int64, b: Int64) -> Int64:
    """The quotient, truncated towards zero."""
    if not a.dtype.is_signed:
        quotient, _ = _divide_unsigned(a, b)
        return select(b.is_zero(), a.like(-1), quotient)
    size, _ = _divide_unsigned(a.absolute(), b.absolute())
    is_negative = sra(a.second, 31).differs(sra(b.second, 31))
    quotient = select(is_negative, -size, size).retyped(a.dtype)
    return select(b.is_zero(), a.like(-1), quotient)


def remainder(a: Int64, b: Int64) -> Int64:
    """The remainder, with the dividend's sign."""
    if not a.dtype.is_signed:
        _, rest = _divide_unsigned(a, b)
        return select(b.is_zero(), a, rest)
    _, size = _divide_unsigned(a.absolute(), b.absolute())
    rest = select(a.is_negative(), -size, size).retyped(a.dtype)
    return select(b.is_zero(), a, rest)


def _divide_unsigned(a: Int64, b: Int64) -> tuple[Int64, Int64]:
    """Quotient and remainder of u64; anything when the divisor is zero."""
    n, d = a.retyped(_U64), b.retyped(_U64)
    reciprocal = _LOWERED / _estimate(d)
    quotient = n.like(0)
    for _ in range(_ROUNDS):
        part = _whole(_estimate(n) * reciprocal)
        quotient = quotient + part
        n = n - part * d
    is_left = n.compare("GE", d)
    final = widened(is_left.convert(U32), _U64)
    quotient = quotient + final
    rest = select(is_left, n - d, n)
    return quotient.retyped(a.dtype), rest.retyped(a.dtype)


def _estimate(a: Int64) -> Expr:
    """About the value of a u64, as f32."""
    high = a.second.convert(F32) * _WORD
    return high + a.first.convert(F32)


def _whole(x: Expr) -> Int64:
    """A non-negative f32 below 2**64, truncated: exact."""
    high = (x * (1 / _WORD)).convert(U32)
    rest = x - high.convert(F32) * _WORD
    return Int64(rest.convert(U32), high, _U64)
