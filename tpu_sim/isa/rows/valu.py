"""VALU: lane-by-lane arithmetic on vregs and vmasks."""

from __future__ import annotations

from typing import Any

from tpu_sim.isa.instruction import Does, Row, Slot, define
from tpu_sim.isa.semantics import COMPARES, by_constant, calls, compares, floats, floats_by_constant


def _valu(name: str, opcode: int, spec: str, doc: str, does: Does, latency: str = "valu") -> Row:
    return define(name, opcode, Slot.VALU, spec, latency, doc, does)


_A = "d:vd a:vs"
_AB = "d:vd a:vs b:vs"
_AK = "d:vd a:vs k:i32"

VADD_F32 = _valu("vadd.f32", 1, _AB, "d = a + b", floats("fadd"))
VSUB_F32 = _valu("vsub.f32", 2, _AB, "d = a - b", floats("fsub"))
VMUL_F32 = _valu("vmul.f32", 3, _AB, "d = a * b", floats("fmul"))
VMAX_F32 = _valu(
    "vmax.f32", 4, _AB, "d = IEEE maximum(a, b): NaN wins, +0 > -0", floats("fmaximum")
)
VMIN_F32 = _valu(
    "vmin.f32", 5, _AB, "d = IEEE minimum(a, b): NaN wins, -0 < +0", floats("fminimum")
)
VFLOOR_F32 = _valu("vfloor.f32", 6, _A, "d = floor(a)", floats("ffloor"))
VCEIL_F32 = _valu("vceil.f32", 7, _A, "d = ceil(a)", floats("fceil"))
VROUND_F32 = _valu(
    "vround.f32", 8, _A, "d = a rounded to an integer, ties to even", floats("fround_even")
)
VTRUNC_F32 = _valu("vtrunc.f32", 9, _A, "d = a rounded toward zero", floats("ftrunc"))

VFMA_F32 = _valu(
    "vfma.f32", 10, "d:vd a:vs b:vs c:vs", "d = a * b + c with one rounding",
    lambda m, a, b, c: m.as_i(m.fma(m.as_f(a), m.as_f(b), m.as_f(c))),
)  # fmt: skip

VADDI_F32 = _valu("vaddi.f32", 11, "d:vd a:vs k:f32", "d = a + k", floats_by_constant("fadd"))
VMULI_F32 = _valu("vmuli.f32", 12, "d:vd a:vs k:f32", "d = a * k", floats_by_constant("fmul"))
VMAXI_F32 = _valu(
    "vmaxi.f32", 13, "d:vd a:vs k:f32", "d = IEEE maximum(a, k)", floats_by_constant("fmaximum")
)
VMINI_F32 = _valu(
    "vmini.f32", 14, "d:vd a:vs k:f32", "d = IEEE minimum(a, k)", floats_by_constant("fminimum")
)

VFMAI_F32 = _valu(
    "vfmai.f32", 15, "d:vd a:vs b:vs k:f32", "d = a * b + k with one rounding",
    lambda m, a, b, k: m.as_i(m.fma(m.as_f(a), m.as_f(b), m.as_f(m.const_i(k)))),
)  # fmt: skip


VADD_S32 = _valu("vadd.s32", 16, _AB, "d = a + b, wrapping", calls("iadd"))
VSUB_S32 = _valu("vsub.s32", 17, _AB, "d = a - b, wrapping", calls("isub"))
VMUL_S32 = _valu("vmul.s32", 18, _AB, "d = low 32 bits of a * b", calls("imul"), "imul")
VMULHI_U32 = _valu(
    "vmulhi.u32", 19, _AB, "d = high 32 bits of unsigned a * b", calls("imulhi_u"), "imul"
)
VAND = _valu("vand", 20, _AB, "d = a & b", calls("iand"))
VOR = _valu("vor", 21, _AB, "d = a | b", calls("ior"))
VXOR = _valu("vxor", 22, _AB, "d = a ^ b", calls("ixor"))
VSHL = _valu("vshl", 23, _AB, "d = a << b; 0 when b is not in 0..31", calls("shl"))
VSHR = _valu("vshr", 24, _AB, "d = a >> b, logical; 0 when b is not in 0..31", calls("lshr"))
VSRA = _valu(
    "vsra", 25, _AB, "d = a >> b, arithmetic; the sign when b is not in 0..31", calls("ashr")
)
VMIN_S32 = _valu("vmin.s32", 26, _AB, "d = signed minimum", calls("imin_s"))
VMAX_S32 = _valu("vmax.s32", 27, _AB, "d = signed maximum", calls("imax_s"))
VMIN_U32 = _valu("vmin.u32", 28, _AB, "d = unsigned minimum", calls("imin_u"))
VMAX_U32 = _valu("vmax.u32", 29, _AB, "d = unsigned maximum", calls("imax_u"))
VADDI_S32 = _valu("vaddi.s32", 30, _AK, "d = a + k, wrapping", by_constant("iadd"))
VMULI_S32 = _valu("vmuli.s32", 31, _AK, "d = low 32 bits of a * k", by_constant("imul"))
VANDI = _valu("vandi", 32, _AK, "d = a & k", by_constant("iand"))
VORI = _valu("vori", 33, _AK, "d = a | k", by_constant("ior"))
VXORI = _valu("vxori", 34, _AK, "d = a ^ k", by_constant("ixor"))
VSHLI = _valu("vshli", 35, _AK, "d = a << k", by_constant("shl"))
VSHRI = _valu("vshri", 36, _AK, "d = a >> k, logical", by_constant("lshr"))
VSRAI = _valu("vsrai", 37, _AK, "d = a >> k, arithmetic", by_constant("ashr"))

