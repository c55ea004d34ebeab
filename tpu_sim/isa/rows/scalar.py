"""The scalar unit: 32-bit registers, SMEM. s0 always reads 0; writing it is a fault.

A meaning here gets and returns scalar values through `tpu_sim.isa.semantics.Lanes` primitives of
the same names: the machines apply them to one element. Compares give 0 or 1. A NaN that float
arithmetic gives here is 0x7FC00000: control flow must not depend on the host's NaN.
"""

from __future__ import annotations

from tpu_sim.isa.instruction import Crossing, Does, Row, Slot, define
from tpu_sim.isa.resources import CORE_NUMBER, SMEM
from tpu_sim.isa.rows.mxu import canonical
from tpu_sim.isa.semantics import COMPARES, by_constant, calls, compares


def _scalar(
    name: str, opcode: int, spec: str, doc: str, does: Does, latency: str = "scalar"
) -> Row:
    return define(name, opcode, Slot.SCALAR, spec, latency, doc, does)


def _floats(primitive: str) -> Does:
    return lambda m, a, b: canonical(m, getattr(m, primitive)(m.as_f(a), m.as_f(b)))


def _flag(compare: Does) -> Does:
    return lambda m, a, b: m.select(compare(m, a, b), m.const_i(1), m.const_i(0))


_AB = "d:sd a:ss b:ss"
_AK = "d:sd a:ss k:i32"

SMOVI = _scalar("smovi", 1, "d:sd k:i32", "d = k", calls("const_i"))
SMOV = _scalar("smov", 2, "d:sd a:ss", "d = a", lambda _m, a: a)
SADD = _scalar("sadd.s32", 3, _AB, "d = a + b, wrapping", calls("iadd"))
SSUB = _scalar("ssub.s32", 4, _AB, "d = a - b, wrapping", calls("isub"))
SMUL = _scalar("smul.s32", 5, _AB, "d = low 32 bits of a * b", calls("imul"), "scalar_mul")
SDIV_S32 = _scalar(
    "sdiv.s32", 6, _AB, "d = a / b toward zero; x/0 = -1", calls("idiv_s"), "scalar_div"
)
SREM_S32 = _scalar(
    "srem.s32", 7, _AB, "d = remainder, sign of a; x%0 = x", calls("irem_s"), "scalar_div"
)
SDIV_U32 = _scalar(
    "sdiv.u32", 8, _AB, "d = unsigned a / b; x/0 = all ones", calls("idiv_u"), "scalar_div"
)
SREM_U32 = _scalar("srem.u32", 9, _AB, "d = unsigned a % b; x%0 = x", calls("irem_u"), "scalar_div")
SAND = _scalar("sand", 10, _AB, "d = a & b", calls("iand"))
SOR = _scalar("sor", 11, _AB, "d = a | b", calls("ior"))
SXOR = _scalar("sxor", 12, _AB, "d = a ^ b", calls("ixor"))
SSHL = _scalar("sshl", 13, _AB, "d = a << b; 0 when b is not in 0..31", calls("shl"))
SSHR = _scalar("sshr", 14, _AB, "d = a >> b, logical; 0 when b is not in 0..31", calls("lshr"))
SSRA = _scalar(
    "ssra", 15, _AB, "d = a >> b, arithmetic; the sign when b is not in 0..31", calls("ashr")
)
SMIN_S32 = _scalar("smin.s32", 16, _AB, "d = signed minimum", calls("imin_s"))
SMAX_S32 = _scalar("smax.s32", 17, _AB, "d = signed maximum", calls("imax_s"))
SMIN_U32 = _scalar("smin.u32", 18, _AB, "d = unsigned minimum", calls("imin_u"))
SMAX_U32 = _scalar("smax.u32", 19, _AB, "d = unsigned maximum", calls("imax_u"))
SADDI = _scalar("saddi.s32", 20, _AK, "d = a + k, wrapping", by_constant("iadd"))
SMULI = _scalar("smuli.s32", 21, _AK, "d = low 32 bits of a * k", by_constant("imul"))
SANDI = _scalar("sandi", 22, _AK, "d = a & k", by_constant("iand"))
SXORI = _scalar("sxori", 23, _AK, "d = a ^ k", by_constant("ixor"))
SSHLI = _scalar("sshli", 24, _AK, "d = a << k", by_constant("shl"))
SSHRI = _scalar("sshri", 25, _AK, "d = a >> k, logical", by_constant("lshr"))
SSRAI = _scalar("ssrai", 26, _AK, "d = a >> k, arithmetic", by_constant("ashr"))
SDIVI_U32 = _scalar("sdivi.u32", 27, _AK, "d = unsigned a / k", by_constant("idiv_u"))
SREMI_U32 = _scalar("sremi.u32", 28, _AK, "d = unsigned a % k", by_constant("irem_u"))

