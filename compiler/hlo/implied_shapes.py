"""Shapes that a text need not give, or that XLA makes itself whatever the text says."""

from __future__ import annotations

from dataclasses import replace

from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import U32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import (
    ArrayShape,
    Layout,
    Shape,
    TokenShape,
    TupleShape,
    is_compatible,
)
from compiler.hlo.shape_inference import infer_shape


def inferred_shape(instr: HloInstruction, attrs: dict[str, object]) -> Shape:
    """The result's shape where the text leaves it out; `attrs` has computations, not names.

    Raises CompileError when operands and attributes do not tell.
    """
    operands = instr.operands
    if instr.opcode == "tuple":
        return TupleShape(tuple(operand.shape for operand in operands))
    shape = infer_shape(instr.opcode, operands, attrs)
    if instr.opcode == "get-tuple-element" and isinstance(operands[0].shape, TupleShape):
        index = attrs.get("index")
        if not isinstance(index, int):
            raise CompileError("get-tuple-element: want attribute index=<number>")
        return operands[0].shape.elements[index]
    return _with_operand_layout(shape, instr)


def _with_operand_layout(shape: Shape, instr: HloInstruction) -> Shape:
    """An inferred shape keeps the layout of the operand where XLA's inference does."""
    source = 1 if instr.opcode in ("select", "clamp") else 0
    operand = instr.operands[source].shape if instr.operands else None
    if instr.opcode == "reduce-window" and isinstance(shape, ArrayShape):
        return replace(shape, dtype=instr.operands[1].array.dtype)
    if not isinstance(operand, ArrayShape) or not isinstance(shape, ArrayShape):
        return shape if operand is None or not is_compatible(shape, operand) else operand
    if instr.opcode == "transpose":
        dimensions = instr.attrs.get("dimensions", ())
        assert isinstance(dimensions, tuple)
        order = tuple(dimensions.index(d) for d in operand.minor_to_major)
        return shape.with_layout(Layout(order))
    return shape.with_layout(operand.layout) if shape.dims == operand.dims else shape


def transfer_shape(instr: HloInstruction) -> Shape:
    """What XLA gives to send, recv, their done halves and outfeed: context and token included."""
    operand = instr.operands[0].shape if instr.operands else None
    context = (ArrayShape(U32, ()), TokenShape())
    if instr.opcode in ("send-done", "outfeed"):
        return TokenShape()
    if instr.opcode == "send" and operand is not None:
        return TupleShape((operand, *context))
    if instr.opcode == "recv" and isinstance(instr.shape, TupleShape) and instr.shape.elements:
        return TupleShape((instr.shape.elements[0], *context))
    if instr.opcode == "recv-done" and isinstance(operand, TupleShape) and operand.elements:
        return TupleShape((operand.elements[0], TokenShape()))
    return instr.shape
