"""power(a, b) of floats: 2 ** (b * log2|a|) with the logarithm in two floats, then the specials."""

from __future__ import annotations

import math

from compiler.backend.vector.constants import uniform_constant
from compiler.backend.vector.float_math import is_finite
from compiler.backend.vector.ops import SIGN_BIT, Ops
from compiler.backend.vector.transcendental import LOG2E_HIGH, LOG2E_LOW
from compiler.hlo.ir import HloInstruction
from compiler.llo.ir import MReg, VReg

_ATANH = tuple(2.0 / n for n in (11, 9, 7, 5))
_CUBIC_HIGH = 0.6666666865348816
_CUBIC_LOW = 2.0 / 3.0 - _CUBIC_HIGH
"""log((1+s)/(1-s)) = 2s + s**3 * (2/3 + 2/5 s**2 + ..); |s| < 0.172."""


def emit_power(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
    """a ** b; small constant exponents become products."""
    base, exponent = operands
    match uniform_constant(instr.operands[1]):
        case 1.0:
            return base
        case 2.0:
            return ops.mul(base, base)
        case 3.0:
            return ops.mul(ops.mul(base, base), base)
        case -1.0:
            return ops.reciprocal(base)
    return power(ops, base, exponent)


def power(ops: Ops, a: VReg, b: VReg) -> VReg:
    """C's pow."""
    size = ops.magnitude(a)
    high, low = _log2(ops, size)
    zero = ops.compare_real("eq", size, 0.0)
    infinite = ops.inverse(is_finite(ops, a))
    high = ops.select(zero, ops.real(-math.inf), ops.select(infinite, size, high))
    product = ops.mul(b, high)
    error = ops.fma(b, low, ops.fma(b, high, ops.negate(product)))
    is_small = ops.compare_real("lt", ops.magnitude(product), 256.0)
    result = power_of_two(ops, product, ops.select(is_small, error, ops.real(0.0)))
    return _with_specials(ops, a, b, size, result)


def power_of_two(ops: Ops, high: VReg, low: VReg) -> VReg:
    """2 ** (high + low) for small `low`."""
    correction = ops.fma_real(low, ops.real(math.log(2.0)), 1.0)
    return ops.mul(ops.emit("vpow2.f32", high), correction)


def _log2(ops: Ops, a: VReg) -> tuple[VReg, VReg]:
    """log2 of a positive finite number as the sum of two floats."""
    is_denormal = ops.compare_real("lt", a, 2.0**-126)
    bits = ops.select(is_denormal, ops.mul_real(a, 2.0**24), a)
    bias = ops.select(is_denormal, ops.integer(127 + 24), ops.integer(127))
    shifted = ops.iadd_constant(bits, 0x3F800000 - 0x3F3504F3)
    exponent = ops.emit("vcvt.f32.s32", ops.isub(ops.emit("vshri", shifted, 23), bias))
    mantissa = ops.iadd_constant(ops.emit("vandi", shifted, 0x7FFFFF), 0x3F3504F3)
    log_high, log_low = _log_near_one(ops, mantissa)
    high = ops.mul_real(log_high, LOG2E_HIGH)
    low = ops.fma(log_high, ops.real(LOG2E_HIGH), ops.negate(high))
    low = ops.fma(log_high, ops.real(LOG2E_LOW), low)
    low = ops.fma(log_low, ops.real(LOG2E_HIGH), low)
    total = ops.add(exponent, high)
    rest = ops.add(ops.sub(high, ops.sub(total, exponent)), low)
    rounded = ops.add(total, rest)
    return rounded, ops.sub(rest, ops.sub(rounded, total))


def _log_near_one(ops: Ops, m: VReg) -> tuple[VReg, VReg]:
    """Natural logarithm of m in [sqrt(1/2), sqrt(2)) as two floats."""
    f = ops.add_real(m, -1.0)
    sum_high = ops.add_real(m, 1.0)
    sum_low = ops.sub(m, ops.add_real(sum_high, -1.0))
    reciprocal = ops.reciprocal(sum_high)
    s = ops.mul(f, reciprocal)
    minus = ops.negate(s)
    residue = ops.fma(minus, sum_low, ops.fma(minus, sum_high, f))
    s_low = ops.mul(residue, reciprocal)
    high, low = _cubic_tail(ops, s, s_low)
    double = ops.mul_real(s, 2.0)
    total = ops.add(double, high)
    rest = ops.sub(high, ops.sub(total, double))
    return total, ops.add(rest, ops.fma(ops.real(2.0), s_low, low))


def _cubic_tail(ops: Ops, s: VReg, s_low: VReg) -> tuple[VReg, VReg]:
    """s**3 * (2/3 + 2/5 s**2 + ..) as two floats: it is up to 1/100 of the logarithm."""
    square = ops.mul(s, s)
    square_low = ops.fma(s, s, ops.negate(square))
    square_low = ops.fma(ops.mul_real(s, 2.0), s_low, square_low)
    first = ops.mul_real(square, _CUBIC_HIGH)
    low = ops.fma(square, ops.real(_CUBIC_HIGH), ops.negate(first))
    low = ops.fma(square, ops.real(_CUBIC_LOW), low)
    low = ops.fma(square_low, ops.real(_CUBIC_HIGH), low)
    rest = ops.mul(ops.mul(square, square), ops.polynomial(square, _ATANH))
    low = ops.add(low, rest)
    high = ops.mul(s, first)
    error = ops.fma(s, first, ops.negate(high))
    return high, ops.fma(s, low, ops.fma(s_low, first, error))


def _with_specials(ops: Ops, a: VReg, b: VReg, size: VReg, result: VReg) -> VReg:
    """Signs, NaN for a root of a negative number, and x ** 0 = 1 ** y = (-1) ** inf = 1."""
    whole = ops.emit("vtrunc.f32", b)
    is_integer = ops.compare("eq", "f32", whole, b)
    half = ops.mul_real(b, 0.5)
    is_odd = ops.both(is_integer, ops.compare("ne", "f32", ops.emit("vtrunc.f32", half), half))
    negative = ops.compare_integer("lt", a, 0)
    flipped = ops.emit("vori", result, SIGN_BIT)
    result = ops.select(ops.both(negative, is_odd), flipped, result)
    is_root = ops.both(ops.compare_real("lt", a, 0.0), ops.inverse(is_integer))
    is_root = ops.both(is_root, is_finite(ops, a))
    result = ops.select(is_root, ops.integer(0x7FC00000), result)
    result = ops.select(_is_one(ops, a, b, size), ops.real(1.0), result)
    is_nan = ops.either(ops.compare("ne", "f32", a, a), ops.compare("ne", "f32", b, b))
    keep_one = ops.either(ops.compare_real("eq", b, 0.0), ops.compare_real("eq", a, 1.0))
    return ops.select(ops.both(is_nan, ops.inverse(keep_one)), ops.integer(0x7FC00000), result)


def _is_one(ops: Ops, a: VReg, b: VReg, size: VReg) -> MReg:
    always = ops.either(ops.compare_real("eq", b, 0.0), ops.compare_real("eq", a, 1.0))
    unit_to_infinity = ops.both(
        ops.compare_real("eq", size, 1.0), ops.compare_real("eq", ops.magnitude(b), math.inf)
    )
    return ops.either(always, unit_to_infinity)
