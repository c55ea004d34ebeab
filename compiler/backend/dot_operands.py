"""The dot of a kOutput fusion: operands made ready, batch after batch through the MXU.

An operand that is a bf16 window, whole along K, goes to the MXU as it lies. Any other is prepared
by a vector stage into packed bf16 scratch: converted, moved by its index map, zero beyond K, and
split into parts for the higher precisions; operands of 8-bit integers are prepared as pairs along K.
What was prepared stays while the grid does not move it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from compiler.analysis.boxes import is_rhs_transposed
from compiler.analysis.indexing_boxes import Box
from compiler.backend.clear import emit_clear
from compiler.backend.dot import emit_matmul_stage
from compiler.backend.fused_epilogue import fused_chain, fused_epilogue
from compiler.backend.grid_loop import StepContext
from compiler.backend.vector.arrays import VmemArray, allocate
from compiler.backend.vector.chain_stage import Chain
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.dtypes import U8
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.kernels.plan import KernelPlan, MatmulStage, Scratch
from compiler.kernels.preparation import bf16_parts, integer_pairs
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg


class DotEmitter:
    """Emits one matmul stage of a step."""

    def __init__(self, builder: LloBuilder, kernel: KernelPlan, stage: MatmulStage) -> None:
        self.builder = builder
        self.plan = kernel.windows
        self.parts = kernel.parts
        self.stage = stage
        self.dot = stage.node

    def emit(
        self,
        emitter: VectorEmitter,
        context: StepContext,
        target: VmemArray | None,
        roots: Sequence[tuple[HloInstruction, VmemArray]],
        chain: Chain | None = None,
    ) -> tuple[VmemArray, bool]:
        """Compute the step's box into `target` (an output window), or into the planned scratch.

        Returns where it lies. Roots that are elementwise in the dot are computed along the way if all
        are and K is not split, or a chain of rows; True then.
        """
        lhs, rhs = (self._operand(number, emitter, context) for number in range(2))
        if target is None:
            assert isinstance(self.stage.target, Scratch)
            target = allocate(self.builder, self.stage.target)
        later = self._later(context)
        if later >= 0:
            b = self.builder
            with b.if_(b.scmp("eq", "s32", later, 0)):
                emit_clear(b, target)
        if chain is None:
            epilogue = fused_epilogue(emitter, self.dot, roots, target)
        else:
            epilogue = fused_chain(emitter, self.dot, chain, target)
        is_done = emit_matmul_stage(
            self.builder,
            self.builder.chip,
            lhs,
            rhs,
            is_rhs_transposed(self.dot),
            target,
            accumulate_when=later,
            epilogue=epilogue,
            integer=self.parts.integer,
        )
        return target, is_done

    def _later(self, context: StepContext) -> SReg:
        """Not 0 on the steps that add to the sum of earlier ones; -1 if the grid does not cut K."""
        if not self.stage.is_split:
            return -1
        pairs = zip(self.plan.grid, context.counters, strict=True)
        (counter,) = (c for d, c in pairs if not d.parallel)
        return counter

    def _operand(
        self, number: int, emitter: VectorEmitter, context: StepContext
    ) -> list[VmemArray]:
        """The operand's bf16 parts in VMEM."""
        operand = self.stage.operands[number]
        if not operand.parts:
            return [emitter.bindings[self.dot.operands[number]]]
        targets = [allocate(self.builder, part) for part in operand.parts]
        moved = self._when_moved(context, operand.box)
        with moved, self._nodes(number, len(targets), emitter) as nodes:
            emitter.emit_stage(nodes, targets, zero_fill=True)
        self.builder.new_block()
        return targets

    @contextmanager
    def _nodes(
        self, number: int, part_count: int, emitter: VectorEmitter
    ) -> Iterator[list[HloInstruction]]:
        """What is computed of an operand: its bf16 parts, or pairs of its integers.

        Bytes that lie in VMEM are taken for unsigned, which saves extending their signs.
        """
        node = self.dot.operands[number]
        if not self.parts.integer:
            with bf16_parts(node, part_count) as parts:
                yield parts
            return
        (axis,) = self.dot.ints(f"{'rhs' if number else 'lhs'}_contracting_dims")
        bound = emitter.bindings.get(node)
        if bound is not None:
            shape = bound.shape.with_dtype(U8)
            node = HloInstruction("parameter", node.name, ArrayShape(U8, node.array.dims), (), {})
            emitter.bindings[node] = replace(bound, shape=shape)
        with integer_pairs(node, axis) as pairs:
            yield [pairs]
        if bound is not None:
            del emitter.bindings[node]

    @contextmanager
    def _when_moved(self, context: StepContext, box: Box) -> Iterator[None]:
        """Run the body only on the steps that the operand's box was moved to."""
        b = self.builder
        moving = self.plan.moving_dims(box.low)
        last = moving[-1] if moving else -1
        inner = [
            passed
            for i, (dim, passed) in enumerate(zip(self.plan.grid, context.passed, strict=True))
            if i > last and dim.steps > 1
        ]
        if not inner:
            yield
            return
        total = inner[0]
        for counter in inner[1:]:
            total = b.sor(total, counter)
        with b.if_(b.scmp("eq", "s32", total, 0)):
            yield
