"""Slabs of a loop's stacks on their way between HBM and VMEM (`compiler.analysis.loop_stacks`).

A reader has a ring of buffers. While the loop works on one slab, the next ones are on their way: each as
far from the one before as the present one is. If the loop wants another one, it waits for what was
fetched in vain and fetches that; so the guess changes when a slab arrives, not which.

A writer has a ring of them, too: slabs are on their way to HBM until their buffer is filled again. They may
arrive in any order, so those that could overlap wait for each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace

from compiler.analysis.buffer_assignment import Allocation
from compiler.analysis.indexing import Var
from compiler.analysis.loop_stacks import Stack, read_window, ring_buffers, written_window
from compiler.analysis.windows import OperandWindow
from compiler.backend.box_transfer import granule_offset
from compiler.backend.index_scalars import emit_clamp, emit_index
from compiler.backend.transfer import TransferPiece, box_pieces, box_tiles, hbm_tiling
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray, whole_array
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM


class _Slabs(ABC):
    """What readers and writers of the slabs of an array at granule `first` of HBM share."""

    def __init__(
        self, builder: LloBuilder, window: OperandWindow, first: int, buffers: int, *, to_vmem: bool
    ) -> None:
        self._b = b = builder
        self._window = window
        self._first = first
        self._to_vmem = to_vmem
        self._buffers = buffers
        tiling, box = hbm_tiling(window.shape), box_tiles(window.shape, window.extent)
        self._offset, _ = granule_offset(window, tiling)
        self._rows = box.vmem_rows
        count = buffers * self._rows
        name = f"{'in' if to_vmem else 'out'}.{window.node.name}"
        self.window_rows = count + GUARD_ROWS
        self.window_id = b.window(name, self.window_rows)
        b.needs_rows(self.window_id, count, GUARD_ROWS)
        self._pieces: list[TransferPiece] = box_pieces(tiling, box, self.window_id, to_vmem=to_vmem)
        assert all(piece.dynamic_limit < 0 for piece in self._pieces), "a slab has whole matrices"
        self._flag = b.flag(buffers)
        strides = zip(
            tiling.major_strides(), window.extent[:-2], window.shape.dims[:-2], strict=True
        )
        self._step = min((s * n for s, n, size in strides if n < size), default=0)
        matrix = tiling.row_tiles * tiling.row_stride
        self._span = matrix + sum(
            s * (n - 1) for s, n in zip(tiling.major_strides(), window.extent[:-2], strict=True)
        )
        self._last = first + tiling.total_granules - self._span

    def _address(self, sregs: Mapping[Var, SReg]) -> SReg:
        """The granule at which the slab begins."""
        b = self._b
        return b.sadd(b.sconst(self._first), emit_index(b, self._offset, sregs))

    def _start(self, address: SReg, slot: SReg) -> None:
        b = self._b
        with b.coming_from(self._window.node.name):
            buffer = b.smuli(slot, self._rows)
            for piece in self._pieces:
                hbm = b.saddi(address, piece.hbm_offset)
                vmem = b.saddi(buffer, piece.vmem_offset)
                ends = (hbm, vmem) if self._to_vmem else (vmem, hbm)
                b.emit("dma.start", b.descriptor(piece.descriptor), *ends, self._flag, slot, 0, 0)

    def _wait(self, slot: SReg) -> None:
        with self._b.coming_from(self._window.node.name):
            self._b.emit("dma.wait", self._flag, slot)

    def _moved(self, slot: SReg, steps: int) -> SReg:
        """The buffer so many further around the ring."""
        return self._b.sandi(self._b.saddi(slot, steps), self._buffers - 1)

    @abstractmethod
    def drain(self) -> None:
        """Wait for what is on its way."""


class SlabReader(_Slabs):
    """Brings the slab that a fusion reads; `is_ahead`: the next ones before they are asked for.

    What is on its way lies at ``base + k * stride``, inside the array, for successive k; `_next` is the one
    that comes first, `_stride` changes only when all others have been thrown away.
    """

    def __init__(
        self, builder: LloBuilder, window: OperandWindow, first: int, *, is_ahead: bool
    ) -> None:
        buffers = ring_buffers(window.shape, window.extent) if is_ahead else 1
        super().__init__(builder, window, first, buffers, to_vmem=True)
        self._ahead = buffers - 1
        if is_ahead:
            b = builder
            self._slot = b.variable(constant=self._ahead)
            self._next = b.variable(constant=first)
            self._stride = b.variable(constant=self._step)
            self._present = b.variable(constant=first - self._step)
            for number in range(self._ahead):
                ahead = min(first + number * self._step, self._last)
                self._start(b.sconst(ahead), b.sconst(number))

    def read(self, sregs: Mapping[Var, SReg]) -> VmemArray:
        """The slab at `sregs`, once it is there."""
        b, w = self._b, self._window
        address = self._address(sregs)
        if not self._ahead:
            self._start(address, b.sconst(0))
            self._wait(b.sconst(0))
            b.new_block()
            return VmemArray(w.shape, self.window_id, 0, w.origin, w.extent, guard=GUARD_ROWS)
        with b.if_(b.scmp("ne", "s32", address, self._inside(self._next))):
            self._fetch_anew(address)
        slot = self._moved(self._slot, 1)
        self._wait(slot)
        later = b.sadd(self._next, b.smuli(self._stride, self._ahead))
        self._start(self._inside(later), self._slot)
        b.assign(self._slot, slot)
        b.assign(self._next, b.sadd(self._next, self._stride))
        b.assign(self._present, address)
        b.new_block()
        base = b.smuli(self._slot, self._rows)
        return VmemArray(w.shape, self.window_id, base, w.origin, w.extent)

    def _fetch_anew(self, address: SReg) -> None:
        """Send for the slab at `address` and those behind it, once what was on its way is there."""
        b = self._b
        slot: SReg = self._slot
        for _ in range(self._ahead):
            slot = self._moved(slot, 1)
            self._wait(slot)
        b.assign(self._stride, b.ssub(address, self._present))
        b.assign(self._next, address)
        slot, coming = self._slot, address
        for _ in range(self._ahead):
            slot = self._moved(slot, 1)
            self._start(self._inside(coming), slot)
            coming = b.sadd(coming, self._stride)

    def _inside(self, address: SReg) -> SReg:
        return emit_clamp(self._b, address, self._first, self._last)

    def drain(self) -> None:
        """Wait for what nobody will read."""
        slot = self._slot if self._ahead else 0
        for _ in range(self._ahead):
            slot = self._moved(slot, 1)
            self._wait(slot)


class SlabWriter(_Slabs):
    """Takes the slab that a fusion writes; `is_behind`: it may be on its way while the loop goes on."""

    def __init__(
        self, builder: LloBuilder, window: OperandWindow, first: int, *, is_behind: bool
    ) -> None:
        buffers = ring_buffers(window.shape, window.extent) if is_behind else 1
        super().__init__(builder, window, first, buffers, to_vmem=False)
        self._is_behind = is_behind
        if is_behind:
            self._slot = builder.variable(constant=0)
            self._pending = builder.variable(constant=0)
            self._present = builder.variable(constant=first)
            self._next = builder.variable(constant=-1)

    def buffer(self, update: ArrayShape) -> VmemArray:
        """Where the slab is to be made, once what was there has left."""
        b, shape = self._b, update.with_layout(None)
        if not self._is_behind:
            return whole_array(shape, self.window_id, guard=GUARD_ROWS)
        with b.if_(b.scmp("eq", "s32", self._pending, b.sconst(self._buffers))):
            self._wait(self._slot)
            b.assign(self._pending, b.sconst(self._buffers - 1))
        b.new_block()
        return replace(whole_array(shape, self.window_id), base=b.smuli(self._slot, self._rows))

    def write(self, sregs: Mapping[Var, SReg]) -> None:
        """Send the slab to its place at `sregs`."""
        b = self._b
        b.new_block()
        address = self._address(sregs)
        if not self._is_behind:
            self._start(address, b.sconst(0))
            self._wait(b.sconst(0))
            b.new_block()
            return
        with b.if_(b.scmp("ne", "s32", address, self._next)):
            self.drain()
        self._start(address, self._slot)
        stride = b.ssub(address, self._present)
        is_apart = b.scmp("le", "s32", b.sconst(self._span), b.smax(stride, b.ssub(0, stride)))
        b.assign(self._next, b.ssel(is_apart, b.sadd(address, stride), b.sconst(-1)))
        b.assign(self._present, address)
        b.assign(self._slot, self._moved(self._slot, 1))
        b.assign(self._pending, b.saddi(self._pending, 1))
        b.new_block()

    def drain(self) -> None:
        """Wait until all slabs have left."""
        b = self._b
        if not self._is_behind:
            return
        for number in range(self._buffers):
            with b.if_(b.scmp("lt", "s32", b.sconst(number), self._pending)):
                self._wait(self._moved(self._slot, -1 - number))
        b.assign(self._pending, b.sconst(0))
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
