"""`Ops`: the vector instructions as a small expression language over vregs and vmasks.

A value of an HLO element type lives in registers by its class:

    "f"  any float type: f32 lanes
    "i"  any integer type of at most 32 bits: sign- or zero-extended s32 lanes
    "m"  pred: a vmask
"""

from __future__ import annotations

import math

from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import DType
from compiler.llo.builder import LloBuilder, f32_bits
from compiler.llo.ir import MReg, SReg, VReg

SIGN_BIT = -0x80000000
MAGNITUDE = 0x7FFFFFFF
INFINITY_BITS = 0x7F800000


def value_class(dtype: DType) -> str:
    """ "f", "i" or "m"; UnsupportedError for types that do not fit 32-bit lanes."""
    if dtype.kind == "pred":
        return "m"
    if dtype.is_complex or dtype.bits > 32:
        message = f"{dtype} on the vector unit: elements wider than 32 bits; convert to 32 bits"
        raise UnsupportedError(message)
    return "f" if dtype.is_float else "i"


def compare_type(dtype: DType) -> str:
    """The type name of compare, maximum and minimum rows for a dtype: f32, s32 or u32."""
    if dtype.is_float:
        return "f32"
    return "s32" if dtype.is_signed else "u32"


class Ops:
    """Emits single instructions into `builder` and returns their result registers."""

    def __init__(self, builder: LloBuilder) -> None:
        self.builder = builder
        self.emit = builder.emit

    # constants and positions

    def integer(self, value: int) -> VReg:
        """`value` in every lane."""
        return self.emit("vmovi", value)

    def real(self, value: float) -> VReg:
        """The f32 nearest to `value` in every lane."""
        return self.emit("vmovi", float_bits(value))

    def flag(self, value: bool) -> MReg:
        """A mask of all or no lanes."""
        return self.emit("mmovi", int(value))

    def splat(self, sreg: SReg) -> VReg:
        """A scalar in every lane."""
        known = self.builder.constant(sreg)
        return self.integer(known) if known is not None else self.emit("vsplat", sreg)

    def lane(self) -> VReg:
        """The lane number."""
        return self.emit("vlane")

    def sublane(self) -> VReg:
        """The sublane number."""
        return self.emit("vsublane")

    # f32

    def add(self, a: VReg, b: VReg) -> VReg:
        """a + b."""
        return self.emit("vadd.f32", a, b)

    def sub(self, a: VReg, b: VReg) -> VReg:
        """a - b."""
        return self.emit("vsub.f32", a, b)

    def mul(self, a: VReg, b: VReg) -> VReg:
        """a * b."""
        return self.emit("vmul.f32", a, b)

    def fma(self, a: VReg, b: VReg, c: VReg) -> VReg:
        """a * b + c, rounded once."""
        return self.emit("vfma.f32", a, b, c)

    def add_real(self, a: VReg, k: float) -> VReg:
        """a + k."""
        return self.emit("vaddi.f32", a, float_bits(k))

    def mul_real(self, a: VReg, k: float) -> VReg:
        """a * k."""
        return self.emit("vmuli.f32", a, float_bits(k))

    def fma_real(self, a: VReg, b: VReg, k: float) -> VReg:
        """a * b + k, rounded once."""
        return self.emit("vfmai.f32", a, b, float_bits(k))

    def limit(self, a: VReg, low: float, high: float) -> VReg:
        """a limited to low..high; NaN stays."""
        return self.emit("vmini.f32", self.emit("vmaxi.f32", a, float_bits(low)), float_bits(high))

    def polynomial(self, x: VReg, coefficients: tuple[float, ...]) -> VReg:
        """Horner's scheme, highest coefficient first."""
        result = self.real(coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.fma_real(result, x, coefficient)
        return result

    def magnitude(self, a: VReg) -> VReg:
        """|a|."""
        return self.emit("vandi", a, MAGNITUDE)

    def negate(self, a: VReg) -> VReg:
        """-a."""
        return self.emit("vxori", a, SIGN_BIT)

    def with_sign_of(self, magnitude: VReg, sign: VReg) -> VReg:
        """A non-negative f32 with the sign bit of another."""
        return self.emit("vor", magnitude, self.emit("vandi", sign, SIGN_BIT))

    def reciprocal(self, a: VReg) -> VReg:
        """1 / a."""
        return self.emit("vrcp.f32", a)

    # s32

    def iadd(self, a: VReg, b: VReg) -> VReg:
        """a + b, wrapping."""
        return self.emit("vadd.s32", a, b)

    def isub(self, a: VReg, b: VReg) -> VReg:
        """a - b, wrapping."""
        return self.emit("vsub.s32", a, b)

    def iadd_constant(self, a: VReg, k: int) -> VReg:
        """a + k, wrapping."""
        return self.emit("vaddi.s32", a, k) if k else a

    def imul_constant(self, a: VReg, k: int) -> VReg:
        """a * k, wrapping; by a shift where k is a power of two."""
        if k == 1:
            return a
        if k > 0 and k & (k - 1) == 0:
            return self.emit("vshli", a, k.bit_length() - 1)
        return self.emit("vmuli.s32", a, k)

    def wrap(self, a: VReg, dtype: DType) -> VReg:
        """The low bits of a, extended as an element of `dtype` is."""
        spare = 32 - dtype.bits
        if spare <= 0:
            return a
        if not dtype.is_signed:
            return self.emit("vandi", a, (1 << dtype.bits) - 1)
        return self.emit("vsrai", self.emit("vshli", a, spare), spare)

    def unsigned(self, a: VReg, dtype: DType) -> VReg:
        """The bits of an element, zero-extended."""
        if dtype.bits == 32 or not dtype.is_signed:
            return a
        return self.emit("vandi", a, (1 << dtype.bits) - 1)

    # compares, masks, selection

    def compare(self, predicate: str, kind: str, a: VReg, b: VReg) -> MReg:
        """Mask of a `predicate` b as `kind` (f32, s32, u32)."""
        return self.emit(f"vcmp.{predicate}.{kind}", a, b)

    def compare_integer(self, predicate: str, a: VReg, k: int) -> MReg:
        """Mask of a `predicate` k, signed."""
        return self.compare(predicate, "s32", a, self.integer(k))

    def compare_real(self, predicate: str, a: VReg, k: float) -> MReg:
        """Mask of a `predicate` k as f32."""
        return self.compare(predicate, "f32", a, self.real(k))

    def select(self, mask: MReg, a: VReg, b: VReg) -> VReg:
        """a where the mask is set, else b."""
        return a if a == b else self.emit("vsel", mask, a, b)

    def both(self, a: MReg, b: MReg) -> MReg:
        """a and b."""
        return self.emit("mand", a, b)

    def either(self, a: MReg, b: MReg) -> MReg:
        """a or b."""
        return self.emit("mor", a, b)

    def inverse(self, a: MReg) -> MReg:
        """not a."""
        return self.emit("mnot", a)

    def select_mask(self, mask: MReg, a: MReg, b: MReg) -> MReg:
        """a where `mask`, else b, for masks."""
        if a == b:
            return a
        return self.either(self.both(mask, a), self.both(self.inverse(mask), b))

    def choose(self, kind: str, mask: MReg, a: int, b: int) -> int:
        """`select` for a value of class `kind`."""
        return self.select_mask(mask, a, b) if kind == "m" else self.select(mask, a, b)

    def mask_to_integer(self, mask: MReg) -> VReg:
        """1 where set, else 0."""
        return self.select(mask, self.integer(1), self.integer(0))

    def integer_to_mask(self, a: VReg) -> MReg:
        """Where a is not 0."""
        return self.compare_integer("ne", a, 0)


def float_bits(value: float) -> int:
    """Bits of the f32 nearest to `value`; overflow gives infinity."""
    if math.isfinite(value) and abs(value) > 3.4028235677973366e38:
        value = math.copysign(math.inf, value)
    return f32_bits(value)
