"""Transforms of up to 16 complex values that lie in vregs: the code of one butterfly.

A value is a pair of vregs; a real one has no imaginary part, and nothing is computed for it. Lengths
that are products are done in two steps with roots between them, primes by sums and differences of the
values that mirror each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from compiler.backend.vector.ops import Ops
from compiler.llo.ir import VReg

Value = tuple[VReg, VReg | None]
_FIRST_FACTORS = {4: 2, 6: 2, 8: 2, 9: 3, 10: 2, 12: 4, 14: 2, 15: 3, 16: 4}


class Butterfly:
    """Emits transforms; `sign` is that of the exponent."""

    def __init__(self, ops: Ops, sign: int) -> None:
        self._ops = ops
        self._sign = sign

    def transform(self, x: Sequence[Value]) -> list[Value]:
        """Point u is the sum of ``x[t] exp(sign 2 pi i t u / len(x))``."""
        count = len(x)
        if count == 1:
            return list(x)
        if count == 2:
            return [self._add(x[0], x[1]), self._sub(x[0], x[1])]
        if count not in _FIRST_FACTORS:
            return self._prime(x)
        first = _FIRST_FACTORS[count]
        rest = count // first
        columns = [self.transform(x[j::rest]) for j in range(rest)]
        found: list[Value] = [x[0]] * count
        for k in range(first):
            line = [self._turned(columns[j][k], Fraction(j * k, count)) for j in range(rest)]
            found[k::first] = self.transform(line)
        return found

    def times_root(self, x: Value, cosine: VReg, sine: VReg) -> Value:
        """``x exp(sign i angle)``, the angle by its cosine and sine."""
        ops, (re, im) = self._ops, x
        if im is None:
            along = ops.mul(re, sine)
            return ops.mul(re, cosine), along if self._sign > 0 else ops.negate(along)
        if self._sign < 0:
            crossed = ops.mul(re, sine)
            return (
                ops.fma(im, sine, ops.mul(re, cosine)),
                ops.sub(ops.mul(im, cosine), crossed),
            )
        crossed = ops.mul(im, sine)
        return ops.sub(ops.mul(re, cosine), crossed), ops.fma(re, sine, ops.mul(im, cosine))

    def scaled(self, x: Value, factor: float) -> Value:
        """``x factor``."""
        return self._ops.mul_real(x[0], factor), self._part(x[1], factor)

    def _part(self, x: VReg | None, factor: float) -> VReg | None:
        return None if x is None else self._ops.mul_real(x, factor)

    def _add(self, a: Value, b: Value) -> Value:
        im = b[1] if a[1] is None else a[1]
        if a[1] is not None and b[1] is not None:
            im = self._ops.add(a[1], b[1])
        return self._ops.add(a[0], b[0]), im

    def _sub(self, a: Value, b: Value) -> Value:
        im = a[1]
        if b[1] is not None:
            im = self._ops.negate(b[1]) if a[1] is None else self._ops.sub(a[1], b[1])
        return self._ops.sub(a[0], b[0]), im

    def _turned(self, x: Value, turn: Fraction) -> Value:
        """``x exp(sign 2 pi i turn)``."""
        ops, (re, im) = self._ops, x
        turn = (turn * self._sign) % 1
        if turn == 0:
            return x
        if turn == Fraction(1, 2):
            return ops.negate(re), None if im is None else ops.negate(im)
        if turn == Fraction(1, 4):
            return (ops.real(0) if im is None else ops.negate(im)), re
        if turn == Fraction(3, 4):
            return (ops.real(0) if im is None else im), ops.negate(re)
        c, s = math.cos(2 * math.pi * turn), math.sin(2 * math.pi * turn)
        if im is None:
            return ops.mul_real(re, c), ops.mul_real(re, s)
        if (8 * turn).denominator == 1:  # cosine and sine are of one size
            sums, differences = ops.add(re, im), ops.sub(re, im)
            parts = (differences, sums) if c * s > 0 else (sums, ops.sub(im, re))
            return ops.mul_real(parts[0], c), ops.mul_real(parts[1], c)
        return (
            ops.sub(ops.mul_real(re, c), ops.mul_real(im, s)),
            ops.add(ops.mul_real(re, s), ops.mul_real(im, c)),
        )

    def _prime(self, x: Sequence[Value]) -> list[Value]:
        """Cosines of sums and sines of differences of the values t and n - t."""
        count = len(x)
        half = range(1, count // 2 + 1)
        sums = [self._add(x[t], x[count - t]) for t in half]
        differences = [self._sub(x[t], x[count - t]) for t in half]
        found = [x[0]] * count
        for value in sums:
            found[0] = self._add(found[0], value)
        for u in half:
            angles = [2 * math.pi * (t * u % count) / count for t in half]
            even = self._weighted(x[0], sums, [math.cos(a) for a in angles])
            odd = self._weighted(None, differences, [self._sign * math.sin(a) for a in angles])
            found[u], found[count - u] = self._crossed(even, odd)
        return found

    def _weighted(
        self, start: Value | None, values: Sequence[Value], weights: Sequence[float]
    ) -> Value:
        parts: list[VReg | None] = list(start) if start is not None else [None, None]
        for value, weight in zip(values, weights, strict=True):
            for number, part in enumerate(value):
                held = parts[number]
                if part is not None and held is None:
                    parts[number] = self._ops.mul_real(part, weight)
                elif part is not None and held is not None:
                    parts[number] = self._ops.fma(part, self._ops.real(weight), held)
        assert parts[0] is not None
        return parts[0], parts[1]

    def _crossed(self, a: Value, b: Value) -> tuple[Value, Value]:
        """``a + i b`` and ``a - i b``."""
        ops = self._ops
        if a[1] is None or b[1] is None:
            return (a[0], b[0]), (a[0], ops.negate(b[0]))
        return (
            (ops.sub(a[0], b[1]), ops.add(a[1], b[0])),
            (ops.add(a[0], b[1]), ops.sub(a[1], b[0])),
        )
