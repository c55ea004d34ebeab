"""From a fusion to the LLO of its kernel.

kLoop, kInput, kOutput   a grid of windows (`grid_loop`) around stages (`stages`)
kCustom                  an emitter of its own, by the root's opcode
copy                     a fusion of one copy (or transpose, where dimension orders differ)
"""

from __future__ import annotations

from dataclasses import replace

from compiler.analysis.fusion_body import FusionBody, fusion_body
from compiler.analysis.vmem_scope import scoped_chip
from compiler.analysis.window_planner import WindowPlanner
from compiler.backend.custom import CustomEmitter, CustomKernel
from compiler.backend.custom_table import CUSTOM_EMITTERS
from compiler.backend.grid_loop import GridLoop
from compiler.backend.kernel_calls import KernelInterface, Rows, kernel_interface, no_kernel
from compiler.backend.kernel_options import KernelTarget
from compiler.backend.scalar_bindings import bind_scalars
from compiler.backend.stages import StageEmitter
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction
from compiler.kernels.printer import grid_text
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import LloKernel

InPlace = tuple[tuple[int, int], ...]
"""Pairs (result leaf, operand leaf) that lie in one HBM range."""


def lower_fusion(
    name: str, fusion: HloInstruction, in_place: InPlace, rows: Rows, target: KernelTarget
) -> LloKernel:
    """The LLO of a fusion's kernel."""
    target = replace(target, chip=scoped_chip(target.chip, fusion))
    builder = LloBuilder(name, target.chip)
    builder.source = fusion.name
    interface = kernel_interface(fusion, rows)
    builder.arg_count = interface.count
    kind = fusion.kind
    root = fusion.calls.root_instruction
    builder.note = f"{fusion.name} {kind} {root.opcode}"
    try:
        if kind == "kCustom":
            kernel = CustomKernel(
                builder,
                target.chip,
                fusion,
                fusion_body(fusion),
                root,
                interface,
                in_place,
                target.smem,
                target.exchange,
                target.options,
            )
            _custom_emitter(fusion, root)(kernel)
        else:
            GridKernel(builder, fusion, interface, target).emit()
    except CompileError as error:
        if error.span is None and fusion.span is not None:
            raise type(error)(f"{error.message} (in %{fusion.name})", fusion.span) from error
        raise
    return builder.finish()


def _custom_emitter(fusion: HloInstruction, root: HloInstruction) -> CustomEmitter:
    found = CUSTOM_EMITTERS.get(root.opcode)
    if found is None:
        raise no_kernel(root, fusion)
    return found


class GridKernel:
    """One kernel of windows and stages."""

    def __init__(
        self,
        builder: LloBuilder,
        fusion: HloInstruction,
        interface: KernelInterface,
        target: KernelTarget,
    ) -> None:
        self.builder = builder
        self.fusion = fusion
        self.interface = interface
        self.kernel = WindowPlanner(target.chip, target.options.precision).kernel(fusion)

    def emit(self) -> None:
        """Emit everything."""
        b, body, plan = self.builder, self.kernel.body, self.kernel.windows
        scalars, starts = bind_scalars(b, body, self.interface.operands)
        numbers = {p: i for i, p in enumerate(body.parameters)}
        input_arguments = [self.interface.operands[numbers[w.node]] for w in plan.inputs]
        results = self.interface.results[: len(body.roots)]
        brought = self.interface.results[len(body.roots) :]
        sources = [self.interface.operands[numbers[p]] for p in body.carried]
        carried = list(zip(sources, brought, strict=True))
        cores = plan.cores(b.chip)
        grid = GridLoop(b, plan, input_arguments, results, starts, cores=cores, carried=carried)
        grid.emit(StageEmitter(b, self.kernel, scalars).emit)
        b.flops = dot_flops(body)
        b.note += f" grid {grid_text(plan)}"


def dot_flops(body: FusionBody) -> int:
    """Multiply-adds of the fusion's dot, counted twice."""
    if body.dot is None:
        return 0
    return 2 * body.dot.array.element_count * body.dot.operands[0].array.dims[-1]
