"""Functions of complex numbers in terms of real ones, z = x + iy.

The forms are those that neither overflow nor cancel where the result is representable.
"""

from __future__ import annotations

import math

from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.complex_arithmetic import Complex, with_sign
from compiler.passes.pair_types.values import Pair

Instr = HloInstruction
_LARGE_EXPONENT = 80.0  # exp of more may overflow although exp * cos does not
_LARGE_TANGENT = 9.0  # from here on tanh x is 1 in f32


def exponential(c: Complex, z: Pair) -> Pair:
    """``exp x (cos y + i sin y)``."""
    e = c.e
    is_large = e.gt(z.first, _LARGE_EXPONENT)
    lowered = e.select(is_large, e.sub(z.first, e.like(z.first, math.log(2) * 64)), z.first)
    size = e.unary("exponential", lowered)
    factor = e.select(is_large, e.like(size, 2.0**64), e.like(size, 1.0))
    real = e.mul(e.mul(size, e.unary("cosine", z.second)), factor)
    imag = e.mul(e.mul(size, e.unary("sine", z.second)), factor)
    is_real = e.eq(z.second, 0.0)
    whole = e.unary("exponential", z.first)
    vanishes = e.eq(z.first, -math.inf)
    zero = e.like(size, 0.0)
    real = e.select(vanishes, zero, e.select(is_real, whole, real))
    return c.pair(real, e.select(e.or_(vanishes, is_real), zero, imag))


def exponential_minus_one(c: Complex, z: Pair) -> Pair:
    """``expm1 x cos y + (cos y - 1)``, ``exp x sin y``; cos y - 1 is -2 sin(y/2)**2."""
    e = c.e
    half = e.unary("sine", e.mul(z.second, e.like(z.second, 0.5)))
    less_one = e.mul(e.mul(half, half), e.like(half, -2.0))
    grown = e.unary("exponential-minus-one", z.first)
    real = e.add(e.mul(grown, e.unary("cosine", z.second)), less_one)
    real = e.select(e.eq(z.second, 0.0), grown, real)
    return c.pair(real, exponential(c, z).second)


def _log_size(c: Complex, x: Instr, y: Instr, shifted: Instr) -> Instr:
    """``log |x + iy|``, where `shifted` is x - 1 known exactly.

    Near the unit circle ``log1p((x - 1)(x + 1) + y*y) / 2`` (x and y by size), elsewhere
    ``log max + log1p((min / max)**2) / 2``.
    """
    e = c.e
    one, half = e.like(x, 1.0), e.like(x, 0.5)
    size_x, size_y = e.abs(x), e.abs(y)
    large, small = e.max(size_x, size_y), e.min(size_x, size_y)
    ratio = e.div(small, large)
    ratio = e.select(e.eq(large, small), one, ratio)
    tail = e.mul(half, e.unary("log-plus-one", e.mul(ratio, ratio)))
    is_zero = e.eq(large, 0.0)
    far = e.add(e.unary("log", large), e.select(is_zero, e.like(x, 0.0), tail))
    is_plain = e.and_(e.compare("GE", size_x, size_y), e.gt(x, 0.0))
    less_one = e.select(is_plain, shifted, e.sub(large, one))
    excess = e.add(e.mul(less_one, e.add(large, one)), e.mul(small, small))
    near = e.mul(half, e.unary("log-plus-one", excess))
    is_near = e.and_(e.gt(large, 0.6), e.lt(large, 1.6))
    result = e.select(is_near, near, far)
    is_infinite = e.or_(e.eq(size_x, math.inf), e.eq(size_y, math.inf))
    return e.select(is_infinite, e.like(x, math.inf), result)


def logarithm(c: Complex, z: Pair) -> Pair:
    """``log |z| + i arg z``."""
    e = c.e
    shifted = e.sub(z.first, e.like(z.first, 1.0))
    return c.pair(_log_size(c, z.first, z.second, shifted), argument(c, z))


