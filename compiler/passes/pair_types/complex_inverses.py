"""Inverse sine, cosine, tangent of complex numbers and their hyperbolic sisters.

Hull, Fairgrieve and Tang, "Implementing the complex arcsine and arccosine functions using exception
handling" (1997): with r and s the distances from -1 and 1, a = (r + s) / 2 and b = x / a, the arcsine
of ``x + iy`` in the first quadrant is ``asin b + i log(a + sqrt(a**2 - 1))``, each in a form that
does not cancel. Far from the origin ``log 2z`` takes its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.hlo.expression import Expr
from compiler.passes.pair_types.compensated import constant, plain, product
from compiler.passes.pair_types.complex_arithmetic import Complex, turned_about, with_sign
from compiler.passes.pair_types.formulas import fma
from compiler.passes.pair_types.polar import log_modulus

_FAR = 2.0**40  # from here on asin z is atan2(x, y) + i log 2|z| in f32
_CLOSE = 2.0**-30  # to 1, where atanh z is log(2 / (1 - z)) / 2 in f32
_TINY = 2.0**-60  # a distance from 1 below this is all imaginary
_LARGE_B = 0.6417  # above, asin b cancels
_LARGE_A = 1.5  # below, a - 1 cancels


@dataclass(frozen=True)
class _Quadrant:
    """``|x| + i|y|``, its distances from -1 and 1, and what the formulas share."""

    x: Expr
    y: Expr
    r: Expr
    s: Expr
    a: Expr
    is_inside: Expr
    is_far: Expr


def _signed(size: Expr, sign: Expr) -> Expr:
    """`size`, negative where `sign` is; a zero of either sign counts as positive, as in XLA."""
    return (sign < 0.0).where(-size, size)


def _quadrant(z: Complex) -> _Quadrant:
    x, y = abs(z.first), abs(z.second)
    is_far = ~(x.of("maximum", y) < _FAR)  # NaN too
    one = x.like(1.0)
    x, y = is_far.where(one, x), is_far.where(one, y)
    r = Complex(x + one, y).absolute()
    s = Complex(x - one, y).absolute()
    a = (r + s) * 0.5
    return _Quadrant(x, y, r, s, a, x < 1.0, is_far)


def _side(q: _Quadrant) -> Expr:
    """``sqrt(a**2 - x**2)``: asin b is the angle of x over it."""
    one, half = q.x.like(1.0), q.x.like(0.5)
    outer = q.a + q.x
    below = q.r + q.x + one
    gap = q.s + (one - q.x)
    inside = half * outer * (q.y * q.y / below + gap)
    beyond = q.s + (q.x - one)
    outside = half * (outer / below + outer / beyond)
    root = _guarded(q, outside.of("sqrt"))
    root = (beyond < _TINY).where(q.y.of("sqrt"), root)  # x is 1: a**2 - 1 is y
    return q.is_inside.where(inside.of("sqrt"), root)


def _guarded(q: _Quadrant, root: Expr) -> Expr:
    """``y * root``, 0 on the real axis where the root may be infinite."""
    return q.y.equals(0.0).where(q.y, q.y * root)


def _height(q: _Quadrant) -> Expr:
    """``log(a + sqrt(a**2 - 1))``, the size of the imaginary part."""
    one, half = q.x.like(1.0), q.x.like(0.5)
    below = q.r + q.x + one
    above = q.a + one
    gap = q.s + (one - q.x)
    share = half * (one / below + one / gap)  # (a - 1) / y**2
    inside = q.y * fma(q.y, share, (share * above).of("sqrt"))
    rest = q.s + (q.x - one)
    excess = q.y * (q.y / below) + rest  # 2 (a - 1): half of it may be nothing
    root = (excess * (half * above)).of("sqrt")
    outside = half * excess + root
    small = q.is_inside.where(inside, outside).of("log-plus-one")
    square = q.a * q.a - one
    large = (q.a + square.of("maximum", 0.0).of("sqrt")).of("log")
    return (q.a > _LARGE_A).where(large, small)


def _far_height(z: Complex) -> Expr:
    """``log 2|z|``."""
    log = log_modulus(*z)
    size = (log + constant(z.first, math.log(2))).value()
    is_infinite = log.high.equals(math.inf)
    return is_infinite.where(math.inf, size)


def _imaginary(z: Complex, q: _Quadrant) -> Expr:
    size = q.is_far.where(_far_height(z), _height(q))
    return _signed(size, z.second)


def arc_sine(z: Complex) -> Complex:
    """Cuts along the real axis beyond -1 and 1."""
    q = _quadrant(z)
    b = q.x / q.a
    angle = q.x.of("atan2", _side(q))
    near = (b > _LARGE_B).where(angle, b.of("asin"))
    far = abs(z.first).of("atan2", abs(z.second))
    real = _signed(q.is_far.where(far, near), z.first)
    return Complex(real, _imaginary(z, q))


def arc_cosine(z: Complex) -> Complex:
    """``pi/2 - asin z``, as the angle of the other leg."""
    q = _quadrant(z)
    b = q.x / q.a
    side = _side(q)
    angle = side.of("atan2", _signed(q.x, z.first))
    near = (b > _LARGE_B).where(angle, _signed(b, z.first).of("acos"))
    far = abs(z.second).of("atan2", z.first)
    real = q.is_far.where(far, near)
    return Complex(real, -_imaginary(z, q))


def arc_hyperbolic_sine(z: Complex) -> Complex:
    """``-i asin(iz)``."""
    return turned_about(arc_sine, z)


def arc_hyperbolic_cosine(z: Complex) -> Complex:
    """``i acos z`` or ``-i acos z``, whichever has a real part of at least 0."""
    value = arc_cosine(z)
    return Complex(abs(value.second), _signed(value.first, z.second))


def arc_hyperbolic_tangent(z: Complex) -> Complex:
    """``log((1 + z) / (1 - z)) / 2``: ``log1p(4x / |1 - z|**2) / 4`` and half an angle."""
    x, y = abs(z.first), abs(z.second)
    one = x.like(1.0)
    is_far = ~(x.of("maximum", y) < _FAR)
    near_x, near_y = is_far.where(one, x), is_far.where(one, y)
    gap = one - near_x
    size = Complex(gap, near_y).absolute()
    ratio = 4.0 * near_x / size / size
    log = ratio.of("log-plus-one") * 0.25
    closest = math.log(2) / 2 - size.of("log") * 0.5
    log = (size < _CLOSE).where(closest, log)  # the ratio may overflow
    squares = product(near_x, near_x) + product(near_y, near_y)
    legs = (plain(one) - squares).value()
    angle = (near_y + near_y).of("atan2", legs)
    inverse = z.like(1.0) / z
    quarter = x.like(math.pi / 2)
    nan = x + y
    is_nan = nan.differs(nan) & ~(x.equals(math.inf) | y.equals(math.inf))
    real = is_far.where(abs(inverse.first), log)
    imag = is_far.where(quarter, angle * 0.5)
    real, imag = is_nan.where(nan, real), is_nan.where(nan, imag)
    return Complex(with_sign(real, z.first), with_sign(imag, z.second))


def arc_tangent(z: Complex) -> Complex:
    """``-i atanh(iz)``."""
    return turned_about(arc_hyperbolic_tangent, z)
