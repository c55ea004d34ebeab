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

from compiler.analysis.boxes import dot_operand_boxes, is_rhs_transposed
from compiler.analysis.dot_parts import DotParts
from compiler.analysis.indexing_boxes import Box
from compiler.analysis.kernel_vmem import is_fed, prepared_form
from compiler.analysis.windows import WindowPlan
from compiler.backend.bf16_parts import bf16_parts
from compiler.backend.clear import emit_clear
from compiler.backend.dot import emit_matmul_stage
from compiler.backend.fused_epilogue import fused_epilogue
from compiler.backend.integer_pairs import integer_pairs
from compiler.backend.pipeline import StepContext
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray, buffer_rows
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.dtypes import F32, S32, U8
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.chips import Chip


class DotStage:
    """Emits one dot of a step."""

    def __init__(
        self,
        builder: LloBuilder,
        chip: Chip,
        plan: WindowPlan,
        dot: HloInstruction,
        parts: DotParts,
    ) -> None:
        self.builder = builder
        self.chip = chip
        self.plan = plan
        self.dot = dot
        self.parts = parts
        self.is_transposed = is_rhs_transposed(dot)

    def emit(
        self,
        emitter: VectorEmitter,
        context: StepContext,
        target: VmemArray | None,
        roots: Sequence[tuple[HloInstruction, VmemArray]] = (),
    ) -> tuple[VmemArray, bool]:
        """Compute the step's box into `target` (f32), or into scratch; returns where it lies.

        Roots that are elementwise in the dot are computed along the way if all are; True then.
        """
        box = self.plan.boxes[self.dot]
        boxes = dot_operand_boxes(self.dot, box, self.plan.depths.get(self.dot))
        lhs = self._operand(0, boxes[0], self.parts.lhs, emitter, context)
        rhs = self._operand(1, boxes[1], self.parts.rhs, emitter, context)
        out = target if target is not None else self._scratch(box)
        later = self._later(context)
        if later >= 0:
            b = self.builder
            with b.if_(b.scmp("eq", "s32", later, 0)):
                emit_clear(b, out)
        epilogue = fused_epilogue(emitter, self.dot, roots, out)
        emit_matmul_stage(
            self.builder,
            self.chip,
            lhs,
            rhs,
            self.is_transposed,
            out,
            accumulate_when=later,
            epilogue=epilogue,
            integer=self.parts.integer,
        )
        return out, epilogue is not None

    def _later(self, context: StepContext) -> SReg:
        """Not 0 on the steps that add to the sum of earlier ones; -1 if the grid does not cut K."""
        if self.dot not in self.plan.depths:
            return -1
        pairs = zip(self.plan.grid, context.counters, strict=True)
        (counter,) = (c for d, c in pairs if not d.parallel)
        return counter

    def _scratch(self, box: Box) -> VmemArray:
        shape = ArrayShape(S32 if self.parts.integer else F32, self.dot.array.dims)
        window = self.builder.window(f"scratch.{self.dot.name}", buffer_rows(shape, box.extent))
        return VmemArray(shape, window, 0, box.low, box.extent, guard=GUARD_ROWS)

    def _operand(
        self,
        number: int,
        box: Box,
        part_count: int,
        emitter: VectorEmitter,
        context: StepContext,
    ) -> list[VmemArray]:
        """The operand's bf16 parts in VMEM."""
        node = self.dot.operands[number]
        bound = emitter.bindings.get(node)
        if bound is not None and bound.is_dense and part_count == 1:
            held = Box(bound.origin, bound.extent)
            if is_fed(self.dot, number, bound.shape, held, box):
                return [bound]
        shape, held = prepared_form(self.dot, number, self.parts, box)
        targets = [self._prepared(node, shape, held, i) for i in range(part_count)]
        with self._when_moved(context, box), self._nodes(number, part_count, emitter) as nodes:
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

    def _prepared(self, node: HloInstruction, shape: ArrayShape, box: Box, part: int) -> VmemArray:
        """Scratch for one part of an operand."""
        rows = buffer_rows(shape, box.extent)
        window = self.builder.window(f"bf16.{part}.{node.name}", rows)
        return VmemArray(shape, window, 0, box.low, box.extent, guard=GUARD_ROWS)

    @contextmanager
    def _when_moved(self, context: StepContext, box: Box) -> Iterator[None]:
        """Run the body only on the steps that the operand's box was moved to."""
        b = self.builder
        moving = self.plan.moving_dims(box.low)
        last = moving[-1] if moving else -1
        inner = [
            counter
            for i, (dim, counter) in enumerate(zip(self.plan.grid, context.counters, strict=True))
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