def log_plus_one(c: Complex, z: Pair) -> Pair:
    """``log (1 + z)``; small z keep their digits."""
    e = c.e
    moved = e.add(z.first, e.like(z.first, 1.0))
    angle = e.binary("atan2", z.second, moved)
    size = _log_size(c, moved, z.second, z.first)
    return c.pair(size, angle)


def argument(c: Complex, z: Pair) -> Instr:
    """The angle in (-pi, pi]."""
    return c.e.binary("atan2", z.second, z.first)


def square_root(c: Complex, z: Pair) -> Pair:
    """The root in the right half plane: ``t = sqrt((|x| + |z|) / 2)``, then y / 2t."""
    e = c.e
    x, y = e.abs(z.first), e.abs(z.second)
    large, small = e.max(x, y), e.min(x, y)
    is_zero = e.eq(large, 0.0)
    one, zero = e.like(x, 1.0), e.like(x, 0.0)
    divisor = e.select(is_zero, one, large)
    ratio, share = e.div(small, divisor), e.div(x, divisor)
    size = e.unary("sqrt", e.add(one, e.mul(ratio, ratio)))
    mean = e.mul(e.add(share, size), e.like(x, 0.5))
    t = e.mul(e.unary("sqrt", large), e.unary("sqrt", mean))
    other = e.div(y, e.add(t, t))
    is_right = e.compare("GE", z.first, 0.0)
    real = e.select(is_zero, zero, e.select(is_right, t, other))
    imag = e.select(is_zero, zero, e.select(is_right, other, t))
    return _infinite_root(c, z, c.pair(real, with_sign(e, imag, z.second)))


def _infinite_root(c: Complex, z: Pair, root: Pair) -> Pair:
    """Roots of infinities: of ``x + i inf`` it is ``inf + i inf``, of ``-inf + iy`` ``0 + i inf``."""
    e = c.e
    infinity = e.like(z.first, math.inf)
    signed = with_sign(e, infinity, z.second)
    signed_zero = with_sign(e, e.like(infinity, 0.0), z.second)
    left, right = e.eq(z.first, -math.inf), e.eq(z.first, math.inf)
    root = c.select(left, c.pair(e.like(infinity, 0.0), signed), root)
    root = c.select(right, c.pair(infinity, signed_zero), root)
    return c.select(e.eq(e.abs(z.second), math.inf), c.pair(infinity, signed), root)


def reciprocal_root(c: Complex, z: Pair) -> Pair:
    """``conj(sqrt z) / |z|``."""
    e = c.e
    root, size = square_root(c, z), c.absolute(z)
    value = c.pair(e.div(root.first, size), e.neg(e.div(root.second, size)))
    is_infinite = e.eq(size, math.inf)
    zero = e.like(size, 0.0)
    value = c.select(is_infinite, c.pair(zero, with_sign(e, zero, e.neg(z.second))), value)
    at_zero = c.pair(e.like(size, math.inf), e.like(size, math.nan))
    return c.select(e.eq(size, 0.0), at_zero, value)


def cube_root(c: Complex, z: Pair) -> Pair:
    """The principal one."""
    e = c.e
    size, angle = e.unary("cbrt", c.absolute(z)), argument(c, z)
    third = e.mul(angle, e.like(angle, 1 / 3))
    real, imag = e.unary("cosine", third), e.unary("sine", third)
    return c.pair(e.mul(size, real), e.mul(size, imag))


def hyperbolic_tangent(c: Complex, z: Pair) -> Pair:
    """``(b s h, t) / (1 + b s**2)`` with t = tan y, b = 1 + t**2, s = sinh x, h = cosh x."""
    e = c.e
    x, y = z.parts
    one, two = e.like(x, 1.0), e.like(x, 2.0)
    is_large = e.gt(e.abs(x), _LARGE_TANGENT)
    inner = e.select(is_large, e.like(x, 0.0), x)
    t, s = e.unary("tan", y), e.unary("sinh", inner)
    b = e.add(one, e.mul(t, t))
    bs = e.mul(b, s)
    denominator = e.add(one, e.mul(bs, s))
    real = e.div(e.mul(bs, e.unary("cosh", inner)), denominator)
    imag = e.div(t, denominator)
    decay = e.unary("exponential", e.neg(e.mul(two, e.abs(x))))
    wave = e.mul(e.unary("sine", y), e.unary("cosine", y))
    far = c.pair(with_sign(e, one, x), e.mul(e.mul(e.mul(two, two), decay), wave))
    value = c.select(is_large, far, c.pair(real, imag))
    return c.pair(value.first, e.select(e.eq(y, 0.0), y, value.second))


