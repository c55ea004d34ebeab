"""gather from an operand of any size: the tiles around each slice come to VMEM by DMA.

    for each block of the result:
        for each group of its slices:
            fetch the tiles around each slice, all in flight together
            for each row of each slice: move it to its place in the result

A slice larger than VMEM goes piece by piece, and the tiles around a piece part by part. The gather
is in flat form (`compiler.analysis.gather_dims.is_flat`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis.gather_dims import GatherDims
from compiler.analysis.indexing import Expr, Var, const, var
from compiler.analysis.indexing_boxes import Box, round_to_tiles, tile_units
from compiler.analysis.kernel_vmem import GUARD_ROWS, box_vreg_tiles
from compiler.analysis.windows import GridDim, OperandWindow, WindowPlan, grid_dim
from compiler.backend.box_transfer import BoxTransfer
from compiler.backend.clear import emit_clear
from compiler.backend.custom import CustomKernel
from compiler.backend.grid_loop import GridLoop, StepContext
from compiler.backend.index_scalars import emit_clamp, emit_index
from compiler.backend.index_words import IndexForm, IndexWords, staged_vectors
from compiler.backend.row_update import RowReplacement, RowUpdate
from compiler.backend.scatter_cut import around, smaller
from compiler.backend.slice_parts import SliceParts, step_origin
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import SUBLANES

Dims = tuple[int, ...]
_RESULT_SHARE = 0.3  # of VMEM for both buffers of the result
_STAGED_SHARE = 0.4  # and for the tiles around slices
_MOST_STAGED = 4 << 20  # bytes that are in flight together
_MOST_VECTORS = 8192  # whose indices are staged at a time


@dataclass(frozen=True)
class StreamCut:
    """Slices of a block and elements per operand dimension of a slice in a step; those of a part
    that comes at once, and how many slices' parts come together."""

    chunk: int
    pieces: Dims
    parts: Dims
    group: int