SADD_F32 = _scalar("sadd.f32", 29, _AB, "d = a + b", _floats("fadd"), "scalar_float")
SSUB_F32 = _scalar("ssub.f32", 30, _AB, "d = a - b", _floats("fsub"), "scalar_float")
SMUL_F32 = _scalar("smul.f32", 31, _AB, "d = a * b", _floats("fmul"), "scalar_float")
SDIV_F32 = _scalar("sdiv.f32", 32, _AB, "d = a / b", _floats("fdiv"), "scalar_div")
SMAX_F32 = _scalar("smax.f32", 33, _AB, "d = IEEE maximum", _floats("fmaximum"), "scalar_float")
SMIN_F32 = _scalar("smin.f32", 34, _AB, "d = IEEE minimum", _floats("fminimum"), "scalar_float")

SCMP: dict[tuple[str, str], Row] = {
    (predicate, dtype): _scalar(
        f"scmp.{predicate}.{dtype}", opcode, _AB, f"d = 1 if a {predicate} b as {dtype}, else 0",
        _flag(compares(predicate, dtype)),
    )
    for opcode, (dtype, predicate) in enumerate(COMPARES, 35)
}  # fmt: skip
"""Scalar compares by (predicate, dtype)."""

SSEL = _scalar(
    "ssel", 53, "d:sd c:ss a:ss b:ss", "d = a if c != 0 else b",
    lambda m, c, a, b: m.select(m.icmp_s("ne", c, m.const_i(0)), a, b),
)  # fmt: skip
SCVT_F32_S32 = _scalar(
    "scvt.f32.s32", 54, "d:sd a:ss", "d = f32 of signed a",
    lambda m, a: m.as_i(m.s_to_f(a)), "scalar_float",
)  # fmt: skip
SCVT_F32_U32 = _scalar(
    "scvt.f32.u32", 55, "d:sd a:ss", "d = f32 of unsigned a",
    lambda m, a: m.as_i(m.u_to_f(a)), "scalar_float",
)  # fmt: skip
SCVT_S32_F32 = _scalar(
    "scvt.s32.f32", 56, "d:sd a:ss", "d = s32 of f32 a, saturating",
    lambda m, a: m.f_to_s(m.as_f(a)), "scalar_float",
)  # fmt: skip
SCVT_U32_F32 = _scalar(
    "scvt.u32.f32", 57, "d:sd a:ss", "d = u32 of f32 a, saturating",
    lambda m, a: m.f_to_u(m.as_f(a)), "scalar_float",
)  # fmt: skip


SLD = define(
    "sld", 58, Slot.SCALAR, _AK, "scalar_load", "d = SMEM word a + k", calls("load_smem"),
    crossing=Crossing.STATE, uses=(SMEM,),
)  # fmt: skip
SCORE = define(
    "score", 60, Slot.SCALAR, "d:sd", "scalar", "d = number of the core in its device",
    calls("core_number"), crossing=Crossing.STATE, uses=(CORE_NUMBER,),
)  # fmt: skip
SST = define(
    "sst", 59, Slot.SCALAR, "a:ss k:i32 b:ss", "scalar", "SMEM word a + k = b", calls("store_smem"),
    crossing=Crossing.STATE, defines=(SMEM,),
)  # fmt: skip
