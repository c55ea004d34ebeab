"""Exponential, logarithm and what is built from them, to about 3 ulp of f32.

The EUP's vpow2 and vlog2 do the work; the code here keeps the argument's rounding error from
being magnified, carrying it as a second float where needed.
"""

from __future__ import annotations

import math

from compiler.backend.vector.float_math import divide, is_finite
from compiler.backend.vector.ops import INFINITY_BITS, SIGN_BIT, Ops, float_bits
from compiler.llo.ir import VReg

LOG2E_HIGH = 1.4426950216293335
LOG2E_LOW = 1.9259629911266175e-8
"""log2(e): as an f32, and what that lacks."""
_LN2_HIGH = 0.693145751953125
_LN2_LOW = 1.42860682030941723212e-6
"""log(2): a few bits, so that products with exponents are exact, and the rest."""
_EXPM1 = tuple(1.0 / math.factorial(n) for n in (8, 7, 6, 5, 4, 3, 2))
_ERF_LIMIT = 0.921875
_ERF = (
    8.392696327064186e-05, -0.0008148506167344749, 0.005201591644436121, -0.026859646663069725,
    0.11283700168132782, -0.37612634897232056, 1.128379225730896,
)  # fmt: skip
"""erf(x) / x in x*x for |x| < 0.92: a least-squares fit at Chebyshev nodes."""
_LOG2_ERFC = (
    0.00024016271345317364, -0.003977668937295675, 0.030443226918578148, -0.14662867784500122,
    -0.9229623675346375, -1.624740719795227, -0.000790608290117234,
)  # fmt: skip
"""log2(erfc(x)) for 0.92 <= x <= 4, fitted so that 1 - erfc is good to a quarter ulp."""


def exponential(ops: Ops, x: VReg) -> VReg:
    """e ** x = 2 ** (x * log2 e), the product kept as two floats."""
    high, excess = _binary_exponent(ops, x)
    return _raise(ops, high, excess)


def exponential_below(ops: Ops, x: VReg) -> VReg:
    """e ** x for x <= 0, with one rounding less: nothing here is infinite.

    2 ** h * (1 + d) with h = x * log2 e rounded, and d = x - h * ln 2, by which that differs from x.
    """
    limited = ops.emit("vmaxi.f32", x, float_bits(-104.0))
    high = ops.mul_real(limited, LOG2E_HIGH)
    rest = ops.fma(high, ops.real(-_LN2_HIGH), limited)
    rest = ops.fma(high, ops.real(-_LN2_LOW), rest)
    power = ops.emit("vpow2.f32", high)
    return ops.fma(power, rest, power)


def _half_exponential(ops: Ops, x: VReg) -> VReg:
    """e ** x / 2 for x >= 0, finite up to 89.4; taking 1 from the exponent is almost exact."""
    high, excess = _binary_exponent(ops, x)
    return _raise(ops, ops.add_real(high, -1.0), excess)


def _binary_exponent(ops: Ops, x: VReg) -> tuple[VReg, VReg]:
    """(h, d): x * log2 e = h - d, x limited to where the result is neither 0 nor infinite."""
    limited = ops.limit(x, -104.0, 90.0)
    high = ops.mul_real(limited, LOG2E_HIGH)
    excess = ops.fma(limited, ops.real(-LOG2E_HIGH), high)
    return high, ops.fma(limited, ops.real(-LOG2E_LOW), excess)


def _raise(ops: Ops, high: VReg, excess: VReg) -> VReg:
    """2 ** (high - excess)."""
    correction = ops.fma_real(excess, ops.real(-math.log(2.0)), 1.0)
    return ops.mul(ops.emit("vpow2.f32", high), correction)


def exponential_minus_one(ops: Ops, x: VReg) -> VReg:
    """e**x - 1 = 2**n * (e**r - 1) + (2**n - 1), |r| <= ln(2) / 2; halved against overflow."""
    limited = ops.limit(x, -30.0, 89.0)
    whole = ops.emit("vround.f32", ops.mul_real(limited, LOG2E_HIGH))
    rest = ops.fma(whole, ops.real(-_LN2_HIGH), limited)
    rest = ops.fma(whole, ops.real(-_LN2_LOW), rest)
    series = ops.mul(ops.mul(rest, rest), ops.polynomial(rest, _EXPM1))
    small = ops.add(rest, series)
    exponent = ops.iadd_constant(ops.emit("vcvt.s32.f32", whole), 126)
    half = ops.emit("vshli", exponent, 23)
    result = ops.mul_real(ops.fma(half, small, ops.add_real(half, -0.5)), 2.0)
    return ops.select(ops.compare_real("eq", x, 0.0), x, result)


def log(ops: Ops, x: VReg) -> VReg:
    """Natural logarithm."""
    return ops.mul_real(ops.emit("vlog2.f32", x), math.log(2.0))


def log_plus_one(ops: Ops, x: VReg) -> VReg:
    """log(1 + x) = log(u) + (x - (u - 1)) / u with u = 1 + x rounded."""
    u = ops.add_real(x, 1.0)
    lost = ops.sub(x, ops.add_real(u, -1.0))
    correction = ops.mul(lost, ops.reciprocal(u))
    has_loss = ops.compare_real("gt", ops.magnitude(lost), 0.0)
    correction = ops.select(has_loss, correction, ops.real(0.0))
    result = ops.add(log(ops, u), correction)
    is_tiny = ops.compare_real("lt", ops.magnitude(x), 2.0**-25)
    return ops.select(is_tiny, x, result)


