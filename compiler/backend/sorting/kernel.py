"""network-sort: lines go through all passes of a merge network in VMEM.

A block is columns, 128 to a unit, as they lie. Every pass reads a block of each array and leaves another;
the last one leaves the results'. Places of elements in their lines are made by the first pass. What stays in
VMEM lies in other columns' midst, so it is copied to a block of its own and back.
"""

from __future__ import annotations

from compiler.analysis.indexing import const
from compiler.analysis.network_sort_grid import network_grid
from compiler.analysis.windows import OperandWindow, WindowPlan
from compiler.backend.column_blocks import ColumnPart, copy_columns
from compiler.backend.custom import CustomKernel
from compiler.backend.grid_loop import GridLoop, StepContext
from compiler.backend.kernel_calls import BufferPlace
from compiler.backend.sorting.passes import BlockLines, PassLoops
from compiler.backend.transfer import column_pieces
from compiler.backend.vector.arrays import GUARD_ROWS
from compiler.hlo.shape import leaves
from tpu_sim.isa.geometry import LANES


def emit_network_sort(kernel: CustomKernel) -> None:
    """Emit the kernel of a sort."""
    NetworkSortKernel(kernel).emit()


class NetworkSortKernel:
    """One kernel."""

    def __init__(self, kernel: CustomKernel) -> None:
        root = kernel.root
        self.kernel = kernel
        self.builder = kernel.builder
        self.root = root
        self.dims = root.operands[0].array.dims
        self.cut = network_grid(root, kernel.chip)
        self.lines = BlockLines(self.cut.units, self.dims[1], root.line_lanes)
        operands = list(range(len(root.operands)))
        place = len(operands)
        keys = operands[: root.num_keys]
        self.order = [*keys, *([place] if root.is_stable else []), *operands[root.num_keys :]]

    def emit(self) -> None:
        """Emit everything."""
        b = self.builder
        rows = self.lines.units * self.lines.rows
        counts = {
            array: min(len(self.cut.plan) - 1, 1 if array in self.root.results else 2)
            for array in self.order
        }
        spare = {
            array: [
                ColumnPart(b.window(f"spare{array}.{number}", rows + GUARD_ROWS), b.sconst(0))
                for number in range(count)
            ]
            for array, count in counts.items()
        }
        arguments = [self.kernel.argument(operand) for operand in self.root.operands]
        results = list(self.kernel.interface.results)
        copies = {
            name: ColumnPart(b.window(f"copy.{name}", rows + GUARD_ROWS), b.sconst(0))
            for name, argument in enumerate([*arguments, *results])
            if argument.place is BufferPlace.VMEM
        }
        grid = GridLoop(b, self._plan(), arguments, results, {}, GUARD_ROWS, column_pieces)
        grid.emit(lambda step: self._compute(step, spare, copies))
        b.note += " grid " + "x".join(str(d.steps) for d in self.cut.grid)

    def _compute(
        self, step: StepContext, spare: dict[int, list[ColumnPart]], copies: dict[int, ColumnPart]
    ) -> None:
        b = self.builder
        b.new_block()
        arrays = [*step.inputs, *step.outputs]
        parts = [
            copies.get(i, ColumnPart(array.window, array.base)) for i, array in enumerate(arrays)
        ]
        inputs, outputs = parts[: len(step.inputs)], parts[len(step.inputs) :]
        for number, part in copies.items():
            if number < len(inputs):
                copy_columns(b, arrays[number], part, to_array=False)
        self._sort(inputs, dict(zip(self.root.results, outputs, strict=True)), spare)
        for number, part in copies.items():
            if number >= len(inputs):
                copy_columns(b, arrays[number], part, to_array=True)

    def _sort(
        self,
        inputs: list[ColumnPart],
        results: dict[int, ColumnPart],
        spare: dict[int, list[ColumnPart]],
    ) -> None:
        keys = self.root.num_keys + self.root.is_stable
        loops = PassLoops(self.builder, self.lines, keys)
        source: list[ColumnPart | None] = [
            inputs[array] if array < len(inputs) else None for array in self.order
        ]
        last = len(self.cut.plan) - 1
        for number, one in enumerate(self.cut.plan):
            target: list[ColumnPart | None] = []
            for array in self.order:
                # blocks in turn, so that the last pass leaves the result
                result = [results[array]] if array in results else []
                left = last - number - (not result)
                target.append([*result, *spare[array]][left % 2] if left >= 0 else None)
            loops.emit(one, source, target)
            source = target

    def _plan(self) -> WindowPlan:
        outer, inner = self.cut.grid
        origin = (outer.origin, const(0), inner.origin)
        extent = (outer.block, self.dims[1], inner.block * LANES)
        inputs = [
            OperandWindow(o, self.kernel.argument(o).shape, origin, extent)
            for o in self.root.operands
        ]
        results = leaves(self.kernel.fusion.shape)
        outputs = [OperandWindow(self.root, shape, origin, extent) for shape in results]
        return WindowPlan(self.cut.grid, tuple(inputs), tuple(outputs))
