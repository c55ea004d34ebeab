"""gather: slices of an operand at places that are data.

    streamed   the operand stays in HBM; the tiles around each slice come to VMEM (any gather whose
               slices are numbered by one dimension)
    resident   the operand lies in VMEM; every result element computes its place and reads it by
               an indexed load (any gather)
    rows       the operand stays in HBM; one DMA a slice, many in flight (slices that are whole rows
               or whole trailing matrices of a large operand); in VMEM where it fits and slices
               are many

Start indices outside the operand are clamped, as HLO says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from compiler.analysis.fusion_body import FusionBody
from compiler.analysis.gather_dims import (
    GatherDims,
    gather_dims,
    has_rows,
    is_flat,
    is_large,
    is_wide,
)
from compiler.analysis.grid_steps import GridSteps
from compiler.analysis.indexing import Expr, const, var
from compiler.analysis.indexing_boxes import Box, round_to_tiles, tile_units, whole_box
from compiler.analysis.indexing_maps import Index
from compiler.analysis.iteration_space import IterationDim, IterationSpace
from compiler.analysis.tiled_layout import memory_space
from compiler.analysis.window_search import Candidates, search
from compiler.analysis.windows import WindowPlan
from compiler.backend.custom import CustomKernel
from compiler.backend.custom_gather_resident import ResidentRows, gathers_in_vmem
from compiler.backend.custom_gather_rows import RowGather
from compiler.backend.custom_gather_stream import StreamedGather
from compiler.backend.grid_loop import GridLoop, StepContext
from compiler.backend.narrow_rows import NarrowRows, narrow_rows
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import SUBLANE
from compiler.backend.vector.stores import Storer
from compiler.backend.vector.tile_indices import full_tile, point_index
from compiler.backend.vector.tile_loops import TileLoops, TilePoint, TileSpace, tile_space
from compiler.backend.vector.unpack import unpack
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.llo.ir import VReg
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES
from tpu_sim.isa.program import VMEM

_OPS_PER_TILE = 40
"""About what is emitted for a tile and word, by which loops choose how many tiles a body has
(assumed)."""


def emit_gather(kernel: CustomKernel) -> None:
    """Emit the kernel of a gather."""
    dims = gather_dims(kernel.root)
    for node in (dims.operand, dims.indices):
        if node.opcode != "parameter":
            raise UnsupportedError(
                f"%{kernel.root.name}: gather of a {node.opcode} inside its fusion; "
                "compute it before",
                kernel.root.span,
            )
    if has_rows(dims) and not is_wide(dims, kernel.chip.vmem_bytes):
        rows = RowGather(kernel, dims)
        number = kernel.body.parameters.index(dims.operand)
        shapes = kernel.fusion.operands[number].array, kernel.fusion.array
        stays = any(memory_space(shape) == VMEM for shape in shapes)
        is_there = stays or gathers_in_vmem(kernel.fusion, dims, kernel.chip)
        (ResidentRows(kernel, rows) if is_there else rows).emit()
    elif takes_elements(dims, kernel.chip):
        _resident(kernel, dims).emit()
    else:
        StreamedGather(kernel, dims).emit()


def takes_elements(dims: GatherDims, chip: Chip) -> bool:
    """Whether the operand comes to VMEM, if that is possible, and elements of it are looked up."""
    if has_rows(dims) and not is_wide(dims, chip.vmem_bytes):
        return False
    return not is_flat(dims) or not is_large(dims, chip)


def element_plan(
    fusion: HloInstruction, body: FusionBody, dims: GatherDims, chip: Chip
) -> WindowPlan:
    """The windows of such a gather; UnsupportedError if the operand does not fit beside others."""
    result = dims.gather.array
    units = tile_units(result)
    sides = tuple(IterationDim(n, u) for n, u in zip(result.dims, units, strict=True))
    space = IterationSpace(sides, (tuple(range(result.rank)),))

    def boxes(root_boxes: tuple[Box, ...]) -> dict[HloInstruction, Box]:
        return _read_boxes(dims, root_boxes)

    return search(Candidates(fusion, GridSteps(body, space, leaf_boxes_of=boxes)), chip)


def _read_boxes(d: GatherDims, root_boxes: tuple[Box, ...]) -> dict[HloInstruction, Box]:
    """The operand whole; of the indices those of the step's slices."""
    (box,) = root_boxes
    low = [box.low[i] for i in d.batch_dims]
    extent = [box.extent[i] for i in d.batch_dims]
    indices = d.indices.array
    if d.vector_dim < indices.rank:
        low.insert(d.vector_dim, const(0))
        extent.insert(d.vector_dim, indices.dims[d.vector_dim])
    index_box = round_to_tiles(indices, Box(tuple(low), tuple(extent)))
    found = {d.indices: index_box, d.operand: whole_box(d.operand.array)}
    return {node: b for node, b in found.items() if node.opcode == "parameter"}


