"""What kernels that exchange data have in common, and all-to-all of whole slots: flags, no arithmetic.

A slot is a part of an array that lies in one piece: index i of dimension 0. Every core runs the same
code; what differs, such as the slot it is to send next, is a row of a table that it reads first. It
writes into another core's result after that one has said that it is in the kernel too.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.backend.custom import CustomKernel
from compiler.backend.exchange.plan import FIRST_DATA_FLAG, ExchangePlan
from compiler.backend.kernel_calls import no_kernel
from compiler.backend.transfer import hbm_tiling
from compiler.hlo.replica_groups import DeviceCounts, Groups, device_groups, device_pairs
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import GRANULE_BYTES, WORD_BYTES
from tpu_sim.isa.program import HBM, MAX_FLAGS, NO_ROUTE, SMEM, DmaDescriptor, DmaDim, core_word

LOCAL, _TABLE = 0, 1
"""Flags of a core's own transfers; data flags of other cores' are behind `FIRST_DATA_FLAG`."""
STEP_FLAGS = (MAX_FLAGS - FIRST_DATA_FLAG) // 2
"""Data flags of each direction: a step's transfer has its own, since the next one may overtake it."""
FORWARD, BACKWARD = 0, 1


class ExchangeKernel:
    """What the kernels have in common; `size` is the number of cores in a group."""

    def __init__(self, kernel: CustomKernel) -> None:
        if kernel.exchange is None:  # a program for one device
            raise no_kernel(kernel.root, kernel.fusion)
        self.builder = kernel.builder
        self.kernel = kernel
        self.plan: ExchangePlan = kernel.exchange
        self.cores = len(self.plan.cores.chips)
        b = self.builder
        b.flag(MAX_FLAGS)
        self.ready = self.plan.ready_flag(b.name)
        self.source = b.argument(kernel.interface.operands[0].index)
        results = kernel.interface.results
        self.target = b.argument(results[0].index)
        is_own = len(results) > 1
        self.scratch = (
            b.argument(results[1].index) if is_own else b.sconst(self.plan.scratch_granule)
        )
        """Where a reduction has its partial sums: one in phases in a result, others share a place."""
        self.flag_offset = 0
        """How far the data flags of this exchange are from those of others; not 0 in halves."""
        self._words = 0

    def groups(self) -> Groups:
        """The groups, as numbers of cores."""
        found = device_groups(self.kernel.root, DeviceCounts(1, self.cores))
        assert len(set(map(len, found))) == 1, "collective-expander leaves equal groups"
        self._note(found)
        return found

    def pairs(self) -> Groups:
        """A permute's pairs of source and target."""
        found = device_pairs(self.kernel.root, DeviceCounts(1, self.cores))
        self._note(found)
        return found

    def _note(self, groups: Groups) -> None:
        arrays = [operand.array for operand in self.kernel.root.operands]
        size = sum(array.byte_count for array in arrays)
        self.plan.exchanges[self.builder.name] = (self.kernel.root.opcode, size, groups)

    def granules(self, parts: int = 1) -> int:
        """Granules of one of `parts` slots of the operand."""
        return hbm_tiling(self.kernel.interface.operands[0].shape).total_granules // parts

    def number(self) -> SReg:
        """The number of this core."""
        b = self.builder
        return b.emit("sld", b.sconst(core_word(self.kernel.chip.smem_words)), 0)

    def start_table(self, rows: Sequence[Sequence[int]]) -> None:
        """Begin to read this core's row of a table; `await_table` must follow."""
        b, (granule, width) = self.builder, self.plan.table(rows, self.builder.name)
        words = width * (GRANULE_BYTES // WORD_BYTES)
        self._words = self.kernel.smem.reserve(words)
        row = b.saddi(b.smuli(self.number(), width), granule)
        descriptor = b.descriptor(DmaDescriptor(HBM, SMEM, words))
        b.emit("dma.start", descriptor, row, b.sconst(self._words), _TABLE, 0, 0, 0)

    def await_table(self) -> None:
        """The row is there."""
        self.wait(_TABLE)

    def word(self, number: int, index: SReg = 0) -> SReg:
        """Word `number`, plus a number in a sreg, of this core's row."""
        b = self.builder
        return b.emit("sld", b.sadd(index, b.sconst(self._words)), number)

    def start(self, route: int, source: SReg, target: SReg, flag: SReg, granules: int) -> None:
        """Send granules over a route (or within this core's HBM); the flag is a number in a sreg."""
        b = self.builder
        descriptor = DmaDescriptor(HBM, HBM, granules, route=route)
        b.emit("dma.start", b.descriptor(descriptor), source, target, 0, flag, 0, 0)

    def signal(self, route: int, flag: int) -> None:
        """Tell the core that a route leads to that this one is in the kernel."""
        b = self.builder
        descriptor = DmaDescriptor(HBM, HBM, 1, (DmaDim(0, 0, 0),), route=route)
        b.emit("dma.start", b.descriptor(descriptor), 0, 0, 0, b.sconst(flag), 0, 0)

    def wait(self, flag: int, index: SReg = 0) -> None:
        """Wait for flag number `flag` plus a number in a sreg, at the start of a block."""
        b = self.builder
        number = b.saddi(index, flag) if index else b.sconst(flag)
        b.new_block()
        b.emit("dma.wait", 0, number)
        b.new_block()

    def slot(self, base: SReg, number: SReg, granules: int) -> SReg:
        """The address of a slot."""
        b = self.builder
        return b.sadd(base, b.smuli(number, granules))


def emit_all_to_all(kernel: CustomKernel) -> None:
    """Emit an all-to-all of slots: each core sends slot j to the core of rank j, all at once."""
    x = ExchangeKernel(kernel)
    if _send_slots(x, FIRST_DATA_FLAG, LOCAL):
        x.wait(FIRST_DATA_FLAG)
    x.wait(LOCAL)


def emit_all_to_all_phase(kernel: CustomKernel, first_flag: int, phase: int, phases: int) -> None:
    """Emit the kernel that sends, or the one that waits; the flags are the two from `first_flag` on."""
    x = ExchangeKernel(kernel)
    if phase == 0:
        _send_slots(x, first_flag, first_flag + 1)
        return
    for flag in (first_flag, first_flag + 1):
        x.wait(flag)


def _send_slots(x: ExchangeKernel, data: int, local: int) -> int:
    """Send each slot to its core, and bring this core's own to its place; how many are sent."""
    groups = x.groups()
    size = len(groups[0])
    granules = x.granules(size)
    rows: list[list[int]] = [[] for _ in range(x.cores)]
    for group in groups:
        for rank, core in enumerate(group):
            rows[core] = [(rank + step) % size for step in range(size)]
    routes = x.plan.all_to_all(groups)
    b = x.builder
    x.start_table(rows)
    for route in routes:
        x.signal(route, x.ready)
    x.await_table()
    rank = x.word(0)
    places = (x.slot(x.source, rank, granules), x.slot(x.target, rank, granules))
    x.start(NO_ROUTE, *places, b.sconst(local), granules)
    if routes:
        x.wait(x.ready)
    for step, route in enumerate(routes, 1):
        source = x.slot(x.source, x.word(step), granules)
        place = x.slot(x.target, x.word(0), granules)
        x.start(route, source, place, b.sconst(data), granules)
        b.new_block()
    return len(routes)
