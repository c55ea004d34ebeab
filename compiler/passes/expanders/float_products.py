"""Products of floats in types that the MXU and the vector unit take: operands and sums of floats."""

from __future__ import annotations

from compiler.hlo.dtypes import BF16, F32, DType
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloInstruction
from compiler.rewrite.emitter import Emitter


def of_floats(instr: HloInstruction) -> HloInstruction | None:
    """A float product of floats that have a zero: what is padded or left out is filled with it.

    Products of floats that are declared as integers are summed as f32 and converted once.
    """
    types = [operand.array.dtype for operand in instr.operands[:2]]
    result = instr.array.dtype
    if result.is_complex or any(t.is_complex for t in types):
        return None
    if not result.is_float and not any(t.is_float for t in types):
        return None
    wide = result if result.is_float and result.bits > F32.bits else F32
    is_mixed = types[0].is_float != types[1].is_float

    def wanted(dtype: DType) -> DType:
        if is_mixed and not dtype.is_float:
            return wide
        return BF16 if identity("add", dtype) is None else dtype

    made = F32 if not result.is_float or identity("add", result) is None else result
    if [*types, result] == [*map(wanted, types), made]:
        return None
    e = Emitter.at(instr)
    sides = [e.cast(o, wanted(t)) for o, t in zip(instr.operands, types, strict=False)]
    operands = [*sides, *instr.operands[2:]]
    shape = instr.array.with_dtype(made)
    return e.cast(e.instruction(instr.opcode, operands, dict(instr.attrs), shape), result)
