"""Integer opcodes that are more than one instruction; results are wrapped by the caller."""

from __future__ import annotations

from compiler.backend.vector.ops import Ops
from compiler.hlo.dtypes import DType
from compiler.llo.ir import VReg


def negate(ops: Ops, a: VReg) -> VReg:
    """-a."""
    return ops.isub(ops.integer(0), a)


def invert(ops: Ops, a: VReg) -> VReg:
    """Bitwise not."""
    return ops.emit("vxori", a, -1)


def absolute(ops: Ops, dtype: DType, a: VReg) -> VReg:
    """|a|; the least signed integer stays."""
    return ops.emit("vmax.s32", a, negate(ops, a)) if dtype.is_signed else a


def sign(ops: Ops, dtype: DType, a: VReg) -> VReg:
    """-1, 0 or 1."""
    if not dtype.is_signed:
        return ops.emit("vmin.u32", a, ops.integer(1))
    limited = ops.emit("vmin.s32", a, ops.integer(1))
    return ops.emit("vmax.s32", limited, ops.integer(-1))


def divide(ops: Ops, dtype: DType, a: VReg, b: VReg) -> VReg:
    """Toward zero; x / 0 is all ones."""
    return ops.emit("vdiv.s32" if dtype.is_signed else "vdiv.u32", a, b)


def remainder(ops: Ops, dtype: DType, a: VReg, b: VReg) -> VReg:
    """With the sign of a; x % 0 = x."""
    return ops.emit("vrem.s32" if dtype.is_signed else "vrem.u32", a, b)


def multiply_high(ops: Ops, dtype: DType, a: VReg, b: VReg) -> VReg:
    """The upper half of the double-width product."""
    if dtype.bits < 32:
        product = ops.emit("vmul.s32", a, b)
        return ops.emit("vsrai" if dtype.is_signed else "vshri", product, dtype.bits)
    high = ops.emit("vmulhi.u32", a, b)
    if not dtype.is_signed:
        return high
    # signed high = unsigned high - (a < 0 ? b : 0) - (b < 0 ? a : 0)
    less_b = ops.emit("vand", ops.emit("vsrai", a, 31), b)
    less_a = ops.emit("vand", ops.emit("vsrai", b, 31), a)
    return ops.isub(ops.isub(high, less_b), less_a)


def leading_zeros(ops: Ops, dtype: DType, a: VReg) -> VReg:
    """Zeros above the highest set bit, within the type's width."""
    return ops.iadd_constant(ops.emit("vclz", ops.unsigned(a, dtype)), dtype.bits - 32)


def population_count(ops: Ops, dtype: DType, a: VReg) -> VReg:
    """Number of set bits."""
    return ops.emit("vpopcnt", ops.unsigned(a, dtype))


def _amount(ops: Ops, dtype: DType, b: VReg) -> VReg:
    """A shift amount as unsigned, so that negative ones are too large."""
    return ops.unsigned(b, dtype)


def shift_left(ops: Ops, dtype: DType, a: VReg, b: VReg) -> VReg:
    """0 when the amount is the width or more."""
    return ops.emit("vshl", a, _amount(ops, dtype, b))


def shift_right_logical(ops: Ops, dtype: DType, a: VReg, b: VReg) -> VReg:
    """Filled with zeros."""
    return ops.emit("vshr", ops.unsigned(a, dtype), _amount(ops, dtype, b))


def shift_right_arithmetic(ops: Ops, dtype: DType, a: VReg, b: VReg) -> VReg:
    """Filled with the sign bit of the type's width, for unsigned types too."""
    spare = 32 - dtype.bits
    if spare and not dtype.is_signed:
        a = ops.emit("vsrai", ops.emit("vshli", a, spare), spare)
    return ops.emit("vsra", a, _amount(ops, dtype, b))


def power(ops: Ops, dtype: DType, a: VReg, b: VReg) -> VReg:
    """a ** b modulo the width by squaring; a negative exponent gives the truncated reciprocal."""
    result = ops.integer(1)
    square = a
    left = ops.unsigned(b, dtype)
    for bit in range(dtype.bits - dtype.is_signed):
        test = 1 << bit if bit < 31 else -(1 << 31)
        is_set = ops.compare_integer("ne", ops.emit("vandi", left, test), 0)
        result = ops.select(is_set, ops.emit("vmul.s32", result, square), result)
        square = ops.emit("vmul.s32", square, square)
    if not dtype.is_signed:
        return result
    is_one = ops.compare_integer("eq", absolute(ops, dtype, a), 1)
    is_odd = ops.compare_integer("ne", ops.emit("vandi", b, 1), 0)
    unit = ops.select(is_odd, a, ops.integer(1))
    reciprocal = ops.select(is_one, unit, ops.integer(0))
    return ops.select(ops.compare_integer("lt", b, 0), reciprocal, result)
