"""running-total: blocks follow each other along a dimension and hand on what they have combined.

A block goes on from what the one before it left (`held`), the first one from nothing. A last block that
holds registers of the one before again goes on from where those began, which every step keeps (`kept`).
"""

from __future__ import annotations

import math

from compiler.analysis.running_grid import running_grid
from compiler.analysis.windows import OperandWindow, WindowPlan
from compiler.backend.custom import CustomKernel
from compiler.backend.grid_loop import GridLoop, StepContext
from compiler.backend.index_scalars import emit_index
from compiler.backend.running_total.chains import Chains
from compiler.backend.running_total.registers import (
    LANE,
    ROW,
    SIZES,
    Combination,
    RegisterTotals,
)
from compiler.backend.vector.arrays import GUARD_ROWS
from compiler.backend.vector.ops import Ops
from compiler.hlo.shape import ArrayShape, leaves
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import SUBLANES


def emit_running_total(kernel: CustomKernel) -> None:
    """Emit the kernel of a running total."""
    _RunningTotalKernel(kernel).emit()


def _directions(rank: int, axis: int) -> tuple[str, ...]:
    """How elements of a register follow each other, the fastest direction first."""
    if rank == 1:
        return (LANE, ROW)
    return {rank - 1: (LANE,), rank - 2: (ROW,)}.get(axis, ())


class _RunningTotalKernel:
    """One kernel."""

    def __init__(self, kernel: CustomKernel) -> None:
        root = kernel.root
        (self.axis,) = root.dimensions
        self.kernel = kernel
        self.builder = kernel.builder
        self.ops = Ops(kernel.builder)
        self.array = root.array
        self.is_reverse = root.is_reverse
        self.cut = running_grid(root, kernel.chip)
        self.chains = math.prod(n for d, n in enumerate(self.cut.blocks) if d != self.axis)
        size = self.array.dims[self.axis]
        combination = Combination(root.kind, self.array.dtype, root.is_reverse, size)
        self.directions = _directions(self.array.rank, self.axis)
        self.totals = RegisterTotals(self.ops, combination, self.directions)
        self.held = self.kept = -1

    def emit(self) -> None:
        """Emit everything."""
        b = self.builder
        self.held = b.window("held", self.chains * SUBLANES)
        if not self.cut.running.is_even:
            self.kept = b.window("kept", self.chains * SUBLANES)
        (operand,) = self.kernel.root.operands
        argument = self.kernel.argument(operand)
        results = list(self.kernel.interface.results)
        grid = GridLoop(b, self._plan(argument.shape), [argument], results, {}, GUARD_ROWS)
        grid.emit(self._compute)
        b.note += " grid " + "x".join(str(d.steps) for d in self.cut.grid)

    def _plan(self, shape: ArrayShape) -> WindowPlan:
        root, origin = self.kernel.root, self.cut.origin
        grid = dict(zip(self.cut.order, self.cut.grid, strict=True))
        extent = tuple(
            grid[d].block * grid[d].unit if grid[d].steps > 1 else size
            for d, size in enumerate(self.array.dims)
        )
        (result,) = leaves(self.kernel.fusion.shape)
        read = OperandWindow(root.operands[0], shape, origin, extent)
        written = OperandWindow(root, result, origin, extent)
        return WindowPlan(self.cut.grid, (read,), (written,))

    def _compute(self, step: StepContext) -> None:
        b, running, counter = self.builder, self.cut.running, step.counters[-1]
        b.new_block()
        with b.if_(b.scmp("eq", "s32", counter, 0)):
            self._start()
        again = running.total % running.block
        if again:
            with b.if_(b.scmp("eq", "s32", counter, b.sconst(running.steps - 1))):
                self._copy(self.kept, self.held)
        chains = Chains(
            b, self.totals, step.inputs[0], step.outputs[0], self.held, self.cut.blocks, self.axis,
            is_reverse=self.is_reverse,
        )  # fmt: skip
        first = int(self._begins_behind_the_end())
        if first:
            chains.emit(0, first, self._elements(step))
        if again:
            chains.emit(first, again)
            self._copy(self.held, self.kept)
        chains.emit(max(first, again), running.block)

    def _start(self) -> None:
        with self.builder.loop(self.chains, "start", parallel=True) as chain:
            row = self.builder.smuli(chain, SUBLANES)
            self.ops.emit("vst", self.held, row, 0, 1, self.totals.identity())

    def _copy(self, source: int, target: int) -> None:
        b = self.builder
        with b.loop(self.chains, "keep", parallel=True) as chain:
            row = b.smuli(chain, SUBLANES)
            self.ops.emit("vst", target, row, 0, 1, self.ops.emit("vld", source, row, 0, 1))
        b.new_block()

    def _begins_behind_the_end(self) -> bool:
        """Whether the first register of a chain may hold what is not the array's."""
        unit = math.prod(SIZES[direction] for direction in self.directions)
        return self.is_reverse and self.array.dims[self.axis] % unit != 0

    def _elements(self, step: StepContext) -> SReg:
        """How many elements the array has from the last register of a block's chains on."""
        b, running = self.builder, self.cut.running
        last = self.cut.origin[self.axis] + (running.block - 1) * running.unit
        return b.ssub(b.sconst(self.array.dims[self.axis]), emit_index(b, last, step.sregs))
