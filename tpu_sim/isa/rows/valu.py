"""VALU: lane-by-lane arithmetic on vregs and vmasks."""

from __future__ import annotations

from typing import Any

from tpu_sim.isa.instruction import Row, Slot, define, meaning


def _valu(name: str, opcode: int, spec: str, doc: str, latency: str = "valu") -> Row:
    return define(name, opcode, Slot.VALU, spec, latency, doc)


def _float_binary(name: str, opcode: int, primitive: str, doc: str) -> Row:
    row = _valu(name, opcode, "d:vd a:vs b:vs", doc)

    @meaning(row)
    def _(m: Any, a: Any, b: Any) -> Any:
        return m.as_i(getattr(m, primitive)(m.as_f(a), m.as_f(b)))

    return row


def _float_unary(name: str, opcode: int, primitive: str, doc: str) -> Row:
    row = _valu(name, opcode, "d:vd a:vs", doc)

    @meaning(row)
    def _(m: Any, a: Any) -> Any:
        return m.as_i(getattr(m, primitive)(m.as_f(a)))

    return row


def _int_binary(name: str, opcode: int, primitive: str, doc: str, latency: str = "valu") -> Row:
    row = _valu(name, opcode, "d:vd a:vs b:vs", doc, latency)

    @meaning(row)
    def _(m: Any, a: Any, b: Any) -> Any:
        return getattr(m, primitive)(a, b)

    return row


def _int_immediate(name: str, opcode: int, primitive: str, doc: str) -> Row:
    row = _valu(name, opcode, "d:vd a:vs k:i32", doc)

    @meaning(row)
    def _(m: Any, a: Any, k: int) -> Any:
        return getattr(m, primitive)(a, m.const_i(k))

    return row


VADD_F32 = _float_binary("vadd.f32", 1, "fadd", "d = a + b")
VSUB_F32 = _float_binary("vsub.f32", 2, "fsub", "d = a - b")
VMUL_F32 = _float_binary("vmul.f32", 3, "fmul", "d = a * b")
VMAX_F32 = _float_binary("vmax.f32", 4, "fmaximum", "d = IEEE maximum(a, b): NaN wins, +0 > -0")
VMIN_F32 = _float_binary("vmin.f32", 5, "fminimum", "d = IEEE minimum(a, b): NaN wins, -0 < +0")
VFLOOR_F32 = _float_unary("vfloor.f32", 6, "ffloor", "d = floor(a)")
VCEIL_F32 = _float_unary("vceil.f32", 7, "fceil", "d = ceil(a)")
VROUND_F32 = _float_unary(
    "vround.f32", 8, "fround_even", "d = a rounded to an integer, ties to even"
)
VTRUNC_F32 = _float_unary("vtrunc.f32", 9, "ftrunc", "d = a rounded toward zero")

VFMA_F32 = _valu("vfma.f32", 10, "d:vd a:vs b:vs c:vs", "d = a * b + c with one rounding")


@meaning(VFMA_F32)
def _(m: Any, a: Any, b: Any, c: Any) -> Any:
    return m.as_i(m.fma(m.as_f(a), m.as_f(b), m.as_f(c)))


def _float_immediate(name: str, opcode: int, primitive: str, doc: str) -> Row:
    row = _valu(name, opcode, "d:vd a:vs k:f32", doc)

    @meaning(row)
    def _(m: Any, a: Any, k: int) -> Any:
        return m.as_i(getattr(m, primitive)(m.as_f(a), m.as_f(m.const_i(k))))

    return row


VADDI_F32 = _float_immediate("vaddi.f32", 11, "fadd", "d = a + k")
VMULI_F32 = _float_immediate("vmuli.f32", 12, "fmul", "d = a * k")
VMAXI_F32 = _float_immediate("vmaxi.f32", 13, "fmaximum", "d = IEEE maximum(a, k)")
VMINI_F32 = _float_immediate("vmini.f32", 14, "fminimum", "d = IEEE minimum(a, k)")

VFMAI_F32 = _valu("vfmai.f32", 15, "d:vd a:vs b:vs k:f32", "d = a * b + k with one rounding")


@meaning(VFMAI_F32)
def _(m: Any, a: Any, b: Any, k: int) -> Any:
    return m.as_i(m.fma(m.as_f(a), m.as_f(b), m.as_f(m.const_i(k))))


