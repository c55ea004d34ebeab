"""Slabs of a loop's stacks on their way between HBM and VMEM (`compiler.analysis.loop_stacks`).

A reader has two buffers. While the loop works on one slab, the next is on its way: the one as far from the
present one as that is from the one before. If the loop wants another one, it waits for what was
fetched in vain and fetches that; so the guess changes when a slab arrives, not which.

A writer has one buffer, which is on its way to HBM until the next trip fills it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

from compiler.analysis.buffer_assignment import Allocation
from compiler.analysis.indexing import Var
from compiler.analysis.loop_stacks import Stack, read_window, written_window
from compiler.analysis.windows import OperandWindow
from compiler.backend.box_transfer import granule_offset
from compiler.backend.index_scalars import emit_clamp, emit_index
from compiler.backend.transfer import Piece, box_pieces, box_tiles, hbm_tiling
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray, whole_array
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.program import HBM
from tpu_sim.isa.timing import GRANULE_BYTES


class _Slabs(ABC):
    """What readers and writers of the slabs of an array at granule `first` of HBM share."""

    def __init__(
        self, builder: LloBuilder, window: OperandWindow, first: int, buffers: int, *, to_vmem: bool
    ) -> None:
        self._b = b = builder
        self._window = window
        self._first = first
        self._to_vmem = to_vmem
        tiling, box = hbm_tiling(window.shape), box_tiles(window.shape, window.extent)
        self._offset, _ = granule_offset(window, tiling)
        self._rows = box.vmem_rows
        count = buffers * self._rows
        name = f"{'in' if to_vmem else 'out'}.{window.node.name}"
        self.window_rows = count + GUARD_ROWS
        self.window_id = b.window(name, self.window_rows)
        b.needs_rows(self.window_id, count, GUARD_ROWS)
        self._pieces: list[Piece] = box_pieces(tiling, box, self.window_id, to_vmem=to_vmem)
        assert all(piece.dynamic_limit < 0 for piece in self._pieces), "a slab has whole matrices"
        self._flag = b.flag(buffers)
        strides = zip(
            tiling.major_strides(), window.extent[:-2], window.shape.dims[:-2], strict=True
        )
        self._step = min((s * n for s, n, size in strides if n < size), default=0)
        reach = sum(
            s * (n - 1) for s, n in zip(tiling.major_strides(), window.extent[:-2], strict=True)
        )
        matrix = tiling.row_tiles * tiling.row_stride
        self._last = first + tiling.total_granules - matrix - reach

    def _address(self, sregs: Mapping[Var, SReg]) -> SReg:
        """The granule at which the slab begins."""
        b = self._b
        return b.sadd(b.sconst(self._first), emit_index(b, self._offset, sregs))

    def _start(self, address: SReg, slot: SReg) -> None:
        b = self._b
        buffer = b.smuli(slot, self._rows)
        for piece in self._pieces:
            hbm = b.saddi(address, piece.hbm_offset)
            vmem = b.saddi(buffer, piece.vmem_offset)
            ends = (hbm, vmem) if self._to_vmem else (vmem, hbm)
            b.emit("dma.start", b.descriptor(piece.descriptor), *ends, self._flag, slot, 0, 0)

    def _wait(self, slot: SReg) -> None:
        self._b.emit("dma.wait", self._flag, slot)

    @abstractmethod
    def drain(self) -> None:
        """Wait for what is on its way."""


class SlabReader(_Slabs):
    """Brings the slab that a fusion reads; `is_ahead`: the next one before it is asked for."""

    def __init__(
        self, builder: LloBuilder, window: OperandWindow, first: int, *, is_ahead: bool
    ) -> None:
        super().__init__(builder, window, first, 2 if is_ahead else 1, to_vmem=True)
        self._is_ahead = is_ahead
        if is_ahead:
            b = builder
            self._slot = b.variable(constant=1)
            self._coming = b.variable(constant=first)
            self._present = b.variable(constant=first - self._step)
            self._start(b.sconst(first), b.sconst(0))

    def read(self, sregs: Mapping[Var, SReg]) -> VmemArray:
        """The slab at `sregs`, once it is there."""
        b, w = self._b, self._window
        address = self._address(sregs)
        if not self._is_ahead:
            self._start(address, b.sconst(0))
            self._wait(b.sconst(0))
            b.new_block()
            return VmemArray(w.shape, self.window_id, 0, w.origin, w.extent, guard=GUARD_ROWS)
        slot = b.sxori(self._slot, 1)
        with b.if_(b.scmp("ne", "s32", address, self._coming)):
            self._wait(slot)
            self._start(address, slot)
        self._wait(slot)
        other = b.sxori(slot, 1)
        ahead = b.sadd(address, b.ssub(address, self._present))
        ahead = emit_clamp(b, ahead, self._first, self._last)
        self._start(ahead, other)
        b.assign(self._slot, slot)
        b.assign(self._coming, ahead)
        b.assign(self._present, address)
        b.new_block()
        base = b.smuli(slot, self._rows)
        return VmemArray(w.shape, self.window_id, base, w.origin, w.extent)

    def drain(self) -> None:
        """Wait for what nobody will read."""
        if self._is_ahead:
            self._wait(self._b.sxori(self._slot, 1))


class SlabWriter(_Slabs):
    """Takes the slab that a fusion writes; `is_behind`: it may be on its way while the loop goes on."""

    def __init__(
        self, builder: LloBuilder, window: OperandWindow, first: int, *, is_behind: bool
    ) -> None:
        super().__init__(builder, window, first, 1, to_vmem=False)
        self._is_behind = is_behind
        if is_behind:
            self._is_busy = builder.variable(constant=0)

    def buffer(self, update: ArrayShape) -> VmemArray:
        """Where the slab is to be made, once the one before has left."""
        self.drain()
        return whole_array(update.with_layout(None), self.window_id, guard=GUARD_ROWS)

    def write(self, sregs: Mapping[Var, SReg]) -> None:
        """Send the slab to its place at `sregs`."""
        b = self._b
        b.new_block()
        self._start(self._address(sregs), b.sconst(0))
        if self._is_behind:
            b.assign(self._is_busy, b.sconst(1))
        else:
            self._wait(b.sconst(0))
        b.new_block()

    def drain(self) -> None:
        """Wait until the slab has left."""
        b = self._b
        if self._is_behind:
            with b.if_(self._is_busy):
                self._wait(b.sconst(0))
                b.assign(self._is_busy, b.sconst(0))
            b.new_block()


class LoopStreams:
    """The readers and writers of all of a loop's stacks that stay in HBM, by their places."""

    def __init__(self, builder: LloBuilder, stacks: Mapping[int, Stack]) -> None:
        self._b = builder
        self._stacks = stacks
        self._readers: dict[HloInstruction, dict[HloInstruction, SlabReader]] = {}
        self.writers: dict[HloInstruction, SlabWriter] = {}

    def has(self, place: Allocation) -> bool:
        """Whether what lies there is a stack that stays."""
        return place.space == HBM and place.offset in self._stacks

    def open(self) -> int:
        """Give every slab its buffers, send for the first ones; return the rows of VMEM they take."""
        for stack in self._stacks.values():
            first = stack.place.offset // GRANULE_BYTES
            is_apart = not stack.readers or not stack.writers
            for fusion, parameter in stack.readers:
                window = read_window(parameter)
                assert window is not None, "a reader of a stack reads one slab of it"
                reader = SlabReader(self._b, window, first, is_ahead=is_apart)
                self._readers.setdefault(fusion, {})[parameter] = reader
            for fusion in stack.writers:
                written = written_window(fusion)
                assert written is not None, "a writer of a stack writes one slab of it"
                is_behind = is_apart and len(stack.writers) == 1
                writer = SlabWriter(self._b, written, first, is_behind=is_behind)
                self.writers[fusion] = writer
        self._b.new_block()
        return sum(stream.window_rows for stream in self._all())

    def read(
        self, fusion: HloInstruction, sregs: Mapping[Var, SReg]
    ) -> dict[HloInstruction, VmemArray]:
        """The slabs that a fusion reads, by its parameters."""
        readers = self._readers.get(fusion, {})
        return {parameter: reader.read(sregs) for parameter, reader in readers.items()}

    def drain(self) -> None:
        """Wait for all that is on its way."""
        for stream in self._all():
            stream.drain()

    def _all(self) -> Iterator[_Slabs]:
        yield from (r for readers in self._readers.values() for r in readers.values())
        yield from self.writers.values()
