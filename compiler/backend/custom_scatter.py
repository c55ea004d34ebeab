"""scatter: updates combined, one after another, into an operand at places that are data.

    for each block of the operand:
        copy it into the result's window
        for each index vector, if its update lies inside the operand:
            for each row of the update that falls into the block:
                read the row, combine, write it back

The index vectors are staged in SMEM; an update that is not wholly inside the operand is skipped, as
HLO says. Updates come in chunks where they do not fit VMEM together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from compiler.analysis.indexing import Expr, Var, const, delinearize, var
from compiler.analysis.indexing_boxes import Box, round_to_tiles, tile_units
from compiler.analysis.kernel_vmem import box_vreg_tiles
from compiler.analysis.windows import GridDim, OperandWindow, WindowPlan, grid_dim
from compiler.backend.custom import CustomKernel
from compiler.backend.index_scalars import emit_index
from compiler.backend.index_staging import INDEX_TILE, IndexStaging
from compiler.backend.pipeline import Pipeline, StepContext
from compiler.backend.row_update import RowUpdate
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.reducers import reducer_of
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import leaves
from compiler.llo.ir import SReg
from compiler.rewrite.make import dims_attr

LANES = 128
_VMEM_SHARE = 0.7
_MAX_STAGED_WORDS = 65536


@dataclass(frozen=True)
class ScatterDims:
    """A scatter's dimension numbers, and its operands, indices and updates.

    Operands have the same dimensions, and so have the updates.
    """

    scatter: HloInstruction
    operands: tuple[HloInstruction, ...]
    indices: HloInstruction
    all_updates: tuple[HloInstruction, ...]
    window_dims: tuple[int, ...]  # of the updates
    inserted: tuple[int, ...]
    index_map: tuple[int, ...]
    operand_batch: tuple[int, ...]
    indices_batch: tuple[int, ...]
    vector_dim: int

    @property
    def operand(self) -> HloInstruction:
        """The first operand, for its dimensions."""
        return self.operands[0]

    @property
    def updates(self) -> HloInstruction:
        """The first updates, for their dimensions."""
        return self.all_updates[0]

    @property
    def batch_dims(self) -> tuple[int, ...]:
        """Dimensions of the updates that number the index vectors."""
        return tuple(d for d in range(self.updates.array.rank) if d not in self.window_dims)

    @property
    def operand_window_dims(self) -> tuple[int, ...]:
        """Operand dimensions that an update extends over, in order."""
        gone = self.inserted + self.operand_batch
        return tuple(d for d in range(self.operand.array.rank) if d not in gone)

    def window_size(self, dim: int) -> int:
        """Extent of an update along an operand dimension."""
        if dim not in self.operand_window_dims:
            return 1
        number = self.operand_window_dims.index(dim)
        return self.updates.array.dims[self.window_dims[number]]


def scatter_dims(scatter: HloInstruction) -> ScatterDims:
    """Read the dimension numbers of a scatter."""
    count = len(scatter.operands) // 2
    vector_dim = scatter.attrs["index_vector_dim"]
    assert isinstance(vector_dim, int)
    return ScatterDims(
        scatter,
        tuple(scatter.operands[:count]),
        scatter.operands[count],
        tuple(scatter.operands[count + 1 :]),
        dims_attr(scatter, "update_window_dims"),
        dims_attr(scatter, "inserted_window_dims"),
        dims_attr(scatter, "scatter_dims_to_operand_dims"),
        dims_attr(scatter, "input_batching_dims"),
        dims_attr(scatter, "scatter_indices_batching_dims"),
        vector_dim,
    )


def emit_scatter(kernel: CustomKernel) -> None:
    """Emit the kernel of a scatter."""
    Scatter(kernel, scatter_dims(kernel.root)).emit()


class Scatter:
    """Emits one scatter."""

    def __init__(self, kernel: CustomKernel, dims: ScatterDims) -> None:
        self.kernel = kernel
        self.builder = kernel.builder
        self.dims = dims
        for node in (dims.indices, *dims.all_updates):
            if node.opcode not in ("parameter", "constant"):  # a scalar constant is an immediate
                raise UnsupportedError(
                    f"%{kernel.root.name}: scatter of a {node.opcode} inside its fusion; "
                    "compute it before",
                    kernel.root.span,
                )
        self.is_batched = self._is_batched()
        self.blocks, self.chunk = self._cut()
        self.grid = self._grid()
        self.plan = self._plan()

    def _is_batched(self) -> bool:
        """Whether operand, indices and updates all start with one batch dimension.

        Then a block has one batch, and only that batch's updates are gone through.
        """
        d = self.dims
        if not d.operand_batch or d.operand_batch[0] != 0 or d.operand.array.rank < 3:
            return False
        place = d.indices_batch[0] - (1 if d.vector_dim < d.indices_batch[0] else 0)
        if place != 0 or d.vector_dim == 0 or d.batch_dims[0] != 0:
            return False
        units = (tile_units(d.updates.array)[0], tile_units(d.indices.array)[0])
        return units == (1, 1) and self._words_per_row() % INDEX_TILE == 0

    def _cut(self) -> tuple[tuple[int, ...], int]:
        """Operand blocks (in tile units per dimension) and vectors of the first batch dimension."""
        shape = self.dims.operand.array
        units = self._units()
        blocks = [-(-n // u) for n, u in zip(shape.dims, units, strict=True)]
        chunk = self._chunk_candidates()
        best = chunk[-1]
        budget = self.kernel.chip.vmem_rows * _VMEM_SHARE
        for candidate in chunk:
            best = candidate
            if self._chunk_rows(candidate) <= budget / 2:
                break
        else:
            raise UnsupportedError(
                f"%{self.kernel.root.name}: one update and its indices do not fit VMEM",
                self.kernel.root.span,
            )
        if self.is_batched:
            blocks[0] = 1
        left = budget - self._chunk_rows(best)
        for dim in range(len(blocks) - 1):
            if len({operand.array.dtype.packing for operand in self.dims.operands}) > 1:
                break  # blocks of one type's tiles would stick out of another's array
            while blocks[dim] > 1 and self._block_rows(tuple(blocks), units) > left:
                blocks[dim] = next(d for d in range(blocks[dim] // 2, 0, -1))
        if self._block_rows(tuple(blocks), units) > left:
            raise UnsupportedError(
                f"%{self.kernel.root.name}: a row of the operand does not fit VMEM",
                self.kernel.root.span,
            )
        return tuple(blocks), best

    def _block_rows(self, blocks: tuple[int, ...], units: tuple[int, ...]) -> int:
        extent = tuple(b * u for b, u in zip(blocks, units, strict=True))
        shapes = (operand.array for operand in self.dims.operands)
        return sum(4 * box_vreg_tiles(shape, extent) * 8 for shape in shapes)

    def _units(self) -> tuple[int, ...]:
        """The largest vreg tiles of any operand."""
        units = [tile_units(operand.array) for operand in self.dims.operands]
        return tuple(max(sizes) for sizes in zip(*units, strict=True))

    def _chunk_candidates(self) -> list[int]:
        """Chunks of the first batch dimension, largest first: divisors that keep to tiles."""
        batch = self.dims.batch_dims
        if not batch or batch[0] != 0 or self.is_batched:
            return [1]
        first = self.dims.updates.array.dims[0]
        words = self._words_per_row()
        found = [first]
        unit = max(tile_units(self.dims.updates.array)[0], tile_units(self.dims.indices.array)[0])
        for size in range(first // 2, 0, -1):
            is_tiled = size * words % INDEX_TILE == 0 and size % unit == 0
            if first % size == 0 and is_tiled:
                found.append(size)
        return [n for n in found if n * words <= _MAX_STAGED_WORDS] or found[-1:]

    def _words_per_row(self) -> int:
        """Index words for each index of the first batch dimension."""
        indices = self.dims.indices.array
        first = indices.dims[0] if indices.rank and self.dims.vector_dim != 0 else 1
        return max(1, indices.element_count // max(1, first))

    def _chunk_rows(self, chunk: int) -> int:
        """VMEM rows of both buffers of updates and indices, and of the staged indices."""
        rows = 0
        for node in (*self.dims.all_updates, self.dims.indices):
            box = self._chunk_box(node, chunk, const(0))
            rows += 2 * 8 * box_vreg_tiles(node.array, box.extent)
        return rows + -(-chunk * self._words_per_row() // LANES) + 16

    def _chunk_box(self, node: HloInstruction, chunk: int, low: Expr) -> Box:
        """The part of updates or indices that a chunk needs."""
        shape = node.array
        is_cut = bool(self.dims.batch_dims) and self.dims.batch_dims[0] == 0
        if (
            not is_cut
            or shape.rank == 0
            or (node is self.dims.indices and self.dims.vector_dim == 0)
        ):
            return Box(tuple(const(0) for _ in shape.dims), shape.dims)
        box = Box((low, *(const(0) for _ in shape.dims[1:])), (chunk, *shape.dims[1:]))
        return round_to_tiles(shape, box)

    def _grid(self) -> tuple[GridDim, ...]:
        shape = self.dims.operand.array
        grid: list[GridDim] = []
        sides = zip(shape.dims, self._units(), self.blocks, strict=True)
        for number, (size, unit, block) in enumerate(sides):
            grid.append(grid_dim(f"g{number}", unit, -(-size // unit), block))
        batch = self.dims.batch_dims
        first = self.dims.updates.array.dims[0] if batch and batch[0] == 0 else 1
        if self.is_batched:
            first = 1  # the first dimension moves operand, indices and updates together
        grid.append(grid_dim("chunk", 1, first, self.chunk, parallel=False))
        return tuple(grid)

    def _plan(self) -> WindowPlan:
        low = tuple(d.origin for d in self.grid[:-1])
        extent = tuple(
            size if d.steps == 1 else d.block * d.unit
            for size, d in zip(self.dims.operand.array.dims, self.grid[:-1], strict=True)
        )
        block = Box(low, extent)
        inputs: list[OperandWindow] = []
        pairs = zip(self.kernel.body.parameters, self.kernel.fusion.operands, strict=True)
        for parameter, operand in pairs:
            if parameter in self.dims.operands:
                box = round_to_tiles(operand.array, block)
            elif parameter is self.dims.indices or parameter in self.dims.all_updates:
                box = self._chunk_box(parameter, self.chunk, self._chunk_low())
            else:
                continue
            inputs.append(OperandWindow(parameter, operand.array, box.low, box.extent))
        outputs: list[OperandWindow] = []
        for shape in leaves(self.kernel.fusion.shape):
            box = round_to_tiles(shape, block)
            outputs.append(OperandWindow(self.kernel.root, shape, box.low, box.extent))
        return WindowPlan(self.grid, tuple(inputs), tuple(outputs))

    def _chunk_low(self) -> Expr:
        """The first index of the step's part of the updates' first dimension."""
        return self.grid[0].origin if self.is_batched else self.grid[-1].origin

    def emit(self) -> None:
        """Emit everything."""
        kernel = self.kernel
        numbers = {p: i for i, p in enumerate(kernel.body.parameters)}
        inputs = [kernel.interface.operands[numbers[w.node]] for w in self.plan.inputs]
        count = self._vector_count()
        self.count = count
        base = kernel.smem.reserve(self._staged_words(count))
        self.staging = IndexStaging(
            self.builder, self.dims.indices, self.dims.vector_dim, count, base
        )
        pipeline = Pipeline(self.builder, self.plan, inputs, list(kernel.interface.results), {})
        pipeline.emit(self._compute)

    def _vector_count(self) -> int:
        """Index vectors of a chunk."""
        dims = [self.dims.updates.array.dims[d] for d in self.dims.batch_dims]
        if dims and self.dims.batch_dims[0] == 0:
            dims[0] = self.chunk
        return math.prod(dims)

    def _staged_words(self, count: int) -> int:
        indices = self.dims.indices.array
        has_vector = self.dims.vector_dim < indices.rank
        return count * (indices.dims[self.dims.vector_dim] if has_vector else 1)

    def _compute(self, context: StepContext) -> None:
        b = self.builder
        bindings = {
            window.node: array
            for window, array in zip(self.plan.inputs, context.inputs, strict=True)
        }
        emitter = VectorEmitter(b, bindings, dict(context.sregs), {})
        chunk = context.counters[-1]
        with ExitStack() as scope:
            if self.grid[-1].steps > 1:
                scope.enter_context(b.if_(b.scmp("eq", "s32", chunk, 0)))
            for operand, target in zip(self.dims.operands, context.outputs, strict=True):
                emitter.emit_stage([operand], [target])
        b.new_block()
        first = self._chunk_low() * (self.count // self.chunk)
        self.staging.emit(emitter, first)
        with b.loop(self.count, "updates") as number:
            self._one_update(emitter, context.outputs, number, first)

    def _one_update(
        self, emitter: VectorEmitter, targets: list[VmemArray], number: SReg, first: Expr
    ) -> None:
        """Combine the update of index vector `number` (of the chunk)."""
        b = self.builder
        d = self.dims
        dims = d.operand.array.dims
        starts: dict[int, SReg] = {}
        inside = b.sconst(1)
        for component, dim in enumerate(d.index_map):
            starts[dim] = self.staging.component(number, component)
            last = dims[dim] - d.window_size(dim)
            if last < 0:
                return
            is_inside = b.emit("scmp.le.u32", starts[dim], b.sconst(last))
            inside = b.sand(inside, is_inside)
        variable = Var("update", 0, self.count - 1)
        emitter.sregs[variable] = number
        sizes = tuple(d.updates.array.dims[i] for i in d.batch_dims)
        batch = delinearize(first + var(variable), sizes) if sizes else ()
        with b.if_(inside), self._window_rows() as offsets:
            self._one_row(emitter, targets, starts, batch, offsets)

    @contextmanager
    def _window_rows(self) -> Iterator[dict[int, Expr]]:
        """Loops over the rows of an update; yields the position per operand dimension but the last."""
        d = self.dims
        offsets: dict[int, Expr] = {}
        self._offset_sregs: dict[Var, SReg] = {}
        with ExitStack() as loops:
            for dim in range(d.operand.array.rank - 1):
                size = d.window_size(dim)
                if size == 1:
                    offsets[dim] = const(0)
                    continue
                counter = loops.enter_context(self.builder.loop(size, f"window{dim}"))
                variable = Var(f"window{dim}", 0, size - 1)
                self._offset_sregs[variable] = counter
                offsets[dim] = var(variable)
            yield offsets

    def _one_row(
        self,
        emitter: VectorEmitter,
        targets: list[VmemArray],
        starts: dict[int, SReg],
        batch: tuple[Expr, ...],
        offsets: dict[int, Expr],
    ) -> None:
        """Combine one row of an update into the block, if it lies there."""
        b = self.builder
        d = self.dims
        emitter.sregs.update(self._offset_sregs)
        rank = d.operand.array.rank
        places: list[SReg] = []
        inside = b.sconst(1)
        for dim in range(rank):
            place = starts.get(dim, 0)
            if dim in d.operand_batch:
                number = d.indices_batch[d.operand_batch.index(dim)]
                number -= 1 if d.vector_dim < number else 0
                place = emit_index(b, batch[number], emitter.sregs)
            if dim < rank - 1:
                place = b.sadd(place, emit_index(b, offsets[dim], emitter.sregs))
            low = emit_index(b, targets[0].origin[dim], emitter.sregs)
            place = b.ssub(place, low)
            if self.grid[dim].steps > 1:
                extent = b.sconst(targets[0].extent[dim])
                inside = b.sand(inside, b.emit("scmp.lt.u32", place, extent))
            places.append(place)
        with ExitStack() as scope:
            if b.constant(inside) != 1:
                scope.enter_context(b.if_(inside))
            row = RowUpdate(emitter, reducer_of(d.scatter), targets, places)
            row.emit(
                d.all_updates, lambda lane: self._update_index(batch, offsets, lane), self._width()
            )

    def _width(self) -> int:
        """Lanes of an update's row."""
        return self.dims.window_size(self.dims.operand.array.rank - 1)

    def _update_index(
        self, batch: tuple[Expr, ...], offsets: dict[int, Expr], lane: Expr
    ) -> tuple[Expr, ...]:
        """The index in the updates of lane position `lane` of the row."""
        d = self.dims
        index: list[Expr] = [const(0)] * d.updates.array.rank
        for position, expr in zip(d.batch_dims, batch, strict=True):
            index[position] = expr
        last = d.operand.array.rank - 1
        for position, dim in zip(d.window_dims, d.operand_window_dims, strict=True):
            index[position] = lane if dim == last else offsets[dim]
        return tuple(index)
