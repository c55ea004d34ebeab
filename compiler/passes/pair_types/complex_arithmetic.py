"""Arithmetic of complex numbers held as (real, imaginary) f32 arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from compiler.hlo.dtypes import F32, S32, U32
from compiler.hlo.expression import Expr
from compiler.passes.pair_types.compensated import product
from compiler.passes.pair_types.formulas import Parts, fma, select
from compiler.passes.pair_types.polar import power_of_two, raised, scaled_parts, squares
from compiler.rewrite.pattern import splat_value

_INF = math.inf
_SIGN = 1 << 31


@dataclass(frozen=True)
class Complex(Parts):
    """``first + i second``."""

    def like(self, value: complex) -> Complex:
        """An array of one value."""
        return Complex(self.first.like(value.real), self.first.like(value.imag))

    def __add__(self, other: Complex) -> Complex:
        return Complex(self.first + other.first, self.second + other.second)

    def __sub__(self, other: Complex) -> Complex:
        return Complex(self.first - other.first, self.second - other.second)

    def __neg__(self) -> Complex:
        return Complex(-self.first, -self.second)

    def __mul__(self, other: Complex) -> Complex:
        """Of each part's two products that with the real part of `other` is not rounded."""
        real = fma(self.first, other.first, -(self.second * other.second))
        return Complex(real, fma(self.second, other.first, self.first * other.second))

    def turned(self) -> Complex:
        """``i self``."""
        return Complex(-self.second, self.first)

    def scaled(self, factor: Expr) -> Complex:
        """The product with a real array."""
        return Complex(self.first * factor, self.second * factor)

    def compare(self, direction: str, other: Complex) -> Expr:
        """EQ or NE."""
        first, second = (x.compare(direction, y) for x, y in zip(self, other, strict=True))
        return first & second if direction == "EQ" else first | second

    def extreme(self, direction: str, other: Complex) -> Complex:
        """The one that comes first (LT) or last (GT) by real, then imaginary part; NaN wins."""
        is_tie = self.first.equals(other.first)
        is_first = self.first.compare(direction, other.first)
        is_chosen = is_first | (is_tie & self.second.compare(direction, other.second))
        return select(is_chosen | self.has_nan(), self, other)

    def absolute(self) -> Expr:
        """The modulus; no overflow on the way."""
        parts = scaled_parts(*self)
        root = squares(parts.large, parts.small).square_root()
        size = raised(root.value(), parts.exponent)
        x, y = abs(self.first), abs(self.second)
        size = x.of("maximum", y).equals(0.0).where(0.0, size)
        return (x.equals(_INF) | y.equals(_INF)).where(_INF, size)

    def __truediv__(self, other: Complex) -> Complex:
        """``self conj(other) / |other|**2`` with `other` scaled to about 1; C's answers for zeros and
        infinities. By a real number made complex it is two quotients.
        """
        if splat_value(other.second.instr) == 0:
            return Complex(self.first / other.first, self.second / other.first)
        parts = scaled_parts(*other)
        is_real = abs(other.first) >= abs(other.second)
        x = with_sign(is_real.where(parts.large, parts.small), other.first)
        y = with_sign(is_real.where(parts.small, parts.large), other.second)
        size = squares(parts.large, parts.small)
        top, shift = self._headroom()
        exponent = shift - parts.exponent
        real = product(top.first, x) + product(top.second, y)
        imag = product(top.second, x) - product(top.first, y)
        result = Complex(*(raised((part / size).value(), exponent) for part in (real, imag)))
        return _special_quotient(self, other, result)

    def _headroom(self) -> tuple[Complex, Expr]:
        """(b, n), self = b * 2**n: products of b with numbers up to 2 neither overflow nor vanish."""
        size = abs(self.first).of("maximum", abs(self.second))
        tiny, huge = size < 2.0**-60, size > 2.0**120
        shift = huge.where(8, tiny.where(-64, size.full(S32, 0)))
        return self.scaled(power_of_two(0 - shift)), shift

    def has_nan(self) -> Expr:
        """Whether a part is no number."""
        return _is_nan(self.first) | _is_nan(self.second)

    def is_infinite(self) -> Expr:
        """Whether a part is infinite."""
        return abs(self.first).equals(_INF) | abs(self.second).equals(_INF)

    def is_finite(self) -> Expr:
        """Whether both parts are finite."""
        return (abs(self.first) < _INF) & (abs(self.second) < _INF)

    def is_zero(self) -> Expr:
        """Whether both parts are zero."""
        return self.first.equals(0.0) & self.second.equals(0.0)

    def sign(self) -> Complex:
        """``self / |self|``; a zero stays."""
        parts = scaled_parts(*self)
        size = squares(parts.large, parts.small).square_root().value()
        large, small = parts.large / size, parts.small / size
        is_real = abs(self.first) >= abs(self.second)
        real, imag = is_real.where(large, small), is_real.where(small, large)
        value = Complex(with_sign(real, self.first), with_sign(imag, self.second))
        value = select(self.is_zero(), self, value)
        limit = Complex(self.first / _INF, self.second / _INF)
        value = select(self.is_infinite(), limit, value)
        return select(self.has_nan(), self.like(complex(math.nan, math.nan)), value)


def _is_nan(x: Expr) -> Expr:
    return x.differs(x)


def turned_about(function: Callable[[Complex], Complex], z: Complex) -> Complex:
    """``-i f(iz)``: what makes a circular function of a hyperbolic one, and the reverse."""
    value = function(z.turned())
    return Complex(value.second, -value.first)


def with_sign(size: Expr, sign: Expr) -> Expr:
    """The magnitude of one f32 with the sign bit of another."""
    from_bits = sign.bits(U32) & _SIGN
    magnitude = size.bits(U32) & (_SIGN - 1)
    return (magnitude | from_bits).bits(F32)


def _special_quotient(a: Complex, b: Complex, result: Complex) -> Complex:
    """Quotients that came out as NaN although they have a value."""
    is_lost = _is_nan(result.first) & _is_nan(result.second)
    known = ~(_is_nan(a.first) & _is_nan(a.second))
    infinity = with_sign(b.first.like(_INF), b.first)
    value = select(b.is_zero() & known, a.scaled(infinity), result)
    top = a.is_infinite() & b.is_finite()
    value = select(top, _of_units(_unit(a), b, _INF), value)
    bottom = a.is_finite() & b.is_infinite()
    value = select(bottom, _of_units(a, _unit(b), 0.0), value)
    return select(is_lost, value, result)


def _of_units(a: Complex, b: Complex, factor: float) -> Complex:
    """``factor * (a * conj b)``."""
    return (a * Complex(b.first, -b.second)).scaled(b.first.like(factor))


def _unit(a: Complex) -> Complex:
    """1 for an infinite part, else 0, with the part's sign."""
    return Complex(*(with_sign(abs(x).equals(_INF).convert(F32), x) for x in a))
