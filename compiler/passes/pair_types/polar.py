"""Modulus, its logarithm and the angle of a complex number to about 35 bits.

The larger part is scaled into [sqrt(1/2), sqrt(2)) by a power of two first, so that nothing
overflows and a modulus near 1 needs no scaling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.hlo.dtypes import F32, S32, U32
from compiler.hlo.expression import Expr
from compiler.passes.pair_types.compensated import (
    Twofold,
    constant,
    exact_sum,
    ordered_sum,
    plain,
    product,
)
from compiler.passes.pair_types.formulas import fma, is_negative, select, sra

_LN2_HIGH = 0.693145751953125  # 16 bits: products with binary exponents are exact
_LN2_LOW = math.log(2) - _LN2_HIGH
_ROOT_HALF_BITS = 0x3F3504F3
_ONE_BITS = 0x3F800000
_LOG_SERIES = (2 / 11, 2 / 9, 2 / 7, 2 / 5)
_ATAN_SERIES = (1 / 9, -1 / 7, 1 / 5, -1 / 3)
_ATAN_STEPS = 4
"""Known angles a unit: from the nearest one the series needs its first terms alone."""


@dataclass(frozen=True)
class Scaled:
    """``(large + i small) * 2**exponent``; `exponent` is s32, `small` not negative."""

    large: Expr
    small: Expr
    exponent: Expr


def scaled_parts(x: Expr, y: Expr) -> Scaled:
    """The magnitudes of two parts by size; zeros, infinities and NaN give no meaningful result."""
    size_x, size_y = abs(x), abs(y)
    large, small = size_x.of("maximum", size_y), size_x.of("minimum", size_y)
    # the exponent of denormal numbers is not in their bits, and 2**-127 would be one
    tiny, huge = large < 2.0**-60, large > 2.0**60
    before = tiny.where(x.like(2.0**96), 1.0)
    before = huge.where(2.0**-64, before)
    zero = x.full(S32, 0)
    taken = huge.where(64, tiny.where(-96, zero))
    large, small = large * before, small * before
    moved = large.bits(U32) + (_ONE_BITS - _ROOT_HALF_BITS)
    exponent = (moved >> 23).bits(S32) - 127
    factor = power_of_two(zero - exponent)
    return Scaled(large * factor, small * factor, exponent + taken)


def power_of_two(exponent: Expr) -> Expr:
    """``2**exponent`` for s32 in -126..127."""
    return ((exponent + 127) << 23).bits(F32)


def raised(x: Expr, exponent: Expr) -> Expr:
    """``x * 2**exponent`` for s32 in -252..254, rounded once for x near 1."""
    half = sra(exponent, 1)
    return x * power_of_two(half) * power_of_two(exponent - half)


def squares(large: Expr, small: Expr) -> Twofold:
    """``large**2 + small**2``."""
    return product(large, large) + product(small, small)


def less_one(large: Expr, small: Expr) -> Twofold:
    """``large**2 + small**2 - 1`` without cancellation, for large in [sqrt(1/2), sqrt(2))."""
    a, b = product(large, large), product(small, small)
    high = exact_sum(a.high - 1.0, b.high)  # the difference is exact
    low = exact_sum(a.low, b.low)
    total = exact_sum(high.high, low.high)
    return exact_sum(total.high, total.low + (high.low + low.low))


def log_of_one_plus(f: Twofold) -> tuple[Twofold, Expr]:
    """``log(1 + f)`` for f in [-0.5, 3): (l, j) with l + j log 2."""
    one = ordered_sum(f.high.like(1.0), f.high)
    s = select(abs(f.high) > 1.0, exact_sum(f.high, f.high.like(1.0)), one)
    s = ordered_sum(s.high, s.low + f.low)
    root = math.sqrt(2)
    factor, power = f.high.like(1.0), f.high.like(0.0)
    for bound, shift in ((root, 1), (2 * root, 2)):
        is_over = s.high > bound
        factor = is_over.where(2.0**-shift, factor)
        power = is_over.where(float(shift), power)
    is_under = s.high < root / 2
    factor = is_under.where(2.0, factor)
    power = is_under.where(-1.0, power)
    m = s.scaled(factor)
    reduced = ordered_sum(m.high - 1.0, m.low)
    return _log_near_one(select(power.equals(0.0), f, reduced)), power


def _log_near_one(f: Twofold) -> Twofold:
    """``log(1 + f) = 2 artanh u``, u = f / (2 + f), |u| < 0.172."""
    two = f.high.like(2.0)
    bottom = ordered_sum(two, f.high)
    u = f / ordered_sum(bottom.high, bottom.low + f.low)
    square = u * u
    rest = f.high.like(_LOG_SERIES[0])
    for coefficient in _LOG_SERIES[1:]:
        rest = fma(rest, square.high, rest.like(coefficient))
    rest = rest * (square.high * square.high)
    cubic = square * constant(f.high, 2 / 3)
    series = ordered_sum(cubic.high, cubic.low + rest)
    return u.scaled(two) + u * series


def with_exponent(log: Twofold, exponent: Expr) -> Twofold:
    """``log + exponent * log 2`` for halves of whole numbers."""
    high = exponent * _LN2_HIGH
    low = exponent * _LN2_LOW
    total = exact_sum(high, log.high)
    return ordered_sum(total.high, total.low + (log.low + low))


def log_modulus(x: Expr, y: Expr) -> Twofold:
    """``log |x + iy|``; -infinity at 0."""
    parts = scaled_parts(x, y)
    log = _half_log(less_one(parts.large, parts.small), parts.exponent)
    return _special_log(x, y, log)


def log_modulus_of_next(x: Expr, y: Expr) -> Twofold:
    """``log |1 + x + iy|``, where ``2x + x**2 + y**2`` is summed exactly if the modulus is near 1."""
    moved = exact_sum(x.like(1.0), x)
    parts = scaled_parts(moved.high, y)
    double = plain(x + x)
    near = double + product(y, y) + product(x, x)
    is_near = parts.exponent.equals(0)
    near = select(is_near, near, plain(x.like(0.0)))  # elsewhere it may overflow
    far = less_one(parts.large, parts.small)
    # what the rounding of 1 + x lost, relative to the squared modulus
    lost = moved.low * moved.high / fma(y, y, moved.high * moved.high)
    lost = (abs(lost) < 1.0).where(lost, 0.0)
    far = _half_log(far, parts.exponent)
    far = far + plain(lost)
    near = _half_log(near, parts.exponent)
    return _special_log(moved.high, y, select(is_near, near, far))


def _half_log(f: Twofold, exponent: Expr) -> Twofold:
    """``log(1 + f) / 2 + exponent * log 2``."""
    log, power = log_of_one_plus(f)
    half = power.like(0.5)
    return with_exponent(log.scaled(half), fma(power, half, exponent.convert(F32)))


def _special_log(x: Expr, y: Expr, log: Twofold) -> Twofold:
    """`log` except where |x + iy| is zero, infinite or not a number."""
    size = abs(x).of("maximum", abs(y))
    infinite = abs(x).equals(math.inf) | abs(y).equals(math.inf)
    infinity = plain(x.like(math.inf))
    log = select(infinite, infinity, log)
    log = select(size.equals(0.0), plain(-infinity.high), log)
    is_nan = size.differs(size) & ~infinite
    return select(is_nan, plain(x.like(math.nan)), log)


def angle(x: Expr, y: Expr) -> Twofold:
    """The angle of a finite number other than 0, in (-pi, pi], to about 34 bits."""
    parts = scaled_parts(x, y)
    first = _first_octant(parts.large, parts.small)
    is_steep = abs(y) > abs(x)
    turned = constant(x, math.pi / 2) - first
    first = select(is_steep, turned, first)
    is_left = is_negative(x)
    first = select(is_left, constant(x, math.pi) - first, first)
    is_below = is_negative(y)
    return select(is_below, -first, first)


def _first_octant(large: Expr, small: Expr) -> Twofold:
    """``atan(small / large)``: the nearest quarter c, and atan((small - c large) / ..) from there."""
    ratio = small / large * float(_ATAN_STEPS)
    quarters = ratio.of("round-nearest-even")
    c = quarters * (1 / _ATAN_STEPS)
    known = plain(small.like(0.0))
    for number in range(1, _ATAN_STEPS + 1):
        here = constant(small, math.atan(number / _ATAN_STEPS))
        known = select(quarters.equals(float(number)), here, known)
    along = product(c, large)
    top = ordered_sum(small - along.high, -along.low)  # the difference is exact
    across = product(c, small)
    bottom = exact_sum(large, across.high)
    bottom = ordered_sum(bottom.high, bottom.low + across.low)
    rest = top / bottom
    square = rest.high * rest.high
    series = small.like(_ATAN_SERIES[0])
    for coefficient in _ATAN_SERIES[1:]:
        series = fma(series, square, series.like(coefficient))
    tail = series * square * rest.high
    return known + ordered_sum(rest.high, rest.low + tail)
