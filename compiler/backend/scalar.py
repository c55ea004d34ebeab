"""Rank-0 HLO on the scalar unit: each node becomes an sreg holding raw 32-bit values.

f32                 its bits
s32 u32 s16 u8 ..   the value, sign- or zero-extended to 32 bits
pred                0 or 1
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.analysis.scalar_unit import SAME_VALUE, binary_row, is_scalar_operation
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import F32, PRED, DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder, f32_bits
from compiler.llo.ir import SReg


class ScalarEmitter:
    """Emits rank-0 nodes into `builder`; `values` holds the nodes known so far (parameters first)."""

    def __init__(self, builder: LloBuilder, values: dict[HloInstruction, SReg]) -> None:
        self.builder = builder
        self.values = values

    def emit(self, node: HloInstruction) -> SReg:
        """The sreg with the value of `node`, emitting what it needs."""
        found = self.values.get(node)
        if found is not None:
            return found
        for operand in node.operands:
            if isinstance(operand.shape, ArrayShape):
                self.emit(operand)
        if not is_scalar_operation(node) or OPCODES[node.opcode].has(Trait.CARRIES):
            raise UnsupportedError(
                f"%{node.name} ({node.opcode}): the scalar unit cannot compute this; "
                "compute it as an array of one element",
                node.span,
            )
        value = self.values[node] = self._emit(node, [self.values[o] for o in node.operands])
        return value

    def _emit(self, node: HloInstruction, operands: list[SReg]) -> SReg:
        b = self.builder
        dtype = node.array.dtype
        if node.opcode in SAME_VALUE:
            return operands[0]
        special = _SPECIAL.get(node.opcode)
        if special is not None:
            return special(b, node, operands)
        row = binary_row(node.opcode, dtype)
        assert row is not None
        if dtype == F32:
            return b.emit(row, *operands)
        return _wrap(b, b.sbinary(row, *operands), dtype)


def _wrap(b: LloBuilder, value: SReg, dtype: DType) -> SReg:
    """Extend the low bits of a narrow integer to 32."""
    if dtype.bits == 32 or dtype == PRED:
        return value
    shift = 32 - dtype.bits
    raised = b.sshli(value, shift)
    return b.ssrai(raised, shift) if dtype.is_signed else b.sshri(raised, shift)


def _constant(b: LloBuilder, node: HloInstruction, _: list[SReg]) -> SReg:
    literal = node.literal
    dtype = node.array.dtype
    value = literal.reshape(-1)[0]
    return b.sconst(f32_bits(float(value)) if dtype == F32 else int(value))


def _compare(b: LloBuilder, node: HloInstruction, operands: list[SReg]) -> SReg:
    dtype = node.operands[0].array.dtype
    direction = node.direction.lower()
    kind = "f32" if dtype == F32 else "s32" if dtype.is_signed or dtype == PRED else "u32"
    if node.is_total_order and dtype == F32:
        operands = [_total_order_key(b, x) for x in operands]
        kind = "s32"
    return b.scmp(direction, kind, operands[0], operands[1])


def _total_order_key(b: LloBuilder, bits: SReg) -> SReg:
    """A signed integer that orders as the f32 does: the magnitude bits of negatives flipped."""
    sign = b.ssrai(bits, 31)
    return b.sxor(bits, b.sshri(sign, 1))


def _select(b: LloBuilder, _: HloInstruction, operands: list[SReg]) -> SReg:
    return b.ssel(operands[0], operands[1], operands[2])


def _clamp(b: LloBuilder, node: HloInstruction, operands: list[SReg]) -> SReg:
    low, value, high = operands
    upper = binary_row("maximum", node.array.dtype)
    lower = binary_row("minimum", node.array.dtype)
    assert upper is not None and lower is not None
    return b.emit(lower, b.emit(upper, value, low), high)


def _negate(b: LloBuilder, node: HloInstruction, operands: list[SReg]) -> SReg:
    if node.array.dtype == F32:
        return b.sxori(operands[0], -(2**31))
    return _wrap(b, b.ssub(0, operands[0]), node.array.dtype)


def _abs(b: LloBuilder, node: HloInstruction, operands: list[SReg]) -> SReg:
    dtype = node.array.dtype
    if dtype == F32:
        return b.sandi(operands[0], 0x7FFFFFFF)
    if not dtype.is_signed:
        return operands[0]
    return _wrap(b, b.smax(operands[0], b.ssub(0, operands[0])), dtype)


def _not(b: LloBuilder, node: HloInstruction, operands: list[SReg]) -> SReg:
    dtype = node.array.dtype
    return _wrap(b, b.sxori(operands[0], 1 if dtype == PRED else -1), dtype)


def _sign(b: LloBuilder, node: HloInstruction, operands: list[SReg]) -> SReg:
    dtype = node.array.dtype
    x = operands[0]
    if dtype == F32:
        one = b.sconst(f32_bits(1.0))
        signed_one = b.sor(one, b.sandi(x, -(2**31)))
        is_other = b.emit("scmp.eq.f32", x, 0)  # zeros keep their sign
        is_nan = b.emit("scmp.ne.f32", x, x)
        return b.ssel(b.sor(is_other, is_nan), x, signed_one)
    if not dtype.is_signed:
        return b.scmp("ne", "u32", x, 0)
    return b.ssub(b.scmp("gt", "s32", x, 0), b.scmp("lt", "s32", x, 0))


def _convert(b: LloBuilder, node: HloInstruction, operands: list[SReg]) -> SReg:
    source, target = node.operands[0].array.dtype, node.array.dtype
    x = operands[0]
    if source == target:
        return x
    if target == PRED:
        return b.scmp("ne", "f32", x, 0) if source == F32 else b.scmp("ne", "s32", x, 0)
    if source == F32:
        value = b.emit("scvt.s32.f32" if target.is_signed else "scvt.u32.f32", x)
        return _saturate(b, value, target)
    if target == F32:
        return b.emit("scvt.f32.s32" if source.is_signed or source == PRED else "scvt.f32.u32", x)
    return _wrap(b, x, target)


def _saturate(b: LloBuilder, value: SReg, dtype: DType) -> SReg:
    if dtype.bits == 32:
        return value
    largest = (1 << (dtype.bits - dtype.is_signed)) - 1
    high = b.sconst(largest)
    if dtype.is_signed:
        return b.smin(b.smax(value, b.sconst(-largest - 1)), high)
    return b.sbinary("smin.u32", value, high)


def _bitcast_convert(_: LloBuilder, __: HloInstruction, operands: list[SReg]) -> SReg:
    return operands[0]


def _is_finite(b: LloBuilder, _: HloInstruction, operands: list[SReg]) -> SReg:
    magnitude = b.sandi(operands[0], 0x7FFFFFFF)
    return b.scmp("lt", "s32", magnitude, b.sconst(0x7F800000))


_SPECIAL: dict[str, Callable[[LloBuilder, HloInstruction, list[SReg]], SReg]] = {
    "constant": _constant,
    "compare": _compare,
    "select": _select,
    "clamp": _clamp,
    "negate": _negate,
    "abs": _abs,
    "not": _not,
    "sign": _sign,
    "convert": _convert,
    "bitcast-convert": _bitcast_convert,
    "is-finite": _is_finite,
}
