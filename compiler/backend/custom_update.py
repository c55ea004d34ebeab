"""dynamic-update-slice: the tiles that the update touches are read, merged and written back.

In place, nothing else of the operand moves. Where the result has a buffer of its own, the operand is
copied there first by one DMA.
"""

from __future__ import annotations

from dataclasses import replace

from compiler.analysis.dot_parts import DotParts
from compiler.analysis.window_search import plan_update
from compiler.backend.custom import CustomKernel
from compiler.backend.grid_loop import GridLoop
from compiler.backend.kernel_calls import Argument, BufferPlace
from compiler.backend.scalar_bindings import bind_scalars
from compiler.backend.stages import StageEmitter
from compiler.backend.transfer import hbm_tiling
from compiler.hlo.shape import leaves
from compiler.kernels.planning import kernel_plan
from tpu_sim.isa.program import HBM, DmaDescriptor


def emit_update(kernel: CustomKernel) -> None:
    """Emit the kernel of a dynamic-update-slice fusion."""
    operand = kernel.root.operands[0]
    plan = plan_update(kernel.fusion, kernel.body, kernel.chip)
    arguments = list(kernel.interface.operands)
    (result,) = kernel.interface.results
    if operand.opcode == "parameter":
        number = kernel.body.parameters.index(operand)
        stays = result.place is BufferPlace.VMEM  # where the operand does, by the rules of aliasing
        if not stays and (0, number) not in kernel.in_place:
            _copy_operand(kernel, arguments[number], result)
        arguments[number] = replace(arguments[number], index=result.index)
    b = kernel.builder
    scalars, starts = bind_scalars(b, kernel.body, kernel.interface.operands)
    numbers = {p: i for i, p in enumerate(kernel.body.parameters)}
    inputs = [arguments[numbers[window.node]] for window in plan.inputs]
    merges = any(
        window.node is operand for window in plan.inputs
    )  # into tiles that blocks may share
    cores = 1 if merges else plan.cores(kernel.chip)
    grid = GridLoop(b, plan, inputs, [result], starts, cores=cores)
    stages = StageEmitter(b, kernel_plan(kernel.body, plan, DotParts()), scalars)
    grid.emit(stages.emit)


def _copy_operand(kernel: CustomKernel, source: Argument, target: Argument) -> None:
    """Bring the operand to where the result lies."""
    b = kernel.builder
    (shape,) = leaves(kernel.fusion.shape)
    descriptor = b.descriptor(DmaDescriptor(HBM, HBM, hbm_tiling(shape).total_granules))
    flag = b.flag()
    addresses = b.argument(source.index), b.argument(target.index)
    b.emit("dma.start", descriptor, *addresses, flag, 0, 0, 0)
    b.emit("dma.wait", flag, 0)
    b.new_block()
