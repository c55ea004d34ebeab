"""The scalar unit: 32-bit registers, SMEM. s0 always reads 0; writing it is a fault.

A meaning here gets and returns scalar values through `tpu_sim.isa.semantics.Lanes` primitives of
the same names: the machines apply them to one element. Compares give 0 or 1. A NaN that float
arithmetic gives here is 0x7FC00000: control flow must not depend on the host's NaN.
"""

from __future__ import annotations

from typing import Any

from tpu_sim.isa.instruction import Crossing, Row, Slot, define, effect, meaning
from tpu_sim.isa.resources import SMEM
from tpu_sim.isa.rows.mxu import CANONICAL_NAN


def _scalar(name: str, opcode: int, spec: str, doc: str, latency: str = "scalar") -> Row:
    return define(name, opcode, Slot.SCALAR, spec, latency, doc)


def _int_op(name: str, opcode: int, primitive: str, doc: str, latency: str = "scalar") -> Row:
    row = _scalar(name, opcode, "d:sd a:ss b:ss", doc, latency)

    @meaning(row)
    def _(m: Any, a: Any, b: Any) -> Any:
        return getattr(m, primitive)(a, b)

    return row


def _int_immediate(name: str, opcode: int, primitive: str, doc: str) -> Row:
    row = _scalar(name, opcode, "d:sd a:ss k:i32", doc)

    @meaning(row)
    def _(m: Any, a: Any, k: int) -> Any:
        return getattr(m, primitive)(a, m.const_i(k))

    return row


def _float_op(
    name: str, opcode: int, primitive: str, doc: str, latency: str = "scalar_float"
) -> Row:
    row = _scalar(name, opcode, "d:sd a:ss b:ss", doc, latency)

    @meaning(row)
    def _(m: Any, a: Any, b: Any) -> Any:
        result = getattr(m, primitive)(m.as_f(a), m.as_f(b))
        is_nan = m.fcmp("ne", result, result)
        return m.select(is_nan, m.const_i(CANONICAL_NAN), m.as_i(result))

    return row


SMOVI = _scalar("smovi", 1, "d:sd k:i32", "d = k")
SMOV = _scalar("smov", 2, "d:sd a:ss", "d = a")


@meaning(SMOVI)
def _(m: Any, k: int) -> Any:
    return m.const_i(k)


@meaning(SMOV)
def _(_m: Any, a: Any) -> Any:
    return a


SADD = _int_op("sadd.s32", 3, "iadd", "d = a + b, wrapping")
SSUB = _int_op("ssub.s32", 4, "isub", "d = a - b, wrapping")
SMUL = _int_op("smul.s32", 5, "imul", "d = low 32 bits of a * b", "scalar_mul")
SDIV_S32 = _int_op("sdiv.s32", 6, "idiv_s", "d = a / b toward zero; x/0 = -1", "scalar_div")
SREM_S32 = _int_op("srem.s32", 7, "irem_s", "d = remainder, sign of a; x%0 = x", "scalar_div")
SDIV_U32 = _int_op("sdiv.u32", 8, "idiv_u", "d = unsigned a / b; x/0 = all ones", "scalar_div")
SREM_U32 = _int_op("srem.u32", 9, "irem_u", "d = unsigned a % b; x%0 = x", "scalar_div")
SAND = _int_op("sand", 10, "iand", "d = a & b")
SOR = _int_op("sor", 11, "ior", "d = a | b")
SXOR = _int_op("sxor", 12, "ixor", "d = a ^ b")
SSHL = _int_op("sshl", 13, "shl", "d = a << b; 0 when b is not in 0..31")
SSHR = _int_op("sshr", 14, "lshr", "d = a >> b, logical; 0 when b is not in 0..31")
SSRA = _int_op("ssra", 15, "ashr", "d = a >> b, arithmetic; the sign when b is not in 0..31")
SMIN_S32 = _int_op("smin.s32", 16, "imin_s", "d = signed minimum")
SMAX_S32 = _int_op("smax.s32", 17, "imax_s", "d = signed maximum")
SMIN_U32 = _int_op("smin.u32", 18, "imin_u", "d = unsigned minimum")
SMAX_U32 = _int_op("smax.u32", 19, "imax_u", "d = unsigned maximum")
SADDI = _int_immediate("saddi.s32", 20, "iadd", "d = a + k, wrapping")
SMULI = _int_immediate("smuli.s32", 21, "imul", "d = low 32 bits of a * k")
SANDI = _int_immediate("sandi", 22, "iand", "d = a & k")
SXORI = _int_immediate("sxori", 23, "ixor", "d = a ^ k")
SSHLI = _int_immediate("sshli", 24, "shl", "d = a << k")
SSHRI = _int_immediate("sshri", 25, "lshr", "d = a >> k, logical")
SSRAI = _int_immediate("ssrai", 26, "ashr", "d = a >> k, arithmetic")
SDIVI_U32 = _int_immediate("sdivi.u32", 27, "idiv_u", "d = unsigned a / k")
SREMI_U32 = _int_immediate("sremi.u32", 28, "irem_u", "d = unsigned a % k")