VADD_S32 = _int_binary("vadd.s32", 16, "iadd", "d = a + b, wrapping")
VSUB_S32 = _int_binary("vsub.s32", 17, "isub", "d = a - b, wrapping")
VMUL_S32 = _int_binary("vmul.s32", 18, "imul", "d = low 32 bits of a * b", "imul")
VMULHI_U32 = _int_binary("vmulhi.u32", 19, "imulhi_u", "d = high 32 bits of unsigned a * b", "imul")
VAND = _int_binary("vand", 20, "iand", "d = a & b")
VOR = _int_binary("vor", 21, "ior", "d = a | b")
VXOR = _int_binary("vxor", 22, "ixor", "d = a ^ b")
VSHL = _int_binary("vshl", 23, "shl", "d = a << b; 0 when b is not in 0..31")
VSHR = _int_binary("vshr", 24, "lshr", "d = a >> b, logical; 0 when b is not in 0..31")
VSRA = _int_binary("vsra", 25, "ashr", "d = a >> b, arithmetic; the sign when b is not in 0..31")
VMIN_S32 = _int_binary("vmin.s32", 26, "imin_s", "d = signed minimum")
VMAX_S32 = _int_binary("vmax.s32", 27, "imax_s", "d = signed maximum")
VMIN_U32 = _int_binary("vmin.u32", 28, "imin_u", "d = unsigned minimum")
VMAX_U32 = _int_binary("vmax.u32", 29, "imax_u", "d = unsigned maximum")
VADDI_S32 = _int_immediate("vaddi.s32", 30, "iadd", "d = a + k, wrapping")
VMULI_S32 = _int_immediate("vmuli.s32", 31, "imul", "d = low 32 bits of a * k")
VANDI = _int_immediate("vandi", 32, "iand", "d = a & k")
VORI = _int_immediate("vori", 33, "ior", "d = a | k")
VXORI = _int_immediate("vxori", 34, "ixor", "d = a ^ k")
VSHLI = _int_immediate("vshli", 35, "shl", "d = a << k")
VSHRI = _int_immediate("vshri", 36, "lshr", "d = a >> k, logical")
VSRAI = _int_immediate("vsrai", 37, "ashr", "d = a >> k, arithmetic")

VCLZ = _valu("vclz", 38, "d:vd a:vs", "d = leading zero bits of a (32 for 0)")
VPOPCNT = _valu("vpopcnt", 39, "d:vd a:vs", "d = number of set bits of a")


@meaning(VCLZ)
def _(m: Any, a: Any) -> Any:
    return m.clz(a)


@meaning(VPOPCNT)
def _(m: Any, a: Any) -> Any:
    return m.popcnt(a)


VCVT_F32_S32 = _valu("vcvt.f32.s32", 40, "d:vd a:vs", "d = f32 of signed a")
VCVT_F32_U32 = _valu("vcvt.f32.u32", 41, "d:vd a:vs", "d = f32 of unsigned a")
VCVT_S32_F32 = _valu(
    "vcvt.s32.f32", 42, "d:vd a:vs", "d = s32 of f32 a: toward zero, saturating, NaN 0"
)
VCVT_U32_F32 = _valu(
    "vcvt.u32.f32", 43, "d:vd a:vs", "d = u32 of f32 a: toward zero, saturating, NaN 0"
)


@meaning(VCVT_F32_S32)
def _(m: Any, a: Any) -> Any:
    return m.as_i(m.s_to_f(a))


@meaning(VCVT_F32_U32)
def _(m: Any, a: Any) -> Any:
    return m.as_i(m.u_to_f(a))


@meaning(VCVT_S32_F32)
def _(m: Any, a: Any) -> Any:
    return m.f_to_s(m.as_f(a))


@meaning(VCVT_U32_F32)
def _(m: Any, a: Any) -> Any:
    return m.f_to_u(m.as_f(a))


VMOV = _valu("vmov", 44, "d:vd a:vs", "d = a")
VMOVI = _valu("vmovi", 45, "d:vd k:i32", "d = k in every lane")
VSPLAT = _valu("vsplat", 46, "d:vd s:ss", "d = sreg s in every lane")
VLANE = _valu("vlane", 47, "d:vd", "d = lane number 0..127")
VSUBLANE = _valu("vsublane", 48, "d:vd", "d = sublane number 0..7")


@meaning(VMOV)
def _(_m: Any, a: Any) -> Any:
    return a


@meaning(VMOVI)
def _(m: Any, k: int) -> Any:
    return m.const_i(k)


@meaning(VSPLAT)
def _(m: Any, s: Any) -> Any:
    return m.splat(s)


@meaning(VLANE)
def _(m: Any) -> Any:
    return m.lane_index()


@meaning(VSUBLANE)
def _(m: Any) -> Any:
    return m.sublane_index()


def _compare(name: str, opcode: int, primitive: str, predicate: str, doc: str) -> Row:
    row = _valu(name, opcode, "d:md a:vs b:vs", doc)

    @meaning(row)
    def _(m: Any, a: Any, b: Any) -> Any:
        if primitive == "fcmp":
            return m.fcmp(predicate, m.as_f(a), m.as_f(b))
        return getattr(m, primitive)(predicate, a, b)

    return row