def _resident(kernel: CustomKernel, dims: GatherDims) -> ResidentGather | StreamedGather:
    """With the operand in VMEM, if windows of the result fit beside it."""
    try:
        return ResidentGather(kernel, dims)
    except UnsupportedError:
        if not is_flat(dims):
            raise
        return StreamedGather(kernel, dims)


class ResidentGather:
    """A gather from an operand that lies in VMEM."""

    def __init__(self, kernel: CustomKernel, dims: GatherDims) -> None:
        self.kernel = kernel
        self.dims = dims
        self.plan = element_plan(kernel.fusion, kernel.body, dims, kernel.chip)

    def emit(self) -> None:
        """Emit everything."""
        kernel = self.kernel
        numbers = {p: i for i, p in enumerate(kernel.body.parameters)}
        inputs = [kernel.interface.operands[numbers[w.node]] for w in self.plan.inputs]
        grid = GridLoop(kernel.builder, self.plan, inputs, list(kernel.interface.results), {})
        grid.emit(self._compute)

    def _compute(self, context: StepContext) -> None:
        bindings = {
            window.node: array
            for window, array in zip(self.plan.inputs, context.inputs, strict=True)
        }
        emitter = VectorEmitter(self.kernel.builder, bindings, dict(context.sregs), {})
        (target,) = context.outputs
        space = tile_space(target, target.packing)
        narrow = self._narrow(target, space)
        first = 0
        if narrow is not None:
            groups = space.cols // LANES // narrow.tiles
            first = groups * narrow.tiles
            self._run(emitter, target, replace(space, cols=groups * LANES), 0, narrow)
        if first < space.col_tiles:
            rest = replace(space, cols=space.cols - first * LANES)
            self._run(emitter, target, rest, first, None)

    def _narrow(self, target: VmemArray, space: TileSpace) -> NarrowRows | None:
        """How column tiles of the result share the registers that are looked up, where the rows of a tile are
        read at places of one index vector a column."""
        d, rank = self.dims, target.shape.rank
        if rank < 2 or target.packing > 1 or target.replicated:
            return None
        narrow = narrow_rows(space.rows)
        are_windows = rank - 2 in d.offset_dims and rank - 1 in d.batch_dims
        if narrow is None or not are_windows or space.cols // LANES < narrow.tiles:
            return None
        return narrow

    def _run(
        self,
        emitter: VectorEmitter,
        target: VmemArray,
        space: TileSpace,
        first: int,
        narrow: NarrowRows | None,
    ) -> None:
        """All tiles of `space`, which begins at column tile `first`; with `narrow` of groups of tiles."""
        storer = Storer(emitter.ops, emitter.index_values)

        def body(point: TilePoint) -> None:
            major = const(0)
            for position, size in zip(point.majors, target.major_pitch, strict=True):
                major = major * size + position
            if narrow is None:
                at = replace(point, col_tile=point.col_tile + first)
                parts = [
                    self._elements(emitter, (point_index(target, space, at, part),), narrow)
                    for part in range(target.packing)
                ]
                storer.store(target, major, at.row_tile, at.col_tile, parts)
                return
            tiles = [point.col_tile * narrow.tiles + number for number in range(narrow.tiles)]
            together = [replace(full_tile(point), col_tile=tile) for tile in tiles]
            found = self._elements(
                emitter, [point_index(target, space, tile, 0) for tile in together], narrow
            )
            apart = narrow.apart(emitter.ops, found)
            for tile, value in zip(tiles, apart, strict=True):
                storer.store(target, major, point.row_tile, tile, [value])

        cost = _OPS_PER_TILE * (target.packing if narrow is None else narrow.tiles)
        TileLoops(self.kernel.builder, emitter.sregs).run(space, cost, body)

    def _elements(
        self, emitter: VectorEmitter, tiles: Sequence[Index], narrow: NarrowRows | None
    ) -> int:
        """The result at the index of a tile, an expression per dimension, or at those of tiles that share a
        register."""
        d = self.dims
        index = tiles[0]
        if narrow is not None:
            low = index[-2] - var(SUBLANE)
            index = (*index[:-2], low + narrow.row, index[-1] + narrow.tile * LANES)
        batches = [tuple(tile[i] for i in d.batch_dims) for tile in tiles]
        batch = tuple(index[i] for i in d.batch_dims)
        offsets = dict(zip(d.window_dims, (index[i] for i in d.offset_dims), strict=True))
        places: list[Coordinate] = []
        for dim in range(d.operand.array.rank):
            place = Coordinate(offsets.get(dim, const(0)))
            if dim in d.operand_batch:
                position = d.indices_batch[d.operand_batch.index(dim)]
                skipped = d.vector_dim < position
                place = Coordinate(batch[position - (1 if skipped else 0)])
            elif dim in d.start_map:
                component = d.start_map.index(dim)
                starts = [self._start(emitter, at, component, dim) for at in batches]
                start = starts[0] if narrow is None else narrow.joined(emitter.ops, starts)
                place = Coordinate(place.known, start)
            places.append(place)
        return load_at(emitter, emitter.bindings[d.operand], places)

    def _start(self, emitter: VectorEmitter, batch: Index, component: int, dim: int) -> int:
        """The clamped start index, a vector."""
        d = self.dims
        ops = emitter.ops
        value = emitter.emit(d.indices, d.start_index(batch, component))
        last = d.operand.array.dims[dim] - d.slice_sizes[dim]
        unsigned = not d.indices.array.dtype.is_signed
        kind = "u32" if unsigned else "s32"
        if not unsigned:
            value = ops.emit("vmax.s32", value, ops.integer(0))
        return ops.emit(f"vmin.{kind}", value, ops.integer(last))


