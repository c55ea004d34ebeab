"""Numbers held as the unevaluated sum of two f32 (Dekker, 1971): about 47 significant bits.

The functions of complex numbers need them where a rounding error of f32 would be magnified: under
a subtraction, or as the argument of an exponential or a sine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.emitter import Emitter

Instr = HloInstruction


@dataclass(frozen=True)
class Twofold:
    """``high + low``, where `low` is at most half a unit in the last place of `high`."""

    high: Instr
    low: Instr


class Compensated:
    """Arithmetic of `Twofold` numbers, emitted through `e`."""

    def __init__(self, emitter: Emitter) -> None:
        self.e = emitter

    def constant(self, like: Instr, value: float) -> Twofold:
        """An f64 value, to 48 bits."""
        high = float(np.float32(value))
        return Twofold(self.e.like(like, high), self.e.like(like, value - high))

    def plain(self, x: Instr) -> Twofold:
        """An f32 as it is."""
        return Twofold(x, self.e.like(x, 0.0))

    def sum(self, a: Instr, b: Instr) -> Twofold:
        """``a + b`` exactly."""
        e = self.e
        total = e.add(a, b)
        back = e.sub(total, a)
        return Twofold(total, e.add(e.sub(a, e.sub(total, back)), e.sub(b, back)))

    def ordered_sum(self, a: Instr, b: Instr) -> Twofold:
        """``a + b`` exactly, for ``|a| >= |b|`` or a = 0."""
        e = self.e
        total = e.add(a, b)
        return Twofold(total, e.sub(b, e.sub(total, a)))

    def product(self, a: Instr, b: Instr) -> Twofold:
        """``a * b`` exactly, above the denormal range."""
        high = self.e.mul(a, b)
        return Twofold(high, self.e.fma(a, b, self.e.neg(high)))

    def add(self, a: Twofold, b: Twofold) -> Twofold:
        """``a + b``."""
        e = self.e
        total = self.sum(a.high, b.high)
        return self.sum(total.high, e.add(total.low, e.add(a.low, b.low)))

    def subtract(self, a: Twofold, b: Twofold) -> Twofold:
        """``a - b``."""
        return self.add(a, Twofold(self.e.neg(b.high), self.e.neg(b.low)))

    def times(self, a: Twofold, b: Instr) -> Twofold:
        """``a * b``."""
        exact = self.product(a.high, b)
        return self.ordered_sum(exact.high, self.e.fma(a.low, b, exact.low))

    def multiply(self, a: Twofold, b: Twofold) -> Twofold:
        """``a * b``."""
        e = self.e
        exact = self.product(a.high, b.high)
        low = e.fma(a.high, b.low, e.fma(a.low, b.high, exact.low))
        return self.ordered_sum(exact.high, low)

    def divide(self, a: Twofold, b: Twofold) -> Twofold:
        """``a / b``."""
        e = self.e
        quotient = e.div(a.high, b.high)
        minus = e.neg(quotient)
        residue = e.add(e.fma(minus, b.high, a.high), e.fma(minus, b.low, a.low))
        return self.ordered_sum(quotient, e.div(residue, b.high))

    def scaled(self, a: Twofold, power_of_two: Instr) -> Twofold:
        """``a`` times a power of two."""
        return Twofold(self.e.mul(a.high, power_of_two), self.e.mul(a.low, power_of_two))

    def square_root(self, a: Twofold) -> Twofold:
        """The root of a positive number."""
        e = self.e
        root = e.unary("sqrt", a.high)
        residue = e.add(e.fma(e.neg(root), root, a.high), a.low)
        return self.ordered_sum(root, e.div(residue, e.add(root, root)))

    def select(self, condition: Instr, a: Twofold, b: Twofold) -> Twofold:
        """``condition ? a : b``."""
        e = self.e
        high = e.select(condition, a.high, b.high)
        return Twofold(high, e.select(condition, a.low, b.low))

    def value(self, a: Twofold) -> Instr:
        """The nearest f32."""
        return self.e.add(a.high, a.low)
