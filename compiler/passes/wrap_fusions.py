"""Wrap fusions: every operation still outside a fusion gets one of its own.

After this pass the program's control flow consists of fusions, bitcasts, copies and control
flow alone. A reshape that moves no bytes becomes a `bitcast`; an optimization barrier has done
its work by now and goes.
"""

from __future__ import annotations

from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import control_computations, drop_unreachable
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, OpaqueShape, TokenShape
from compiler.hlo.verifier import SCHEDULED_OPCODES
from compiler.passes.context import PassContext
from compiler.passes.fusion_planner import is_row_reduce
from compiler.passes.fusion_roles import (
    is_free_reshape,
    is_index_or_elementwise,
    is_scalar_constant,
)
from compiler.rewrite.graph import emit, replace


def wrap_fusions(module: HloModule, context: PassContext) -> bool:
    """Wrap what is left in every computation of the control flow."""
    for computation in control_computations(module):
        for instr in list(computation):
            if instr.opcode in SCHEDULED_OPCODES:
                continue
            if instr.opcode == "opt-barrier":
                replace(instr, instr.operands[0])
                context.counts["opt-barrier"] += 1
            elif is_free_reshape(instr):
                replace(instr, emit(instr, "bitcast", instr.shape, instr.operands))
                context.counts["bitcast"] += 1
            else:
                _wrap(computation, instr)
                context.counts[instr.opcode] += 1
        computation.sort()
    drop_unreachable(module)
    return bool(context.counts)


def _wrap(computation: HloComputation, instr: HloInstruction) -> None:
    if isinstance(instr.shape, TokenShape | OpaqueShape) or OPCODES[instr.opcode].has(Trait.ASYNC):
        raise UnsupportedError(
            f"%{instr.name}: {instr.opcode} (tokens and asynchronous operations) does not run on "
            "the device; compile the synchronous form",
            instr.span,
        )
    fused = HloComputation("fused_computation")
    operands: list[HloInstruction] = []
    made: dict[HloInstruction, HloInstruction] = {}
    inside: list[HloInstruction] = []
    kind = fusion_kind(instr)
    for operand in instr.operands:
        if operand in made and kind != "kCustom":  # whose kernels give each operand its own window
            continue
        if is_scalar_constant(operand):
            inner = HloInstruction("constant", operand.name, operand.shape, (), dict(operand.attrs))
        else:
            attrs: dict[str, object] = {"parameter_number": len(operands)}
            inner = HloInstruction("parameter", f"param_{len(operands)}", operand.shape, (), attrs)
            operands.append(operand)
        made[operand] = fused.add(inner)
        inside.append(made[operand])
    parts = inside if kind == "kCustom" else [made[o] for o in instr.operands]
    root = HloInstruction(instr.opcode, instr.name, instr.shape, parts, dict(instr.attrs))
    root.location = instr.location
    fused.root = fused.add(root)
    computation.owner.add_computation(fused)
    fusion = emit(instr, "fusion", instr.shape, operands, {"kind": kind, "calls": fused}, "fusion")
    instr.replace_all_uses_with(fusion)
    computation.remove(instr)


def fusion_kind(instr: HloInstruction) -> str:
    """The kind of a fusion that holds this one operation."""
    if instr.opcode == "dot":
        return "kOutput"
    if instr.opcode == "reduce":
        return "kLoop" if is_row_reduce(instr) else "kInput"
    is_loop = isinstance(instr.shape, ArrayShape) and is_index_or_elementwise(instr)
    return "kLoop" if is_loop else "kCustom"
