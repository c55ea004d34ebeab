"""Floats narrower than 32 bits: between their bits and f32 lanes, and rounding to them."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.backend.vector.ops import INFINITY_BITS, MAGNITUDE, Ops
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import DType
from compiler.llo.ir import VReg


@dataclass(frozen=True)
class FloatFormat:
    """`exponent` and `mantissa` bits; without infinities only the all-ones code is NaN.

    `stated_bias` marks the "fnuz" formats: an exponent bias of their own, one zero, and the code
    of minus zero as the only NaN, to which what is too large rounds.
    """

    exponent: int
    mantissa: int
    has_infinity: bool = True
    stated_bias: int = 0

    @property
    def has_one_zero(self) -> bool:
        """Whether there is no minus zero (its code is NaN)."""
        return self.stated_bias > 0

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return self.stated_bias or (1 << (self.exponent - 1)) - 1

    @property
    def infinity(self) -> int:
        """Magnitude code of infinity; for formats without, of the value after the largest, NaN."""
        if self.has_one_zero:
            return 1 << (self.exponent + self.mantissa)
        top = ((1 << self.exponent) - 1) << self.mantissa
        return top if self.has_infinity else top | ((1 << self.mantissa) - 1)


FORMATS: dict[str, FloatFormat] = {
    "f16": FloatFormat(5, 10),
    "f8e5m2": FloatFormat(5, 2),
    "f8e4m3": FloatFormat(4, 3),
    "f8e3m4": FloatFormat(3, 4),
    "f8e4m3fn": FloatFormat(4, 3, has_infinity=False),
    "f8e4m3b11fnuz": FloatFormat(4, 3, has_infinity=False, stated_bias=11),
    "f8e4m3fnuz": FloatFormat(4, 3, has_infinity=False, stated_bias=8),
    "f8e5m2fnuz": FloatFormat(5, 2, has_infinity=False, stated_bias=16),
}
"""Formats decoded and encoded by integer code (bf16 has instructions of its own)."""


_SIGN = -(1 << 31)
_NAN = 0x7FC00000


def float_format(dtype: DType) -> FloatFormat:
    """The format of a dtype; UnsupportedError for those that have none here."""
    if dtype.name not in FORMATS:
        message = f"element type {dtype} on the vector unit; convert to bf16, f16 or f32"
        raise UnsupportedError(message)
    return FORMATS[dtype.name]


def decode(ops: Ops, code: VReg, dtype: DType) -> VReg:
    """f32 lanes of codes in the low bits of each lane; bits above do not matter."""
    return decode_top(ops, ops.emit("vshli", code, 32 - dtype.bits), dtype)


def decode_top(ops: Ops, top: VReg, dtype: DType) -> VReg:
    """f32 lanes of codes in the high bits of each lane; bits below do not matter.

    The code with its magnitude moved to f32's mantissa position is the value scaled by a power of
    two, denormal codes included; a multiplication undoes the scaling exactly.
    """
    form = float_format(dtype)
    place = 23 - form.mantissa
    kept = ((1 << (dtype.bits - 1)) - 1) << place
    scaled = ops.emit("vandi", ops.emit("vsrai", top, 8 - form.exponent), kept | _SIGN)
    value = ops.mul_real(scaled, 2.0 ** (127 - form.bias))
    special = ops.emit("vori", scaled, INFINITY_BITS if form.has_infinity else _NAN)
    if form.has_one_zero:
        is_special = ops.compare_integer("eq", scaled, _SIGN)
    else:
        magnitude = ops.emit("vandi", scaled, kept)
        is_special = ops.compare_integer("ge", magnitude, form.infinity << place)
    return ops.select(is_special, special, value)


def encode(ops: Ops, value: VReg, dtype: DType) -> VReg:
    """Zero-extended codes of f32 lanes, rounded to nearest even; overflow as the format has it."""
    form = float_format(dtype)
    magnitude = ops.magnitude(value)
    drop = 23 - form.mantissa
    odd = ops.emit("vandi", ops.emit("vshri", magnitude, drop), 1)
    rounded = ops.iadd(magnitude, ops.iadd_constant(odd, (1 << (drop - 1)) - 1))
    rebased = ops.iadd_constant(rounded, -((127 - form.bias) << 23))
    normal = ops.emit("vshri", rebased, drop)
    # below the least normal, adding 2**k with k's ulp the denormal spacing rounds and aligns
    magic = 2.0 ** (1 - form.bias - form.mantissa + 23)
    aligned = ops.add_real(magnitude, magic)
    denormal = ops.isub(aligned, ops.real(magic))
    is_denormal = ops.compare_real("lt", magnitude, 2.0 ** (1 - form.bias))
    code = ops.select(is_denormal, denormal, normal)
    code = ops.emit("vmin.s32", code, ops.integer(form.infinity))
    is_nan = ops.compare("ne", "f32", value, value)
    code = ops.select(is_nan, _nan_code(ops, magnitude, form), code)
    sign = ops.emit("vshli", ops.emit("vshri", value, 31), dtype.bits - 1)
    signed = ops.emit("vor", code, sign)
    if not form.has_one_zero:
        return signed
    return ops.select(ops.compare_integer("eq", code, 0), code, signed)


def _nan_code(ops: Ops, magnitude: VReg, form: FloatFormat) -> VReg:
    """A NaN with the upper bits of the f32's: one that came from this type stays what it was."""
    if not form.has_infinity:
        return ops.integer(form.infinity)
    payload = ops.emit("vshri", magnitude, 23 - form.mantissa)
    code = ops.iadd_constant(payload, form.infinity - (0xFF << form.mantissa))
    return ops.emit("vmax.s32", code, ops.integer(form.infinity + 1))