def _turned(c: Complex, z: Pair) -> Pair:
    """``i z``."""
    return c.pair(c.e.neg(z.second), z.first)


def tangent(c: Complex, z: Pair) -> Pair:
    """``-i tanh(iz)``."""
    value = hyperbolic_tangent(c, _turned(c, z))
    return c.pair(value.second, c.e.neg(value.first))


def _halves(c: Complex, x: Instr) -> tuple[Instr, Instr]:
    """sinh and cosh."""
    return c.e.unary("sinh", x), c.e.unary("cosh", x)


def hyperbolic_sine(c: Complex, z: Pair) -> Pair:
    """``sinh x cos y + i cosh x sin y``."""
    e = c.e
    sinh, cosh = _halves(c, z.first)
    real = e.mul(sinh, e.unary("cosine", z.second))
    imag = e.mul(cosh, e.unary("sine", z.second))
    zero = e.eq(z.first, 0.0)
    flat = e.eq(z.second, 0.0)
    return c.pair(e.select(zero, z.first, real), e.select(flat, z.second, imag))


def hyperbolic_cosine(c: Complex, z: Pair) -> Pair:
    """``cosh x cos y + i sinh x sin y``."""
    e = c.e
    sinh, cosh = _halves(c, z.first)
    real = e.mul(cosh, e.unary("cosine", z.second))
    imag = e.mul(sinh, e.unary("sine", z.second))
    is_real = e.or_(e.eq(z.first, 0.0), e.eq(z.second, 0.0))
    return c.pair(real, e.select(is_real, e.mul(z.first, z.second), imag))


def sine(c: Complex, z: Pair) -> Pair:
    """``-i sinh(iz)``."""
    value = hyperbolic_sine(c, _turned(c, z))
    return c.pair(value.second, c.e.neg(value.first))


def cosine(c: Complex, z: Pair) -> Pair:
    """``cosh(iz)``."""
    return hyperbolic_cosine(c, _turned(c, z))


def logistic(c: Complex, z: Pair) -> Pair:
    """``1 / (1 + exp(-z))``."""
    one = c.constant(1.0, z.dims)
    return c.divide(one, c.add(one, exponential(c, c.negate(z))))


def power(c: Complex, z: Pair, w: Pair) -> Pair:
    """``|z|**p exp(-q arg z)`` at the angle ``q log|z| + p arg z``, for w = p + iq.

    0 to the power of 0 is 1, to any other 0.
    """
    e = c.e
    p, q = w.parts
    size, angle = c.absolute(z), argument(c, z)
    grown = e.unary("exponential", e.neg(e.mul(q, angle)))
    length = e.mul(e.binary("power", size, p), grown)
    turn = e.add(e.mul(q, logarithm(c, z).first), e.mul(p, angle))
    value = c.pair(e.mul(length, e.unary("cosine", turn)), e.mul(length, e.unary("sine", turn)))
    is_zero = e.and_(e.eq(z.first, 0.0), e.eq(z.second, 0.0))
    is_one = e.and_(e.eq(w.first, 0.0), e.eq(w.second, 0.0))
    is_one = e.and_(is_zero, is_one)
    zero, one = c.constant(0.0, z.dims), c.constant(1.0, z.dims)
    return c.select(is_one, one, c.select(is_zero, zero, value))


def arc_tangent_2(c: Complex, y: Pair, x: Pair) -> Pair:
    """``-i log((x + iy) / sqrt(x**2 + y**2))``."""
    size = square_root(c, c.add(c.multiply(x, x), c.multiply(y, y)))
    value = logarithm(c, c.divide(c.add(x, _turned(c, y)), size))
    return c.pair(value.second, c.e.neg(value.first))
