"""pair-fft: blocks of a batch go through all stages of their transform in VMEM.

Along dimension 1 of ``[a, n, c]`` a block is columns, 128 to a unit, as they lie: every stage reads
a block and leaves another, the last one the result's. Along dimension 2 a block is rows, which are
turned into columns first and back at the end. The roots are spread over the lanes once.

Of an operand or result that stays in VMEM rows are turned from where it lies and back to there; columns,
which do not lie one after the other there, are copied to a block of their own.
"""

from __future__ import annotations

from compiler.analysis.fourier_grid import TILES, fourier_grid
from compiler.analysis.indexing import const
from compiler.analysis.windows import OperandWindow, WindowPlan
from compiler.backend.column_blocks import ColumnPart, copy_columns
from compiler.backend.custom import CustomKernel
from compiler.backend.fourier.direct import DirectSums
from compiler.backend.fourier.stage_loops import Roots, StageLoops, StageShape
from compiler.backend.fourier.turning import Turned, Turner
from compiler.backend.grid_loop import GridLoop, StepContext
from compiler.backend.kernel_calls import BufferPlace
from compiler.backend.transfer import box_pieces, column_pieces, hbm_tiling
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray
from compiler.backend.vector.ops import Ops
from compiler.hlo.fourier import FourierStage, root_rows, stages
from compiler.hlo.shape import leaves
from tpu_sim.isa.geometry import SUBLANES, UNIT_DIM
from tpu_sim.isa.program import HBM, VMEM, DmaDescriptor


def emit_fft(kernel: CustomKernel) -> None:
    """Emit the kernel of a transform."""
    FourierKernel(kernel).emit()


