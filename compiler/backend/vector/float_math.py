"""Float opcodes composed of a few instructions: division, rounding, sign, remainder."""

from __future__ import annotations

import math

from compiler.backend.vector.ops import INFINITY_BITS, Ops
from compiler.llo.ir import MReg, VReg


def divide(ops: Ops, a: VReg, b: VReg) -> VReg:
    """a / b within 1 ulp: reciprocal, product, one correction by the exact residue.

    Where zero, infinity or overflow is involved the correction is NaN, or a zero that has lost its
    sign, and the plain product right.
    A divisor below 2**-128 counts as zero: its reciprocal overflows, as where denormals are flushed.
    """
    reciprocal = ops.reciprocal(b)
    quotient = ops.mul(a, reciprocal)
    residue = ops.fma(ops.negate(b), quotient, a)
    corrected = ops.fma(residue, reciprocal, quotient)
    is_number = ops.compare_real("gt", ops.magnitude(corrected), 0.0)
    return ops.select(is_number, corrected, quotient)


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


_QUOTIENT_BITS = 22
_QUOTIENT_DIGITS = 13  # any quotient of two finite floats


def float_remainder(ops: Ops, a: VReg, b: VReg) -> VReg:
    """C's fmod: a - b * trunc(a / b), exact.

    Long division, 22 quotient bits a step: q * b is subtracted with one rounding, which is none,
    because the true difference has no more bits than a and b.
    """
    rest, divisor = ops.magnitude(a), ops.magnitude(b)
    scaled = [divisor]
    for _ in range(_QUOTIENT_DIGITS - 1):
        scaled.append(ops.mul_real(scaled[-1], 2.0**_QUOTIENT_BITS))
    for number, multiple in reversed(list(enumerate(scaled))):
        if number < 2:  # others are no denormals
            lower = _subtract_small_multiples(ops, rest, multiple)
        else:
            lower = _subtract_multiples(ops, rest, multiple)
        is_step = ops.both(is_finite(ops, multiple), ops.compare("ge", "f32", rest, multiple))
        rest = ops.select(is_step, lower, rest)
    is_number = ops.both(ops.compare_real("gt", divisor, 0.0), is_finite(ops, a))
    result = ops.select(is_number, ops.with_sign_of(rest, a), ops.integer(0x7FC00000))
    is_nan = ops.compare("ne", "f32", b, b)
    return ops.select(is_nan, b, result)


_NORMAL = 2.0**126
"""Beyond this a reciprocal is a denormal, which counts as zero."""
_CONSTANT_BITS = 20  # so that the first digit has 22 at most, though its unit has a reciprocal


def remainder_by_constant(ops: Ops, a: VReg, divisor: float) -> VReg | None:
    """C's fmod by a known number, exact; None for one so small or large that it is divided by as any other.

    Long division by units that are known: of as many digits as a float of any size can have. Multiples
    of a power of two need one.
    """
    size = abs(divisor)
    if not 1.0 <= size <= _NORMAL:
        return None
    if math.frexp(size)[0] == 0.5:
        whole = ops.emit("vtrunc.f32", ops.mul_real(a, 1.0 / size))
        rest = ops.with_sign_of(ops.magnitude(ops.fma(whole, ops.real(-size), a)), a)
        return ops.select(ops.compare_real("lt", ops.magnitude(a), size), a, rest)
    rest = ops.magnitude(a)
    digits = int(math.log2(_NORMAL / size)) // _CONSTANT_BITS
    for number in range(digits, -1, -1):
        unit = ops.real(size * 2.0 ** (number * _CONSTANT_BITS))
        is_step = ops.compare("ge", "f32", rest, unit)
        rest = ops.select(is_step, _subtract_multiples(ops, rest, unit), rest)
    signed = ops.with_sign_of(rest, a)
    return ops.select(is_finite(ops, a), signed, ops.integer(0x7FC00000))


def _subtract_multiples(ops: Ops, rest: VReg, unit: VReg) -> VReg:
    """rest modulo unit, for rest / unit below 2**22; the rounded quotient may be one too large.

    It is never too small: what is left of two units may not fit into 24 bits.
    """
    whole = ops.emit("vround.f32", ops.mul(rest, ops.reciprocal(unit)))
    lower = ops.fma(ops.negate(whole), unit, rest)
    return ops.select(ops.compare_real("lt", lower, 0.0), ops.add(lower, unit), lower)


def _subtract_small_multiples(ops: Ops, rest: VReg, unit: VReg) -> VReg:
    """The same for a unit that may be denormal and has no reciprocal: both are scaled up."""
    is_tiny = ops.compare_real("lt", unit, 2.0**-100)
    up = ops.select(is_tiny, ops.real(2.0**48), ops.real(1.0))
    down = ops.select(is_tiny, ops.real(2.0**-48), ops.real(1.0))
    lower = _subtract_multiples(ops, ops.mul(rest, up), ops.mul(unit, up))
    return ops.mul(lower, down)
