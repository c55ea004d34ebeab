"""reduce-scatter of slots ``[n, ..] -> [1, ..]``: partial sums go round a ring, half of each slot each way.

The partial sum of a slot starts at the core behind the slot's own in the ring; each core adds its part
and passes it on. It goes in blocks, so that one is on the link while another is added to.
"""

from __future__ import annotations

from compiler.analysis.async_flags import reduction_pieces
from compiler.backend.exchange.kernels import BACKWARD, FORWARD, STEP_FLAGS, ExchangeKernel
from compiler.backend.exchange.plan import FIRST_DATA_FLAG
from compiler.backend.exchange.sums import UNIT_ROWS, Sum
from compiler.backend.exchange.ways import by_core
from compiler.hlo.replica_groups import Groups
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM, VMEM, DmaDescriptor, DmaDim

_BLOCK_GRANULES = 1024
_LOADS, _STORES = 4, 8
_ROWS = 8


class RingReduce:
    """One kernel. Each direction has `part` granules of a slot, in `blocks` of `block` granules."""

    def __init__(self, x: ExchangeKernel, groups: Groups, first_flag: int | None = None) -> None:
        self.x, kernel = x, x.kernel
        self.first_flag = first_flag
        self.b = x.builder
        self.size = len(groups[0])
        self.granules = x.granules(self.size)
        self.directions = (FORWARD, BACKWARD) if self.size > 2 else (FORWARD,)
        self.first = (0, -(-self.granules // len(self.directions)))
        self.part = (self.first[1], self.granules - self.first[1])
        self.steps = self.size - 1
        self.pieces = reduction_pieces(self.size, self.granules * GRANULE_BYTES)
        """In phases a step has flags for so many pieces, else for each block."""
        most = max(1, -(-self.part[0] // _ROWS))
        if first_flag is None:
            most = max(1, min(STEP_FLAGS // self.steps, most))
        least = self.pieces if first_flag is not None else 1
        self.blocks = min(most, max(least, -(-self.part[0] // _BLOCK_GRANULES)))
        self.piece = -(-self.blocks // self.pieces)
        self.block = -(-self.part[0] // self.blocks)
        self.block += -self.block % UNIT_ROWS
        rings: Groups = tuple(tuple(x.plan.cores.ring(group)) for group in groups)
        ways = [by_core(x.cores, rings, 1), by_core(x.cores, rings, -1)]
        beside = ways[: len(self.directions)]
        self.routes = [x.plan.route(way, beside, port) for port, way in enumerate(ways)]
        self.rows = _slots(x.cores, groups, rings, self.size)
        self.sum = Sum(kernel)
        self.windows = [self.sum.windows(str(d), self.block) for d in self.directions]
        self.scratch = x.scratch

    def emit(self) -> None:
        """Emit everything."""
        b = self.b
        self._begin()
        if self.steps > 1:
            with b.loop(self.steps - 1, "step") as step, b.loop(self.blocks, "block") as block:
                self._await(step, block)
                self._pass_on(step, block, is_last=False)
        with b.loop(self.blocks, "last") as block:
            self._await(b.sconst(self.steps - 1), block)
            self._pass_on(b.sconst(self.steps - 1), block, is_last=True)

    def emit_phase(self, phase: int, phases: int) -> None:
        """Emit one of the kernels in phases: the first one sends, others add to what came and send it on."""
        x, b = self.x, self.b
        if phase == 0:
            self._begin()
            return
        x.start_table(self.rows)
        x.await_table()
        first, end = (self.steps * number // phases for number in (phase - 1, phase))
        for step in range(first, end):
            came = b.sconst(step)
            for at in range(0, self.blocks, self.piece):
                self._await(came, b.sconst(at))
                with b.loop(min(self.piece, self.blocks - at), "block") as block:
                    self._pass_on(came, b.saddi(block, at), is_last=step + 1 == self.steps)

    def _begin(self) -> None:
        """Tell the neighbours, hear of them, and send the first slots."""
        x, b = self.x, self.b
        x.start_table(self.rows)
        for direction in self.directions:
            x.signal(self.routes[1 - direction], x.ready + direction)
        x.await_table()
        for direction in self.directions:
            x.wait(x.ready + direction)
        with b.loop(self.blocks, "first") as block:
            for direction in self.directions:
                slot = self._slot(direction, 0, 0)
                at, count = self._range(direction, block)
                source = b.sadd(x.slot(x.source, slot, self.granules), at)
                self._send(direction, source, slot, at, count, self._flag(direction, 0, block))

    def _await(self, step: SReg, block: SReg) -> None:
        """Wait for the block of a step; in phases for all of its blocks."""
        for direction in self.directions:
            self.x.wait(0, self._flag(direction, step, block))

    def _pass_on(self, step: SReg, block: SReg, *, is_last: bool) -> None:
        """Add to the block that came in a step, and send it on or keep it."""
        x, b = self.x, self.b
        places = []
        for direction in self.directions:
            slot = self._slot(direction, 1, step)
            at, count = self._range(direction, block)
            partial = b.sadd(x.slot(self.scratch, slot, self.granules), at)
            own = b.sadd(x.slot(x.source, slot, self.granules), at)
            places.append((direction, slot, at, count, partial))
            for window, source in zip(self.windows[direction], (partial, own), strict=True):
                self._copy(window, source, count, to_vmem=True, flag=_LOADS + direction)
        for direction in self.directions:
            x.wait(_LOADS + direction)
        for direction in self.directions:
            self.sum.add(self.windows[direction], self.block)
        for direction, _, at, count, partial in places:
            target = b.sadd(x.target, at) if is_last else partial
            window = self.windows[direction][0]
            self._copy(window, target, count, to_vmem=False, flag=_STORES + direction)
        for direction in self.directions:
            x.wait(_STORES + direction)
        if is_last:
            return
        following = b.saddi(step, 1)
        for direction, slot, at, count, partial in places:
            flag = self._flag(direction, following, block)
            self._send(direction, partial, slot, at, count, flag)
        b.new_block()

    def _slot(self, direction: int, number: int, step: SReg) -> SReg:
        """The slot of which a core sends the partial sum at a step, from the core's table."""
        return self.x.word(number + direction * self.size, step)

    def _range(self, direction: int, block: SReg) -> tuple[SReg, SReg]:
        """Where a block starts in its slot, and its granules."""
        b = self.b
        start = b.smuli(block, self.block)
        rest = b.emit("ssub.s32", b.sconst(self.part[direction]), start)
        count = b.emit("smax.s32", b.emit("smin.s32", rest, b.sconst(self.block)), b.sconst(0))
        return b.saddi(start, self.first[direction] if direction else 0), count

    def _flag(self, direction: int, step: SReg, block: SReg) -> SReg:
        b = self.b
        if self.first_flag is not None:
            piece = b.emit("sdivi.u32", block, self.piece)
            number = b.sadd(b.smuli(step, self.pieces), piece)
            return b.saddi(number, self.first_flag + direction * self.steps * self.pieces)
        number = b.sadd(b.smuli(step, self.blocks), block)
        return b.saddi(number, FIRST_DATA_FLAG + direction * STEP_FLAGS)

    def _send(
        self, direction: int, source: SReg, slot: SReg, at: SReg, count: SReg, flag: SReg
    ) -> None:
        x, b = self.x, self.b
        target = b.sadd(x.slot(self.scratch, slot, self.granules), at)
        descriptor = DmaDescriptor(HBM, HBM, 1, (DmaDim(-1, 1, 1),), route=self.routes[direction])
        b.emit("dma.start", b.descriptor(descriptor), source, target, 0, flag, count, 0)

    def _copy(self, window: int, place: SReg, count: SReg, *, to_vmem: bool, flag: int) -> None:
        b = self.b
        spaces = (HBM, VMEM) if to_vmem else (VMEM, HBM)
        descriptor = b.descriptor(DmaDescriptor(*spaces, 1, (DmaDim(-1, 1, 1),), window))
        ends = (place, 0) if to_vmem else (0, place)
        b.emit("dma.start", descriptor, *ends, flag, 0, count, 0)


def _slots(cores: int, groups: Groups, rings: Groups, size: int) -> list[list[int]]:
    """For each core the slots that it sends forward step by step, its own last; then backward."""
    rows: list[list[int]] = [[] for _ in range(cores)]
    for group, ring in zip(groups, rings, strict=True):
        rank = {core: number for number, core in enumerate(group)}
        for place, core in enumerate(ring):
            forward = [rank[ring[(place - s - 1) % size]] for s in range(size)]
            backward = [rank[ring[(place + s + 1) % size]] for s in range(size)]
            rows[core] = [*forward, *backward]
    return rows
