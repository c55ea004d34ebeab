"""gather of whole rows or whole trailing matrices: one DMA a slice, the operand stays in HBM.

blocks   slices are whole tiles: HBM to HBM
rows     rows of a 32-bit operand: HBM to HBM, granule by granule
packed   rows of a narrower operand: their words (which hold neighbouring rows too) are brought
         to VMEM, the row's part is shifted out and packed with that of the next result row
"""

from __future__ import annotations

import math

from compiler.analysis.gather_dims import GatherDims, is_flat, is_large
from compiler.analysis.indexing_boxes import tile_units, whole_box
from compiler.analysis.kernel_vmem import held_rows
from compiler.analysis.windows import OperandWindow, WindowPlan, grid_dim
from compiler.backend.custom import CustomKernel
from compiler.backend.grid_loop import GridLoop, StepContext
from compiler.backend.index_scalars import emit_clamp, emit_index
from compiler.backend.index_staging import IndexStaging
from compiler.backend.index_words import IndexForm, IndexWords, staged_vectors
from compiler.backend.transfer import HbmTiling, box_pieces, box_tiles, hbm_tiling
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray, whole_array
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import SUBLANES
from tpu_sim.isa.program import HBM, VMEM, DmaDescriptor, DmaDim

_STAGED_ROWS_BYTES = 4 << 20
"""Packed rows brought to VMEM at a time."""
_VMEM_SHARE = 1 / 16
"""Of VMEM, where that is less."""
_STREAMED_VECTORS = 16384
"""Slices whose indices are staged at a time where they are too many to be staged together."""