VCLZ = _valu("vclz", 38, _A, "d = leading zero bits of a (32 for 0)", calls("clz"))
VPOPCNT = _valu("vpopcnt", 39, _A, "d = number of set bits of a", calls("popcnt"))


VCVT_F32_S32 = _valu(
    "vcvt.f32.s32", 40, _A, "d = f32 of signed a", lambda m, a: m.as_i(m.s_to_f(a))
)
VCVT_F32_U32 = _valu(
    "vcvt.f32.u32", 41, _A, "d = f32 of unsigned a", lambda m, a: m.as_i(m.u_to_f(a))
)
VCVT_S32_F32 = _valu(
    "vcvt.s32.f32", 42, _A, "d = s32 of f32 a: toward zero, saturating, NaN 0",
    lambda m, a: m.f_to_s(m.as_f(a)),
)  # fmt: skip
VCVT_U32_F32 = _valu(
    "vcvt.u32.f32", 43, _A, "d = u32 of f32 a: toward zero, saturating, NaN 0",
    lambda m, a: m.f_to_u(m.as_f(a)),
)  # fmt: skip


VMOV = _valu("vmov", 44, _A, "d = a", lambda _m, a: a)
VMOVI = _valu("vmovi", 45, "d:vd k:i32", "d = k in every lane", calls("const_i"))
VSPLAT = _valu("vsplat", 46, "d:vd s:ss", "d = sreg s in every lane", calls("splat"))
VLANE = _valu("vlane", 47, "d:vd", "d = lane number 0..127", calls("lane_index"))
VSUBLANE = _valu("vsublane", 48, "d:vd", "d = sublane number 0..7", calls("sublane_index"))

VCMP: dict[tuple[str, str], Row] = {
    (predicate, dtype): _valu(
        f"vcmp.{predicate}.{dtype}", opcode, "d:md a:vs b:vs",
        f"mask d = a {predicate} b as {dtype}", compares(predicate, dtype),
    )
    for opcode, (dtype, predicate) in enumerate(COMPARES, 49)
}  # fmt: skip
"""Compares by (predicate, dtype); floats ordered, but ne is true when either side is NaN."""

VSEL = _valu("vsel", 67, "d:vd m:ms a:vs b:vs", "d = a where mask m, else b", calls("select"))
MAND = _valu("mand", 68, "d:md a:ms b:ms", "mask d = a and b", calls("mand"))
MOR = _valu("mor", 69, "d:md a:ms b:ms", "mask d = a or b", calls("mor"))
MXOR = _valu("mxor", 70, "d:md a:ms b:ms", "mask d = a xor b", calls("mxor"))
MNOT = _valu("mnot", 71, "d:md a:ms", "mask d = not a", calls("mnot"))
MMOVI = _valu(
    "mmovi", 72, "d:md k:imm", "mask d = k (0 or 1) in every lane", lambda m, k: m.mconst(bool(k))
)


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


def _bytes(m: Any, a: Any, b: Any, c: Any, e: Any) -> Any:
    low = m.ior(m.iand(a, m.const_i(0xFF)), m.shl(m.iand(b, m.const_i(0xFF)), m.const_i(8)))
    high = m.ior(m.iand(c, m.const_i(0xFF)), m.shl(m.iand(e, m.const_i(0xFF)), m.const_i(8)))
    return m.ior(low, m.shl(high, m.const_i(16)))


VPACK_BF16 = _valu(
    "vpack.bf16", 73, _AB,
    "d = word of bf16(a) low, bf16(b) high; f32 to bf16 RNE, a NaN that must lose bits quiet",
    lambda m, a, b: m.ior(m.lshr(bf16_bits(m, a), m.const_i(16)), bf16_bits(m, b)),
)  # fmt: skip
VUNPACK_LO = _valu(
    "vunpack.lo.bf16", 74, _A, "d = f32 of the low bf16 of each word",
    lambda m, a: m.shl(a, m.const_i(16)),
)  # fmt: skip
VUNPACK_HI = _valu(
    "vunpack.hi.bf16", 75, _A, "d = f32 of the high bf16 of each word",
    lambda m, a: m.iand(a, m.const_i(-65536)),
)  # fmt: skip
VPACK_H16 = _valu(
    "vpack.h16", 76, _AB, "d = low half-words: a low, b high",
    lambda m, a, b: m.ior(m.iand(a, m.const_i(0xFFFF)), m.shl(b, m.const_i(16))),
)  # fmt: skip
VPACK_B8 = _valu(
    "vpack.b8", 77, "d:vd a:vs b:vs c:vs e:vs", "d = low bytes of a, b, c, e, a lowest", _bytes
)
