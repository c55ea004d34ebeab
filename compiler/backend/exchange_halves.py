"""The kernels of an exchange that is split in two: its start and its done."""

from __future__ import annotations

from compiler.analysis.fusion_body import fusion_body
from compiler.backend.custom import CustomKernel
from compiler.backend.exchange.permute import emit_done, emit_start
from compiler.backend.kernel import InPlace
from compiler.backend.kernel_calls import Rows, kernel_interface
from compiler.backend.kernel_options import KernelTarget
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import TupleShape
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import LloKernel


def lower_start(
    name: str, start: HloInstruction, in_place: InPlace, rows: Rows, target: KernelTarget
) -> LloKernel:
    """The kernel that begins an exchange of arrays in HBM."""
    builder = _builder(name, start, target)
    interface = kernel_interface(start)
    builder.arg_count = interface.count
    fusion = whole_exchange(start)
    root = fusion.calls.root_instruction
    kernel = CustomKernel(
        builder,
        target.chip,
        fusion,
        fusion_body(fusion),
        root,
        interface,
        (),
        target.smem,
        target.exchange,
    )
    emit_start(kernel, start)
    return builder.finish()


def lower_done(
    name: str, done: HloInstruction, in_place: InPlace, rows: Rows, target: KernelTarget
) -> LloKernel:
    """The kernel that waits for what an exchange brings."""
    builder = _builder(name, done, target)
    emit_done(builder, done)
    return builder.finish()


def _builder(name: str, half: HloInstruction, target: KernelTarget) -> LloBuilder:
    builder = LloBuilder(name, target.chip)
    builder.source = half.name
    builder.note = f"{half.name} {half.opcode}"
    return builder


def whole_exchange(start: HloInstruction) -> HloInstruction:
    """A fusion of the exchange that a start begins, of parameters of its own."""
    called = HloComputation(f"{start.name}.whole")
    made, given = [], []
    for number, operand in enumerate(start.operands):
        attrs: dict[str, object] = {"parameter_number": number}
        made.append(called.add(HloInstruction("parameter", operand.name, operand.shape, (), attrs)))
        given.append(HloInstruction("parameter", operand.name, operand.shape, (), attrs))
    assert isinstance(start.shape, TupleShape)
    shape = start.shape.elements[1]
    opcode = start.opcode.removesuffix("-start")
    root = HloInstruction(opcode, start.name, shape, made, dict(start.attrs))
    root.location = start.location
    called.root = called.add(root)
    fusion_attrs: dict[str, object] = {"kind": "kCustom", "calls": called}
    fusion = HloInstruction("fusion", start.name, shape, given, fusion_attrs)
    fusion.location = start.location
    return fusion
