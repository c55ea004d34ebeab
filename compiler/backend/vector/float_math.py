"""Float opcodes composed of a few instructions: division, rounding, sign, remainder."""

from __future__ import annotations

from compiler.backend.vector.ops import INFINITY_BITS, Ops
from compiler.llo.ir import MReg, VReg


def divide(ops: Ops, a: VReg, b: VReg) -> VReg:
    """a / b within 1 ulp: reciprocal, product, one correction by the exact residue.

    Where the correction is not finite (zero, infinity or NaN involved) the plain product is right.
    Divisors below 2**-126 count as zero-like: their reciprocal may overflow, as on the hardware.
    """
    reciprocal = ops.reciprocal(b)
    quotient = ops.mul(a, reciprocal)
    residue = ops.fma(ops.negate(b), quotient, a)
    corrected = ops.fma(residue, reciprocal, quotient)
    return ops.select(is_finite(ops, corrected), corrected, quotient)


def is_finite(ops: Ops, a: VReg) -> MReg:
    """Neither infinite nor NaN."""
    return ops.compare_integer("lt", ops.magnitude(a), INFINITY_BITS)


def sign_of_float(ops: Ops, a: VReg) -> VReg:
    """-1, 1, or a itself where it is a zero or NaN."""
    one = ops.with_sign_of(ops.real(1.0), a)
    is_unit = ops.compare_real("gt", ops.magnitude(a), 0.0)
    return ops.select(is_unit, one, a)


def round_half_away(ops: Ops, a: VReg) -> VReg:
    """To the nearest integer, halves away from zero."""
    whole = ops.emit("vtrunc.f32", a)
    rest = ops.magnitude(ops.sub(a, whole))
    step = ops.with_sign_of(ops.real(1.0), a)
    is_half = ops.compare_real("ge", rest, 0.5)
    moved = ops.select(is_half, ops.add(whole, step), whole)
    return ops.with_sign_of(ops.magnitude(moved), a)


_REMAINDER_SCALES = (2.0**88, 2.0**66, 2.0**44, 2.0**22, 1.0)


def float_remainder(ops: Ops, a: VReg, b: VReg) -> VReg:
    """C's fmod: a - b * trunc(a / b), exact for quotients below 2**110.

    Long division, 22 quotient bits a step: q * b is subtracted with one rounding, which is none,
    because the true difference has no more bits than a and b.
    """
    rest, divisor = ops.magnitude(a), ops.magnitude(b)
    for scale in _REMAINDER_SCALES:
        scaled = ops.mul_real(divisor, scale)
        whole = ops.emit("vtrunc.f32", ops.mul(rest, ops.reciprocal(scaled)))
        lower = ops.fma(ops.negate(whole), scaled, rest)
        lower = ops.select(ops.compare_real("lt", lower, 0.0), ops.add(lower, scaled), lower)
        over = ops.compare("ge", "f32", lower, scaled)
        lower = ops.select(over, ops.sub(lower, scaled), lower)
        is_step = ops.both(is_finite(ops, scaled), ops.compare("ge", "f32", rest, scaled))
        rest = ops.select(is_step, lower, rest)
    is_number = ops.both(ops.compare_real("gt", divisor, 0.0), is_finite(ops, a))
    result = ops.select(is_number, ops.with_sign_of(rest, a), ops.integer(0x7FC00000))
    is_nan = ops.compare("ne", "f32", b, b)
    return ops.select(is_nan, b, result)
