"""Numbers held as the unevaluated sum of two f32 (Dekker, 1971): about 47 significant bits.

The functions of complex numbers need them where a rounding error of f32 would be magnified: under
a subtraction, or as the argument of an exponential or a sine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.hlo.expression import Expr
from compiler.passes.pair_types.formulas import Parts, fma


@dataclass(frozen=True)
class Twofold(Parts):
    """``high + low``, where `low` is at most half a unit in the last place of `high`."""

    @property
    def high(self) -> Expr:
        """The nearest f32."""
        return self.first

    @property
    def low(self) -> Expr:
        """What that lacks."""
        return self.second

    def __neg__(self) -> Twofold:
        return Twofold(-self.high, -self.low)

    def __add__(self, other: Twofold) -> Twofold:
        total = exact_sum(self.high, other.high)
        return exact_sum(total.high, total.low + (self.low + other.low))

    def __sub__(self, other: Twofold) -> Twofold:
        return self + -other

    def __mul__(self, other: Twofold) -> Twofold:
        exact = product(self.high, other.high)
        low = fma(self.high, other.low, fma(self.low, other.high, exact.low))
        return ordered_sum(exact.high, low)

    def __truediv__(self, other: Twofold) -> Twofold:
        quotient = self.high / other.high
        minus = -quotient
        residue = fma(minus, other.high, self.high) + fma(minus, other.low, self.low)
        return ordered_sum(quotient, residue / other.high)

    def times(self, other: Expr) -> Twofold:
        """The product with an f32."""
        exact = product(self.high, other)
        return ordered_sum(exact.high, fma(self.low, other, exact.low))

    def scaled(self, power_of_two: Expr | float) -> Twofold:
        """The product with a power of two."""
        return Twofold(self.high * power_of_two, self.low * power_of_two)

    def square_root(self) -> Twofold:
        """The root of a positive number."""
        root = self.high.of("sqrt")
        residue = fma(-root, root, self.high) + self.low
        return ordered_sum(root, residue / (root + root))

    def value(self) -> Expr:
        """The nearest f32."""
        return self.high + self.low


def constant(like: Expr, value: float) -> Twofold:
    """An f64 value, to 48 bits."""
    high = float(np.float32(value))
    return Twofold(like.like(high), like.like(value - high))


def plain(x: Expr) -> Twofold:
    """An f32 as it is."""
    return Twofold(x, x.like(0.0))


def exact_sum(a: Expr, b: Expr) -> Twofold:
    """``a + b`` exactly."""
    total = a + b
    back = total - a
    return Twofold(total, (a - (total - back)) + (b - back))


def ordered_sum(a: Expr, b: Expr) -> Twofold:
    """``a + b`` exactly, for ``|a| >= |b|`` or a = 0."""
    total = a + b
    return Twofold(total, b - (total - a))


def product(a: Expr, b: Expr) -> Twofold:
    """``a * b`` exactly, above the denormal range."""
    high = a * b
    return Twofold(high, fma(a, b, -high))
