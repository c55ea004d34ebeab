"""Sine, cosine, tangent and their inverses, to about 3 ulp of f32 for every argument.

Arguments are reduced to x = n * pi/2 + r, |r| <= pi/4: by three-term Cody and Waite below 2**15,
beyond by multiplying with as many bits of 2/pi as matter (Payne and Hanek, 1983).
"""

from __future__ import annotations

import itertools
import math

from compiler.backend.vector.float_math import divide, is_finite
from compiler.backend.vector.ops import Ops
from compiler.llo.ir import VReg

_PI_2 = (1.5707963705062866, -4.371139000186243e-08, -1.7151244e-15)
"""pi/2 as the sum of three f32."""
_LARGE = 32768.0
_TWO_OVER_PI = (
    0x00000000, 0xA2F9836E, 0x4E441529, 0xFC2757D1, 0xF534DDC0, 0xDB629599, 0x3C439041, 0xFE5163AB,
)  # fmt: skip
"""32 zero bits, then the fraction bits of 2/pi."""
_SINE = (2.718311493989822e-06, -1.9839334836096632e-04, 8.3333293858894632e-03,
         -0.16666666641626524)  # fmt: skip
_COSINE = (2.443315711809948e-05, -1.388731625493765e-03, 4.166664568298827e-02)
"""cos(x) = 1 - x**2 / 2 + x**4 (..) in x*x: Cephes cosf's coefficients."""
_ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)


def sine(ops: Ops, x: VReg) -> VReg:
    """sin(x)."""
    quadrant, *rest = _reduce(ops, x)
    result = _in_quadrant(ops, quadrant, *_sine_cosine(ops, *rest))
    return ops.select(ops.compare_real("eq", x, 0.0), x, result)


def cosine(ops: Ops, x: VReg) -> VReg:
    """cos(x) = sin(x + pi/2)."""
    quadrant, *rest = _reduce(ops, x)
    return _in_quadrant(ops, ops.iadd_constant(quadrant, 1), *_sine_cosine(ops, *rest))


def tangent(ops: Ops, x: VReg) -> VReg:
    """sin / cos, or -cos / sin in odd quadrants."""
    quadrant, *rest = _reduce(ops, x)
    sin, cos = _sine_cosine(ops, *rest)
    is_odd = ops.compare_integer("ne", ops.emit("vandi", quadrant, 1), 0)
    top = ops.select(is_odd, ops.negate(cos), sin)
    result = divide(ops, top, ops.select(is_odd, sin, cos))
    return ops.select(ops.compare_real("eq", x, 0.0), x, result)


def _sine_cosine(ops: Ops, r: VReg, low: VReg) -> tuple[VReg, VReg]:
    """Both of r + low on [-pi/4, pi/4]; of 1 - r**2 / 2 the rounding error is kept."""
    square = ops.mul(r, r)
    sin = ops.add(ops.fma(ops.mul(square, r), ops.polynomial(square, _SINE), low), r)
    half = ops.mul_real(square, 0.5)
    near = ops.sub(ops.real(1.0), half)
    lost = ops.sub(ops.sub(ops.real(1.0), near), half)
    series = ops.mul(square, ops.polynomial(square, _COSINE))
    tail = ops.fma(series, square, ops.fma(ops.negate(r), low, lost))
    return sin, ops.add(near, tail)


def _in_quadrant(ops: Ops, quadrant: VReg, sin: VReg, cos: VReg) -> VReg:
    is_odd = ops.compare_integer("ne", ops.emit("vandi", quadrant, 1), 0)
    sign = ops.emit("vshli", ops.emit("vshri", quadrant, 1), 31)
    return ops.emit("vxor", ops.select(is_odd, cos, sin), sign)