def round_to(ops: Ops, value: VReg, dtype: DType) -> VReg:
    """f32 lanes rounded to values of a float dtype."""
    if dtype.name == "f32":
        return value
    if dtype.name == "bf16":
        return ops.emit("vunpack.lo.bf16", ops.emit("vpack.bf16", value, value))
    return decode(ops, encode(ops, value, dtype), dtype)


def settle(ops: Ops, value: VReg, dtype: DType) -> VReg:
    """The result of an operation as a value of its type.

    bf16 alone may keep f32 precision inside a fusion (docs/numerics.md); floats that are narrower
    still round after every operation, as programs that compare or convert the result can tell.
    Integers (sums of an integer dot) are exact.
    """
    is_rounded = dtype.is_float and dtype.name not in ("f32", "bf16")
    return round_to(ops, value, dtype) if is_rounded else value


def reduce_precision(ops: Ops, value: VReg, exponent: int, mantissa: int) -> VReg:
    """HLO's reduce-precision: round the mantissa, overflow to infinity, flush below the range."""
    bits = ops.magnitude(value)
    result, mantissa = bits, min(mantissa, 23)
    if mantissa < 23:
        drop = 23 - mantissa
        odd = ops.emit("vandi", ops.emit("vshri", bits, drop), 1)
        rounded = ops.iadd(bits, ops.iadd_constant(odd, (1 << (drop - 1)) - 1))
        result = ops.emit("vandi", rounded, (MAGNITUDE >> drop) << drop)
    if exponent < 8:
        bias = (1 << (exponent - 1)) - 1
        largest = ((127 + bias) << 23) | ((MAGNITUDE >> (31 - mantissa)) << (23 - mantissa))
        over = ops.compare_integer("gt", result, largest)
        result = ops.select(over, ops.integer(INFINITY_BITS), result)
        under = ops.compare_integer("lt", result, (127 + 1 - bias) << 23)
        result = ops.select(under, ops.integer(0), result)
    is_special = ops.compare_integer("ge", bits, INFINITY_BITS)
    result = ops.select(is_special, bits, result)
    return ops.with_sign_of(result, value)


_HALF_EXPONENT, _HALF_MANTISSA = 5, 10


def reduce_half(ops: Ops, value: VReg, exponent: int, mantissa: int) -> VReg:
    """`reduce_precision` of f16 in f32 lanes: its numbers below 2^-14 are as far apart as those above.

    A format with as large exponents as f16 has them too, and keeps them.
    """
    if exponent < _HALF_EXPONENT:
        return reduce_precision(ops, value, exponent, mantissa)
    if mantissa >= _HALF_MANTISSA:
        return value
    normal = reduce_precision(ops, value, 8, mantissa)
    magnitude = ops.magnitude(value)
    spread = 2.0 ** (_HALF_MANTISSA - 1 - mantissa)  # of which a last bit counts as much as theirs
    small = ops.add_real(ops.add_real(magnitude, spread), -spread)
    is_small = ops.compare_integer("lt", magnitude, (127 - 14) << 23)
    return ops.select(is_small, ops.with_sign_of(small, value), normal)
