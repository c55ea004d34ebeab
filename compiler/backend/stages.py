"""The compute stages of a grid step, in the order of the plan (`compiler.kernels.plan`).

What a stage leaves in scratch or in a window is bound as a leaf for the stages after it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from compiler.analysis.boxes import is_row_reduction
from compiler.analysis.fusion_body import FusionBody
from compiler.analysis.indexing import Expr
from compiler.analysis.indexing_boxes import Box
from compiler.analysis.indexing_maps import PIECEWISE
from compiler.backend.clear import emit_clear
from compiler.backend.dot_operands import DotEmitter
from compiler.backend.grid_loop import StepContext
from compiler.backend.vector.arrays import VmemArray, allocate
from compiler.backend.vector.chain_stage import ChainRows
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction
from compiler.kernels.plan import (
    ChainStage,
    KernelPlan,
    MatmulStage,
    ReduceStage,
    RootStage,
    Scratch,
    Stage,
    StoredStage,
    Target,
)
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg


class StageEmitter:
    """Emits the stages of a kernel; `emit` is the grid loop's compute callback."""

    def __init__(
        self, builder: LloBuilder, kernel: KernelPlan, scalars: dict[HloInstruction, SReg]
    ) -> None:
        self.builder = builder
        self.kernel = kernel
        self.grid = kernel.windows.grid
        self.scalars = scalars

    def emit(self, context: StepContext) -> None:
        """Emit all stages of a step."""
        bindings = dict(
            zip([w.node for w in self.kernel.windows.inputs], context.inputs, strict=True)
        )
        emitter = VectorEmitter(self.builder, bindings, dict(context.sregs), self.scalars)
        emitter.unread = _unread(self.kernel.body, bindings.keys() | self.scalars.keys())
        first, *others = self.kernel.stages
        if isinstance(first, MatmulStage) and first.is_split:
            self._matmul(first, [], emitter, context)
            with self.builder.if_(self._is_last(context)):
                self._stages(others, emitter, context)
            return
        self._stages(self.kernel.stages, emitter, context)

    def _stages(
        self, stages: Sequence[Stage], emitter: VectorEmitter, context: StepContext
    ) -> None:
        is_fused = False
        for number, stage in enumerate(stages):
            match stage:
                case ReduceStage():
                    self._reduce(stage, emitter, context)
                case StoredStage():
                    self._stored(stage, emitter)
                case MatmulStage():
                    is_fused = self._matmul(stage, stages[number + 1 :], emitter, context)
                case ChainStage():
                    self._chain(stage, emitter, context)
                case RootStage() if not is_fused:
                    self._roots(stage, emitter, context)

    def _target(self, target: Target, context: StepContext) -> VmemArray:
        """The array that a result goes to; scratch is allocated."""
        if isinstance(target, Scratch):
            return allocate(self.builder, target)
        return context.outputs[target]

    def _is_last(self, context: StepContext) -> SReg:
        """1 on the steps that end a sum: every arbitrary dimension is at its last block."""
        b = self.builder
        result = b.sconst(1)
        for dim, counter in zip(self.grid, context.counters, strict=True):
            if not dim.parallel and dim.steps > 1:
                result = b.sand(result, b.scmp("eq", "s32", counter, b.sconst(dim.steps - 1)))
        return result

    def _reduce(self, stage: ReduceStage, emitter: VectorEmitter, context: StepContext) -> None:
        """A reduce; one that the grid cuts adds to what earlier steps left."""
        node = stage.node
        self.builder.source = node.name
        if not stage.is_cut and not is_row_reduction(node):  # rows that pad a window's tiles
            for target in stage.targets:
                if not isinstance(target, Scratch):
                    emit_clear(self.builder, context.outputs[target])
        targets = [self._target(target, context) for target in stage.targets]
        if stage.is_cut:
            reduced = _cut(node, self.kernel.windows.depths[node])
            later = self._started(context)
            with self.builder.if_(self.builder.scmp("eq", "s32", later, 0)):
                for array in targets:
                    emit_clear(self.builder, array)
            emitter.emit_reduce_stage([node], [targets], reduced=reduced, accumulate=later)
        else:
            emitter.emit_reduce_stage([node], [targets])
        emitter.bindings.update(zip(stage.results, targets, strict=True))
        self.builder.new_block()

    def _started(self, context: StepContext) -> SReg:
        """Not 0 on the steps that continue a sum: an arbitrary dimension is past its first block."""
        total = 0
        for dim, counter in zip(self.grid, context.counters, strict=True):
            if not dim.parallel and dim.steps > 1:
                total = self.builder.sor(total, counter)
        return total

    def _stored(self, stage: StoredStage, emitter: VectorEmitter) -> None:
        """An elementwise node that several stages read, into scratch."""
        target = allocate(self.builder, stage.target)
        self.builder.source = stage.node.name
        emitter.emit_stage([stage.node], [target])
        emitter.bindings[stage.node] = target
        self.builder.new_block()

    def _matmul(
        self,
        stage: MatmulStage,
        later: Sequence[Stage],
        emitter: VectorEmitter,
        context: StepContext,
    ) -> bool:
        """A dot; True if it has computed all roots on the way."""
        self.builder.source = stage.node.name
        roots = self.kernel.body.roots
        waiting = sorted(i for other in later for i in other.outputs)
        pairs = [(roots[i], context.outputs[i]) for i in waiting]
        out = None if isinstance(stage.target, Scratch) else context.outputs[stage.target]
        emit = DotEmitter(self.builder, self.kernel, stage).emit
        array, is_fused = emit(emitter, context, out, pairs if out is None else [])
        emitter.bindings[stage.node] = array
        self.builder.new_block()
        return is_fused

    def _chain(self, stage: ChainStage, emitter: VectorEmitter, context: StepContext) -> None:
        """A row chain; what it leaves is bound for later stages."""
        roots = self.kernel.body.roots
        left = [
            None if target is None else allocate(self.builder, target) for target in stage.targets
        ]
        members = list(zip(stage.members, left, strict=True))
        results = [(roots[i], context.outputs[i]) for i in stage.outputs]
        self.builder.source = stage.members[0].name
        rows = ChainRows(stage.low, stage.extent, stage.cols, stage.packing)
        emitter.emit_chain_stage(rows, members, results)
        emitter.bindings.update((node, array) for node, array in members if array is not None)
        self.builder.new_block()

    def _roots(self, stage: RootStage, emitter: VectorEmitter, context: StepContext) -> None:
        """Results with the same box together."""
        nodes = [self.kernel.body.roots[i] for i in stage.outputs]
        self.builder.source = nodes[0].name
        emitter.emit_stage(nodes, [context.outputs[i] for i in stage.outputs])
        self.builder.new_block()


def _cut(node: HloInstruction, depth: Box) -> tuple[tuple[Expr, int], ...]:
    """The step's part of each reduced dimension."""
    return tuple((depth.low[d], depth.extent[d]) for d in sorted(node.dimensions))


def _unread(body: FusionBody, held: Collection[HloInstruction]) -> frozenset[HloInstruction]:
    """Parameters that nothing holds, because no element of the results is one of theirs.

    That is possible only behind a pad, concatenate or update whose results come from its other
    operands. A parameter that is read whatever the index must be held: to take it for zero would
    be a wrong value.
    """
    unread = frozenset(body.parameters) - frozenset(held)
    pending, seen = list(body.roots), set(body.roots)
    while pending and unread:
        node = pending.pop()
        if node in held or node.opcode in PIECEWISE:
            continue
        if node in unread:
            raise CompileError(
                f"internal: %{node.name} is read by its kernel and has no window there", node.span
            )
        fresh = [o for o in node.operands if o not in seen]
        seen.update(fresh)
        pending += fresh
    return unread
