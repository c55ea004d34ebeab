"""Modulus, its logarithm and the angle of a complex number to about 35 bits.

The larger part is scaled into [sqrt(1/2), sqrt(2)) by a power of two first, so that nothing
overflows and a modulus near 1 needs no scaling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.hlo.dtypes import F32, S32, U32
from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types.compensated import Compensated, Twofold
from compiler.passes.pair_types.emitter import Emitter

Instr = HloInstruction
_LN2_HIGH = 0.693145751953125  # 16 bits: products with binary exponents are exact
_LN2_LOW = math.log(2) - _LN2_HIGH
_ROOT_HALF_BITS = 0x3F3504F3
_ONE_BITS = 0x3F800000
_LOG_SERIES = (2 / 11, 2 / 9, 2 / 7, 2 / 5)
_ATAN_SERIES = (1 / 9, -1 / 7, 1 / 5, -1 / 3)
_ATAN_STEPS = 4


@dataclass(frozen=True)
class Scaled:
    """``(large + i small) * 2**exponent``; `exponent` is s32, `small` not negative."""

    large: Instr
    small: Instr
    exponent: Instr


def scaled_parts(e: Emitter, x: Instr, y: Instr) -> Scaled:
    """The magnitudes of two parts by size; zeros, infinities and NaN give no meaningful result."""
    size_x, size_y = e.abs(x), e.abs(y)
    large, small = e.max(size_x, size_y), e.min(size_x, size_y)
    # the exponent of denormal numbers is not in their bits, and 2**-127 would be one
    tiny, huge = e.lt(large, 2.0**-60), e.gt(large, 2.0**60)
    before = e.select(tiny, e.like(x, 2.0**96), e.like(x, 1.0))
    before = e.select(huge, e.like(x, 2.0**-64), before)
    zero = e.constant(S32, 0, x.array.dims)
    taken = e.select(huge, e.like(zero, 64), e.select(tiny, e.like(zero, -96), zero))
    large, small = e.mul(large, before), e.mul(small, before)
    moved = e.add(e.bitcast(large, U32), e.u32(_ONE_BITS - _ROOT_HALF_BITS, x.array.dims))
    exponent = e.sub(e.bitcast(e.shr(moved, 23), S32), e.like(zero, 127))
    factor = power_of_two(e, e.sub(zero, exponent))
    return Scaled(e.mul(large, factor), e.mul(small, factor), e.add(exponent, taken))


def power_of_two(e: Emitter, exponent: Instr) -> Instr:
    """``2**exponent`` for s32 in -126..127."""
    return e.bitcast(e.shl(e.add(exponent, e.like(exponent, 127)), 23), F32)


def raised(e: Emitter, x: Instr, exponent: Instr) -> Instr:
    """``x * 2**exponent`` for s32 in -252..254, rounded once for x near 1."""
    half = e.sra(exponent, 1)
    return e.mul(e.mul(x, power_of_two(e, half)), power_of_two(e, e.sub(exponent, half)))


def squares(k: Compensated, large: Instr, small: Instr) -> Twofold:
    """``large**2 + small**2``."""
    return k.add(k.product(large, large), k.product(small, small))


def less_one(k: Compensated, large: Instr, small: Instr) -> Twofold:
    """``large**2 + small**2 - 1`` without cancellation, for large in [sqrt(1/2), sqrt(2))."""
    e = k.e
    a, b = k.product(large, large), k.product(small, small)
    high = k.sum(e.sub(a.high, e.like(large, 1.0)), b.high)  # the difference is exact
    low = k.sum(a.low, b.low)
    total = k.sum(high.high, low.high)
    return k.sum(total.high, e.add(total.low, e.add(high.low, low.low)))


def log_of_one_plus(k: Compensated, f: Twofold) -> tuple[Twofold, Instr]:
    """``log(1 + f)`` for f in [-0.5, 3): (l, j) with l + j log 2."""
    e = k.e
    one = k.ordered_sum(e.like(f.high, 1.0), f.high)
    s = k.select(e.gt(e.abs(f.high), 1.0), k.sum(f.high, e.like(f.high, 1.0)), one)
    s = k.ordered_sum(s.high, e.add(s.low, f.low))
    root = math.sqrt(2)
    factor, power = e.like(f.high, 1.0), e.like(f.high, 0.0)
    for bound, shift in ((root, 1), (2 * root, 2)):
        is_over = e.gt(s.high, bound)
        factor = e.select(is_over, e.like(factor, 2.0**-shift), factor)
        power = e.select(is_over, e.like(power, float(shift)), power)
    is_under = e.lt(s.high, root / 2)
    factor = e.select(is_under, e.like(factor, 2.0), factor)
    power = e.select(is_under, e.like(power, -1.0), power)
    m = k.scaled(s, factor)
    reduced = k.ordered_sum(e.sub(m.high, e.like(m.high, 1.0)), m.low)
    return _log_near_one(k, k.select(e.eq(power, 0.0), f, reduced)), power


def _log_near_one(k: Compensated, f: Twofold) -> Twofold:
    """``log(1 + f) = 2 artanh u``, u = f / (2 + f), |u| < 0.172."""
    e = k.e
    two = e.like(f.high, 2.0)
    bottom = k.ordered_sum(two, f.high)
    u = k.divide(f, k.ordered_sum(bottom.high, e.add(bottom.low, f.low)))
    square = k.multiply(u, u)
    rest = e.like(f.high, _LOG_SERIES[0])
    for coefficient in _LOG_SERIES[1:]:
        rest = e.fma(rest, square.high, e.like(rest, coefficient))
    rest = e.mul(rest, e.mul(square.high, square.high))
    cubic = k.multiply(square, k.constant(f.high, 2 / 3))
    series = k.ordered_sum(cubic.high, e.add(cubic.low, rest))
    return k.add(k.scaled(u, two), k.multiply(u, series))


def with_exponent(k: Compensated, log: Twofold, exponent: Instr) -> Twofold:
    """``log + exponent * log 2`` for halves of whole numbers."""
    e = k.e
    high = e.mul(exponent, e.like(exponent, _LN2_HIGH))
    low = e.mul(exponent, e.like(exponent, _LN2_LOW))
    total = k.sum(high, log.high)
    return k.ordered_sum(total.high, e.add(total.low, e.add(log.low, low)))


def log_modulus(k: Compensated, x: Instr, y: Instr) -> Twofold:
    """``log |x + iy|``; -infinity at 0."""
    parts = scaled_parts(k.e, x, y)
    log = _half_log(k, less_one(k, parts.large, parts.small), parts.exponent)
    return _special_log(k, x, y, log)


def log_modulus_of_next(k: Compensated, x: Instr, y: Instr) -> Twofold:
    """``log |1 + x + iy|``, where ``2x + x**2 + y**2`` is summed exactly if the modulus is near 1."""
    e = k.e
    moved = k.sum(e.like(x, 1.0), x)
    parts = scaled_parts(e, moved.high, y)
    double = k.plain(e.add(x, x))
    near = k.add(k.add(double, k.product(y, y)), k.product(x, x))
    is_near = e.eq(parts.exponent, 0)
    near = k.select(is_near, near, k.plain(e.like(x, 0.0)))  # elsewhere it may overflow
    far = less_one(k, parts.large, parts.small)
    # what the rounding of 1 + x lost, relative to the squared modulus
    lost = e.div(e.mul(moved.low, moved.high), e.fma(y, y, e.mul(moved.high, moved.high)))
    lost = e.select(e.lt(e.abs(lost), 1.0), lost, e.like(x, 0.0))
    far = _half_log(k, far, parts.exponent)
    far = k.add(far, k.plain(lost))
    near = _half_log(k, near, parts.exponent)
    return _special_log(k, moved.high, y, k.select(is_near, near, far))


def _half_log(k: Compensated, f: Twofold, exponent: Instr) -> Twofold:
    """``log(1 + f) / 2 + exponent * log 2``."""
    e = k.e
    log, power = log_of_one_plus(k, f)
    half = e.like(power, 0.5)
    return with_exponent(k, k.scaled(log, half), e.fma(power, half, e.convert(exponent, F32)))


def _special_log(k: Compensated, x: Instr, y: Instr, log: Twofold) -> Twofold:
    """`log` except where |x + iy| is zero, infinite or not a number."""
    e = k.e
    size = e.max(e.abs(x), e.abs(y))
    infinite = e.or_(e.eq(e.abs(x), math.inf), e.eq(e.abs(y), math.inf))
    infinity = k.plain(e.like(x, math.inf))
    log = k.select(infinite, infinity, log)
    log = k.select(e.eq(size, 0.0), k.plain(e.neg(infinity.high)), log)
    is_nan = e.and_(e.ne(size, size), e.not_(infinite))
    return k.select(is_nan, k.plain(e.like(x, math.nan)), log)


def angle(k: Compensated, x: Instr, y: Instr) -> Twofold:
    """The angle of a finite number other than 0, in (-pi, pi], to about 34 bits."""
    e = k.e
    parts = scaled_parts(e, x, y)
    first = _first_octant(k, parts.large, parts.small)
    is_steep = e.gt(e.abs(y), e.abs(x))
    turned = k.subtract(k.constant(x, math.pi / 2), first)
    first = k.select(is_steep, turned, first)
    is_left = e.lt(e.bitcast(x, S32), 0)
    first = k.select(is_left, k.subtract(k.constant(x, math.pi), first), first)
    is_below = e.lt(e.bitcast(y, S32), 0)
    return k.select(is_below, Twofold(e.neg(first.high), e.neg(first.low)), first)


def _first_octant(k: Compensated, large: Instr, small: Instr) -> Twofold:
    """``atan(small / large)``: the nearest quarter c, and atan((small - c large) / ..) from there."""
    e = k.e
    ratio = e.mul(e.div(small, large), e.like(small, float(_ATAN_STEPS)))
    quarters = e.unary("round-nearest-even", ratio)
    c = e.mul(quarters, e.like(small, 1 / _ATAN_STEPS))
    known = k.plain(e.like(small, 0.0))
    for number in range(1, _ATAN_STEPS + 1):
        here = k.constant(small, math.atan(number / _ATAN_STEPS))
        known = k.select(e.eq(quarters, float(number)), here, known)
    along = k.product(c, large)
    top = k.ordered_sum(e.sub(small, along.high), e.neg(along.low))  # the difference is exact
    across = k.product(c, small)
    bottom = k.sum(large, across.high)
    bottom = k.ordered_sum(bottom.high, e.add(bottom.low, across.low))
    rest = k.divide(top, bottom)
    square = e.mul(rest.high, rest.high)
    series = e.like(small, _ATAN_SERIES[0])
    for coefficient in _ATAN_SERIES[1:]:
        series = e.fma(series, square, e.like(series, coefficient))
    tail = e.mul(e.mul(series, square), rest.high)
    return k.add(known, k.ordered_sum(rest.high, e.add(rest.low, tail)))
