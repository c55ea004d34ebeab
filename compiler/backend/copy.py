"""Copy kernels: between buffers, between HBM and SMEM, between dimension orders."""

from __future__ import annotations

from compiler.analysis.kernel_vmem import held_rows
from compiler.analysis.tiled_layout import default_layout
from compiler.backend.box_transfer import start_whole
from compiler.backend.kernel import InPlace, lower_fusion
from compiler.backend.kernel_calls import Argument, BufferPlace, Rows, kernel_interface
from compiler.backend.kernel_options import KernelTarget
from compiler.backend.scalar_words import words_to_smem, words_to_vmem
from compiler.backend.transfer import hbm_tiling
from compiler.backend.vector.arrays import whole_array
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import PRED
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import LloKernel, SReg
from tpu_sim.isa.program import HBM, SMEM, DmaDescriptor

_LEAST_SHARE = 512
"""Granules: a core copies a quarter of a MiB in a few times what it takes to know that all are through."""


def lower_copy(
    name: str, copy: HloInstruction, in_place: InPlace, rows: Rows, kernel_target: KernelTarget
) -> LloKernel:
    """The kernel of a `copy` of one array."""
    source, target = copy.operands[0].array, copy.array
    if source.minor_to_major != target.minor_to_major:
        return lower_fusion(name, _transposing_fusion(copy), in_place, rows, kernel_target)
    builder = LloBuilder(name, kernel_target.chip)
    builder.source = copy.name
    builder.note = f"{copy.name} copy"
    interface = kernel_interface(copy, rows)
    builder.arg_count = interface.count
    (operand,), (result,) = interface.operands, interface.results
    if BufferPlace.VMEM in (operand.place, result.place):
        return _between_memories(builder, operand, result)
    flag = builder.flag()
    source_address = builder.argument(operand.index)
    target_address = builder.argument(result.index)
    if operand.place is BufferPlace.SMEM:
        if not source.dims:  # the argument word holds the value itself
            source_address = builder.sconst(operand.index)
        descriptor = DmaDescriptor(SMEM, HBM, source.element_count)
    elif result.place is BufferPlace.SMEM:
        descriptor = DmaDescriptor(HBM, SMEM, source.element_count)
    else:
        granules = hbm_tiling(_physical(source)).total_granules
        granules, first = _share(builder, granules)
        source_address = builder.sadd(source_address, first)
        target_address = builder.sadd(target_address, first)
        descriptor = DmaDescriptor(HBM, HBM, granules)
    number = builder.descriptor(descriptor)
    builder.emit("dma.start", number, source_address, target_address, flag, 0, 0, 0)
    builder.emit("dma.wait", flag, 0)
    if result.place is BufferPlace.SMEM and source.dtype == PRED:
        builder.new_block()
        word = builder.emit("sld", target_address, 0)
        builder.emit("sst", target_address, 0, builder.sandi(word, 0xFF))
    return builder.finish()


def _share(builder: LloBuilder, granules: int) -> tuple[int, SReg]:
    """How many granules each core of the device copies, and the first of those of the core that runs."""
    cores = builder.chip.cores_per_device
    if cores == 1 or granules % cores or granules < cores * _LEAST_SHARE:
        return granules, 0
    builder.cores = cores
    share = granules // cores
    return share, builder.smuli(builder.emit("score"), share)


def _between_memories(builder: LloBuilder, operand: Argument, result: Argument) -> LloKernel:
    """An array from HBM to where it stays in VMEM, or back, or to another place there."""
    is_in = result.place is BufferPlace.VMEM
    inside, outside = (result, operand) if is_in else (operand, result)
    rows = held_rows(inside.shape, inside.shape.dims)
    window = builder.window_at(inside.row, "kept", rows)
    if outside.place is BufferPlace.SMEM:
        if not inside.shape.dims:
            raise UnsupportedError(f"kernel {builder.name}: a copy of a scalar in VMEM to SMEM")
        words = builder.argument(outside.index)
        move = words_to_vmem if is_in else words_to_smem
        move(builder, window, words, inside.shape.element_count)
        return builder.finish()
    if outside.place is BufferPlace.VMEM:
        return _within_vmem(builder, builder.window_at(outside.row, "source", rows), window, result)
    flag = builder.flag()
    address = builder.argument(outside.index)
    start_whole(builder, inside.shape, address, window, flag, to_vmem=is_in)
    builder.emit("dma.wait", flag, 0)
    return builder.finish()


def _within_vmem(builder: LloBuilder, source: int, target: int, result: Argument) -> LloKernel:
    """The registers of one window to another that is arranged alike."""
    physical = _physical(result.shape)
    node = HloInstruction("parameter", "source", physical.with_layout(None), ())
    arrays = [whole_array(node.array, window) for window in (source, target)]
    VectorEmitter(builder, {node: arrays[0]}, {}, {}).emit_stage([node], [arrays[1]])
    return builder.finish()


def _physical(shape: ArrayShape) -> ArrayShape:
    """The array whose descending layout is this one's bytes."""
    dims = tuple(shape.dims[d] for d in reversed(shape.minor_to_major))
    physical = ArrayShape(shape.dtype, dims)
    return physical.with_layout(default_layout(physical))


def _transposing_fusion(copy: HloInstruction) -> HloInstruction:
    """A fusion that transposes the source's bytes, seen in descending order, to the target's."""
    source, target = copy.operands[0].array, copy.array
    source_order = tuple(reversed(source.minor_to_major))
    target_order = tuple(reversed(target.minor_to_major))
    permutation = tuple(source_order.index(d) for d in target_order)
    operand_shape, result_shape = _physical(source), _physical(target)
    called = HloComputation(f"{copy.name}.transposed")
    attrs: dict[str, object] = {"parameter_number": 0}
    parameter = called.add(HloInstruction("parameter", "source", operand_shape, (), attrs))
    root = HloInstruction(
        "transpose", copy.name, result_shape, (parameter,), {"dimensions": permutation}
    )
    called.root = called.add(root)
    operand = HloInstruction("parameter", "source", operand_shape, (), attrs)
    fusion_attrs: dict[str, object] = {"kind": "kLoop", "calls": called}
    fusion = HloInstruction("fusion", copy.name, result_shape, (operand,), fusion_attrs)
    fusion.location = copy.location
    return fusion