def _reduce(ops: Ops, x: VReg) -> tuple[VReg, VReg, VReg]:
    """(n, r, low), n modulo 4, r + low the rest; both are NaN for an infinite x."""
    is_large = ops.compare_real("ge", ops.magnitude(x), _LARGE)
    whole = ops.emit("vround.f32", ops.mul_real(x, 2.0 / math.pi))
    first = ops.fma(whole, ops.real(-_PI_2[0]), x)  # exact
    second = ops.mul_real(whole, -_PI_2[1])
    rest = ops.add(first, second)
    back = ops.sub(rest, first)
    low = ops.add(ops.sub(first, ops.sub(rest, back)), ops.sub(second, back))
    low = ops.add(low, ops.fma(whole, ops.real(-_PI_2[1]), ops.negate(second)))
    low = ops.fma(whole, ops.real(-_PI_2[2]), low)
    far, far_rest, far_low = _reduce_large(ops, x)
    quadrant = ops.select(is_large, far, ops.emit("vcvt.s32.f32", whole))
    rest = ops.select(is_large, far_rest, rest)
    nan = ops.integer(0x7FC00000)
    low = ops.select(is_large, far_low, low)
    return quadrant, ops.select(is_finite(ops, x), rest, nan), low


def _reduce_large(ops: Ops, x: VReg) -> tuple[VReg, VReg, VReg]:
    """|x| = m * 2**e with a 24-bit integer m; m times 96 bits of 2/pi, modulo 4, in fixed point."""
    mantissa = ops.emit("vori", ops.emit("vandi", x, 0x7FFFFF), 0x800000)
    exponent = ops.emit("vshri", ops.magnitude(x), 23)
    # the first bit of weight 2 stands at e - 1; the table starts 31 bits before the first
    start = ops.emit("vmax.s32", ops.iadd_constant(exponent, 30 - 150), ops.integer(0))
    words = _window(ops, ops.emit("vshri", start, 5), ops.emit("vandi", start, 31))
    low_high = ops.emit("vmulhi.u32", mantissa, words[2])
    middle, carry = _add_carry(ops, ops.emit("vmul.s32", mantissa, words[1]), low_high)
    high = ops.iadd(ops.emit("vmul.s32", mantissa, words[0]), carry)
    high = ops.iadd(high, ops.emit("vmulhi.u32", mantissa, words[1]))
    quadrant = ops.emit("vshri", ops.iadd_constant(high, 1 << 29), 30)
    fraction = ops.isub(high, ops.emit("vshli", quadrant, 30))
    turns = ops.emit("vcvt.f32.s32", fraction)
    lost = ops.emit("vcvt.f32.s32", ops.isub(fraction, ops.emit("vcvt.s32.f32", turns)))
    low = ops.fma(ops.emit("vcvt.f32.u32", middle), ops.real(2.0**-32), lost)
    total = ops.add(turns, low)
    low = ops.sub(low, ops.sub(total, turns))
    rest = ops.mul_real(total, _PI_2[0] * 2.0**-30)
    excess = ops.fma(total, ops.real(_PI_2[0] * 2.0**-30), ops.negate(rest))
    excess = ops.fma(total, ops.real(_PI_2[1] * 2.0**-30), excess)
    excess = ops.fma(low, ops.real(_PI_2[0] * 2.0**-30), excess)
    is_negative = ops.compare_integer("lt", x, 0)
    quadrant = ops.select(is_negative, ops.isub(ops.integer(0), quadrant), quadrant)
    rest = ops.select(is_negative, ops.negate(rest), rest)
    return quadrant, rest, ops.select(is_negative, ops.negate(excess), excess)


def _window(ops: Ops, first: VReg, shift: VReg) -> list[VReg]:
    """Three words of the table from bit 32 * first + shift on; first is 0..4."""
    masks = [ops.compare_integer("eq", first, number) for number in range(4)]
    words: list[VReg] = []
    for offset in range(4):
        word = ops.integer(_signed(_TWO_OVER_PI[offset + 4]))
        for number in reversed(range(4)):
            value = ops.integer(_signed(_TWO_OVER_PI[offset + number]))
            word = ops.select(masks[number], value, word)
        words.append(word)
    back = ops.isub(ops.integer(32), shift)
    return [
        ops.emit("vor", ops.emit("vshl", a, shift), ops.emit("vshr", b, back))
        for a, b in itertools.pairwise(words)
    ]