SADD_F32 = _float_op("sadd.f32", 29, "fadd", "d = a + b")
SSUB_F32 = _float_op("ssub.f32", 30, "fsub", "d = a - b")
SMUL_F32 = _float_op("smul.f32", 31, "fmul", "d = a * b")
SDIV_F32 = _float_op("sdiv.f32", 32, "fdiv", "d = a / b", "scalar_div")
SMAX_F32 = _float_op("smax.f32", 33, "fmaximum", "d = IEEE maximum")
SMIN_F32 = _float_op("smin.f32", 34, "fminimum", "d = IEEE minimum")


def _compare(name: str, opcode: int, primitive: str, predicate: str, doc: str) -> Row:
    row = _scalar(name, opcode, "d:sd a:ss b:ss", doc)

    @meaning(row)
    def _(m: Any, a: Any, b: Any) -> Any:
        if primitive == "fcmp":
            flag = m.fcmp(predicate, m.as_f(a), m.as_f(b))
        else:
            flag = getattr(m, primitive)(predicate, a, b)
        return m.select(flag, m.const_i(1), m.const_i(0))

    return row


SCMP: dict[tuple[str, str], Row] = {
    (predicate, dtype): _compare(
        f"scmp.{predicate}.{dtype}",
        first + number,
        primitive,
        predicate,
        f"d = 1 if a {predicate} b as {dtype}, else 0",
    )
    for dtype, first, primitive in (
        ("f32", 35, "fcmp"),
        ("s32", 41, "icmp_s"),
        ("u32", 47, "icmp_u"),
    )
    for number, predicate in enumerate(("eq", "ne", "lt", "le", "gt", "ge"))
}
"""Scalar compares by (predicate, dtype)."""

SSEL = _scalar("ssel", 53, "d:sd c:ss a:ss b:ss", "d = a if c != 0 else b")
SCVT_F32_S32 = _scalar("scvt.f32.s32", 54, "d:sd a:ss", "d = f32 of signed a", "scalar_float")
SCVT_F32_U32 = _scalar("scvt.f32.u32", 55, "d:sd a:ss", "d = f32 of unsigned a", "scalar_float")
SCVT_S32_F32 = _scalar(
    "scvt.s32.f32", 56, "d:sd a:ss", "d = s32 of f32 a, saturating", "scalar_float"
)
SCVT_U32_F32 = _scalar(
    "scvt.u32.f32", 57, "d:sd a:ss", "d = u32 of f32 a, saturating", "scalar_float"
)


@meaning(SSEL)
def _(m: Any, c: Any, a: Any, b: Any) -> Any:
    return m.select(m.icmp_s("ne", c, m.const_i(0)), a, b)


@meaning(SCVT_F32_S32)
def _(m: Any, a: Any) -> Any:
    return m.as_i(m.s_to_f(a))


@meaning(SCVT_F32_U32)
def _(m: Any, a: Any) -> Any:
    return m.as_i(m.u_to_f(a))


@meaning(SCVT_S32_F32)
def _(m: Any, a: Any) -> Any:
    return m.f_to_s(m.as_f(a))


@meaning(SCVT_U32_F32)
def _(m: Any, a: Any) -> Any:
    return m.f_to_u(m.as_f(a))


SLD = define(
    "sld", 58, Slot.SCALAR, "d:sd a:ss k:i32", "scalar_load", "d = SMEM word a + k",
    crossing=Crossing.STATE, uses=(SMEM,),
)  # fmt: skip
SST = define(
    "sst", 59, Slot.SCALAR, "a:ss k:i32 b:ss", "scalar", "SMEM word a + k = b",
    crossing=Crossing.STATE, defines=(SMEM,),
)  # fmt: skip


@effect(SLD)
def _(core: Any, a: Any, k: int) -> Any:
    return core.load_smem(a, k)


@effect(SST)
def _(core: Any, a: Any, k: int, b: Any) -> Any:
    return core.store_smem(a, k, b)
