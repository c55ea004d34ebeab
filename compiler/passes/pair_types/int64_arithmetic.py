"""Arithmetic, comparison and bits of 64-bit integers held as (low, high) u32 words.

Shift amounts from the width on give 0 or the sign for u32 operations too, which is why the
double-word shifts below need no case distinction beyond the sign's.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.hlo.dtypes import S32, U32, DType
from compiler.hlo.expression import Expr
from compiler.passes.pair_types.formulas import Parts, is_negative, select, sra

MASK = (1 << 32) - 1
"""The bits of a word."""


@dataclass(frozen=True)
class Int64(Parts):
    """``first + 2**32 second`` of an s64 or u64."""

    dtype: DType

    def retyped(self, dtype: DType) -> Int64:
        """The same words as another type."""
        return Int64(self.first, self.second, dtype)

    def like(self, value: int) -> Int64:
        """An array of one value."""
        low, high = self.first.like(value & MASK), self.first.like(value >> 32 & MASK)
        return Int64(low, high, self.dtype)

    def __add__(self, other: Int64) -> Int64:
        low = self.first + other.first
        carry = (low < self.first).convert(U32)
        return Int64(low, self.second + other.second + carry, self.dtype)

    def __sub__(self, other: Int64) -> Int64:
        borrow = (self.first < other.first).convert(U32)
        high = self.second - other.second - borrow
        return Int64(self.first - other.first, high, self.dtype)

    def __neg__(self) -> Int64:
        return self.like(0) - self

    def __mul__(self, other: Int64) -> Int64:
        cross = self.first * other.second + self.second * other.first
        high = high_product(self.first, other.first) + cross
        return Int64(self.first * other.first, high, self.dtype)

    def high_half(self, other: Int64) -> Int64:
        """The upper 64 bits of the 128 of a product, in the signedness of the type."""
        crosses = ((self.first, other.second), (self.second, other.first))
        middle = widened(high_product(self.first, other.first), self.dtype)
        top = high_product(self.second, other.second)
        total = Int64(self.second * other.second, top, self.dtype)
        for x, y in crosses:  # at most 2**32 - 1 each: the sums below do not overflow
            middle = middle + widened(x * y, self.dtype)
            total = total + widened(high_product(x, y), self.dtype)
        total = total + widened(middle.second, self.dtype)
        if not self.dtype.is_signed:
            return total
        nothing = self.like(0)
        for sign, factor in ((self, other), (other, self)):
            total = total - select(sign.is_negative(), factor, nothing)
        return total

    def bitwise(self, opcode: str, *others: Int64) -> Int64:
        """and, or, xor, not: on each word."""
        first = self.first.of(opcode, *(other.first for other in others))
        return Int64(first, self.second.of(opcode, *(o.second for o in others)), self.dtype)

    def is_zero(self) -> Expr:
        """``self == 0``."""
        return (self.first | self.second).equals(0)

    def is_negative(self) -> Expr:
        """Whether the top bit is set."""
        return is_negative(self.second)

    def compare(self, direction: str, other: Int64) -> Expr:
        """A pred array; `direction` as in HLO."""
        match direction:
            case "EQ":
                return self.first.equals(other.first) & self.second.equals(other.second)
            case "NE":
                return self.first.differs(other.first) | self.second.differs(other.second)
            case "LT":
                return self.less(other)
            case "GT":
                return other.less(self)
            case "LE":
                return ~other.less(self)
            case _:
                return ~self.less(other)

    def less(self, other: Int64) -> Expr:
        """``self < other`` in the signedness of the type."""
        high, other_high = self.second, other.second
        if self.dtype.is_signed:
            high, other_high = high.bits(S32), other_high.bits(S32)
        is_tie = self.second.equals(other.second)
        return (high < other_high) | (is_tie & (self.first < other.first))

    def maximum(self, other: Int64) -> Int64:
        """The larger."""
        return select(self.less(other), other, self)

    def minimum(self, other: Int64) -> Int64:
        """The smaller."""
        return select(other.less(self), other, self)

    def absolute(self) -> Int64:
        """``|self|``; the least s64 stays, which is right as a u64."""
        return select(self.is_negative(), -self, self) if self.dtype.is_signed else self

    def sign(self) -> Int64:
        """-1, 0 or 1."""
        is_other = (~self.is_zero()).convert(U32)
        if not self.dtype.is_signed:
            return widened(is_other, self.dtype)
        high = sra(self.second, 31)
        return Int64(high | is_other, high, self.dtype)

    def amount(self) -> Expr:
        """A shift amount as u32, 64 standing for everything beyond."""
        return self.second.differs(0).where(64, self.first)

    def shift_left(self, n: Expr) -> Int64:
        """``self << n``."""
        carried = (self.first >> (32 - n)) | (self.first << (n - 32))
        return Int64(self.first << n, (self.second << n) | carried, self.dtype)

    def shift_right_logical(self, n: Expr) -> Int64:
        """``self >> n`` with zeros."""
        carried = (self.second << (32 - n)) | (self.second >> (n - 32))
        return Int64((self.first >> n) | carried, self.second >> n, self.dtype)

    def shift_right_arithmetic(self, n: Expr) -> Int64:
        """``self >> n`` with the sign."""
        near = (self.first >> n) | (self.second << (32 - n))
        far = sra(self.second, n - 32)
        return Int64((n < 32).where(near, far), sra(self.second, n), self.dtype)

    def leading_zeros(self) -> Expr:
        """Zeros above the highest set bit, as u32."""
        low = self.first.of("count-leading-zeros") + 32
        return self.second.equals(0).where(low, self.second.of("count-leading-zeros"))

    def population(self) -> Expr:
        """Number of set bits, as u32."""
        return self.first.of("popcnt") + self.second.of("popcnt")


def widened(x: Expr, dtype: DType) -> Int64:
    """A u32 as a 64-bit integer."""
    return Int64(x, x.like(0), dtype)


def high_product(x: Expr, y: Expr) -> Expr:
    """The upper 32 bits of a product: one instruction per vreg, halves on the scalar unit."""
    if x.instr.array.dims:
        return x.of("mulhi", y)
    half = 0xFFFF
    x0, x1, y0, y1 = x & half, x >> 16, y & half, y >> 16
    middle = x1 * y0 + ((x0 * y0) >> 16)
    other = x0 * y1 + (middle & half)
    return x1 * y1 + (middle >> 16) + (other >> 16)
