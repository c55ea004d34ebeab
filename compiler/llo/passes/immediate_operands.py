"""`immediate-operands`: a constant that an operation can hold itself is not kept in a vreg for it.

    vmovi v1 = 13
    vshl v2 = v0, v1            ->          vshli v2 = v0, 13

Constants are written once a block and read all over it. In a long body they would take most of the
register file, and with it what lets several tiles be under way at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.llo.ir import LloKernel
from compiler.llo.walk import blocks
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Instr, Row
from tpu_sim.isa.rows import valu

_CONSTANT = valu.VMOVI
_SIGN = 0x80000000
_INFINITY = 0x7F800000
_WORD = 1 << 32

_EITHER: Mapping[str, Row] = {
    "vadd.f32": valu.VADDI_F32,
    "vmul.f32": valu.VMULI_F32,
    "vmax.f32": valu.VMAXI_F32,
    "vmin.f32": valu.VMINI_F32,
    "vadd.s32": valu.VADDI_S32,
    "vmul.s32": valu.VMULI_S32,
    "vand": valu.VANDI,
    "vor": valu.VORI,
    "vxor": valu.VXORI,
}
"""a op b == b op a: either operand may be the constant."""
_LAST: Mapping[str, Row] = {
    "vfma.f32": valu.VFMAI_F32,
    "vsub.f32": valu.VADDI_F32,
    "vsub.s32": valu.VADDI_S32,
    "vshl": valu.VSHLI,
    "vshr": valu.VSHRI,
    "vsra": valu.VSRAI,
}
"""The last operand may be it; what is subtracted is added with its sign changed."""
_SHIFTS = frozenset({"vshl", "vshr", "vsra"})


def hold_constants(kernel: LloKernel, chip: Chip) -> bool:
    """Let operations hold their constants; those stay where they were made, for who is left."""
    is_changed = False
    for block in blocks(kernel.body):
        constants: dict[int, int] = {}
        ops: list[Instr] = []
        for instr in block.ops:
            if instr.row is _CONSTANT:
                constants[instr.operands[0]] = instr.operands[1]
            found = _with_constant(instr, constants) if constants else None
            is_changed |= found is not None
            ops.append(found or instr)
        block.ops = ops
    return is_changed


def _with_constant(instr: Instr, constants: Mapping[int, int]) -> Instr | None:
    """The operation with one of its operands as part of it; None where none can be."""
    name, operands = instr.row.name, instr.operands
    if name in _EITHER:
        result, a, b = operands
        if b not in constants:
            a, b = b, a
        k = constants.get(b)
        if k is None or (name.endswith("f32") and _is_nan(k)):
            return None
        return Instr(_EITHER[name], (result, a, k), instr.source)
    if name in _LAST:
        k = constants.get(operands[-1])
        k = None if k is None else _last(name, k)
        return None if k is None else Instr(_LAST[name], (*operands[:-1], k), instr.source)
    return None


def _last(name: str, k: int) -> int | None:
    """The constant that stands for the last operand `k`."""
    if name.endswith("f32") and _is_nan(k):
        return None
    if name == "vsub.f32":
        return _signed(k ^ _SIGN)
    if name == "vsub.s32":
        return _signed(-k)
    return k if name not in _SHIFTS or 0 <= k < 32 else None


def _is_nan(bits: int) -> bool:
    """Of two NaNs the first operand is taken, and operands change places."""
    return bits & (_SIGN - 1) > _INFINITY


def _signed(bits: int) -> int:
    """A word as a signed number."""
    bits %= _WORD
    return bits - _WORD if bits & _SIGN else bits
