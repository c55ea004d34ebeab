"""The kernels of an exchange that is split in two: its start and its done."""

from __future__ import annotations

from compiler.analysis.async_flags import exchange_flag, phases, start_of
from compiler.analysis.fusion_body import fusion_body
from compiler.backend.custom import CustomKernel
from compiler.backend.exchange.gather import emit_gather_phase
from compiler.backend.exchange.kernels import emit_all_to_all_phase
from compiler.backend.exchange.permute import emit_done, emit_start
from compiler.backend.exchange.plan import FIRST_ASYNC_FLAG
from compiler.backend.exchange.reduce import emit_reduce_phase
from compiler.backend.kernel import InPlace
from compiler.backend.kernel_calls import Rows, kernel_interface
from compiler.backend.kernel_options import KernelTarget
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import Shape, TupleShape
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import LloKernel

_PHASES = {
    "all-gather": emit_gather_phase,
    "all-to-all": emit_all_to_all_phase,
    "reduce-scatter": emit_reduce_phase,
}


def lower_start(
    name: str, start: HloInstruction, in_place: InPlace, rows: Rows, target: KernelTarget
) -> LloKernel:
    """The kernel that begins an exchange of arrays in HBM."""
    builder = _builder(name, start, target)
    builder.arg_count = kernel_interface(start).count
    emit_start(_kernel(builder, start, target), start)
    return builder.finish()


def lower_done(
    name: str, done: HloInstruction, in_place: InPlace, rows: Rows, target: KernelTarget
) -> LloKernel:
    """The kernel that waits for what an exchange brings."""
    builder = _builder(name, done, target)
    emit_done(builder, done)
    return builder.finish()


def lower_phase(
    name: str, half: HloInstruction, in_place: InPlace, rows: Rows, target: KernelTarget
) -> LloKernel:
    """The kernel of a start, update or done of an all-gather, reduce-scatter or all-to-all."""
    builder = _builder(name, half, target)
    builder.arg_count = kernel_interface(half).count
    first = FIRST_ASYNC_FLAG + exchange_flag(half)
    start = start_of(half)
    emit = _PHASES[start.calls.root_instruction.opcode]
    emit(_kernel(builder, start, target), first, *phases(half))
    return builder.finish()


def _builder(name: str, half: HloInstruction, target: KernelTarget) -> LloBuilder:
    builder = LloBuilder(name, target.chip)
    builder.source = half.name
    builder.note = f"{half.name} {half.opcode}"
    return builder


def _kernel(builder: LloBuilder, start: HloInstruction, target: KernelTarget) -> CustomKernel:
    """What an emitter gets of an exchange; its places are arguments as the start's."""
    fusion = whole_exchange(start)
    return CustomKernel(
        builder,
        target.chip,
        fusion,
        fusion_body(fusion),
        fusion.calls.root_instruction,
        kernel_interface(start),
        (),
        target.smem,
        target.exchange,
    )


def whole_exchange(start: HloInstruction) -> HloInstruction:
    """A fusion of the exchange that a start begins, of parameters of its own."""
    assert isinstance(start.shape, TupleShape)
    shape = start.shape.elements[1]
    given = [
        HloInstruction("parameter", o.name, o.shape, (), {"parameter_number": number})
        for number, o in enumerate(start.operands)
    ]
    called = start.attrs.get("calls") or _called(start, shape)
    attrs: dict[str, object] = {"kind": "kCustom", "calls": called}
    fusion = HloInstruction("fusion", start.name, shape, given, attrs)
    fusion.location = start.location
    return fusion


def _called(start: HloInstruction, shape: Shape) -> HloComputation:
    """A computation of the operation whose start is an opcode of its own."""
    called = HloComputation(f"{start.name}.whole")
    made = [
        called.add(HloInstruction("parameter", o.name, o.shape, (), {"parameter_number": number}))
        for number, o in enumerate(start.operands)
    ]
    opcode = start.opcode.removesuffix("-start")
    root = HloInstruction(opcode, start.name, shape, made, dict(start.attrs))
    root.location = start.location
    called.root = called.add(root)
    return called
