"""gather of rows or trailing matrices of an operand that fits VMEM: whole registers are copied there.

    bring the operand to VMEM
    for each block of the result:
        for each slice: its rows' registers, from the place that its index says

A DMA for each slice takes the engine ten cycles or more, however short it is; here the scalar unit
works out a slice's place in a few, and results leave in large blocks. Rows are put together
eight to a register, of narrower types as many for each part of its words: a row's words are shifted so that
its part comes first. Matrices are registers as they are, of any type.
"""

from __future__ import annotations

import math

from compiler.analysis import vmem_shares
from compiler.analysis.code_costs import GatherCosts
from compiler.analysis.gather_dims import GatherDims, has_rows, is_large, is_wide
from compiler.analysis.indexing_boxes import tile_units, whole_box
from compiler.analysis.kernel_vmem import GUARD_ROWS, box_vreg_tiles, held_rows
from compiler.analysis.tiled_layout import byte_size
from compiler.analysis.windows import OperandWindow, WindowPlan, grid_dim
from compiler.backend.custom import CustomKernel
from compiler.backend.custom_gather_rows import RowGather
from compiler.backend.grid_loop import GridLoop, StepContext
from compiler.backend.index_scalars import emit_index, row_of_words
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.meeting import by_sublanes
from compiler.backend.vector.ops import Ops
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.llo.ir import SReg, VReg
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import SUBLANES

_OPERAND_SHARE = 0.6  # of VMEM
_RESULT_TILES = 1024  # registers of a block of the result
_FEW_TILES = 8  # of a slice
_FEWEST_SLICES = 64
_TOGETHER = 8
_ROW_TILES = 4
"""Registers of rows in one body."""


def shape_in_memory(fusion: HloInstruction, parameter: HloInstruction) -> ArrayShape:
    """The shape, with its layout, of what a fusion's parameter stands for."""
    return fusion.operands[fusion.calls.parameters.index(parameter)].array


def gathers_in_vmem(fusion: HloInstruction, dims: GatherDims, chip: Chip) -> bool:
    """Whether a gather of rows in a fusion copies them in VMEM, which has room for it."""
    source, result = shape_in_memory(fusion, dims.operand), fusion.array
    if not has_rows(dims) or is_wide(dims, chip.vmem_bytes):
        return False
    if not _is_faster(dims, (source, result), chip):
        return False
    rows = held_rows(source, source.dims) + _block_rows(dims, result)
    if not is_large(dims, chip):
        indices = shape_in_memory(fusion, dims.indices)
        rows += held_rows(indices, indices.dims)
    return rows <= vmem_shares.WINDOWS * chip.vmem_rows


def _is_faster(dims: GatherDims, shapes: tuple[ArrayShape, ArrayShape], chip: Chip) -> bool:
    """Whether this way is possible and estimated to be the faster one.

    `shapes` are those of the operand and of the result, with their layouts.
    """
    source, result = shapes
    count = math.prod(result.dims[d] for d in dims.batch_dims)
    indexed = len(dims.start_map) + len(dims.operand_batch)
    is_row = indexed == source.rank - 1
    inner = (1, *source.dims[indexed:]) if is_row else source.dims[indexed:]
    tiles = box_vreg_tiles(source.with_dims(inner).with_layout(None), inner)
    rows = SUBLANES * box_vreg_tiles(source, source.dims)
    if count < _FEWEST_SLICES or tiles > _FEW_TILES or not dims.batch_dims:
        return False
    if rows > _OPERAND_SHARE * chip.vmem_rows:
        return False
    is_packed = is_row and source.dtype.packing > 1
    rate = chip.hbm_bytes_per_cycle
    moved = byte_size(result) / rate
    costs = GatherCosts.of(chip)
    first = costs.packed_row if is_packed else costs.slice
    here = byte_size(source) / rate + max(moved, count * (first + tiles - 1))
    return here < max(2 * moved, count * (costs.packed_transfer if is_packed else costs.transfer))


def _block_rows(dims: GatherDims, result: ArrayShape) -> int:
    """Rows of VMEM that both blocks of the result take at most."""
    inner = result.rank - len(dims.batch_dims)
    one = (*(1 for _ in dims.batch_dims[:-1]), tile_units(result)[-2], *result.dims[-inner:])
    return 2 * (SUBLANES * max(_RESULT_TILES, box_vreg_tiles(result, one)) + GUARD_ROWS)


