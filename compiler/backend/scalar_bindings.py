"""The scalars that a kernel's stages and windows refer to, in sregs from its start."""

from __future__ import annotations

from compiler.analysis.fusion_body import FusionBody
from compiler.analysis.indexing import Var
from compiler.analysis.indexing_maps import start_operand, start_variable
from compiler.backend.index_scalars import emit_clamp
from compiler.backend.kernel_calls import Argument, BufferPlace
from compiler.backend.scalar import ScalarEmitter
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg


def bind_scalars(
    builder: LloBuilder, body: FusionBody, operands: tuple[Argument, ...]
) -> tuple[dict[HloInstruction, SReg], dict[Var, SReg]]:
    """Values of SMEM operands and of dynamic start indices; the start variables' sregs."""
    scalars: dict[HloInstruction, SReg] = {}
    for parameter, argument in zip(body.parameters, operands, strict=True):
        if argument.place is BufferPlace.SMEM:
            scalars[parameter] = builder.argument(argument.index)
    return scalars, bind_starts(builder, body, scalars)


def bind_starts(
    builder: LloBuilder, body: FusionBody, scalars: dict[HloInstruction, SReg]
) -> dict[Var, SReg]:
    """The start variables' sregs; what starts are computed from joins `scalars`."""
    emitter = ScalarEmitter(builder, dict(scalars))
    starts: dict[Var, SReg] = {}
    for node in body.computation:
        if not OPCODES[node.opcode].has(Trait.BOX):
            continue
        for dim in range(node.operands[0].array.rank):
            variable = start_variable(node, dim)
            operand = start_operand(variable)
            value = scalars[operand] = emitter.emit(operand)
            starts[variable] = emit_clamp(builder, value, variable.low, variable.high)
    return starts