VCMP: dict[tuple[str, str], Row] = {
    (predicate, dtype): _compare(
        f"vcmp.{predicate}.{dtype}",
        first + number,
        primitive,
        predicate,
        f"mask d = a {predicate} b as {dtype}",
    )
    for dtype, first, primitive in (
        ("f32", 49, "fcmp"),
        ("s32", 55, "icmp_s"),
        ("u32", 61, "icmp_u"),
    )
    for number, predicate in enumerate(("eq", "ne", "lt", "le", "gt", "ge"))
}
"""Compares by (predicate, dtype); floats ordered, but ne is true when either side is NaN."""

VSEL = _valu("vsel", 67, "d:vd m:ms a:vs b:vs", "d = a where mask m, else b")
MAND = _valu("mand", 68, "d:md a:ms b:ms", "mask d = a and b")
MOR = _valu("mor", 69, "d:md a:ms b:ms", "mask d = a or b")
MXOR = _valu("mxor", 70, "d:md a:ms b:ms", "mask d = a xor b")
MNOT = _valu("mnot", 71, "d:md a:ms", "mask d = not a")
MMOVI = _valu("mmovi", 72, "d:md k:imm", "mask d = k (0 or 1) in every lane")


@meaning(VSEL)
def _(m: Any, mask: Any, a: Any, b: Any) -> Any:
    return m.select(mask, a, b)


@meaning(MAND)
def _(m: Any, a: Any, b: Any) -> Any:
    return m.mand(a, b)


@meaning(MOR)
def _(m: Any, a: Any, b: Any) -> Any:
    return m.mor(a, b)


@meaning(MXOR)
def _(m: Any, a: Any, b: Any) -> Any:
    return m.mxor(a, b)


@meaning(MNOT)
def _(m: Any, a: Any) -> Any:
    return m.mnot(a)


@meaning(MMOVI)
def _(m: Any, k: int) -> Any:
    return m.mconst(bool(k))


VPACK_BF16 = _valu(
    "vpack.bf16",
    73,
    "d:vd a:vs b:vs",
    "d = word of bf16(a) low, bf16(b) high; f32 to bf16 RNE, a NaN that must lose bits quiet",
)
VUNPACK_LO = _valu("vunpack.lo.bf16", 74, "d:vd a:vs", "d = f32 of the low bf16 of each word")
VUNPACK_HI = _valu("vunpack.hi.bf16", 75, "d:vd a:vs", "d = f32 of the high bf16 of each word")


def bf16_bits(m: Any, x: Any) -> Any:
    """Round f32 bits `x` to bf16, kept in the upper half-word (round to nearest even).

    A NaN that is a bf16 keeps its bits, so that moving an array does not change them.
    """
    odd = m.iand(m.lshr(x, m.const_i(16)), m.const_i(1))
    rounded = m.iadd(x, m.iadd(odd, m.const_i(0x7FFF)))
    is_nan = m.icmp_u("gt", m.iand(x, m.const_i(0x7FFFFFFF)), m.const_i(0x7F800000))
    is_cut = m.icmp_u("gt", m.iand(x, m.const_i(0xFFFF)), m.const_i(0))
    nan = m.select(is_cut, m.ior(x, m.const_i(0x00400000)), x)
    return m.iand(m.select(is_nan, nan, rounded), m.const_i(-65536))


@meaning(VPACK_BF16)
def _(m: Any, a: Any, b: Any) -> Any:
    return m.ior(m.lshr(bf16_bits(m, a), m.const_i(16)), bf16_bits(m, b))


@meaning(VUNPACK_LO)
def _(m: Any, a: Any) -> Any:
    return m.shl(a, m.const_i(16))


@meaning(VUNPACK_HI)
def _(m: Any, a: Any) -> Any:
    return m.iand(a, m.const_i(-65536))


VPACK_H16 = _valu("vpack.h16", 76, "d:vd a:vs b:vs", "d = low half-words: a low, b high")
VPACK_B8 = _valu(
    "vpack.b8", 77, "d:vd a:vs b:vs c:vs e:vs", "d = low bytes of a, b, c, e, a lowest"
)


@meaning(VPACK_H16)
def _(m: Any, a: Any, b: Any) -> Any:
    return m.ior(m.iand(a, m.const_i(0xFFFF)), m.shl(b, m.const_i(16)))


@meaning(VPACK_B8)
def _(m: Any, a: Any, b: Any, c: Any, e: Any) -> Any:
    low = m.ior(m.iand(a, m.const_i(0xFF)), m.shl(m.iand(b, m.const_i(0xFF)), m.const_i(8)))
    high = m.ior(m.iand(c, m.const_i(0xFF)), m.shl(m.iand(e, m.const_i(0xFF)), m.const_i(8)))
    return m.ior(low, m.shl(high, m.const_i(16)))
