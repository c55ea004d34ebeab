"""Functions of complex numbers in terms of real ones, z = x + iy.

The forms are those that neither overflow nor cancel where the result is representable.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from compiler.hlo.expression import Expr
from compiler.passes.pair_types.compensated import Twofold, constant, plain, product
from compiler.passes.pair_types.complex_arithmetic import Complex, turned_about, with_sign
from compiler.passes.pair_types.formulas import fma, select, sra
from compiler.passes.pair_types.polar import (
    angle,
    log_modulus,
    log_modulus_of_next,
    power_of_two,
    scaled_parts,
    squares,
)

_LARGE_EXPONENT = 80.0  # exp of more may overflow although exp * cos does not
_SPARE_BITS = 64  # such an exp is computed smaller by so many powers of two
_LARGE_TANGENT = 9.0  # from here on tanh x is 1 in f32


def exponential(z: Complex) -> Complex:
    """``exp x (cos y + i sin y)``."""
    whole = z.first.of("exponential")
    is_large = z.first > _LARGE_EXPONENT
    size = is_large.where(_reduced_exponential(z.first), whole)
    factor = is_large.where(size.like(2.0**_SPARE_BITS), 1.0)
    real = size * z.second.of("cosine") * factor
    imag = size * z.second.of("sine") * factor
    is_real = z.second.equals(0.0)
    real = is_real.where(whole, real)
    return Complex(real, is_real.where(0.0, imag))


def _reduced_exponential(x: Expr) -> Expr:
    """``exp(x) / 2**64`` for large x."""
    lowered = plain(x) - constant(x, math.log(2) * _SPARE_BITS)
    size = (x < 256.0).where(lowered.high, x).of("exponential")
    # the result may be infinite, and the second part must not make that NaN
    return (lowered.high < 88.0).where(fma(size, lowered.low, size), size)


def exponential_minus_one(z: Complex) -> Complex:
    """``expm1 x cos y + (cos y - 1)``, ``exp x sin y``; cos y - 1 is -2 sin(y/2)**2."""
    half = (z.second * 0.5).of("sine")
    less_one = half * half * -2.0
    grown = z.first.of("exponential-minus-one")
    real = grown * z.second.of("cosine") + less_one
    real = z.second.equals(0.0).where(grown, real)
    return Complex(real, exponential(z).second)


def logarithm(z: Complex) -> Complex:
    """``log |z| + i arg z``."""
    return Complex(log_modulus(*z).value(), argument(z))


def log_plus_one(z: Complex) -> Complex:
    """``log (1 + z)``; small z keep their digits."""
    moved = z.first + 1.0
    angle = z.second.of("atan2", moved)
    return Complex(log_modulus_of_next(*z).value(), angle)


def argument(z: Complex) -> Expr:
    """The angle in (-pi, pi]."""
    return z.second.of("atan2", z.first)


@dataclass(frozen=True)
class _Root:
    """The root of ``|x| + i|y|`` as ``(real + i imag) 2**half``, and the scaled modulus."""

    real: Twofold
    imag: Expr
    size: Twofold
    half: Expr


def _first_quadrant_root(z: Complex) -> _Root:
    """``t = sqrt((|x| + |z|) / 2)`` and ``|y| / 2t``; not for 0, infinities and NaN."""
    x, y = abs(z.first), abs(z.second)
    parts = scaled_parts(x, y)
    half = sra(parts.exponent, 1)
    odd = parts.exponent - (half + half)
    factor = power_of_two(odd)
    large, small = parts.large * factor, parts.small * factor
    size = squares(large, small).square_root()
    share = (x >= y).where(large, small)
    mean = (size + plain(share)).scaled(0.5)
    t = mean.square_root()
    rest = y * power_of_two(-half)
    imag = (plain(rest) / t.scaled(2.0)).value()
    return _Root(t, imag, size, half)


def square_root(z: Complex) -> Complex:
    """The root in the right half plane."""
    root = _first_quadrant_root(z)
    t = root.real.value() * power_of_two(root.half)
    is_right = z.first >= 0.0
    real = is_right.where(t, root.imag)
    imag = is_right.where(root.imag, t)
    zero = t.like(0.0)
    is_zero = z.is_zero()
    real, imag = is_zero.where(zero, real), is_zero.where(zero, imag)
    return _infinite_root(z, Complex(real, with_sign(imag, z.second)))


def _infinite_root(z: Complex, root: Complex) -> Complex:
    """Roots of infinities: of ``x + i inf`` it is ``inf + i inf``, of ``-inf + iy`` ``0 + i inf``."""
    infinity = z.first.like(math.inf)
    signed = with_sign(infinity, z.second)
    signed_zero = with_sign(infinity.like(0.0), z.second)
    left, right = z.first.equals(-math.inf), z.first.equals(math.inf)
    is_unknown = z.second.differs(z.second)
    signed_zero = is_unknown.where(z.second, signed_zero)
    left_real = is_unknown.where(z.second, 0.0)
    root = select(left, Complex(left_real, signed), root)
    root = select(right, Complex(infinity, signed_zero), root)
    return select(abs(z.second).equals(math.inf), Complex(infinity, signed), root)


def reciprocal_root(z: Complex) -> Complex:
    """``conj(sqrt z) / |z|``."""
    root = _first_quadrant_root(z)
    scale = power_of_two(-root.half)
    t = (root.real / root.size).value() * scale
    other = root.imag * scale * (scale / root.size.value())
    is_right = z.first >= 0.0
    turned = with_sign(is_right.where(other, t), -z.second)
    value = Complex(is_right.where(t, other), turned)
    infinite = z.is_infinite()
    zero = t.like(0.0)
    value = select(infinite, Complex(zero, with_sign(zero, -z.second)), value)
    at_zero = Complex(t.like(math.inf), t.like(math.nan))
    is_zero = z.is_zero()
    return select(is_zero, at_zero, value)


def cube_root(z: Complex) -> Complex:
    """The principal one."""
    is_tiny = abs(z.first).of("maximum", abs(z.second)) < 2.0**-100
    one = z.first.like(1.0)
    # The modulus of a tiny number may be denormal, that of a huge one infinite.
    scaled = z.scaled(is_tiny.where(one.like(2.0**60), 2.0**-3))
    back = is_tiny.where(one.like(2.0**-20), 2.0)
    root = scaled.absolute().of("cbrt") * back
    third = argument(scaled) * (1 / 3)
    real, imag = third.of("cosine"), third.of("sine")
    return Complex(root * real, root * imag)


def hyperbolic_tangent(z: Complex) -> Complex:
    """``(b s h, t) / (1 + b s**2)`` with t = tan y, b = 1 + t**2, s = sinh x, h = cosh x."""
    x, y = z
    one, two = x.like(1.0), x.like(2.0)
    is_large = abs(x) > _LARGE_TANGENT
    inner = is_large.where(0.0, x)
    t, s = y.of("tan"), inner.of("sinh")
    b = one + t * t
    bs = b * s
    denominator = one + bs * s
    real = bs * inner.of("cosh") / denominator
    imag = t / denominator
    decay = (-(two * abs(x))).of("exponential")
    wave = y.of("sine") * y.of("cosine")
    far_imag = two * two * decay * wave
    has_limit = abs(x).equals(math.inf) & wave.differs(wave)
    far_imag = has_limit.where(with_sign(x.like(0.0), y), far_imag)
    is_lost = (abs(x) < math.inf) & wave.differs(wave)
    far = Complex(is_lost.where(wave, with_sign(one, x)), far_imag)
    value = select(is_large, far, Complex(real, imag))
    return Complex(value.first, y.equals(0.0).where(y, value.second))


def tangent(z: Complex) -> Complex:
    """``-i tanh(iz)``."""
    return turned_about(hyperbolic_tangent, z)


def _halves(x: Expr) -> tuple[Expr, Expr, Expr]:
    """(s, c, f): sinh x = s f and cosh x = c f, where f is not 1 for a large x only."""
    size = abs(x)
    is_large = size > _LARGE_EXPONENT
    far = _reduced_exponential(size)
    sinh = is_large.where(with_sign(far, x), x.of("sinh"))
    cosh = is_large.where(far, x.of("cosh"))
    half = x.like(2.0 ** (_SPARE_BITS - 1))
    return sinh, cosh, is_large.where(half, 1.0)


def hyperbolic_sine(z: Complex) -> Complex:
    """``sinh x cos y + i cosh x sin y``."""
    sinh, cosh, factor = _halves(z.first)
    real = sinh * z.second.of("cosine") * factor
    imag = cosh * z.second.of("sine") * factor
    zero = z.first.equals(0.0)
    flat = z.second.equals(0.0)
    return Complex(zero.where(z.first, real), flat.where(z.second, imag))


def hyperbolic_cosine(z: Complex) -> Complex:
    """``cosh x cos y + i sinh x sin y``."""
    sinh, cosh, factor = _halves(z.first)
    real = cosh * z.second.of("cosine") * factor
    imag = sinh * z.second.of("sine") * factor
    is_real = z.first.equals(0.0) | z.second.equals(0.0)
    zero = with_sign(imag.like(0.0), z.first) * with_sign(imag.like(1.0), z.second)
    return Complex(real, is_real.where(zero, imag))


def sine(z: Complex) -> Complex:
    """``-i sinh(iz)``."""
    return turned_about(hyperbolic_sine, z)


def cosine(z: Complex) -> Complex:
    """``cosh(iz)``."""
    return hyperbolic_cosine(z.turned())


def logistic(z: Complex) -> Complex:
    """``1 / (1 + exp(-z))`` by u = exp(-|x|), m = u - 1, p = 2 cos(y/2)**2 = 1 + cos y.

    With d = m**2 + 2 u p it is ``(u p - m + i u sin y) / d`` for x > 0, else
    ``u (p + m + i sin y) / d``; near a pole neither loses its digits.
    """
    x = -abs(z.first)
    u, m = x.of("exponential"), x.of("exponential-minus-one")
    half = z.second * 0.5
    cos, sin = half.of("cosine"), half.of("sine")
    double = cos + cos
    p = double * cos
    bottom = fma(m, m, (u + u) * p)
    is_right = z.first > 0.0
    real = is_right.where(fma(u, p, -m), u * (p + m))
    imag = u * (double * sin)
    return Complex(real / bottom, imag / bottom)


def power(z: Complex, w: Complex) -> Complex:
    """``exp(w log z)``: ``exp(p l - q a)`` at the angle ``q l + p a`` for w = p + iq, log z = l + ia.

    Both are sums of two f32, for their absolute errors are the relative ones of the result.
    0 to the power of 0 is 1, to a positive real number 0, to any other NaN, as XLA's is.
    """
    is_zero = z.is_zero()
    one = z.like(1.0)
    base = select(is_zero, one, z)
    log, turn = log_modulus(*base), angle(*base)
    turn = select(abs(log.high) < math.inf, turn, plain(argument(base)))
    p, q = w
    minus = -q
    growth = _finite_sum(_weighted(log, p), _weighted(turn, minus))
    rotation = _finite_sum(_weighted(log, q), _weighted(turn, p))
    value = _from_polar(growth, rotation)
    is_one = p.equals(0.0) & q.equals(0.0)
    of_zero = ((p > 0.0) & q.equals(0.0)).where(p.like(0.0), math.nan)
    value = select(is_zero, Complex(of_zero, of_zero), value)
    return select(is_one, one, value)


def _weighted(a: Twofold, weight: Expr) -> Twofold:
    """``a * weight``; 0 where the weight is, infinite without a second part."""
    product = a.times(weight)
    bounded = abs(a.high * weight) < math.inf
    product = select(bounded, product, plain(a.high * weight))
    return select(weight.equals(0.0), plain(weight.like(0.0)), product)


def _finite_sum(a: Twofold, b: Twofold) -> Twofold:
    """``a + b``; infinite without a second part."""
    total = a.high + b.high
    return select(abs(total) < math.inf, a + b, plain(total))


def _from_polar(growth: Twofold, rotation: Twofold) -> Complex:
    """``exp(growth) (cos rotation + i sin rotation)``."""
    is_large = growth.high > _LARGE_EXPONENT
    lowered = growth - constant(growth.high, math.log(2) * _SPARE_BITS)
    exponent = select(is_large, lowered, growth)
    is_small = abs(exponent.high) < 88.0  # of more, the exponential may be infinite
    size = is_small.where(exponent.high, growth.high).of("exponential")
    size = is_small.where(fma(size, exponent.low, size), size)
    factor = is_large.where(size.like(2.0**_SPARE_BITS), 1.0)
    cos, sin = rotation.high.of("cosine"), rotation.high.of("sine")
    # of a large angle the second part is one, too: a turn by it must not change the modulus
    shrunk, along = rotation.low.of("cosine"), rotation.low.of("sine")
    real = fma(-sin, along, cos * shrunk)
    imag = fma(cos, along, sin * shrunk)
    return Complex(size * real * factor, size * imag * factor)


def _scaled_alike(*values: Complex) -> list[Complex]:
    """Pairs times one power of two, at which their largest part is neither huge nor tiny."""
    sizes = [abs(part) for value in values for part in value]
    largest = functools.reduce(lambda a, b: a.of("maximum", b), sizes)
    one = largest.like(1.0)
    factor = (largest < 2.0**-40).where(2.0**96, one)
    factor = (largest > 2.0**60).where(2.0**-68, factor)
    return [Complex(*(part * factor for part in value)) for value in values]


def arc_tangent_2(y: Complex, x: Complex) -> Complex:
    """``-i log(q)``, ``q = (x + iy) / sqrt(x**2 + y**2)``.

    With ``u = x + iy`` and ``v = x - iy``, ``q**2 = u / v``: the logarithm of ``|q|`` and the angle
    of `q` follow from products of x and y, so that small ones keep their digits. A common factor
    changes nothing, and brings all to where squares neither overflow nor vanish.
    """
    y, x = _scaled_alike(y, x)
    turned = y.turned()
    u, v = x + turned, x + (-turned)
    size = square_root(x * x + y * y)
    coarse = argument(u / size)
    crossed = product(x.second, y.first) - product(x.first, y.second)
    excess = crossed.value() * 4.0  # |u|**2 - |v|**2
    smaller = select(excess < 0.0, u, v).absolute()
    ratio = abs(excess) / smaller / smaller
    log = ratio.of("log-plus-one") * 0.25
    along = product(x.first, y.first) + product(x.second, y.second)
    squared = product(x.first, x.first) + product(x.second, x.second)
    other = product(y.first, y.first) + product(y.second, y.second)
    legs = (squared - other).value()
    half = (along.value() * 2.0).of("atan2", legs) * 0.5
    gap, turn = coarse - half, half.like(math.pi)
    half = (gap > 1.5).where(half + turn, half)
    half = (gap < -1.5).where(half - turn, half)
    return Complex(half, with_sign(log, -excess))