def logistic(ops: Ops, x: VReg) -> VReg:
    """1 / (1 + p), p = e ** -|x|; for x < 0 its complement p - p * p / (1 + p)."""
    power = exponential_below(ops, ops.emit("vori", x, SIGN_BIT))
    upper = ops.reciprocal(ops.add_real(power, 1.0))
    lower = ops.fma(ops.negate(power), ops.mul(power, upper), power)
    return ops.select(ops.compare_real("lt", x, 0.0), lower, upper)


def cbrt(ops: Ops, x: VReg) -> VReg:
    """Cube root: 2 ** (log2|x| / 3) and a Newton step."""
    size = ops.magnitude(x)
    guess = ops.emit("vpow2.f32", ops.mul_real(ops.emit("vlog2.f32", size), 1.0 / 3.0))
    square = ops.reciprocal(ops.mul(guess, guess))
    error = ops.fma(size, square, ops.negate(guess))
    root = ops.fma(error, ops.real(1.0 / 3.0), guess)
    is_plain = ops.both(ops.compare_real("gt", size, 0.0), is_finite(ops, x))
    return ops.select(is_plain, ops.with_sign_of(root, x), x)


def erf(ops: Ops, x: VReg) -> VReg:
    """Error function: an odd polynomial near 0, 1 - 2**poly(|x|) beyond."""
    size = ops.magnitude(x)
    near = ops.mul(x, ops.polynomial(ops.mul(x, x), _ERF))
    limited = ops.emit("vmini.f32", size, float_bits(4.0))
    tail = ops.emit("vpow2.f32", ops.polynomial(limited, _LOG2_ERFC))
    far = ops.with_sign_of(ops.sub(ops.real(1.0), tail), x)
    result = ops.select(ops.compare_real("lt", size, _ERF_LIMIT), near, far)
    return ops.select(ops.compare("ne", "f32", x, x), x, result)


def sinh(ops: Ops, x: VReg) -> VReg:
    """(e**x - e**-x) / 2 by e**x - 1: with m = expm1|x|, (m + m / (m + 1)) / 2."""
    size = ops.magnitude(x)
    m = exponential_minus_one(ops, size)
    near = ops.mul_real(ops.add(m, ops.mul(m, ops.reciprocal(ops.add_real(m, 1.0)))), 0.5)
    far = _half_exponential(ops, size)
    is_near = ops.compare_real("lt", size, 16.0)
    return ops.with_sign_of(ops.select(is_near, near, far), x)


def cosh(ops: Ops, x: VReg) -> VReg:
    """(e**x + e**-x) / 2 by h = e**x / 2: h + 1/4h; no overflow before the result's."""
    half = _half_exponential(ops, ops.magnitude(x))
    return ops.add(half, ops.mul_real(ops.reciprocal(half), 0.25))


def asinh(ops: Ops, x: VReg) -> VReg:
    """sign(x) * log1p(a + a**2 / (1 + sqrt(1 + a**2))), a = |x|; log(2a) when a is large."""
    size = ops.magnitude(x)
    limited = ops.emit("vmini.f32", size, float_bits(1e15))
    square = ops.mul(limited, limited)
    root = ops.add_real(ops.emit("vsqrt.f32", ops.add_real(square, 1.0)), 1.0)
    near = log_plus_one(ops, ops.add(limited, divide(ops, square, root)))
    far = ops.add_real(log(ops, size), math.log(2.0))
    is_near = ops.compare_real("lt", size, 1e9)
    return ops.with_sign_of(ops.select(is_near, near, far), x)


def acosh(ops: Ops, x: VReg) -> VReg:
    """log1p(t + sqrt(2t + t**2)), t = x - 1; log(2x) when x is large; NaN below 1."""
    t = ops.add_real(x, -1.0)
    limited = ops.emit("vmini.f32", t, float_bits(1e15))
    inner = ops.fma(limited, limited, ops.mul_real(limited, 2.0))
    near = log_plus_one(ops, ops.add(limited, ops.emit("vsqrt.f32", inner)))
    far = ops.add_real(log(ops, x), math.log(2.0))
    result = ops.select(ops.compare_real("lt", x, 1e9), near, far)
    is_inside = ops.compare_real("ge", x, 1.0)
    return ops.select(is_inside, result, ops.integer(0x7FC00000))


def atanh(ops: Ops, x: VReg) -> VReg:
    """log1p(2a / (1 - a)) / 2 with the sign of x, a = |x|; infinite at 1, NaN beyond."""
    size = ops.magnitude(x)
    ratio = divide(ops, ops.mul_real(size, 2.0), ops.sub(ops.real(1.0), size))
    value = ops.mul_real(log_plus_one(ops, ratio), 0.5)
    value = ops.select(ops.compare_real("eq", size, 1.0), ops.integer(INFINITY_BITS), value)
    is_inside = ops.compare_real("le", size, 1.0)
    signed = ops.with_sign_of(value, x)
    return ops.select(is_inside, signed, ops.integer(0x7FC00000))