def _add_carry(ops: Ops, a: VReg, b: VReg) -> tuple[VReg, VReg]:
    """Unsigned sum and carry (0 or 1)."""
    total = ops.iadd(a, b)
    return total, ops.mask_to_integer(ops.compare("lt", "u32", total, b))


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word


def atan(ops: Ops, x: VReg) -> VReg:
    """Arc tangent."""
    return atan2(ops, x, ops.real(1.0))


def atan2(ops: Ops, y: VReg, x: VReg) -> VReg:
    """Angle of the point (x, y), by the ratio of the smaller to the larger magnitude."""
    size_x, size_y = ops.magnitude(x), ops.magnitude(y)
    small = ops.emit("vmin.f32", size_x, size_y)
    large = ops.emit("vmax.f32", size_x, size_y)
    angle = _atan_ratio(ops, small, large)
    is_steep = ops.compare("gt", "f32", size_y, size_x)
    angle = ops.select(is_steep, _from(ops, angle, 0.5), angle)
    is_left = ops.compare_integer("lt", x, 0)
    angle = ops.select(is_left, _from(ops, angle, 1.0), angle)
    result = ops.with_sign_of(angle, y)
    is_nan = ops.either(ops.compare("ne", "f32", x, x), ops.compare("ne", "f32", y, y))
    return ops.select(is_nan, ops.integer(0x7FC00000), result)


def _from(ops: Ops, angle: VReg, halves: float) -> VReg:
    """pi * halves - angle."""
    high = _PI_2[0] * 2.0 * halves
    low = _PI_2[1] * 2.0 * halves
    return ops.sub(ops.real(high), ops.add_real(angle, -low))


def _atan_ratio(ops: Ops, small: VReg, large: VReg) -> VReg:
    """atan(small / large), both non-negative; above tan(pi/8) as pi/4 + atan((s-l)/(s+l))."""
    both_infinite = ops.compare("eq", "f32", small, ops.integer(0x7F800000))
    small = ops.select(both_infinite, ops.real(1.0), small)
    large = ops.select(both_infinite, ops.real(1.0), large)
    # scaled so that the sum does not overflow and the divisor, with a reciprocal, is no denormal
    is_huge = ops.compare_real("gt", large, 2.0**60)
    scale = ops.select(is_huge, ops.real(0.25), ops.real(2.0**48))
    near, far = ops.mul(small, scale), ops.mul(large, scale)
    is_upper = ops.compare("gt", "f32", near, ops.mul_real(far, 0.41421356237309503))
    top = ops.select(is_upper, ops.sub(near, far), near)
    bottom = ops.select(is_upper, ops.add(near, far), far)
    ratio = divide(ops, top, bottom)
    square = ops.mul(ratio, ratio)
    angle = ops.fma(ops.mul(ops.polynomial(square, _ATAN), square), ratio, ratio)
    shifted = ops.add_real(ops.add_real(angle, _PI_2[1] / 2), _PI_2[0] / 2)
    angle = ops.select(is_upper, shifted, angle)
    is_zero = ops.compare_real("eq", large, 0.0)
    return ops.select(is_zero, ops.real(0.0), angle)


def asin(ops: Ops, x: VReg) -> VReg:
    """atan2(x, sqrt((1 - x)(1 + x))); NaN beyond 1."""
    return atan2(ops, x, _cathetus(ops, x))


def acos(ops: Ops, x: VReg) -> VReg:
    """atan2(sqrt((1 - x)(1 + x)), x); NaN beyond 1."""
    return atan2(ops, _cathetus(ops, x), x)


def _cathetus(ops: Ops, x: VReg) -> VReg:
    """sqrt(1 - x**2)."""
    product = ops.mul(ops.sub(ops.real(1.0), x), ops.add_real(x, 1.0))
    return ops.emit("vsqrt.f32", product)