class FourierKernel:
    """One kernel."""

    def __init__(self, kernel: CustomKernel) -> None:
        root = kernel.root
        self.builder = kernel.builder
        self.kernel = kernel
        self.inputs = root.operands[1:]
        self.dims = self.inputs[0].array.dims
        (self.dim,) = root.dimensions
        self.stages: tuple[FourierStage, ...] = stages(self.dims[self.dim])
        self.is_inverse = root.fft_type == "IFFT"
        self.cut = fourier_grid(root, kernel.chip)
        self.copies: dict[int, ColumnPart] = {}
        self.guard = max([GUARD_ROWS, *(self._shape(s).guard_rows for s in self.stages)])

    @property
    def is_turned(self) -> bool:
        """Whether the transforms are of rows."""
        return self.dim == 2

    def emit(self) -> None:
        """Emit everything."""
        b = self.builder
        roots = self._spread_roots()
        spare = [self._spare(number) for number in range(self.cut.spare)]
        arguments = [self.kernel.argument(operand) for operand in self.inputs]
        results = list(self.kernel.interface.results)
        self.copies = {
            name: self._block(f"copy.{name}")
            for name, argument in enumerate([*arguments, *results])
            if argument.place is BufferPlace.VMEM and not self.is_turned
        }
        grid = GridLoop(
            b,
            self._plan(),
            arguments,
            results,
            {},
            self.guard,
            box_pieces if self.is_turned else column_pieces,
        )
        self._clear(grid, spare)
        grid.emit(lambda step: self._compute(step, roots, spare))
        b.note += " grid " + "x".join(str(d.steps) for d in self.cut.grid)

    def _compute(
        self, step: StepContext, roots: Roots, spare: list[tuple[ColumnPart, ...]]
    ) -> None:
        self.builder.new_block()
        source, result = self._parts(step.inputs, 0), self._parts(step.outputs, len(step.inputs))
        for number, part in self.copies.items():
            if number < len(source):
                copy_columns(self.builder, step.inputs[number], part, to_array=False)
        turner = Turner(self.builder, self._turned())
        if self.is_turned:
            turner.to_columns(source, spare[0])
            blocks = [spare[0][: len(source)], *(spare[(n + 1) % 2] for n in self._passes)]
        else:
            # stages go to the result and to spare blocks in turn, the last one to the result
            between = (*result, *spare[-1][len(result) :])
            blocks = [
                source,
                *((between, spare[0])[(len(self._passes) - 1 - n) % 2] for n in self._passes),
            ]
        blocks[-1] = blocks[-1][: len(result)]
        sign, scale = (1, 1 / self.dims[self.dim]) if self.is_inverse else (-1, 1.0)
        if not self.stages:
            sums = DirectSums(self.builder, roots, self.dims[self.dim], sign, scale)
            sums.emit(self.cut.units, self.cut.unit_rows, blocks[0], blocks[1])
        loops = StageLoops(self.builder, roots, sign)
        for number, stage in enumerate(self.stages):
            factor = scale if number == len(self.stages) - 1 else 1.0
            loops.emit(self._shape(stage), blocks[number], blocks[number + 1], factor)
        if self.is_turned:
            turner.to_rows(blocks[-1], result)
        for number, part in self.copies.items():
            if number >= len(source):
                copy_columns(self.builder, step.outputs[number - len(source)], part, to_array=True)

    @property
    def _passes(self) -> range:
        """Numbers of the passes over a block, of stages or of sums."""
        return range(max(1, len(self.stages)))

    def _shape(self, stage: FourierStage) -> StageShape:
        return StageShape(stage, self.cut.units, self.cut.unit_rows)

    def _turned(self) -> Turned:
        tiles = min(TILES, -(-self.dims[1] // 8))
        return Turned(self.cut.units, tiles, self.dims[2])

    def _clear(self, grid: GridLoop, spare: list[tuple[ColumnPart, ...]]) -> None:
        """Give rows a value that no point has but that are read or stored with those of points."""
        n, rows = self.dims[self.dim], self.cut.unit_rows
        windows = [part.window for parts in (*spare, self.copies.values()) for part in parts]
        if not self.is_turned:
            windows += [s.window_id for s in (*grid.outputs, *grid.inputs)]
        if any(self._shape(s).guard_rows for s in self.stages):  # few units: all rows are few
            places = (0, SUBLANES)
        elif n % SUBLANES:
            places = (rows - SUBLANES, rows)
        else:
            return
        b = self.builder
        for window in dict.fromkeys(windows):
            first, step = places
            count = (b.window_rows(window) - first - SUBLANES) // step + 1
            with b.loop(count, "clear") as index:
                row = b.smuli(index, step)
                b.emit("vst", window, row, first, 1, b.emit("vmovi", 0))

    # windows

    def _plan(self) -> WindowPlan:
        outer, inner = self.cut.grid
        n = self.dims[self.dim]
        origin = (outer.origin, const(0), inner.origin)
        extent = (outer.block, -(-n // 8) * 8, inner.block * UNIT_DIM)
        if self.is_turned:
            origin = (outer.origin, inner.origin, const(0))
            extent = (1, inner.block * 8, -(-n // UNIT_DIM) * UNIT_DIM)
        root = self.kernel.root
        inputs = [
            OperandWindow(o, self.kernel.argument(o).shape, origin, extent) for o in self.inputs
        ]
        results = leaves(self.kernel.fusion.shape)
        outputs = [OperandWindow(root, shape, origin, extent) for shape in results]
        return WindowPlan(self.cut.grid, tuple(inputs), tuple(outputs))

    def _spare(self, number: int) -> tuple[ColumnPart, ...]:
        return tuple(self._block(f"spare{number}.{part}") for part in ("re", "im"))

    def _block(self, name: str) -> ColumnPart:
        rows = self.cut.units * self.cut.unit_rows + self.guard
        return ColumnPart(self.builder.window(name, rows), 0)

    def _parts(self, arrays: list[VmemArray], first: int) -> tuple[ColumnPart, ...]:
        """Where a step has its arrays, of which `first` is the number of the first."""
        return tuple(
            self.copies.get(number, ColumnPart(array.window, array.base))
            for number, array in enumerate(arrays, first)
        )

    # roots

    def _spread_roots(self) -> Roots:
        """Bring the table in and give every root a row of its own, through a transpose unit."""
        b, ops = self.builder, Ops(self.builder)
        argument = self.kernel.argument(self.kernel.root.operands[0])
        granules = hbm_tiling(argument.shape).total_granules
        table = b.window("table", granules)
        count = root_rows(self.dims[self.dim])
        spread = b.window("roots", count * UNIT_DIM)
        if len(self.stages) == 1:
            return Roots(spread)
        descriptor = b.descriptor(DmaDescriptor(HBM, VMEM, granules, (), table))
        flag = b.flag()
        b.emit("dma.start", descriptor, b.argument(argument.index), 0, flag, 0, 0, 0)
        b.emit("dma.wait", flag, 0)
        with b.loop(count, "roots") as row:
            word = ops.emit("vld", table, row, 0, 0)
            for tile in range(TILES):
                ops.emit("vxpose.push", 0, word, tile)
            ops.emit("vxpose.swap", 0)
            first = b.smuli(row, UNIT_DIM)
            for tile in range(TILES):
                ops.emit("vst", spread, first, tile * 8, 1, ops.emit("vxpose.read", 0, tile))
        return Roots(spread)
