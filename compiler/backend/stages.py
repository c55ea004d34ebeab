"""The compute stages of a grid step, in the order of the plan (`compiler.kernels.plan`).

What a stage leaves in scratch or in a window is bound as a leaf for the stages after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from functools import partial
from itertools import takewhile

from compiler.analysis.boxes import is_row_reduction
from compiler.analysis.fusion_body import FusionBody
from compiler.analysis.indexing import Expr
from compiler.analysis.indexing_boxes import Box
from compiler.analysis.indexing_maps import PIECEWISE
from compiler.analysis.row_chain import leaves_behind
from compiler.backend.clear import emit_clear
from compiler.backend.dot_operands import DotEmitter
from compiler.backend.grid_loop import StepContext
from compiler.backend.joint_reduces import reduced_together
from compiler.backend.vector.arrays import VmemArray, allocate
from compiler.backend.vector.chain_stage import Chain, ChainRows
from compiler.backend.vector.reduce_plan import ReducedBox
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
        done: Sequence[Stage] = []
        for number, stage in enumerate(stages):
            if any(stage is other for other in done):
                continue
            match stage:
                case ReduceStage():
                    done = self._reduce(stage, stages[number + 1 :], emitter, context)
                case StoredStage():
                    self._stored(stage, emitter)
                case MatmulStage():
                    done = self._matmul(stage, stages[number + 1 :], emitter, context)
                case ChainStage():
                    self._chain(stage, emitter, context)
                case RootStage():
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

    def _reduce(
        self,
        stage: ReduceStage,
        later: Sequence[Stage],
        emitter: VectorEmitter,
        context: StepContext,
    ) -> list[ReduceStage]:
        """A reduce with those that follow and go over the same; one that the grid cuts adds to what
        earlier steps left. All that were done."""
        self.builder.source = stage.node.name
        following = takewhile(lambda s: isinstance(s, ReduceStage), later)
        others = [other.node for other in following if isinstance(other, ReduceStage)]
        emitter.bind_starts([o for node in (stage.node, *others) for o in node.operands])
        stages = reduced_together(emitter, stage, later, partial(self._box, context), self._part)
        for one in stages:
            if not one.is_cut and not is_row_reduction(one.node):  # rows that pad a window's tiles
                for target in one.targets:
                    if not isinstance(target, Scratch):
                        emit_clear(self.builder, context.outputs[target])
        targets = [[self._target(target, context) for target in one.targets] for one in stages]
        nodes, later_step = [one.node for one in stages], None
        if stage.is_cut:
            later_step = self._started(context)
            with self.builder.if_(self.builder.scmp("eq", "s32", later_step, 0)):
                for array in itertools.chain(*targets):
                    emit_clear(self.builder, array)
        emitter.emit_reduce_stage(nodes, targets, reduced=self._part(stage), accumulate=later_step)
        for one, arrays in zip(stages, targets, strict=True):
            emitter.bindings.update(zip(one.results, arrays, strict=True))
        self.builder.new_block()
        return stages

    def _box(self, context: StepContext, stage: ReduceStage) -> Box:
        """The box of a reduce's results that a step makes."""
        target = stage.targets[0]
        if isinstance(target, Scratch):
            return Box(target.low, target.extent)
        window = context.outputs[target]
        return Box(window.origin, window.extent)

    def _part(self, stage: ReduceStage) -> ReducedBox | None:
        """The step's part of what is reduced; None: all of it."""
        return _cut(stage.node, self.kernel.windows.depths[stage.node]) if stage.is_cut else None

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
    ) -> list[Stage]:
        """A dot, and what can be computed on the way of the stages that come later; these stages."""
        self.builder.source = stage.node.name
        if later and isinstance(later[0], ChainStage) and self._reads_alone(stage.node, later[0]):
            self._matmul_and_chain(stage, later[0], emitter, context)
            return [later[0]]
        roots = self.kernel.body.roots
        waiting = sorted(i for other in later for i in other.outputs)
        pairs = [(roots[i], context.outputs[i]) for i in waiting]
        out = None if isinstance(stage.target, Scratch) else context.outputs[stage.target]
        emit = DotEmitter(self.builder, self.kernel, stage).emit
        array, is_fused = emit(emitter, context, out, pairs if out is None else [])
        emitter.bindings[stage.node] = array
        self.builder.new_block()
        return list(later) if is_fused else []

    def _reads_alone(self, dot: HloInstruction, chain: ChainStage) -> bool:
        """Whether nothing but a chain reads a dot."""
        body = self.kernel.body
        others = [o for n in body.materialised if n not in chain.members for o in n.operands]
        others += [root for i, root in enumerate(body.roots) if i not in chain.outputs]
        return dot not in leaves_behind(others, body.leaves)

    def _matmul_and_chain(
        self,
        stage: MatmulStage,
        later: ChainStage,
        emitter: VectorEmitter,
        context: StepContext,
    ) -> None:
        """A dot that a chain of rows alone reads: in one stream where whole rows come out of it."""
        chain = self._chain_of(later, context)
        emit = DotEmitter(self.builder, self.kernel, stage).emit
        array, is_fused = emit(emitter, context, None, [], chain)
        emitter.bindings[stage.node] = array
        self.builder.new_block()
        if is_fused:
            self._bind_chain(chain, emitter)
        else:
            self._run_chain(chain, emitter)

    def _chain(self, stage: ChainStage, emitter: VectorEmitter, context: StepContext) -> None:
        """A row chain."""
        self._run_chain(self._chain_of(stage, context), emitter)

    def _chain_of(self, stage: ChainStage, context: StepContext) -> Chain:
        roots = self.kernel.body.roots
        left = [
            None if target is None else allocate(self.builder, target) for target in stage.targets
        ]
        return Chain(
            ChainRows(stage.low, stage.extent, stage.cols, stage.packing),
            tuple(zip(stage.members, left, strict=True)),
            tuple((roots[i], context.outputs[i]) for i in stage.outputs),
        )

    def _run_chain(self, chain: Chain, emitter: VectorEmitter) -> None:
        self.builder.source = chain.nodes[0].name
        emitter.emit_chain_stage(chain)
        self._bind_chain(chain, emitter)
        self.builder.new_block()

    def _bind_chain(self, chain: Chain, emitter: VectorEmitter) -> None:
        """What a chain leaves is bound for later stages."""
        emitter.bindings.update((n, array) for n, array in chain.members if array is not None)

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
