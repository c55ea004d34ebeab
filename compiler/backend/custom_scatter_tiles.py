"""The tiles around updates of a scatter that go through VMEM one after another: fetched, and written back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.analysis.indexing import Expr, Var, const, var
from compiler.analysis.indexing_boxes import tile_units
from compiler.analysis.kernel_vmem import held_rows
from compiler.analysis.windows import OperandWindow
from compiler.backend.box_transfer import BoxTransfer
from compiler.backend.custom import CustomKernel
from compiler.backend.index_scalars import emit_index
from compiler.backend.kernel_calls import Argument
from compiler.backend.slice_parts import SliceParts
from compiler.backend.transfer import hbm_tiling
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, leaves
from compiler.llo.ir import SReg
from tpu_sim.isa.program import HBM, DmaDescriptor


class HeldTiles:
    """Buffers for the tiles around `group` updates, of every operand.

    `around` are the extents of the tiles around a part of an update, by operand; `parts` says where a
    step's part lies in its update.
    """

    def __init__(
        self,
        kernel: CustomKernel,
        operands: Sequence[HloInstruction],
        around: Sequence[tuple[int, ...]],
        group: int,
        parts: SliceParts,
    ) -> None:
        self._kernel = kernel
        self._builder = kernel.builder
        self._operands = operands
        self._shapes = leaves(kernel.fusion.shape)
        self._around = around
        self._group = group
        self._parts = parts
        self._flag = -1
        self._windows: list[int] = []

    def prepare(
        self, arguments: Mapping[HloInstruction, Argument], in_place: Sequence[tuple[int, int]]
    ) -> None:
        """Bring the operands to where the results lie, if they are not there; make the windows."""
        b = self._builder
        there = {result for result, _ in in_place}
        flag = b.flag()
        for number, (operand, shape) in enumerate(zip(self._operands, self._shapes, strict=True)):
            if number in there:
                continue
            source = b.argument(arguments[operand].index)
            target = b.argument(self._kernel.interface.results[number].index)
            whole = DmaDescriptor(HBM, HBM, hbm_tiling(shape).total_granules)
            b.emit("dma.start", b.descriptor(whole), source, target, flag, 0, 0, 0)
        b.emit("dma.wait", flag, 0)
        b.new_block()
        self._flag = b.flag()
        self._windows = [
            b.window(f"around.{o.name}", self._group * held_rows(o.array, extent))
            for o, extent in zip(self._operands, self._around, strict=True)
        ]

    def slot_rows(self, number: int) -> int:
        """VMEM rows between the tiles of two updates of a group, of that operand."""
        return self._builder.window_rows(self._windows[number]) // self._group

    def arrays(
        self, emitter: VectorEmitter, starts: dict[int, SReg], slot: SReg = 0
    ) -> list[VmemArray]:
        """The tiles around the step's piece of an update, of every operand, in buffer `slot`."""
        found: list[VmemArray] = []
        for number, (shape, window) in enumerate(zip(self._shapes, self._windows, strict=True)):
            extent = self._around[number]
            origin = [
                self._first_held(emitter, starts.get(d, 0), f"around{number}.{d}", shape, extent)
                for d in range(shape.rank)
            ]
            base = self._builder.smuli(slot, self.slot_rows(number)) if slot else 0
            found.append(VmemArray(shape, window, base, tuple(origin), extent, guard=GUARD_ROWS))
        return found

    def _first_held(
        self,
        emitter: VectorEmitter,
        start: SReg,
        name: str,
        shape: ArrayShape,
        extent: tuple[int, ...],
    ) -> Expr:
        """The first element of the tiles that hold a piece along a dimension."""
        b = self._builder
        d = int(name.rpartition(".")[2])
        unit = tile_units(shape)[d]
        last = -(-shape.dims[d] // unit) - -(-extent[d] // unit)
        if last <= 0:
            return const(0)
        place = b.sadd(start, emit_index(b, self._parts.origin[d], emitter.sregs))
        tile = b.smin(b.sdivi(place, unit), b.sconst(last))
        variable = Var(f"{name}.s{tile}", 0, last)
        emitter.sregs[variable] = tile
        return var(variable) * unit

    def move(self, emitter: VectorEmitter, held: Sequence[VmemArray], *, to_vmem: bool) -> None:
        """Fetch the tiles around an update, or write them back, and wait."""
        self.start(emitter, held, to_vmem=to_vmem)
        self.wait()
        self._builder.new_block()

    def start(self, emitter: VectorEmitter, held: Sequence[VmemArray], *, to_vmem: bool) -> None:
        """Start to fetch the tiles in the buffers of arrays, or to write them back."""
        for array, result in zip(held, self._kernel.interface.results, strict=True):
            window = OperandWindow(self._kernel.root, array.shape, array.origin, array.extent)
            transfer = BoxTransfer(window, result.index, array.window, to_vmem=to_vmem)
            transfer.start(self._builder, emitter.sregs, array.base, self._flag)

    def wait(self) -> None:
        """Wait for all that was started."""
        self._builder.emit("dma.wait", self._flag, 0)
