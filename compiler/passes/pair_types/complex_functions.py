"""Functions of complex numbers in terms of real ones, z = x + iy.

The forms are those that neither overflow nor cancel where the result is representable.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.compensated import Compensated, Twofold
from compiler.passes.pair_types.complex_arithmetic import Complex, with_sign
from compiler.passes.pair_types.polar import (
    angle,
    log_modulus,
    log_modulus_of_next,
    power_of_two,
    scaled_parts,
    squares,
)
from compiler.passes.pair_types.values import Pair

Instr = HloInstruction
_LARGE_EXPONENT = 80.0  # exp of more may overflow although exp * cos does not
_SPARE_BITS = 64  # such an exp is computed smaller by so many powers of two
_LARGE_TANGENT = 9.0  # from here on tanh x is 1 in f32


def exponential(c: Complex, z: Pair) -> Pair:
    """``exp x (cos y + i sin y)``."""
    e = c.e
    whole = e.unary("exponential", z.first)
    is_large = e.gt(z.first, _LARGE_EXPONENT)
    size = e.select(is_large, _reduced_exponential(c, z.first), whole)
    factor = e.select(is_large, e.like(size, 2.0**_SPARE_BITS), e.like(size, 1.0))
    real = e.mul(e.mul(size, e.unary("cosine", z.second)), factor)
    imag = e.mul(e.mul(size, e.unary("sine", z.second)), factor)
    is_real = e.eq(z.second, 0.0)
    real = e.select(is_real, whole, real)
    return c.pair(real, e.select(is_real, e.like(size, 0.0), imag))


def _reduced_exponential(c: Complex, x: Instr) -> Instr:
    """``exp(x) / 2**64`` for large x."""
    e, k = c.e, Compensated(c.e)
    lowered = k.subtract(k.plain(x), k.constant(x, math.log(2) * _SPARE_BITS))
    size = e.unary("exponential", e.select(e.lt(x, 256.0), lowered.high, x))
    # the result may be infinite, and the second part must not make that NaN
    return e.select(e.lt(lowered.high, 88.0), e.fma(size, lowered.low, size), size)


def exponential_minus_one(c: Complex, z: Pair) -> Pair:
    """``expm1 x cos y + (cos y - 1)``, ``exp x sin y``; cos y - 1 is -2 sin(y/2)**2."""
    e = c.e
    half = e.unary("sine", e.mul(z.second, e.like(z.second, 0.5)))
    less_one = e.mul(e.mul(half, half), e.like(half, -2.0))
    grown = e.unary("exponential-minus-one", z.first)
    real = e.add(e.mul(grown, e.unary("cosine", z.second)), less_one)
    real = e.select(e.eq(z.second, 0.0), grown, real)
    return c.pair(real, exponential(c, z).second)


def logarithm(c: Complex, z: Pair) -> Pair:
    """``log |z| + i arg z``."""
    k = Compensated(c.e)
    return c.pair(k.value(log_modulus(k, *z.parts)), argument(c, z))


def log_plus_one(c: Complex, z: Pair) -> Pair:
    """``log (1 + z)``; small z keep their digits."""
    e = c.e
    k = Compensated(e)
    moved = e.add(z.first, e.like(z.first, 1.0))
    angle = e.binary("atan2", z.second, moved)
    return c.pair(k.value(log_modulus_of_next(k, *z.parts)), angle)


def argument(c: Complex, z: Pair) -> Instr:
    """The angle in (-pi, pi]."""
    return c.e.binary("atan2", z.second, z.first)


@dataclass(frozen=True)
class _Root:
    """The root of ``|x| + i|y|`` as ``(real + i imag) 2**half``, and the scaled modulus."""

    real: Twofold
    imag: Instr
    size: Twofold
    half: Instr


def _first_quadrant_root(c: Complex, z: Pair) -> _Root:
    """``t = sqrt((|x| + |z|) / 2)`` and ``|y| / 2t``; not for 0, infinities and NaN."""
    e, k = c.e, Compensated(c.e)
    x, y = e.abs(z.first), e.abs(z.second)
    parts = scaled_parts(e, x, y)
    half = e.sra(parts.exponent, 1)
    odd = e.sub(parts.exponent, e.add(half, half))
    factor = power_of_two(e, odd)
    large, small = e.mul(parts.large, factor), e.mul(parts.small, factor)
    size = k.square_root(squares(k, large, small))
    share = e.select(e.compare("GE", x, y), large, small)
    mean = k.scaled(k.add(size, k.plain(share)), e.like(x, 0.5))
    t = k.square_root(mean)
    rest = e.mul(y, power_of_two(e, e.neg(half)))
    imag = k.value(k.divide(k.plain(rest), k.scaled(t, e.like(x, 2.0))))
    return _Root(t, imag, size, half)


def square_root(c: Complex, z: Pair) -> Pair:
    """The root in the right half plane."""
    e, k = c.e, Compensated(c.e)
    root = _first_quadrant_root(c, z)
    t = e.mul(k.value(root.real), power_of_two(e, root.half))
    is_right = e.compare("GE", z.first, 0.0)
    real = e.select(is_right, t, root.imag)
    imag = e.select(is_right, root.imag, t)
    zero = e.like(t, 0.0)
    is_zero = e.and_(e.eq(z.first, 0.0), e.eq(z.second, 0.0))
    real, imag = e.select(is_zero, zero, real), e.select(is_zero, zero, imag)
    return _infinite_root(c, z, c.pair(real, with_sign(e, imag, z.second)))


def _infinite_root(c: Complex, z: Pair, root: Pair) -> Pair:
    """Roots of infinities: of ``x + i inf`` it is ``inf + i inf``, of ``-inf + iy`` ``0 + i inf``."""
    e = c.e
    infinity = e.like(z.first, math.inf)
    signed = with_sign(e, infinity, z.second)
    signed_zero = with_sign(e, e.like(infinity, 0.0), z.second)
    left, right = e.eq(z.first, -math.inf), e.eq(z.first, math.inf)
    is_unknown = e.ne(z.second, z.second)
    signed_zero = e.select(is_unknown, z.second, signed_zero)
    left_real = e.select(is_unknown, z.second, e.like(infinity, 0.0))
    root = c.select(left, c.pair(left_real, signed), root)
    root = c.select(right, c.pair(infinity, signed_zero), root)
    return c.select(e.eq(e.abs(z.second), math.inf), c.pair(infinity, signed), root)


def reciprocal_root(c: Complex, z: Pair) -> Pair:
    """``conj(sqrt z) / |z|``."""
    e, k = c.e, Compensated(c.e)
    root = _first_quadrant_root(c, z)
    scale = power_of_two(e, e.neg(root.half))
    t = e.mul(k.value(k.divide(root.real, root.size)), scale)
    other = e.mul(e.mul(root.imag, scale), e.div(scale, k.value(root.size)))
    is_right = e.compare("GE", z.first, 0.0)
    turned = with_sign(e, e.select(is_right, other, t), e.neg(z.second))
    value = c.pair(e.select(is_right, t, other), turned)
    infinite = e.or_(e.eq(e.abs(z.first), math.inf), e.eq(e.abs(z.second), math.inf))
    zero = e.like(t, 0.0)
    value = c.select(infinite, c.pair(zero, with_sign(e, zero, e.neg(z.second))), value)
    at_zero = c.pair(e.like(t, math.inf), e.like(t, math.nan))
    is_zero = e.and_(e.eq(z.first, 0.0), e.eq(z.second, 0.0))
    return c.select(is_zero, at_zero, value)


def cube_root(c: Complex, z: Pair) -> Pair:
    """The principal one."""
    e = c.e
    is_tiny = e.lt(e.max(e.abs(z.first), e.abs(z.second)), 2.0**-100)
    one = e.like(z.first, 1.0)
    # The modulus of a tiny number may be denormal, that of a huge one infinite.
    scaled = c.scaled(z, e.select(is_tiny, e.like(one, 2.0**60), e.like(one, 2.0**-3)))
    back = e.select(is_tiny, e.like(one, 2.0**-20), e.like(one, 2.0))
    root = e.mul(e.unary("cbrt", c.absolute(scaled)), back)
    third = e.mul(argument(c, scaled), e.like(one, 1 / 3))
    real, imag = e.unary("cosine", third), e.unary("sine", third)
    return c.pair(e.mul(root, real), e.mul(root, imag))


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
    far_imag = e.mul(e.mul(e.mul(two, two), decay), wave)
    has_limit = e.and_(e.eq(e.abs(x), math.inf), e.ne(wave, wave))
    far_imag = e.select(has_limit, with_sign(e, e.like(x, 0.0), y), far_imag)
    is_lost = e.and_(e.lt(e.abs(x), math.inf), e.ne(wave, wave))
    far = c.pair(e.select(is_lost, wave, with_sign(e, one, x)), far_imag)
    value = c.select(is_large, far, c.pair(real, imag))
    return c.pair(value.first, e.select(e.eq(y, 0.0), y, value.second))


def _turned(c: Complex, z: Pair) -> Pair:
    """``i z``."""
    return c.pair(c.e.neg(z.second), z.first)


def tangent(c: Complex, z: Pair) -> Pair:
    """``-i tanh(iz)``."""
    value = hyperbolic_tangent(c, _turned(c, z))
    return c.pair(value.second, c.e.neg(value.first))


def _halves(c: Complex, x: Instr) -> tuple[Instr, Instr, Instr]:
    """(s, c, f): sinh x = s f and cosh x = c f, where f is not 1 for a large x only."""
    e = c.e
    size = e.abs(x)
    is_large = e.gt(size, _LARGE_EXPONENT)
    far = _reduced_exponential(c, size)
    sinh = e.select(is_large, with_sign(e, far, x), e.unary("sinh", x))
    cosh = e.select(is_large, far, e.unary("cosh", x))
    half = e.like(x, 2.0 ** (_SPARE_BITS - 1))
    return sinh, cosh, e.select(is_large, half, e.like(x, 1.0))


def hyperbolic_sine(c: Complex, z: Pair) -> Pair:
    """``sinh x cos y + i cosh x sin y``."""
    e = c.e
    sinh, cosh, factor = _halves(c, z.first)
    real = e.mul(e.mul(sinh, e.unary("cosine", z.second)), factor)
    imag = e.mul(e.mul(cosh, e.unary("sine", z.second)), factor)
    zero = e.eq(z.first, 0.0)
    flat = e.eq(z.second, 0.0)
    return c.pair(e.select(zero, z.first, real), e.select(flat, z.second, imag))


def hyperbolic_cosine(c: Complex, z: Pair) -> Pair:
    """``cosh x cos y + i sinh x sin y``."""
    e = c.e
    sinh, cosh, factor = _halves(c, z.first)
    real = e.mul(e.mul(cosh, e.unary("cosine", z.second)), factor)
    imag = e.mul(e.mul(sinh, e.unary("sine", z.second)), factor)
    is_real = e.or_(e.eq(z.first, 0.0), e.eq(z.second, 0.0))
    zero = e.mul(
        with_sign(e, e.like(imag, 0.0), z.first), with_sign(e, e.like(imag, 1.0), z.second)
    )
    return c.pair(real, e.select(is_real, zero, imag))


def sine(c: Complex, z: Pair) -> Pair:
    """``-i sinh(iz)``."""
    value = hyperbolic_sine(c, _turned(c, z))
    return c.pair(value.second, c.e.neg(value.first))


def cosine(c: Complex, z: Pair) -> Pair:
    """``cosh(iz)``."""
    return hyperbolic_cosine(c, _turned(c, z))


def logistic(c: Complex, z: Pair) -> Pair:
    """``1 / (1 + exp(-z))`` by u = exp(-|x|), m = u - 1, p = 2 cos(y/2)**2 = 1 + cos y.

    With d = m**2 + 2 u p it is ``(u p - m + i u sin y) / d`` for x > 0, else
    ``u (p + m + i sin y) / d``; near a pole neither loses its digits.
    """
    e = c.e
    x = e.neg(e.abs(z.first))
    u, m = e.unary("exponential", x), e.unary("exponential-minus-one", x)
    half = e.mul(z.second, e.like(z.second, 0.5))
    cos, sin = e.unary("cosine", half), e.unary("sine", half)
    double = e.add(cos, cos)
    p = e.mul(double, cos)
    bottom = e.fma(m, m, e.mul(e.add(u, u), p))
    is_right = e.gt(z.first, 0.0)
    real = e.select(is_right, e.fma(u, p, e.neg(m)), e.mul(u, e.add(p, m)))
    imag = e.mul(u, e.mul(double, sin))
    return c.pair(e.div(real, bottom), e.div(imag, bottom))


def power(c: Complex, z: Pair, w: Pair) -> Pair:
    """``exp(w log z)``: ``exp(p l - q a)`` at the angle ``q l + p a`` for w = p + iq, log z = l + ia.

    Both are sums of two f32, for their absolute errors are the relative ones of the result.
    0 to the power of 0 is 1, to any other 0.
    """
    e = c.e
    k = Compensated(e)
    is_zero = e.and_(e.eq(z.first, 0.0), e.eq(z.second, 0.0))
    one = c.constant(1.0, z.dims)
    base = c.select(is_zero, one, z)
    log, turn = log_modulus(k, *base.parts), angle(k, *base.parts)
    turn = k.select(e.lt(e.abs(log.high), math.inf), turn, k.plain(argument(c, base)))
    p, q = w.parts
    minus = e.neg(q)
    growth = _finite_sum(k, _weighted(k, log, p), _weighted(k, turn, minus))
    rotation = _finite_sum(k, _weighted(k, log, q), _weighted(k, turn, p))
    value = _from_polar(c, k, growth, rotation)
    is_one = e.and_(e.eq(p, 0.0), e.eq(q, 0.0))
    value = c.select(is_zero, c.constant(0.0, z.dims), value)
    return c.select(is_one, one, value)


def _weighted(k: Compensated, a: Twofold, weight: Instr) -> Twofold:
    """``a * weight``; 0 where the weight is, infinite without a second part."""
    e = k.e
    product = k.times(a, weight)
    bounded = e.lt(e.abs(e.mul(a.high, weight)), math.inf)
    product = k.select(bounded, product, k.plain(e.mul(a.high, weight)))
    return k.select(e.eq(weight, 0.0), k.plain(e.like(weight, 0.0)), product)


def _finite_sum(k: Compensated, a: Twofold, b: Twofold) -> Twofold:
    """``a + b``; infinite without a second part."""
    total = k.e.add(a.high, b.high)
    return k.select(k.e.lt(k.e.abs(total), math.inf), k.add(a, b), k.plain(total))


def _from_polar(c: Complex, k: Compensated, growth: Twofold, rotation: Twofold) -> Pair:
    """``exp(growth) (cos rotation + i sin rotation)``."""
    e = c.e
    is_large = e.gt(growth.high, _LARGE_EXPONENT)
    lowered = k.subtract(growth, k.constant(growth.high, math.log(2) * _SPARE_BITS))
    exponent = k.select(is_large, lowered, growth)
    is_small = e.lt(e.abs(exponent.high), 88.0)  # of more, the exponential may be infinite
    size = e.unary("exponential", e.select(is_small, exponent.high, growth.high))
    size = e.select(is_small, e.fma(size, exponent.low, size), size)
    factor = e.select(is_large, e.like(size, 2.0**_SPARE_BITS), e.like(size, 1.0))
    cos, sin = e.unary("cosine", rotation.high), e.unary("sine", rotation.high)
    # of a large angle the second part is one, too: a turn by it must not change the modulus
    shrunk, along = e.unary("cosine", rotation.low), e.unary("sine", rotation.low)
    real = e.fma(e.neg(sin), along, e.mul(cos, shrunk))
    imag = e.fma(cos, along, e.mul(sin, shrunk))
    return c.pair(e.mul(e.mul(size, real), factor), e.mul(e.mul(size, imag), factor))


def _scaled_alike(c: Complex, *values: Pair) -> list[Pair]:
    """Pairs times one power of two, at which their largest part is neither huge nor tiny."""
    e = c.e
    sizes = [e.abs(part) for value in values for part in value.parts]
    largest = functools.reduce(e.max, sizes)
    one = e.like(largest, 1.0)
    factor = e.select(e.lt(largest, 2.0**-40), e.like(one, 2.0**96), one)
    factor = e.select(e.gt(largest, 2.0**60), e.like(one, 2.0**-68), factor)
    return [c.pair(*(e.mul(part, factor) for part in value.parts)) for value in values]


def arc_tangent_2(c: Complex, y: Pair, x: Pair) -> Pair:
    """``-i log(q)``, ``q = (x + iy) / sqrt(x**2 + y**2)``.

    With ``u = x + iy`` and ``v = x - iy``, ``q**2 = u / v``: the logarithm of ``|q|`` and the angle
    of `q` follow from products of x and y, so that small ones keep their digits. A common factor
    changes nothing, and brings all to where squares neither overflow nor vanish.
    """
    e, k = c.e, Compensated(c.e)
    y, x = _scaled_alike(c, y, x)
    turned = _turned(c, y)
    u, v = c.add(x, turned), c.add(x, c.negate(turned))
    size = square_root(c, c.add(c.multiply(x, x), c.multiply(y, y)))
    coarse = argument(c, c.divide(u, size))
    crossed = k.subtract(k.product(x.second, y.first), k.product(x.first, y.second))
    excess = e.mul(k.value(crossed), e.like(size.first, 4.0))  # |u|**2 - |v|**2
    smaller = c.absolute(c.select(e.lt(excess, 0.0), u, v))
    ratio = e.div(e.div(e.abs(excess), smaller), smaller)
    log = e.mul(e.unary("log-plus-one", ratio), e.like(ratio, 0.25))
    along = k.add(k.product(x.first, y.first), k.product(x.second, y.second))
    squared = k.add(k.product(x.first, x.first), k.product(x.second, x.second))
    other = k.add(k.product(y.first, y.first), k.product(y.second, y.second))
    legs = k.value(k.subtract(squared, other))
    half = e.mul(e.binary("atan2", e.mul(k.value(along), e.like(log, 2.0)), legs), e.like(log, 0.5))
    gap, turn = e.sub(coarse, half), e.like(half, math.pi)
    half = e.select(e.lt(e.like(gap, 1.5), gap), e.add(half, turn), half)
    half = e.select(e.lt(gap, -1.5), e.sub(half, turn), half)
    return c.pair(half, with_sign(e, log, e.neg(excess)))