class ResidentRows:
    """Emits such a gather; `rows` knows where slices start."""

    def __init__(self, kernel: CustomKernel, rows: RowGather) -> None:
        self.kernel = kernel
        self.builder = kernel.builder
        self.rows = rows
        self.dims = rows.dims
        self.result = kernel.fusion.array
        self.inner = 1 if rows.is_row else self.result.rank - len(self.dims.batch_dims)

    def emit(self) -> None:
        """Emit everything."""
        self.rows.stage_indices()
        plan = self._plan()
        operands = dict(
            zip(self.kernel.body.parameters, self.kernel.interface.operands, strict=True)
        )
        inputs = [operands[self.dims.operand]]
        results = list(self.kernel.interface.results)
        GridLoop(self.builder, plan, inputs, results, {}).emit(self._compute)

    def _plan(self) -> WindowPlan:
        """The operand whole; blocks of the result along the dimension that numbers slices."""
        *majors, count = self.result.dims[: self.result.rank - self.inner]
        trailing = self.result.dims[self.result.rank - self.inner :]
        unit = tile_units(self.result)[-2] if self.rows.is_row else 1
        tiles = -(-count // unit)
        one = (*(1 for _ in majors), unit, *trailing)
        most = max(1, _RESULT_TILES // box_vreg_tiles(self.result, one))
        if self.rows.words is not None:
            most = max(1, min(most, self.rows.most_vectors // unit))
        block = max(n for n in range(1, min(most, tiles) + 1) if tiles % n == 0)
        grid = (
            *(grid_dim(f"g{i}", 1, extent, 1) for i, extent in enumerate(majors)),
            grid_dim("slices", unit, tiles, block),
        )
        box = whole_box(self.result)
        low = (*(d.origin for d in grid), *box.low[len(grid) :])
        extent = (*(1 for _ in majors), min(count, block * unit), *trailing)
        output = OperandWindow(self.kernel.root, self.result, low, extent)
        number = self.kernel.body.parameters.index(self.dims.operand)
        shape = self.kernel.fusion.operands[number].array
        whole = whole_box(shape)
        operand = OperandWindow(self.dims.operand, shape, whole.low, whole.extent)
        self.block = block * unit
        return WindowPlan(grid, (operand,), (output,))

    def _compute(self, context: StepContext) -> None:
        b = self.builder
        (source,), (target,) = context.inputs, context.outputs
        numbering = self.result.dims[: self.result.rank - self.inner]
        first = b.sconst(0)
        for expr, size in zip(target.origin, numbering, strict=False):
            first = b.sadd(b.smuli(first, size), emit_index(b, expr, context.sregs))
        if self.rows.words is not None:
            self.rows.words.stage(first, 0)
        if self.rows.is_row:
            self._row_tiles(source, target, first)
            return
        steps, rest = divmod(self.block, _TOGETHER)
        with b.loop(steps, "slices") as step:
            self._matrices(source, target, first, b.smuli(step, _TOGETHER), _TOGETHER)
        if rest:
            b.new_block()
            self._matrices(source, target, first, b.sconst(steps * _TOGETHER), rest)

    def _row_tiles(self, source: VmemArray, target: VmemArray, first: SReg) -> None:
        """All rows of a block, several registers of them in one body."""
        b = self.builder
        unit = SUBLANES * source.packing
        tiles = self.block // unit
        together = max(1, min(_ROW_TILES // (source.col_tiles * source.packing), tiles))
        steps, rest = divmod(tiles, together)
        with b.loop(steps, "slices") as step:
            at = b.smuli(step, together)
            for number in range(together):
                self._row_tile(source, target, first, at, number)
        b.new_block()
        at = b.sconst(steps * together)
        for number in range(rest):
            self._row_tile(source, target, first, at, number)

    def _row_tile(
        self, source: VmemArray, target: VmemArray, first: SReg, at: SReg, ahead: int
    ) -> None:
        """The rows of tile ``at + ahead`` of the block, whose slices count from `first`: a register for
        each column tile. Those beyond the last slice may be any."""
        b, ops = self.builder, Ops(self.builder)
        columns, packing = source.col_tiles, source.packing
        unit, bits = SUBLANES * packing, 32 // packing
        vector = b.sadd(first, b.smuli(at, unit))
        rows = [self._row_place(source, vector, ahead * unit + n) for n in range(unit)]
        base = b.sadd(target.base, b.smuli(at, SUBLANES * columns))
        for column in range(columns):
            made = -1
            # row n is part n % packing of the words in sublane n // packing
            for part in range(packing):
                words = [self._row_words(source, row, column) for row in rows[part::packing]]
                word = by_sublanes(ops, words)
                if packing > 1:
                    word = ops.emit("vandi", word, (1 << bits) - 1)
                    word = ops.emit("vshli", word, part * bits) if part else word
                made = word if made < 0 else ops.emit("vor", made, word)
            b.emit("vst", target.window, base, (ahead * columns + column) * SUBLANES, 1, made)

    def _row_words(self, source: VmemArray, row: tuple[SReg, VReg], column: int) -> VReg:
        """The words of a row's column tile in all sublanes, its own part first."""
        b = self.builder
        place, shift = row
        words = b.emit("vld", source.window, place, SUBLANES * column, 0)
        return b.emit("vshr", words, shift) if source.packing > 1 else words

    def _row_place(self, source: VmemArray, vector: SReg, ahead: int) -> tuple[SReg, VReg]:
        """Where the words of a slice's row lie, and by how many bits its part of them is to be shifted."""
        b, packing = self.builder, source.packing
        *majors, row = self.rows.starts(vector, ahead)
        shift = -1
        if packing > 1:
            shift = b.emit("vsplat", b.smuli(b.sandi(row, packing - 1), 32 // packing))
            row = b.sshri(row, packing.bit_length() - 1)
        matrix = source.row_tiles * source.col_tiles * SUBLANES
        place = b.sadd(
            b.smuli(self._linear(majors), matrix), row_of_words(b, row, source.col_tiles)
        )
        return b.sadd(source.base, place), shift

    def _matrices(
        self, source: VmemArray, target: VmemArray, first: SReg, at: SReg, count: int
    ) -> None:
        """Slices that are whole registers."""
        b = self.builder
        inner = self.dims.operand.array.dims[self.rows.indexed :]
        rows = math.prod(inner[:-2]) * source.row_tiles * source.col_tiles * SUBLANES
        base = b.sadd(target.base, b.smuli(at, rows))
        vector = b.sadd(first, at)
        for number in range(count):
            starts = self.rows.starts(vector, number)
            place = b.sadd(source.base, b.smuli(self._linear(starts), rows))
            for row in range(0, rows, SUBLANES):
                value = b.emit("vld", source.window, place, row, 1)
                b.emit("vst", target.window, base, number * rows + row, 1, value)

    def _linear(self, starts: list[SReg]) -> SReg:
        """The number of the matrix (of those that the slices' index runs over)."""
        b = self.builder
        number: SReg = 0
        for start, size in zip(starts, self.dims.operand.array.dims, strict=False):
            number = b.sadd(b.smuli(number, size), start)
        return number
