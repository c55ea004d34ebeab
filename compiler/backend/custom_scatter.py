"""scatter: updates combined, one after another, into an operand at places that are data.

    resident                                    streamed
    for each block of the operand:              copy the operand to the result, unless it is there
        copy it into the result's window        for each chunk of updates:
        for each chunk of updates:                  for each index vector, if it lies inside:
            for each index vector inside:               fetch the tiles around the update
                combine what falls into the block       combine
                                                        write them back

Where tiles around updates are the same or apart, those of several updates are fetched, and written back,
together: an update whose tiles an earlier one of the group has is combined with what that one made.

The index vectors are staged in SMEM; an update that is not wholly inside the operand is skipped, as
HLO says. `compiler.backend.scatter_cut` says how chunks and blocks are made to fit VMEM, and which
of the two it is; an update larger than VMEM goes piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

from compiler.analysis.indexing import Expr, Var, var
from compiler.analysis.indexing_boxes import Box, round_to_tiles
from compiler.analysis.scatter_dims import (
    ScatterDims,
    has_numbers_last,
    is_canonical,
    scatter_dims,
)
from compiler.analysis.windows import GridDim, OperandWindow, WindowPlan, grid_dim
from compiler.backend.custom import CustomKernel
from compiler.backend.custom_scatter_elements import ElementScatter
from compiler.backend.custom_scatter_rows import RowGroups
from compiler.backend.custom_scatter_tiles import HeldTiles
from compiler.backend.element_cut import element_cut
from compiler.backend.grid_loop import GridLoop, StepContext
from compiler.backend.index_scalars import emit_clamp, emit_index
from compiler.backend.index_words import IndexForm, IndexWords, held_vectors
from compiler.backend.kernel_calls import Argument, BufferPlace
from compiler.backend.scatter_cut import ScatterCutter
from compiler.backend.scatter_update_rows import OneUpdate, UpdateRows
from compiler.backend.slice_parts import SliceParts, step_origin
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import leaves
from compiler.llo.ir import SReg

_CHUNK, _BATCH = "chunk", "batch"
_TOGETHER = 16
"""Updates of one row or matrix that go through one body."""
_FEW_TILES = 4
"""Tiles of such an update."""


def emit_scatter(kernel: CustomKernel) -> None:
    """Emit the kernel of a scatter."""
    dims = scatter_dims(kernel.root)
    is_wide = has_numbers_last(dims)
    assert is_wide or is_canonical(dims), f"%{kernel.root.name}: no canonical scatter"
    stays = any(result.place is BufferPlace.VMEM for result in kernel.interface.results)
    may_go = is_wide or kernel.options.elements_together
    cut = element_cut(dims, kernel.chip, stays=stays) if may_go else None
    if cut is not None:
        ElementScatter(kernel, dims, cut).emit()
        return
    ScatterEmitter(kernel, dims).emit()


class ScatterEmitter:
    """Emits one scatter."""

    def __init__(self, kernel: CustomKernel, dims: ScatterDims) -> None:
        self.kernel = kernel
        self.builder = kernel.builder
        self.dims = dims
        self.shapes = leaves(kernel.fusion.shape)
        self.arguments = dict(zip(kernel.body.parameters, kernel.interface.operands, strict=True))
        words = kernel.smem.capacity - kernel.smem.base
        in_place = bool(kernel.in_place)
        stays = any(result.place is BufferPlace.VMEM for result in kernel.interface.results)
        cutter = ScatterCutter(dims, kernel.chip, in_place=in_place, smem_words=words, stays=stays)
        self.cut = cutter.cut()
        self.windows = cutter.windows
        self.units = cutter.update_units()
        self.operand_units = cutter.operand_units()
        around = [cutter.held_around(o, self.cut.parts) for o in dims.operands]
        self.grid = tuple(self._grid())
        sizes = tuple(map(dims.window_size, range(dims.operand.array.rank)))
        self.parts = SliceParts(self.builder, self.grid, sizes, self.cut.pieces, self.cut.parts)
        self._rows = UpdateRows(self.builder, dims, self.cut, self.grid, self.parts)
        self._held = HeldTiles(kernel, dims.operands, around, self.cut.group, self.parts)
        self._remark(cutter.windows)

    def _remark(self, windows: tuple[int, ...]) -> None:
        name = self.kernel.root.name
        if self.cut.pieces != windows:
            self.builder.remarks.append(
                f"%{name}: one update does not fit VMEM, so it goes in pieces of "
                f"{list(self.cut.pieces)} of {list(windows)}"
            )

    # the grid

    def _grid(self) -> Iterator[GridDim]:
        """Blocks of the operand (or batches), chunks of updates, pieces of an update."""
        dims = self.dims.operand.array.dims
        if self.cut.blocks is not None:
            sides = zip(dims, self.operand_units, self.cut.blocks, strict=True)
            for d, (size, unit, block) in enumerate(sides):
                yield grid_dim(f"g{d}", unit, -(-size // unit), -(-block // unit))
        elif self.dims.operand_batch:
            yield grid_dim(_BATCH, 1, dims[0], 1)
        lead = len(self.dims.batch_dims)
        unit = self.units[lead - 1] if lead else 1
        vectors = self.dims.vectors
        yield grid_dim(_CHUNK, unit, -(-vectors // unit), -(-self.cut.chunk // unit))
        for number, d in enumerate(self.dims.operand_window_dims):
            unit = self.units[lead + number]
            total, piece = -(-self.dims.window_size(d) // unit), -(-self.cut.pieces[d] // unit)
            yield grid_dim(f"p{d}", unit, total, piece)

    def _place(self, name: str) -> int:
        return next(i for i, d in enumerate(self.grid) if d.variable.name == name)

    def _origin(self, name: str) -> Expr:
        return step_origin(self.grid, name)

    def _batch(self) -> Expr:
        """The step's batch."""
        return self._origin(_BATCH if self.cut.blocks is None else "g0")

    def _plan(self) -> WindowPlan:
        inputs = [self._update_window(u) for u in self._stored(self.dims.all_updates)]
        outputs: list[OperandWindow] = []
        if self.cut.blocks is not None:
            low = tuple(self._origin(f"g{d}") for d in range(len(self.cut.blocks)))
            block = Box(low, self.cut.blocks)
            for operand in self._stored(self.dims.operands):
                box = round_to_tiles(operand.array, block)
                shape = self.arguments[operand].shape
                inputs.append(OperandWindow(operand, shape, box.low, box.extent))
            for shape in self.shapes:
                box = round_to_tiles(shape, block)
                outputs.append(OperandWindow(self.kernel.root, shape, box.low, box.extent))
        return WindowPlan(self.grid, tuple(inputs), tuple(outputs))

    def _stored(self, nodes: Sequence[HloInstruction]) -> list[HloInstruction]:
        """Those that lie in HBM, not constants: each once."""
        return list(dict.fromkeys(n for n in nodes if n.opcode == "parameter"))

    def _update_window(self, updates: HloInstruction) -> OperandWindow:
        """The updates of a chunk, or a piece of them."""
        d = self.dims
        lead = [self._origin(_CHUNK)] if d.batch_dims else []
        sizes = [self.cut.chunk] if d.batch_dims else []
        if d.operand_batch:
            lead, sizes = [self._batch(), *lead], [1, *sizes]
        low = (*lead, *(self._origin(f"p{i}") for i in d.operand_window_dims))
        extent = (*sizes, *(self.cut.pieces[i] for i in d.operand_window_dims))
        box = round_to_tiles(updates.array, Box(low, extent))
        return OperandWindow(updates, self.arguments[updates].shape, box.low, box.extent)

    # code

    def emit(self) -> None:
        """Emit everything."""
        self._prepare_indices()
        if self.cut.blocks is None:
            self._held.prepare(self.arguments, self.kernel.in_place)
        plan = self._plan()
        inputs = [self.arguments[w.node] for w in plan.inputs]
        results = list(self.kernel.interface.results) if plan.outputs else []
        grid = GridLoop(self.builder, plan, inputs, results, {})
        self._windows = plan.inputs
        grid.emit(self._compute)
        if not plan.outputs:
            self.builder.note += " streamed"
        if self.cut.by_rows:
            self.builder.note += " by rows"

    def _prepare_indices(self) -> None:
        d = self.dims
        self._words: IndexWords | None = None
        if d.indices.opcode != "parameter":
            return
        form = IndexForm(d.components, bool(d.operand_batch), not d.batch_dims)
        shape = self.arguments[d.indices].shape
        index = self.arguments[d.indices].index
        smem = self.kernel.smem
        staged = held_vectors(self.cut.chunk, d.components, smem.capacity - smem.base)
        self._words = IndexWords(self.builder, smem, shape, index, form, staged)
        is_one = self.grid[self._place(_CHUNK)].steps == 1 and not d.operand_batch
        self._staged_once = is_one and staged == self.cut.chunk
        if self._staged_once:
            self._words.stage(0, 0)

    def _component(self, number: SReg, component: int) -> SReg:
        if self._words is None:  # one vector of one word, which the kernel holds
            return self.builder.sconst(int(self.dims.indices.literal.item()))
        return self._words.component(number, component)

    def _compute(self, context: StepContext) -> None:
        b = self.builder
        arrays = list(zip([w.node for w in self._windows], context.inputs, strict=True))
        count = len(self._stored(self.dims.all_updates))  # an array may be both
        emitter = VectorEmitter(b, dict(arrays[:count]), dict(context.sregs), {})
        chunk = self._place(_CHUNK)
        if self.cut.blocks is not None:
            with ExitStack() as scope:
                started = 0
                for counter in context.counters[chunk:]:
                    started = b.sor(started, counter)
                if started:
                    scope.enter_context(b.if_(b.scmp("eq", "s32", started, 0)))
                copier = VectorEmitter(b, dict(arrays[count:]), dict(context.sregs), {})
                results = self.kernel.interface.results
                for number, operand in enumerate(self.dims.operands):
                    if not self._is_there(operand, results[number]):
                        copier.emit_stage([operand], [context.outputs[number]])
            b.new_block()
        first = emit_index(b, self._origin(_CHUNK), emitter.sregs)
        begin, trips = self._range(context.counters[chunk], first)
        if self._words is None or self._staged_once:
            self._updates(context, emitter, first, begin, trips)
            return
        batch = emit_index(b, self._batch(), emitter.sregs)
        with self._words.parts(first, begin, trips, self.cut.chunk, batch) as (start, count):
            self._updates(context, emitter, first, start, count)

    def _updates(
        self,
        context: StepContext,
        emitter: VectorEmitter,
        first: SReg,
        begin: SReg,
        trips: SReg,
    ) -> None:
        """Combine `trips` of a chunk's updates, whose indices are staged, from number `begin` on."""
        b = self.builder
        if self.cut.by_rows and self._words is not None:
            batch = self._batch() if self.dims.operand_batch else None
            target, origin = context.outputs[0], self._origin(_CHUNK)
            rows = RowGroups(emitter, self.dims, self._words, target, origin, batch)
            with ExitStack() as scope:
                if self.dims.is_sorted:
                    scope.enter_context(
                        b.if_(self._are_some_held(target, emitter, first, begin, trips))
                    )
                rows.emit(first, begin, trips)
            return
        if self._is_straight(context.outputs):
            done = b.sandi(trips, -_TOGETHER)
            with b.loop_dynamic(b.sshri(trips, _TOGETHER.bit_length() - 1), "updates") as group:
                place = b.sadd(begin, b.smuli(group, _TOGETHER))
                for number in range(_TOGETHER):
                    self._one_update(
                        emitter, context.outputs, first, b.saddi(place, number), is_masked=True
                    )
            begin, trips = b.sadd(begin, done), b.ssub(trips, done)
        if self.cut.group > 1:
            done = b.sandi(trips, -self.cut.group)
            groups = b.sshri(trips, self.cut.group.bit_length() - 1)
            with b.loop_dynamic(groups, "groups") as group:
                place = b.sadd(begin, b.smuli(group, self.cut.group))
                numbers = [b.saddi(place, k) for k in range(self.cut.group)]
                self._group_of_updates(emitter, first, numbers)
            begin, trips = b.sadd(begin, done), b.ssub(trips, done)
        with b.loop_dynamic(trips, "updates") as number:
            self._one_update(emitter, context.outputs, first, b.sadd(begin, number))

    def _are_some_held(
        self, target: VmemArray, emitter: VectorEmitter, first: SReg, begin: SReg, trips: SReg
    ) -> SReg:
        """Whether any of updates in ascending order may be for the block that `target` is."""
        b = self.builder
        (dim,) = self.dims.index_map
        low = emit_index(b, target.origin[dim], emitter.sregs)
        start = b.sadd(first, begin)
        least = self._component(start, 0)
        most = self._component(b.saddi(b.sadd(start, trips), -1), 0)
        is_after = b.scmp("lt", "s32", least, b.saddi(low, target.extent[dim]))
        return b.sand(is_after, b.scmp("le", "s32", low, most))

    def _is_there(self, operand: HloInstruction, result: Argument) -> bool:
        """Whether an operand that stays in VMEM lies where the result does."""
        source = self.arguments.get(operand)
        return source is not None and source.place is BufferPlace.VMEM and source.row == result.row

    def _is_straight(self, targets: Sequence[VmemArray]) -> bool:
        """Whether an update is one row or matrix of few tiles: several go through one body."""
        if self.cut.blocks is None or not self.dims.batch_dims:
            return False
        dims = self.dims.operand.array.dims
        is_matrix = self._rows.has_whole_matrices(targets)
        inner = 2 if is_matrix else 1
        pairs = zip(self.cut.parts[:-inner], self.windows[:-inner], self.cut.pieces, strict=False)
        if any(part > 1 or size % piece for part, size, piece in pairs):
            return False
        if is_matrix:
            return all(t.row_tiles * t.col_tiles <= _FEW_TILES for t in targets)
        is_whole = self.cut.pieces[-1:] == dims[-1:] and len(dims) > 1
        whole_columns = all(t.extent[-1] == dims[-1] and t.col_tiles <= _FEW_TILES for t in targets)
        return is_whole and whole_columns

    def _range(self, counter: SReg, first: SReg) -> tuple[SReg, SReg]:
        """Which of a chunk's vectors are the step's own: (first, count) relative to the chunk.

        A last chunk that starts earlier, to end with the array, has some that the one before had.
        """
        b = self.builder
        dim, size = self.grid[self._place(_CHUNK)], self.dims.vectors
        chunk = dim.block * dim.unit
        if dim.steps == 1:
            return 0, b.sconst(size)
        begin = 0 if dim.is_even else b.ssub(b.smuli(counter, chunk), first)
        end = b.smin(b.sconst(chunk), b.ssub(b.sconst(size), first))
        return begin, b.ssub(end, begin)

    def _one_update(
        self,
        emitter: VectorEmitter,
        targets: Sequence[VmemArray],
        first: SReg,
        number: SReg,
        *,
        is_masked: bool = False,
    ) -> None:
        """Combine the update of index vector `number` (of the chunk).

        `is_masked`: without a branch, so that several updates are one block; what is not for the
        block in VMEM leaves its first row or matrix as it is.
        """
        b = self.builder
        found = self._place_of(emitter, first, number)
        if found is None:
            return
        starts, lead, inside = found
        if is_masked:
            self._rows.emit(OneUpdate(emitter, targets, starts, lead), inside)
            return
        with b.if_(inside):
            if self.cut.blocks is not None:
                self._rows.emit(OneUpdate(emitter, targets, starts, lead))
                return
            with self.parts.part_loops(emitter):
                held = self._held.arrays(emitter, starts)
                self._held.move(emitter, held, to_vmem=True)
                self._rows.emit(OneUpdate(emitter, held, starts, lead))
                b.new_block()
                self._held.move(emitter, held, to_vmem=False)

    def _group_of_updates(
        self, emitter: VectorEmitter, first: SReg, numbers: Sequence[SReg]
    ) -> None:
        """Combine several updates whose tiles come and go together."""
        b = self.builder
        made: list[tuple[dict[int, SReg], tuple[Expr, ...], SReg, list[VmemArray]]] = []
        keys: list[SReg] = []
        owners: list[SReg] = []
        for k, number in enumerate(numbers):
            found = self._place_of(emitter, first, number)
            if found is None:
                return
            held = self._held.arrays(emitter, self._clamped(found[0]), slot=b.sconst(k))
            self._held.start(emitter, held, to_vmem=True)
            key: SReg = 0
            for low, size in zip(held[0].origin, held[0].shape.dims, strict=True):
                key = b.sadd(b.smuli(key, size), emit_index(b, low, emitter.sregs))
            owner = b.sconst(k)
            for earlier in reversed(range(k)):
                is_same = b.scmp("eq", "s32", key, keys[earlier])
                owner = b.ssel(is_same, owners[earlier], owner)
            made.append((*found, held))
            keys.append(key)
            owners.append(owner)
        self._held.wait()
        for (starts, lead, inside, held), owner in zip(made, owners, strict=True):
            with b.if_(inside):
                shared = [
                    replace(array, base=b.smuli(owner, self._held.slot_rows(n)))
                    for n, array in enumerate(held)
                ]
                self._rows.emit(OneUpdate(emitter, shared, starts, lead))
        b.new_block()
        for k, ((_, _, _, held), owner) in enumerate(zip(made, owners, strict=True)):
            with b.if_(b.scmp("eq", "s32", owner, b.sconst(k))):
                self._held.start(emitter, held, to_vmem=False)
        self._held.wait()
        b.new_block()

    def _clamped(self, starts: dict[int, SReg]) -> dict[int, SReg]:
        """Starts inside the operand: tiles come and go also for an update that does not."""
        d = self.dims
        return {
            dim: emit_clamp(self.builder, s, 0, d.operand.array.dims[dim] - d.window_size(dim))
            for dim, s in starts.items()
        }

    def _place_of(
        self, emitter: VectorEmitter, first: SReg, number: SReg
    ) -> tuple[dict[int, SReg], tuple[Expr, ...], SReg] | None:
        """Of an index vector: the starts along dimensions, the leading indices of its update, and
        whether that lies inside. None: no update can."""
        b = self.builder
        d = self.dims
        starts: dict[int, SReg] = {}
        inside = b.sconst(1)
        for component, dim in enumerate(d.index_map):
            starts[dim] = self._component(b.sadd(first, number), component)
            last = d.operand.array.dims[dim] - d.window_size(dim)
            if last < 0:
                return None
            inside = b.sand(inside, b.emit("scmp.le.u32", starts[dim], b.sconst(last)))
        if d.operand_batch:
            starts[0] = emit_index(b, self._batch(), emitter.sregs)
        variable = Var(f"update{number}", 0, self.cut.chunk - 1)
        emitter.sregs[variable] = number
        lead: tuple[Expr, ...] = ()
        if d.batch_dims:
            lead = (self._origin(_CHUNK) + var(variable),)
        if d.operand_batch:
            lead = (self._batch(), *lead)
        return starts, lead, inside