class StreamedGather:
    """Emits one gather."""

    def __init__(self, kernel: CustomKernel, dims: GatherDims) -> None:
        self.kernel = kernel
        self.builder = kernel.builder
        self.dims = dims
        self.operand = dims.operand.array
        self.rank = self.operand.rank
        arguments = dict(zip(kernel.body.parameters, kernel.interface.operands, strict=True))
        self.source = arguments[dims.operand]
        self.index_argument = arguments[dims.indices]
        (self.result,) = kernel.interface.results
        self.units = tile_units(self.result.shape)
        self.cut = self._cut()
        self.grid = tuple(self._grid())
        self.parts = SliceParts(
            self.builder, self.grid, dims.slice_sizes, self.cut.pieces, self.cut.parts
        )
        kernel.builder.note += " streamed"
        if self.cut.pieces != dims.slice_sizes:
            kernel.builder.remarks.append(
                f"%{kernel.root.name}: one slice does not fit VMEM, so it goes in pieces of "
                f"{list(self.cut.pieces)} of {list(dims.slice_sizes)}"
            )

    # how it is cut

    def _cut(self) -> StreamCut:
        rows = self.kernel.chip.vmem_rows
        limit = int(rows * _RESULT_SHARE)
        count, unit = self.dims.gather.array.dims[0], self.units[0]
        most = staged_vectors(_MOST_VECTORS, len(self.dims.start_map), self.kernel.chip)
        chunk, pieces = min(count, max(unit, most // unit * unit)), self.dims.slice_sizes
        while chunk > unit and self._result_rows(chunk, pieces) > limit:
            chunk = max(unit, chunk // 2 // unit * unit)
        for number, dim in enumerate(self.dims.window_dims):
            unit = self.units[1 + number]
            total = -(-self.dims.slice_sizes[dim] // unit)
            while self._result_rows(chunk, pieces) > limit and pieces[dim] > unit:
                piece = smaller(-(-pieces[dim] // unit), total) * unit
                pieces = (*pieces[:dim], piece, *pieces[dim + 1 :])
        limit = min(int(rows * _STAGED_SHARE), _MOST_STAGED // 512)
        parts = pieces
        for dim in range(self.rank - 1):
            while self._held_rows(parts) > limit and parts[dim] > 1:
                parts = (*parts[:dim], smaller(parts[dim], pieces[dim]), *parts[dim + 1 :])
        group = max(1, min(chunk, limit // self._held_rows(parts)))
        return StreamCut(chunk, pieces, parts, group)

    def _result_rows(self, chunk: int, pieces: Dims) -> int:
        extent = (chunk, *(pieces[d] for d in self.dims.window_dims))
        return 2 * SUBLANES * box_vreg_tiles(self.result.shape, extent)

    def _held(self, parts: Dims) -> Dims:
        sides = zip(self.operand.dims, tile_units(self.operand), parts, strict=True)
        return tuple(around(size, unit, part) for size, unit, part in sides)

    def _held_rows(self, parts: Dims) -> int:
        return SUBLANES * box_vreg_tiles(self.operand, self._held(parts))

    def _grid(self) -> Iterator[GridDim]:
        sizes = (self.dims.gather.array.dims[0], *self._window_sizes(self.dims.slice_sizes))
        blocks = (self.cut.chunk, *self._window_sizes(self.cut.pieces))
        names = ("chunk", *(f"p{d}" for d in self.dims.window_dims))
        for name, size, block, unit in zip(names, sizes, blocks, self.units, strict=True):
            yield grid_dim(name, unit, -(-size // unit), -(-block // unit))

    def _window_sizes(self, sizes: Dims) -> Dims:
        return tuple(sizes[d] for d in self.dims.window_dims)

    def _origin(self, name: str) -> Expr:
        return step_origin(self.grid, name)

    # code

    def emit(self) -> None:
        """Emit everything."""
        b = self.builder
        form = IndexForm(len(self.dims.start_map), False, False)
        shape, argument = self.index_argument.shape, self.index_argument.index
        smem = self.kernel.smem
        self._words = IndexWords(b, smem, shape, argument, form, self.cut.chunk)
        self._extent = self._held(self.cut.parts)
        self._rows = self._held_rows(self.cut.parts)
        name = f"around.{self.dims.operand.name}"
        self._window = b.window(name, self.cut.group * self._rows + GUARD_ROWS)
        self._flag = b.flag()
        box = round_to_tiles(
            self.result.shape,
            Box(
                tuple(d.origin for d in self.grid),
                (self.cut.chunk, *self._window_sizes(self.cut.pieces)),
            ),
        )
        output = OperandWindow(self.kernel.root, self.result.shape, box.low, box.extent)
        plan = WindowPlan(self.grid, (), (output,))
        GridLoop(b, plan, [], [self.result], {}).emit(self._compute)

    def _compute(self, context: StepContext) -> None:
        b = self.builder
        (target,) = context.outputs
        emit_clear(b, target)  # rows are put into words and tiles that hold others
        first = emit_index(b, self._origin("chunk"), context.sregs)
        self._words.stage(first, 0)
        count, group = self.cut.chunk, self.cut.group
        size = self.dims.gather.array.dims[0]
        valid = b.smin(b.sconst(count), b.ssub(b.sconst(size), first))
        with b.loop(-(-count // group), "groups") as number:
            begin = b.smuli(number, group)
            slices = b.smin(b.sconst(group), b.ssub(valid, begin))
            emitter = VectorEmitter(b, {}, dict(context.sregs), {})
            with self.parts.part_loops(emitter):
                self._fetch(emitter, first, begin, slices)
                with b.loop_dynamic(slices, "slices") as index:
                    place = b.sadd(begin, index)
                    self._one_slice(emitter, target, first, place, index)

    def _fetch(self, emitter: VectorEmitter, first: SReg, begin: SReg, slices: SReg) -> None:
        """Bring the tiles around the parts of a group of slices."""
        b = self.builder
        with b.loop_dynamic(slices, "fetch") as index:
            number = b.sadd(first, b.sadd(begin, index))
            origin: list[Expr] = []
            for dim, (_, tile) in enumerate(self._places(emitter, number)):
                unit = tile_units(self.operand)[dim]
                variable = Var(f"tile{dim}", 0, self._last_tile(dim))
                emitter.sregs[variable] = tile
                origin.append(var(variable) * unit)
            window = OperandWindow(
                self.dims.operand, self.source.shape, tuple(origin), self._extent
            )
            transfer = BoxTransfer(window, self.source.index, self._window, to_vmem=True)
            transfer.start(b, emitter.sregs, b.smuli(index, self._rows), self._flag)
        b.emit("dma.wait", self._flag, 0)
        b.new_block()

    def _last_tile(self, dim: int) -> int:
        """The last tile that the tiles around a part may begin with."""
        unit = tile_units(self.operand)[dim]
        return max(0, -(-self.operand.dims[dim] // unit) - -(-self._extent[dim] // unit))

    def _places(self, emitter: VectorEmitter, number: SReg) -> list[tuple[SReg, SReg]]:
        """Per dimension the first element of a part of slice `number`, and the first tile held."""
        b = self.builder
        found: list[tuple[SReg, SReg]] = []
        for dim in range(self.rank):
            start: SReg = 0
            if dim in self.dims.start_map:
                word = self._words.component(number, self.dims.start_map.index(dim))
                last = self.operand.dims[dim] - self.dims.slice_sizes[dim]
                start = emit_clamp(b, word, 0, last)
            place = b.sadd(start, emit_index(b, self.parts.origin[dim], emitter.sregs))
            unit = tile_units(self.operand)[dim]
            found.append((place, b.smin(b.sdivi(place, unit), b.sconst(self._last_tile(dim)))))
        return found

    def _one_slice(
        self,
        emitter: VectorEmitter,
        target: VmemArray,
        first: SReg,
        place: SReg,
        index: SReg,
    ) -> None:
        """Move the rows of a part of one slice, number `place` of the block."""
        b = self.builder
        local: list[Expr] = []
        for dim, (at, tile) in enumerate(self._places(emitter, b.sadd(first, place))):
            unit = tile_units(self.operand)[dim]
            variable = Var(f"local{dim}", 0, self._extent[dim] - 1)
            emitter.sregs[variable] = b.ssub(at, b.smuli(tile, unit))
            local.append(var(variable))
        zero = tuple(const(0) for _ in range(self.rank))
        base = b.smuli(index, self._rows)
        held = VmemArray(self.operand, self._window, base, zero, self._extent)
        emitter.bindings[self.dims.operand] = held
        with self.parts.row_loops(emitter, self.rank - 1) as offsets:
            last = self.rank - 1
            places = [place]
            for dim in self.dims.window_dims:
                low = emit_index(b, self._origin(f"p{dim}"), emitter.sregs)
                offset = self.parts.origin[dim] + (offsets[dim] if dim != last else const(0))
                places.append(b.ssub(emit_index(b, offset, emitter.sregs), low))
            width = self.cut.pieces[last]
            row = RowUpdate(emitter, RowReplacement(), [target], [places])
            row.emit(
                [self.dims.operand],
                lambda lane: (
                    *(local[d] + offsets[d] for d in range(last)),
                    local[last] + lane,
                ),
                width,
            )