@dataclass(frozen=True)
class Coordinate:
    """A coordinate: a known expression plus, maybe, a vector of integers."""

    known: Expr
    data: int = -1

    def vector(self, emitter: VectorEmitter) -> int:
        """The coordinate in every lane."""
        known = emitter.index_values.vector(self.known)
        if self.data < 0:
            return known
        is_zero = self.known.is_constant and self.known.constant == 0
        return self.data if is_zero else emitter.ops.iadd(self.data, known)


def word_of(
    emitter: VectorEmitter, array: VmemArray, places: list[Coordinate]
) -> tuple[VReg, VReg]:
    """The word of a whole array's buffer that holds the element at computed coordinates, and its part
    of the word (-1 where elements are words)."""
    ops = emitter.ops
    p = array.packing
    shift = (8 * p).bit_length() - 1
    part_shift = p.bit_length() - 1
    if array.shape.rank == 0:
        return ops.integer(0), -1
    if array.shape.rank == 1:
        position = places[0].vector(emitter)
        row = ops.emit("vshri", position, 7)
        lane = ops.emit("vandi", position, 127)
        word = ops.iadd(ops.emit("vshli", ops.emit("vshri", row, part_shift), 7), lane)
        return word, ops.emit("vandi", row, p - 1) if p > 1 else -1
    row, col = (place.vector(emitter) for place in places[-2:])
    major = const(0)
    tile = -1
    for place, size in zip(places[:-2], array.majors, strict=True):
        major = major * size + place.known
        tile = tile if tile < 0 else ops.imul_constant(tile, size)
        if place.data >= 0:
            tile = place.data if tile < 0 else ops.iadd(tile, place.data)
    total = Coordinate(major, tile).vector(emitter)
    total = ops.imul_constant(total, array.row_tiles)
    total = ops.iadd(total, ops.emit("vshri", row, shift))
    total = ops.imul_constant(total, array.col_tiles)
    total = ops.iadd(total, ops.emit("vshri", col, 7))
    inner = ops.emit("vandi", row, 8 * p - 1)
    part = ops.emit("vandi", inner, p - 1) if p > 1 else -1
    word = ops.emit("vshli", ops.emit("vshri", inner, part_shift), 7)
    word = ops.iadd(word, ops.emit("vandi", col, 127))
    return ops.iadd(word, ops.emit("vshli", total, 10)), part


def load_at(emitter: VectorEmitter, array: VmemArray, places: list[Coordinate]) -> int:
    """An indexed load of the elements of a whole array at computed coordinates."""
    ops, values = emitter.ops, emitter.index_values
    word, part = word_of(emitter, array, places)
    # padding lanes compute with garbage: keep them inside the window
    word = ops.emit("vmin.u32", word, ops.integer(array.word_rows * 128 - 1))
    loaded = ops.emit("vld.idx", array.window, array.base, word)
    if part >= 0:
        bits = array.shape.dtype.bits
        loaded = ops.emit("vshr", loaded, ops.imul_constant(part, bits))
    return unpack(ops, values, loaded, const(0), array.shape.dtype)
