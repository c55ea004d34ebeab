"""Which shape an instruction has, given its opcode, operands and attributes.

Every opcode has one rule, in its declaration in `compiler.hlo.ops`. A rule raises CompileError when the
operands do not fit the opcode. Results carry no layout: layouts are assigned, not inferred.
Where nothing but the declared shape says what comes out (parameter, custom-call), the rule
returns the declared shape.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.ops.inference import Inference
from compiler.hlo.shape import ArrayShape, Shape, TupleShape


def infer_shape(
    opcode: str,
    operands: Sequence[HloInstruction | Shape],
    attrs: dict[str, object] | None = None,
    declared: Shape | None = None,
) -> Shape:
    """Return the result shape, without layouts; raises CompileError when nothing fits.

    `declared` supplies what operands and attributes leave open: the dtype of a convert or a
    dot, the dimensions of a broadcast, reshape or iota, the whole shape of a custom-call.
    """
    info = OPCODES.get(opcode)
    if info is None:
        raise CompileError(f"unknown opcode `{opcode}`")
    if not info.accepts(len(operands)):
        raise CompileError(f"{opcode} takes {info.arity_text()}, found {len(operands)}")
    shapes = [o.shape if isinstance(o, HloInstruction) else o for o in operands]
    shape = info.infer(Inference(opcode, tuple(shapes), attrs or {}, declared))
    return without_layout(shape)


def takes(opcode: str, dtype: DType) -> bool:
    """Whether an elementwise opcode's operands may all be arrays of that type."""
    try:
        infer_shape(opcode, [ArrayShape(dtype, ())] * OPCODES[opcode].arity)
    except CompileError:
        return False
    return True


def infer_instruction_shape(instr: HloInstruction) -> Shape:
    """`infer_shape` of an existing instruction, its own shape being the declared one."""
    return infer_shape(instr.opcode, instr.operands, instr.attrs, instr.shape)


def without_layout(shape: Shape) -> Shape:
    """The same shape with no layout at any level."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(without_layout(element) for element in shape.elements))
    if isinstance(shape, ArrayShape) and shape.layout is not None:
        return shape.with_layout(None)
    return shape
