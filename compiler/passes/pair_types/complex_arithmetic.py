"""Arithmetic of complex numbers held as (real, imaginary) f32 arrays."""

from __future__ import annotations

import math

from compiler.hlo.dtypes import C64, F32, S32, U32
from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.compensated import Compensated
from compiler.passes.pair_types.emitter import Dims, Emitter
from compiler.passes.pair_types.polar import power_of_two, raised, scaled_parts, squares
from compiler.passes.pair_types.values import Pair
from compiler.rewrite.pattern import splat_value

Instr = HloInstruction
_INF = math.inf
_SIGN = 1 << 31


class Complex:
    """Operations on pairs, emitted through `e`."""

    def __init__(self, emitter: Emitter) -> None:
        self.e = emitter

    def pair(self, real: Instr, imag: Instr) -> Pair:
        """A complex array of its parts."""
        return Pair(real, imag, C64)

    def constant(self, value: complex, dims: Dims) -> Pair:
        """An array of one value."""
        return self.pair(self.e.f32(value.real, dims), self.e.f32(value.imag, dims))

    def from_real(self, x: Instr) -> Pair:
        """A real array of any type as a complex one."""
        real = self.e.convert(x, F32)
        return self.pair(real, self.e.like(real, 0.0))

    def add(self, a: Pair, b: Pair) -> Pair:
        """``a + b``."""
        return self.pair(self.e.add(a.first, b.first), self.e.add(a.second, b.second))

    def subtract(self, a: Pair, b: Pair) -> Pair:
        """``a - b``."""
        return self.pair(self.e.sub(a.first, b.first), self.e.sub(a.second, b.second))

    def negate(self, a: Pair) -> Pair:
        """``-a``."""
        return self.pair(self.e.neg(a.first), self.e.neg(a.second))

    def multiply(self, a: Pair, b: Pair) -> Pair:
        """``a * b``; of each part's two products that with the real part of `b` is not rounded."""
        e = self.e
        real = e.fma(a.first, b.first, e.neg(e.mul(a.second, b.second)))
        return self.pair(real, e.fma(a.second, b.first, e.mul(a.first, b.second)))

    def scaled(self, a: Pair, factor: Instr) -> Pair:
        """``a`` times a real array."""
        return self.pair(self.e.mul(a.first, factor), self.e.mul(a.second, factor))

    def select(self, condition: Instr, a: Pair, b: Pair) -> Pair:
        """``condition ? a : b``."""
        first = self.e.select(condition, a.first, b.first)
        return self.pair(first, self.e.select(condition, a.second, b.second))

    def compare(self, direction: str, a: Pair, b: Pair) -> Instr:
        """EQ or NE."""
        parts = [self.e.compare(direction, x, y) for x, y in zip(a.parts, b.parts, strict=True)]
        return self.e.binary("and" if direction == "EQ" else "or", parts[0], parts[1])

    def extreme(self, direction: str, a: Pair, b: Pair) -> Pair:
        """The one that comes first (LT) or last (GT) by real, then imaginary part; NaN wins."""
        e = self.e
        is_tie = e.eq(a.first, b.first)
        is_first = e.compare(direction, a.first, b.first)
        is_chosen = e.or_(is_first, e.and_(is_tie, e.compare(direction, a.second, b.second)))
        is_nan = e.or_(self._is_nan(a.first), self._is_nan(a.second))
        return self.select(e.or_(is_chosen, is_nan), a, b)

    def absolute(self, a: Pair) -> Instr:
        """The modulus; no overflow on the way."""
        e, k = self.e, Compensated(self.e)
        parts = scaled_parts(e, *a.parts)
        root = k.square_root(squares(k, parts.large, parts.small))
        size = raised(e, k.value(root), parts.exponent)
        x, y = e.abs(a.first), e.abs(a.second)
        size = e.select(e.eq(e.max(x, y), 0.0), e.like(x, 0.0), size)
        is_infinite = e.or_(e.eq(x, _INF), e.eq(y, _INF))
        return e.select(is_infinite, e.like(x, _INF), size)

    def divide(self, a: Pair, b: Pair) -> Pair:
        """``a conj(b) / |b|**2`` with b scaled to about 1; C's answers for zeros and infinities.

        By a real number made complex it is two quotients.
        """
        e, k = self.e, Compensated(self.e)
        if splat_value(b.second) == 0:
            return self.pair(e.div(a.first, b.first), e.div(a.second, b.first))
        parts = scaled_parts(e, *b.parts)
        is_real = e.compare("GE", e.abs(b.first), e.abs(b.second))
        x = with_sign(e, e.select(is_real, parts.large, parts.small), b.first)
        y = with_sign(e, e.select(is_real, parts.small, parts.large), b.second)
        size = squares(k, parts.large, parts.small)
        top, shift = self._headroom(a)
        exponent = e.sub(shift, parts.exponent)
        real = k.add(k.product(top.first, x), k.product(top.second, y))
        imag = k.subtract(k.product(top.second, x), k.product(top.first, y))
        parts_of = [raised(e, k.value(k.divide(part, size)), exponent) for part in (real, imag)]
        return self._special_quotient(a, b, self.pair(parts_of[0], parts_of[1]))

    def _headroom(self, a: Pair) -> tuple[Pair, Instr]:
        """(b, n), a = b * 2**n: products of b with numbers up to 2 neither overflow nor vanish."""
        e = self.e
        size = e.max(e.abs(a.first), e.abs(a.second))
        tiny, huge = e.lt(size, 2.0**-60), e.gt(size, 2.0**120)
        zero = e.constant(S32, 0, a.dims)
        shift = e.select(huge, e.like(zero, 8), e.select(tiny, e.like(zero, -64), zero))
        return self.scaled(a, power_of_two(e, e.sub(zero, shift))), shift

    def _special_quotient(self, a: Pair, b: Pair, result: Pair) -> Pair:
        """Quotients that came out as NaN although they have a value."""
        e = self.e
        is_lost = e.and_(self._is_nan(result.first), self._is_nan(result.second))
        zero = e.and_(e.eq(b.first, 0.0), e.eq(b.second, 0.0))
        known = e.not_(e.and_(self._is_nan(a.first), self._is_nan(a.second)))
        infinity = self._with_sign(e.like(b.first, _INF), b.first)
        value = self.select(e.and_(zero, known), self.scaled(a, infinity), result)
        top = e.and_(self._is_infinite(a), self._is_finite(b))
        value = self.select(top, self._of_units(self._unit(a), b, _INF), value)
        bottom = e.and_(self._is_finite(a), self._is_infinite(b))
        value = self.select(bottom, self._of_units(a, self._unit(b), 0.0), value)
        return self.select(is_lost, value, result)

    def _of_units(self, a: Pair, b: Pair, factor: float) -> Pair:
        """``factor * (a * conj b)``."""
        e = self.e
        product = self.multiply(a, self.pair(b.first, e.neg(b.second)))
        return self.scaled(product, e.like(b.first, factor))

    def _unit(self, a: Pair) -> Pair:
        """1 for an infinite part, else 0, with the part's sign."""
        e = self.e
        ones = [self._with_sign(e.convert(e.eq(e.abs(x), _INF), F32), x) for x in a.parts]
        return self.pair(ones[0], ones[1])

    def _with_sign(self, size: Instr, sign: Instr) -> Instr:
        return with_sign(self.e, size, sign)

    def _is_nan(self, x: Instr) -> Instr:
        return self.e.ne(x, x)

    def _is_infinite(self, a: Pair) -> Instr:
        e = self.e
        return e.or_(e.eq(e.abs(a.first), _INF), e.eq(e.abs(a.second), _INF))

    def _is_finite(self, a: Pair) -> Instr:
        e = self.e
        return e.and_(e.lt(e.abs(a.first), _INF), e.lt(e.abs(a.second), _INF))

    def sign(self, a: Pair) -> Pair:
        """``a / |a|``; a zero stays."""
        e, k = self.e, Compensated(self.e)
        parts = scaled_parts(e, *a.parts)
        size = k.value(k.square_root(squares(k, parts.large, parts.small)))
        large, small = e.div(parts.large, size), e.div(parts.small, size)
        is_real = e.compare("GE", e.abs(a.first), e.abs(a.second))
        real, imag = e.select(is_real, large, small), e.select(is_real, small, large)
        value = self.pair(with_sign(e, real, a.first), with_sign(e, imag, a.second))
        is_zero = e.and_(e.eq(a.first, 0.0), e.eq(a.second, 0.0))
        value = self.select(is_zero, a, value)
        infinity = e.like(size, _INF)
        limit = self.pair(e.div(a.first, infinity), e.div(a.second, infinity))
        value = self.select(self._is_infinite(a), limit, value)
        nan = e.like(size, math.nan)
        is_nan = e.or_(self._is_nan(a.first), self._is_nan(a.second))
        return self.select(is_nan, self.pair(nan, nan), value)


def with_sign(e: Emitter, size: Instr, sign: Instr) -> Instr:
    """The magnitude of one f32 with the sign bit of another."""
    from_bits = e.and_(_bits(e, sign), e.u32(_SIGN, size.array.dims))
    magnitude = e.and_(_bits(e, size), e.u32(_SIGN - 1, size.array.dims))
    return e.bitcast(e.or_(magnitude, from_bits), F32)


def _bits(e: Emitter, x: Instr) -> Instr:
    return e.bitcast(x, U32)
