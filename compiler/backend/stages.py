"""The compute stages of a grid step, in order.

    reduce stages   row reductions into scratch; a kInput fusion's reduces into their windows
    dot stages      operands made ready in bf16 scratch where they are not, then the MXU
    root stages     everything else, from windows and scratch into the output windows

What a stage leaves in scratch is bound as a leaf for the stages after it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from compiler.analysis.boxes import is_row_reduction
from compiler.analysis.dot_parts import DotParts
from compiler.analysis.fusion_body import FusionBody
from compiler.analysis.indexing import Expr
from compiler.analysis.indexing_boxes import Box
from compiler.analysis.indexing_maps import PIECEWISE
from compiler.analysis.kernel_vmem import direct_output
from compiler.analysis.windows import WindowPlan
from compiler.backend.clear import emit_clear
from compiler.backend.dot_stage import DotStage
from compiler.backend.pipeline import StepContext
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray, buffer_rows
from compiler.backend.vector.reduce_stage import result_nodes
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import F32, S32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, leaves
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.chips import Chip


class StageEmitter:
    """Emits the stages of one fusion; `emit` is the pipeline's compute callback."""

    def __init__(
        self,
        builder: LloBuilder,
        chip: Chip,
        body: FusionBody,
        plan: WindowPlan,
        scalars: dict[HloInstruction, SReg],
        parts: DotParts,
    ) -> None:
        self.builder = builder
        self.chip = chip
        self.body = body
        self.plan = plan
        self.scalars = scalars
        self.parts = parts

    def emit(self, context: StepContext) -> None:
        """Emit all stages of a step."""
        bindings = {
            window.node: array
            for window, array in zip(self.plan.inputs, context.inputs, strict=True)
        }
        emitter = VectorEmitter(self.builder, bindings, dict(context.sregs), self.scalars)
        emitter.unread = _unread(self.body, bindings.keys() | self.scalars.keys())
        outputs = list(zip(self.body.roots, context.outputs, strict=True))
        done: set[int] = set()
        dot = self.body.dot
        if dot is not None and dot in self.plan.depths:
            self._dot(dot, emitter, context, outputs, done)
            with self.builder.if_(self._is_last(context)):
                self._rest(emitter, context, outputs, done)
            return
        self._rest(emitter, context, outputs, done)

    def _rest(
        self,
        emitter: VectorEmitter,
        context: StepContext,
        outputs: list[tuple[HloInstruction, VmemArray]],
        done: set[int],
    ) -> None:
        """All stages but a dot that is computed already."""
        for node in self.body.materialised:
            if node in emitter.bindings:
                continue
            if node.opcode == "reduce":
                self._reduce(node, emitter, context, outputs, done)
            elif node.opcode != "dot":
                self._stored(node, emitter)
            else:
                self._dot(node, emitter, context, outputs, done)
        self._roots(emitter, [pair for i, pair in enumerate(outputs) if i not in done])

    def _is_last(self, context: StepContext) -> SReg:
        """1 on the steps that end a sum: every arbitrary dimension is at its last block."""
        b = self.builder
        result = b.sconst(1)
        for dim, counter in zip(self.plan.grid, context.counters, strict=True):
            if not dim.parallel and dim.steps > 1:
                result = b.sand(result, b.scmp("eq", "s32", counter, b.sconst(dim.steps - 1)))
        return result

    def _reduce(
        self,
        node: HloInstruction,
        emitter: VectorEmitter,
        context: StepContext,
        outputs: list[tuple[HloInstruction, VmemArray]],
        done: set[int],
    ) -> None:
        """A reduce into its output windows if roots are all that reads it, else into scratch."""
        parts = result_nodes(node)
        direct = self._direct_targets(parts, outputs)
        self.builder.source = node.name
        is_cut = node in self.plan.depths and self._accumulating()
        if direct is not None and not (is_cut and not _takes_sums(node, direct)):
            done.update(index for index, _ in direct)
            targets = [array for _, array in direct]
            for target in targets:
                if not is_cut and not is_row_reduction(node):  # rows that pad its tiles
                    emit_clear(self.builder, target)
        elif is_cut:
            targets = self._all_sums(node, outputs)
        else:
            targets = [self._scratch(node, number) for number in range(len(parts))]
        if is_cut:
            reduced = self._cut(node, self.plan.depths[node])
            later = self._started(context)
            with self.builder.if_(self.builder.scmp("eq", "s32", later, 0)):
                for target in targets:
                    emit_clear(self.builder, target)
            emitter.emit_reduce_stage([node], [targets], reduced=reduced, accumulate=later)
        else:
            emitter.emit_reduce_stage([node], [targets])
        for part, target in zip(parts, targets, strict=True):
            if isinstance(part.shape, ArrayShape):
                emitter.bindings[part] = target
        self.builder.new_block()

    def _accumulating(self) -> bool:
        """Whether the grid cuts what is reduced."""
        return any(not d.parallel and d.steps > 1 for d in self.plan.grid)

    def _all_sums(
        self, node: HloInstruction, outputs: list[tuple[HloInstruction, VmemArray]]
    ) -> list[VmemArray]:
        """Scratch for the partial results of a cut reduce; what nothing takes is held as well."""
        parts = result_nodes(node)
        taken = [part for part in parts if part.users or any(r is part for r, _ in outputs)]
        direct = self._direct_targets(taken, outputs)
        if not direct:
            raise CompileError(
                f"internal: %{node.name}: a reduce cut by the grid is read in its fusion", node.span
            )
        return [self._sums(node, part, direct[0][1]) for part in parts]

    def _sums(self, reduce: HloInstruction, node: HloInstruction, output: VmemArray) -> VmemArray:
        """Scratch that holds partial results over grid steps, in the arrangement they come in."""
        dtype = F32 if node.array.dtype.is_float else S32
        shape = ArrayShape(dtype, node.array.dims)
        is_replicated = _reduces_columns(reduce) and shape.rank > 0
        rows = buffer_rows(shape, output.extent, replicated=is_replicated)
        window = self.builder.window(f"sums.{node.name}", rows)
        return VmemArray(shape, window, 0, output.origin, output.extent, is_replicated, GUARD_ROWS)

    def _direct_targets(
        self, parts: Sequence[HloInstruction], outputs: list[tuple[HloInstruction, VmemArray]]
    ) -> list[tuple[int, VmemArray]] | None:
        """The output windows of a reduce's results when each is a root that nothing else reads."""
        found: list[tuple[int, VmemArray]] = []
        for part in parts:
            places = [i for i, (root, _) in enumerate(outputs) if root is part]
            is_read = any(user.opcode != "tuple" for user in part.users)
            if len(places) != 1 or is_read:
                return None
            found.append((places[0], outputs[places[0]][1]))
        return found if all(array.is_dense for _, array in found) else None

    def _cut(self, node: HloInstruction, depth: Box) -> tuple[tuple[Expr, int], ...]:
        """The step's part of each reduced dimension."""
        return tuple((depth.low[d], depth.extent[d]) for d in sorted(node.dimensions))

    def _started(self, context: StepContext) -> SReg:
        """Not 0 on the steps that continue a sum: an arbitrary dimension is past its first block."""
        total = 0
        for dim, counter in zip(self.plan.grid, context.counters, strict=True):
            if not dim.parallel and dim.steps > 1:
                total = self.builder.sor(total, counter)
        return total

    def _scratch(self, reduce: HloInstruction, number: int) -> VmemArray:
        """Scratch memory for the step's box of result `number` of a reduce."""
        part = next(n for n in result_nodes(reduce) if n in self.plan.boxes)
        box = self.plan.boxes[part]
        shape = leaves(reduce.shape)[number]
        is_row = is_row_reduction(reduce) and shape.rank > 0
        rows = buffer_rows(shape, box.extent, replicated=is_row)
        window = self.builder.window(f"scratch.{reduce.name}", rows)
        return VmemArray(shape, window, 0, box.low, box.extent, replicated=is_row, guard=GUARD_ROWS)

    def _stored(self, node: HloInstruction, emitter: VectorEmitter) -> None:
        """An elementwise node that several stages read, into scratch."""
        box = self.plan.boxes[node]
        window = self.builder.window(f"scratch.{node.name}", buffer_rows(node.array, box.extent))
        target = VmemArray(node.array, window, 0, box.low, box.extent, guard=GUARD_ROWS)
        self.builder.source = node.name
        emitter.emit_stage([node], [target])
        emitter.bindings[node] = target
        self.builder.new_block()

    def _dot(
        self,
        node: HloInstruction,
        emitter: VectorEmitter,
        context: StepContext,
        outputs: list[tuple[HloInstruction, VmemArray]],
        done: set[int],
    ) -> None:
        self.builder.source = node.name
        direct = self._direct_targets([node], outputs)
        is_direct = direct_output(node, self.body, self.plan) is not None
        target = direct[0][1] if direct is not None and is_direct else None
        stage = DotStage(self.builder, self.chip, self.plan, node, self.parts)
        waiting = [pair for i, pair in enumerate(outputs) if i not in done]
        roots = waiting if target is None and node not in self.plan.depths else []
        emitter.bindings[node], is_fused = stage.emit(emitter, context, target, roots)
        if direct is not None and is_direct:
            done.add(direct[0][0])
        if is_fused:
            done.update(range(len(outputs)))
        self.builder.new_block()

    def _roots(
        self, emitter: VectorEmitter, outputs: list[tuple[HloInstruction, VmemArray]]
    ) -> None:
        """Root stages: results with the same box together."""
        groups: dict[tuple[object, ...], list[tuple[HloInstruction, VmemArray]]] = {}
        for node, array in outputs:
            key = (array.shape.dims, array.origin, array.extent)
            groups.setdefault(key, []).append((node, array))
        for group in groups.values():
            self.builder.source = group[0][0].name
            emitter.emit_stage([node for node, _ in group], [array for _, array in group])
            self.builder.new_block()


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


def _reduces_columns(node: HloInstruction) -> bool:
    reduce = node if node.opcode == "reduce" else node.operands[0]
    return reduce.operands[0].array.rank - 1 in reduce.dimensions


def _takes_sums(node: HloInstruction, direct: Sequence[tuple[int, VmemArray]]) -> bool:
    """Whether output windows have the arrangement that partial results come in."""
    is_replicated = _reduces_columns(node)
    return all(
        array.packing == 1 and (not is_replicated or array.shape.rank == 0) for _, array in direct
    )
