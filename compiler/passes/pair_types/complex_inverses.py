"""Inverse sine, cosine, tangent of complex numbers and their hyperbolic sisters.

Hull, Fairgrieve and Tang, "Implementing the complex arcsine and arccosine functions using exception
handling" (1997): with r and s the distances from -1 and 1, a = (r + s) / 2 and b = x / a, the arcsine
of ``x + iy`` in the first quadrant is ``asin b + i log(a + sqrt(a**2 - 1))``, each in a form that
does not cancel. Far from the origin ``log 2z`` takes its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.compensated import Compensated
from compiler.passes.pair_types.complex_arithmetic import Complex, with_sign
from compiler.passes.pair_types.emitter import Emitter
from compiler.passes.pair_types.polar import log_modulus
from compiler.passes.pair_types.values import Pair

Instr = HloInstruction
_FAR = 2.0**40  # from here on asin z is atan2(x, y) + i log 2|z| in f32
_CLOSE = 2.0**-30  # to 1, where atanh z is log(2 / (1 - z)) / 2 in f32
_TINY = 2.0**-60  # a distance from 1 below this is all imaginary
_LARGE_B = 0.6417  # above, asin b cancels
_LARGE_A = 1.5  # below, a - 1 cancels


@dataclass(frozen=True)
class _Quadrant:
    """``|x| + i|y|``, its distances from -1 and 1, and what the formulas share."""

    x: Instr
    y: Instr
    r: Instr
    s: Instr
    a: Instr
    is_inside: Instr
    is_far: Instr


def _signed(e: Emitter, size: Instr, sign: Instr) -> Instr:
    """`size`, negative where `sign` is; a zero of either sign counts as positive, as in XLA."""
    return e.select(e.lt(sign, 0.0), e.neg(size), size)


def _quadrant(c: Complex, z: Pair) -> _Quadrant:
    e = c.e
    x, y = e.abs(z.first), e.abs(z.second)
    is_far = e.not_(e.lt(e.max(x, y), _FAR))  # NaN too
    one = e.like(x, 1.0)
    x, y = e.select(is_far, one, x), e.select(is_far, one, y)
    r = c.absolute(c.pair(e.add(x, one), y))
    s = c.absolute(c.pair(e.sub(x, one), y))
    a = e.mul(e.add(r, s), e.like(x, 0.5))
    return _Quadrant(x, y, r, s, a, e.lt(x, 1.0), is_far)


def _side(c: Complex, q: _Quadrant) -> Instr:
    """``sqrt(a**2 - x**2)``: asin b is the angle of x over it."""
    e = c.e
    one, half = e.like(q.x, 1.0), e.like(q.x, 0.5)
    outer = e.add(q.a, q.x)
    below = e.add(e.add(q.r, q.x), one)
    gap = e.add(q.s, e.sub(one, q.x))
    inside = e.mul(e.mul(half, outer), e.add(e.div(e.mul(q.y, q.y), below), gap))
    beyond = e.add(q.s, e.sub(q.x, one))
    outside = e.mul(half, e.add(e.div(outer, below), e.div(outer, beyond)))
    root = _guarded(c, q, e.unary("sqrt", outside))
    root = e.select(e.lt(beyond, _TINY), e.unary("sqrt", q.y), root)  # x is 1: a**2 - 1 is y
    return e.select(q.is_inside, e.unary("sqrt", inside), root)


def _guarded(c: Complex, q: _Quadrant, root: Instr) -> Instr:
    """``y * root``, 0 on the real axis where the root may be infinite."""
    e = c.e
    return e.select(e.eq(q.y, 0.0), q.y, e.mul(q.y, root))


def _height(c: Complex, q: _Quadrant) -> Instr:
    """``log(a + sqrt(a**2 - 1))``, the size of the imaginary part."""
    e = c.e
    one, half = e.like(q.x, 1.0), e.like(q.x, 0.5)
    below = e.add(e.add(q.r, q.x), one)
    above = e.add(q.a, one)
    gap = e.add(q.s, e.sub(one, q.x))
    share = e.mul(half, e.add(e.div(one, below), e.div(one, gap)))  # (a - 1) / y**2
    inside = e.mul(q.y, e.fma(q.y, share, e.unary("sqrt", e.mul(share, above))))
    rest = e.add(q.s, e.sub(q.x, one))
    excess = e.add(e.mul(q.y, e.div(q.y, below)), rest)  # 2 (a - 1): half of it may be nothing
    root = e.unary("sqrt", e.mul(excess, e.mul(half, above)))
    outside = e.add(e.mul(half, excess), root)
    small = e.unary("log-plus-one", e.select(q.is_inside, inside, outside))
    square = e.sub(e.mul(q.a, q.a), one)
    large = e.unary("log", e.add(q.a, e.unary("sqrt", e.max(square, e.like(q.x, 0.0)))))
    return e.select(e.gt(q.a, _LARGE_A), large, small)


def _far_height(c: Complex, z: Pair) -> Instr:
    """``log 2|z|``."""
    k = Compensated(c.e)
    log = log_modulus(k, *z.parts)
    size = k.value(k.add(log, k.constant(z.first, math.log(2))))
    is_infinite = c.e.eq(log.high, math.inf)
    return c.e.select(is_infinite, c.e.like(size, math.inf), size)


def _imaginary(c: Complex, z: Pair, q: _Quadrant) -> Instr:
    e = c.e
    size = e.select(q.is_far, _far_height(c, z), _height(c, q))
    return _signed(e, size, z.second)


def arc_sine(c: Complex, z: Pair) -> Pair:
    """Cuts along the real axis beyond -1 and 1."""
    e, q = c.e, _quadrant(c, z)
    b = e.div(q.x, q.a)
    angle = e.binary("atan2", q.x, _side(c, q))
    near = e.select(e.gt(b, _LARGE_B), angle, e.unary("asin", b))
    far = e.binary("atan2", e.abs(z.first), e.abs(z.second))
    real = _signed(e, e.select(q.is_far, far, near), z.first)
    return c.pair(real, _imaginary(c, z, q))


def arc_cosine(c: Complex, z: Pair) -> Pair:
    """``pi/2 - asin z``, as the angle of the other leg."""
    e, q = c.e, _quadrant(c, z)
    b = e.div(q.x, q.a)
    side = _side(c, q)
    angle = e.binary("atan2", side, _signed(e, q.x, z.first))
    near = e.select(e.gt(b, _LARGE_B), angle, e.unary("acos", _signed(e, b, z.first)))
    far = e.binary("atan2", e.abs(z.second), z.first)
    real = e.select(q.is_far, far, near)
    return c.pair(real, e.neg(_imaginary(c, z, q)))


def arc_hyperbolic_sine(c: Complex, z: Pair) -> Pair:
    """``-i asin(iz)``."""
    value = arc_sine(c, c.pair(c.e.neg(z.second), z.first))
    return c.pair(value.second, c.e.neg(value.first))


def arc_hyperbolic_cosine(c: Complex, z: Pair) -> Pair:
    """``i acos z`` or ``-i acos z``, whichever has a real part of at least 0."""
    value = arc_cosine(c, z)
    return c.pair(c.e.abs(value.second), _signed(c.e, value.first, z.second))


def arc_hyperbolic_tangent(c: Complex, z: Pair) -> Pair:
    """``log((1 + z) / (1 - z)) / 2``: ``log1p(4x / |1 - z|**2) / 4`` and half an angle."""
    e, k = c.e, Compensated(c.e)
    x, y = e.abs(z.first), e.abs(z.second)
    one = e.like(x, 1.0)
    is_far = e.not_(e.lt(e.max(x, y), _FAR))
    near_x, near_y = e.select(is_far, one, x), e.select(is_far, one, y)
    gap = e.sub(one, near_x)
    size = c.absolute(c.pair(gap, near_y))
    ratio = e.div(e.div(e.mul(e.like(x, 4.0), near_x), size), size)
    log = e.mul(e.unary("log-plus-one", ratio), e.like(x, 0.25))
    closest = e.sub(e.like(x, math.log(2) / 2), e.mul(e.unary("log", size), e.like(x, 0.5)))
    log = e.select(e.lt(size, _CLOSE), closest, log)  # the ratio may overflow
    squares = k.add(k.product(near_x, near_x), k.product(near_y, near_y))
    legs = k.value(k.subtract(k.plain(one), squares))
    angle = e.binary("atan2", e.add(near_y, near_y), legs)
    inverse = c.divide(c.constant(1.0, z.dims), z)
    quarter = e.like(x, math.pi / 2)
    nan = e.add(x, y)
    is_nan = e.and_(e.ne(nan, nan), e.not_(e.or_(e.eq(x, math.inf), e.eq(y, math.inf))))
    real = e.select(is_far, e.abs(inverse.first), log)
    imag = e.select(is_far, quarter, e.mul(angle, e.like(x, 0.5)))
    real, imag = e.select(is_nan, nan, real), e.select(is_nan, nan, imag)
    return c.pair(with_sign(e, real, z.first), with_sign(e, imag, z.second))


def arc_tangent(c: Complex, z: Pair) -> Pair:
    """``-i atanh(iz)``."""
    value = arc_hyperbolic_tangent(c, c.pair(c.e.neg(z.second), z.first))
    return c.pair(value.second, c.e.neg(value.first))
