"""Arithmetic, comparison and bits of 64-bit integers held as (low, high) u32 words.

Shift amounts from the width on give 0 or the sign for u32 operations too, which is why the
double-word shifts below need no case distinction beyond the sign's.
"""

from __future__ import annotations

from compiler.hlo.dtypes import S32, U32, DType
from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.emitter import Dims, Emitter
from compiler.passes.pair_types.values import Pair

Instr = HloInstruction
_MASK = (1 << 32) - 1


class Int64:
    """Operations on pairs, emitted through `e`."""

    def __init__(self, emitter: Emitter) -> None:
        self.e = emitter

    def constant(self, value: int, dims: Dims, dtype: DType) -> Pair:
        """An array of one value."""
        low, high = self.e.u32(value & _MASK, dims), self.e.u32(value >> 32 & _MASK, dims)
        return Pair(low, high, dtype)

    def add(self, a: Pair, b: Pair) -> Pair:
        """``a + b`` modulo 2**64."""
        e = self.e
        low = e.add(a.first, b.first)
        carry = e.convert(e.lt(low, a.first), U32)
        return Pair(low, e.add(e.add(a.second, b.second), carry), a.dtype)

    def subtract(self, a: Pair, b: Pair) -> Pair:
        """``a - b`` modulo 2**64."""
        e = self.e
        borrow = e.convert(e.lt(a.first, b.first), U32)
        high = e.sub(e.sub(a.second, b.second), borrow)
        return Pair(e.sub(a.first, b.first), high, a.dtype)

    def negate(self, a: Pair) -> Pair:
        """``-a`` modulo 2**64."""
        return self.subtract(self.constant(0, a.dims, a.dtype), a)

    def multiply(self, a: Pair, b: Pair) -> Pair:
        """``a * b`` modulo 2**64."""
        e = self.e
        cross = e.add(e.mul(a.first, b.second), e.mul(a.second, b.first))
        high = e.add(self.high_product(a.first, b.first), cross)
        return Pair(e.mul(a.first, b.first), high, a.dtype)

    def high_product(self, x: Instr, y: Instr) -> Instr:
        """The upper 32 bits of a product: one instruction per vreg, halves on the scalar unit."""
        if x.array.dims:
            return self.e.binary("mulhi", x, y)
        e = self.e
        half = e.u32(0xFFFF, x.array.dims)
        x0, x1, y0, y1 = e.and_(x, half), e.shr(x, 16), e.and_(y, half), e.shr(y, 16)
        middle = e.add(e.mul(x1, y0), e.shr(e.mul(x0, y0), 16))
        other = e.add(e.mul(x0, y1), e.and_(middle, half))
        return e.add(e.add(e.mul(x1, y1), e.shr(middle, 16)), e.shr(other, 16))

    def high_half(self, a: Pair, b: Pair) -> Pair:
        """The upper 64 bits of the 128 of ``a * b``, in the signedness of the pair's type."""
        e = self.e
        crosses = ((a.first, b.second), (a.second, b.first))
        middle = self.widened(self.high_product(a.first, b.first), a.dtype)
        total = Pair(e.mul(a.second, b.second), self.high_product(a.second, b.second), a.dtype)
        for x, y in crosses:  # at most 2**32 - 1 each: the sums below do not overflow
            middle = self.add(middle, self.widened(e.mul(x, y), a.dtype))
            total = self.add(total, self.widened(self.high_product(x, y), a.dtype))
        total = self.add(total, self.widened(middle.second, a.dtype))
        if not a.dtype.is_signed:
            return total
        nothing = self.constant(0, a.dims, a.dtype)
        for sign, other in ((a, b), (b, a)):
            excess = self.select(self.is_negative(sign), other, nothing)
            total = self.subtract(total, excess)
        return total

    def bitwise(self, opcode: str, *operands: Pair) -> Pair:
        """and, or, xor, not: on each word."""
        first, second = (
            self.e.op(opcode, U32, operands[0].dims, tuple(p.parts[i] for p in operands))
            for i in range(2)
        )
        return Pair(first, second, operands[0].dtype)

    def is_zero(self, a: Pair) -> Instr:
        """``a == 0``."""
        return self.e.eq(self.e.or_(a.first, a.second), 0)

    def is_negative(self, a: Pair) -> Instr:
        """Whether the top bit is set."""
        return self.e.is_negative(a.second)

    def compare(self, direction: str, a: Pair, b: Pair) -> Instr:
        """A pred array; `direction` as in HLO."""
        e = self.e
        match direction:
            case "EQ":
                return e.and_(e.eq(a.first, b.first), e.eq(a.second, b.second))
            case "NE":
                return e.or_(e.ne(a.first, b.first), e.ne(a.second, b.second))
            case "LT":
                return self.less(a, b)
            case "GT":
                return self.less(b, a)
            case "LE":
                return e.not_(self.less(b, a))
            case _:
                return e.not_(self.less(a, b))

    def less(self, a: Pair, b: Pair) -> Instr:
        """``a < b`` in the signedness of the pair's type."""
        e = self.e
        high_a, high_b = a.second, b.second
        if a.dtype.is_signed:
            high_a, high_b = e.bitcast(high_a, S32), e.bitcast(high_b, S32)
        is_tie = e.eq(a.second, b.second)
        return e.or_(e.lt(high_a, high_b), e.and_(is_tie, e.lt(a.first, b.first)))

    def select(self, condition: Instr, a: Pair, b: Pair) -> Pair:
        """``condition ? a : b``."""
        parts = [self.e.select(condition, x, y) for x, y in zip(a.parts, b.parts, strict=True)]
        return Pair(parts[0], parts[1], a.dtype)

    def maximum(self, a: Pair, b: Pair) -> Pair:
        """The larger."""
        return self.select(self.less(a, b), b, a)

    def minimum(self, a: Pair, b: Pair) -> Pair:
        """The smaller."""
        return self.select(self.less(b, a), b, a)

    def absolute(self, a: Pair) -> Pair:
        """``|a|``; the least s64 stays, which is right as a u64."""
        if not a.dtype.is_signed:
            return a
        return self.select(self.is_negative(a), self.negate(a), a)

    def sign(self, a: Pair) -> Pair:
        """-1, 0 or 1."""
        e = self.e
        is_other = e.convert(e.not_(self.is_zero(a)), U32)
        if not a.dtype.is_signed:
            return Pair(is_other, e.like(is_other, 0), a.dtype)
        high = e.sra(a.second, 31)
        return Pair(e.or_(high, is_other), high, a.dtype)

    def amount(self, b: Pair) -> Instr:
        """A shift amount as u32, 64 standing for everything beyond."""
        e = self.e
        return e.select(e.ne(b.second, 0), e.like(b.first, 64), b.first)

    def shift_left(self, a: Pair, n: Instr) -> Pair:
        """``a << n``."""
        e = self.e
        carried = e.or_(e.shr(a.first, self._rest(n)), e.shl(a.first, self._beyond(n)))
        high = e.or_(e.shl(a.second, n), carried)
        return Pair(e.shl(a.first, n), high, a.dtype)

    def shift_right_logical(self, a: Pair, n: Instr) -> Pair:
        """``a >> n`` with zeros."""
        e = self.e
        carried = e.or_(e.shl(a.second, self._rest(n)), e.shr(a.second, self._beyond(n)))
        return Pair(e.or_(e.shr(a.first, n), carried), e.shr(a.second, n), a.dtype)

    def shift_right_arithmetic(self, a: Pair, n: Instr) -> Pair:
        """``a >> n`` with the sign."""
        e = self.e
        near = e.or_(e.shr(a.first, n), e.shl(a.second, self._rest(n)))
        far = e.sra(a.second, self._beyond(n))
        return Pair(e.select(e.lt(n, 32), near, far), e.sra(a.second, n), a.dtype)

    def _rest(self, n: Instr) -> Instr:
        return self.e.sub(self.e.like(n, 32), n)

    def _beyond(self, n: Instr) -> Instr:
        return self.e.sub(n, self.e.like(n, 32))

    def leading_zeros(self, a: Pair) -> Instr:
        """Zeros above the highest set bit, as u32."""
        e = self.e
        low = e.add(e.unary("count-leading-zeros", a.first), e.like(a.first, 32))
        return e.select(e.eq(a.second, 0), low, e.unary("count-leading-zeros", a.second))

    def population(self, a: Pair) -> Instr:
        """Number of set bits, as u32."""
        return self.e.add(self.e.unary("popcnt", a.first), self.e.unary("popcnt", a.second))

    def widened(self, x: Instr, dtype: DType) -> Pair:
        """A u32 as a 64-bit integer."""
        return Pair(x, self.e.like(x, 0), dtype)