class RowGather:
    """Emits a gather of rows or blocks; of too many (`is_large`) in flat form."""

    def __init__(self, kernel: CustomKernel, dims: GatherDims) -> None:
        self.kernel = kernel
        self.builder = kernel.builder
        self.dims = dims
        self.count = math.prod(dims.gather.array.dims[d] for d in dims.batch_dims)
        self.indexed = len(dims.start_map) + len(dims.operand_batch)
        self.is_row = self.indexed == dims.operand.array.rank - 1
        operand = kernel.fusion.operands[kernel.body.parameters.index(dims.operand)]
        self.source = hbm_tiling(operand.array)
        self.target = hbm_tiling(kernel.fusion.array)
        arguments = dict(zip(kernel.body.parameters, kernel.interface.operands, strict=True))
        self.operand_argument = arguments[dims.operand].index
        self.indices_argument = arguments[dims.indices].index
        self.most_vectors = staged_vectors(_STREAMED_VECTORS, len(dims.start_map), kernel.chip)
        self.words: IndexWords | None = None
        if is_flat(dims) and is_large(dims, kernel.chip):
            form = IndexForm(len(dims.start_map), False, False)
            shape = arguments[dims.indices].shape
            block = min(self.count, self.most_vectors)
            self.words = IndexWords(
                self.builder, kernel.smem, shape, self.indices_argument, form, block
            )
            return
        last = [dims.operand.array.dims[dim] - 1 for dim in dims.start_map]
        beyond = SUBLANES * self.target.packing - 1  # rows of a register
        self.staging = IndexStaging(
            self.builder, dims.indices, dims.vector_dim, self.count, kernel.smem, last, beyond
        )

    def emit(self) -> None:
        """Emit everything."""
        self.stage_indices()
        if self.is_row and self.source.packing > 1:
            self._packed_rows()
        else:
            self._direct()

    def stage_indices(self) -> None:
        """Fetch the indices whole and put them into SMEM, unless they come in parts."""
        if self.words is not None:
            return
        b = self.builder
        node = self.dims.indices
        number = self.kernel.body.parameters.index(node)
        shape = self.kernel.fusion.operands[number].array
        window = b.window(f"in.{node.name}", held_rows(shape, shape.dims))
        flag = b.flag()
        for piece in box_pieces(
            hbm_tiling(shape), box_tiles(shape, shape.dims), window, to_vmem=True
        ):
            source = b.saddi(b.argument(self.indices_argument), piece.hbm_offset)
            target = b.sconst(piece.vmem_offset)
            descriptor = b.descriptor(piece.descriptor)
            b.emit("dma.start", descriptor, source, target, flag, 0, 0, 0)
        b.emit("dma.wait", flag, 0)
        b.new_block()
        array = whole_array(shape, window, guard=GUARD_ROWS)
        self.staging.emit(VectorEmitter(b, {node: array}, {}, {}))

    def starts(self, number: SReg, ahead: int = 0) -> list[SReg]:
        """The clamped start index of the slice `ahead` of `number`, by operand dimension."""
        b, d = self.builder, self.dims
        starts: list[SReg] = [0] * (len(d.start_map) + len(d.operand_batch))
        sizes = [d.gather.array.dims[i] for i in d.batch_dims]
        for dim, position in zip(d.operand_batch, d.indices_batch, strict=True):
            place = position - (1 if d.vector_dim < position else 0)
            outer = b.sdivi(b.saddi(number, ahead), math.prod(sizes[place + 1 :]))
            starts[dim] = b.sremi(outer, sizes[place])
        is_clamped = self.words is None and self.staging.is_clamped
        for component, dim in enumerate(d.start_map):
            staged = self.staging if self.words is None else self.words
            value = staged.component(number, component, ahead)
            last = d.operand.array.dims[dim] - 1
            starts[dim] = value if is_clamped else emit_clamp(b, value, 0, last)
        return starts

    def _source_address(self, number: SReg) -> SReg:
        """The first granule of slice `number`, and the phase of its row in its words."""
        b = self.builder
        starts = self.starts(number)
        majors = starts[:-1] if self.is_row else starts
        address = b.argument(self.operand_argument)
        for start, stride in zip(majors, self.source.major_strides(), strict=False):
            address = b.sadd(address, b.smuli(start, stride))
        if self.is_row:
            address = b.sadd(address, _row_granule(self, self.source, starts[-1]))
        return address

    def _direct(self) -> None:
        """One DMA a slice, HBM to HBM, all in flight at once."""
        b = self.builder
        descriptor = b.descriptor(self._direct_descriptor())
        flag = b.flag()
        result = b.argument(self.kernel.interface.results[0].index)
        block = self.count if self.words is None else min(self.count, self.most_vectors)
        with b.loop(-(-self.count // block), "blocks") as step:
            first = b.smuli(step, block)
            if self.words is not None:
                self.words.stage(first, 0)
            count = b.smin(b.sconst(block), b.ssub(b.sconst(self.count), first))
            with b.loop_dynamic(count, "slices") as index:
                number = b.sadd(first, index)
                source = self._source_address(number)
                target = b.sadd(result, self._target_offset(number))
                b.emit("dma.start", descriptor, source, target, flag, 0, 0, 0)
        b.emit("dma.wait", flag, 0)

    def _direct_descriptor(self) -> DmaDescriptor:
        if self.is_row:
            steps = DmaDim(self.source.col_tiles, self.source.granules, self.target.granules)
            return DmaDescriptor(HBM, HBM, 1, (steps,))
        return DmaDescriptor(HBM, HBM, self._block_granules())

    def _block_granules(self) -> int:
        return self.source.major_strides()[self.indexed - 1]

    def _target_offset(self, number: SReg) -> SReg:
        """Granules from the result's start to slice `number`."""
        b = self.builder
        if not self.is_row:
            return b.smuli(number, self._block_granules())
        rows = self.kernel.fusion.array.dims[-2]
        major, row = b.sdivi(number, rows), b.sremi(number, rows)
        stride = self.target.row_tiles * self.target.row_stride
        return b.sadd(b.smuli(major, stride), _row_granule(self, self.target, row))

    def _packed_rows(self) -> None:
        """Blocks of result rows: fetch their words, shift out and pack, write back."""
        b = self.builder
        result = self.kernel.fusion.array
        unit = tile_units(result)[-2]
        cols = self.source.col_tiles
        rows = result.dims[-2]
        tiles = -(-rows // unit)
        room = min(_STAGED_ROWS_BYTES, int(self.kernel.chip.vmem_bytes * _VMEM_SHARE))
        most = max(1, room // (unit * cols * 512))
        if self.words is not None:
            most = max(1, min(most, self.most_vectors // unit))
        block = max(n for n in range(1, min(most, tiles) + 1) if tiles % n == 0)
        majors = tuple(grid_dim(f"g{i}", 1, size, 1) for i, size in enumerate(result.dims[:-2]))
        row_dim = grid_dim("rows", unit, tiles, block)
        box = whole_box(result)
        low = (*(d.origin for d in majors), row_dim.origin, box.low[-1])
        extent = (*(1 for _ in majors), min(rows, block * unit), result.dims[-1])
        output = OperandWindow(self.kernel.root, result, low, extent)
        plan = WindowPlan((*majors, row_dim), (), (output,))
        self.block_rows = block * unit
        groups = -(-cols // 8)
        self.staged = b.window("rows", self.block_rows * cols + groups * 8 + GUARD_ROWS)
        self.staged_flag = b.flag()
        results = list(self.kernel.interface.results)
        grid = GridLoop(b, plan, [], results, {}, guard_rows=8 * GUARD_ROWS)
        grid.emit(self._pack_block)

    def _pack_block(self, context: StepContext) -> None:
        b = self.builder
        (target,) = context.outputs
        dims = self.kernel.fusion.array.dims
        first = b.sconst(0)
        for expr, size in zip(target.origin[:-1], dims[:-1], strict=True):
            first = b.sadd(b.smuli(first, size), emit_index(b, expr, context.sregs))
        row = emit_index(b, target.origin[-2], context.sregs)
        valid = b.smin(b.ssub(b.sconst(dims[-2]), row), b.sconst(self.block_rows))
        if self.words is not None:
            self.words.stage(first, 0)
        cols = self.source.col_tiles
        steps = DmaDim(cols, self.source.granules, 1)
        descriptor = b.descriptor(DmaDescriptor(HBM, VMEM, 1, (steps,), self.staged))
        with b.loop_dynamic(valid, "rows") as index:
            source = self._source_address(b.sadd(first, index))
            place = b.smuli(index, cols)
            b.emit("dma.start", descriptor, source, place, self.staged_flag, 0, 0, 0)
        b.emit("dma.wait", self.staged_flag, 0)
        words = self.target.granules  # of an HBM tile: its padding rows are written too
        tile_rows = words * self.target.packing
        tiles = b.sdivi(b.saddi(valid, tile_rows - 1), tile_rows)
        with b.loop_dynamic(b.smuli(tiles, words), "pack") as group:
            self._pack_rows(target, first, valid, group)

    def _pack_rows(self, target: VmemArray, first: SReg, valid: SReg, group: SReg) -> None:
        """One word row of the result: `packing` rows of it, all columns."""
        b = self.builder
        packing, cols = self.source.packing, self.source.col_tiles
        bits = 32 // packing
        shifts: list[SReg] = []
        places: list[SReg] = []
        for part in range(packing):
            row = b.smin(b.saddi(b.smuli(group, packing), part), b.saddi(valid, -1))
            start = self.starts(b.sadd(first, row))[-1]
            shifts.append(b.emit("vsplat", b.smuli(b.sandi(start, packing - 1), bits)))
            places.append(b.smuli(row, cols))
        tile, inside = b.sshri(group, 3), b.sandi(group, 7)
        base = b.sadd(target.base, b.sadd(b.smuli(tile, cols * 8), inside))
        for column in range(0, cols, 8):
            word = -1
            for part in range(packing):
                value = b.emit("vld", self.staged, places[part], column, 1)
                value = b.emit("vandi", b.emit("vshr", value, shifts[part]), (1 << bits) - 1)
                value = b.emit("vshli", value, part * bits) if part else value
                word = value if word < 0 else b.emit("vor", word, value)
            left = cols - column
            if left >= 8:
                b.emit("vst", target.window, base, column * 8, 8, word)
                continue
            mask = b.emit("vcmp.lt.s32", b.emit("vsublane"), b.emit("vmovi", left))
            b.emit("vst.msk", target.window, base, column * 8, 8, word, mask)


def _row_granule(gather: RowGather, tiling: HbmTiling, row: SReg) -> SReg:
    """Granules from the start of a matrix to (the words of) a row."""
    b = gather.builder
    tile_rows = tiling.granules * tiling.packing
    tile = b.sshri(row, tile_rows.bit_length() - 1)
    inner = b.sshri(b.sandi(row, tile_rows - 1), tiling.packing.bit_length() - 1)
    return b.sadd(b.smuli(tile, tiling.row_stride), inner)
