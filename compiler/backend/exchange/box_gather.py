"""all-gather over a box of chips: each colour goes along one axis after another, all links at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from math import prod

import numpy as np

from compiler.backend.exchange.box import Colour, ExchangeBox, along_axes, colours
from compiler.backend.exchange.kernels import LOCAL, ExchangeKernel
from compiler.backend.exchange.plan import FIRST_DATA_FLAG
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM, MAX_FLAGS, NO_ROUTE, DmaDescriptor, DmaDim
from tpu_sim.isa.torus import I64


@dataclass(frozen=True)
class Send:
    """One transfer of a round: over a route, granules `first` to `end` of all slots of a block."""

    route: int
    word: int
    first: int
    end: int
    flag: int


@dataclass(frozen=True)
class GatherRound:
    """What a colour sends at a time, and what comes meanwhile, from cycle `start` to `end`.

    A block is the slots of `gathered`, pairs of count and granules between. The first one is the operand.
    """

    start: int
    end: int
    sends: tuple[Send, ...]
    gathered: tuple[tuple[int, int], ...]
    is_operand: bool


class BoxGather:
    """The schedule of a gather, and for each core the first granule of each block that it sends."""

    def __init__(self, box: ExchangeBox, granules: int, chip: Chip) -> None:
        self.box, self.granules, self.chip = box, granules, chip
        self.rounds: list[GatherRound] = []
        self.words = [self._ranks(range(len(box.axes))) * granules]  # of every core's table
        self.flags = 0
        parts = colours(box, granules)
        along_axes(
            [part.order for part in parts],
            lambda colour, phase, start: self._plan(parts[colour], phase, int(start)),
        )

    @property
    def cycles(self) -> int:
        """How long it takes, about."""
        return max(r.end for r in self.rounds)

    @property
    def fits(self) -> bool:
        """Whether there is a flag for every transfer."""
        return FIRST_DATA_FLAG + self.flags <= MAX_FLAGS

    def _plan(self, colour: Colour, phase: int, now: int) -> int:
        """Add a colour's rounds along an axis, from cycle `now` on; return when they are over."""
        number = colour.order[phase]
        axis = self.box.axes[number]
        before = [self.box.axes[k] for k in colour.order[:phase]]
        gathered = tuple((a.size, a.stride * self.granules) for a in before)
        slots = prod(a.size for a in before)
        middle = colour.end - (colour.end - colour.first) // 2
        for step in range(axis.size // 2):
            parts = [(colour.first, colour.end)] * 2
            if 2 * (step + 1) == axis.size and axis.size > 2:  # both bring the same block
                parts = [(colour.first, middle), (middle, colour.end)]
            sends = tuple(
                Send(2 * number + way, self._word(colour, phase, way, step), *part, self._flag())
                for way, part in enumerate(parts)
                if way in axis.directions and part[1] > part[0]
            )
            most = max(send.end - send.first for send in sends) * slots
            end = now + axis.cycles(most * GRANULE_BYTES, self.chip)
            self.rounds.append(GatherRound(now, end, sends, gathered, phase == step == 0))
            now = end
        return now

    @property
    def rows(self) -> list[list[int]]:
        """The table of each core."""
        rows: list[list[int]] = np.stack(self.words, axis=1).tolist()
        return rows

    def _flag(self) -> int:
        self.flags += 1
        return FIRST_DATA_FLAG + self.flags - 1

    def _word(self, colour: Colour, phase: int, way: int, step: int) -> int:
        """The word of a core's table that says where the block of a step lies."""
        number, *later = colour.order[phase:]
        rank = self.box.ranks_along(number, -step if way == 0 else step) + self._ranks(later)
        self.words.append(rank * self.granules)
        return len(self.words) - 1

    def _ranks(self, axes: Iterable[int]) -> I64:
        """What some axes contribute to the rank of every core."""
        found = np.zeros(len(self.box.places), np.int64)
        for number in axes:
            found += self.box.ranks_along(number)
        return found

    def begin(self, x: ExchangeKernel, local: int) -> None:
        """Tell the neighbours, hear of them, and bring this core's own slot to its place."""
        b = x.builder
        routes = self._routes(x)
        x.start_table(self.rows)
        for number, axis in enumerate(self.box.axes):
            for way in axis.directions:
                back = 2 * number + (1 - way if axis.size > 2 else way)
                x.signal(routes[back], x.ready)
        x.await_table()
        own = b.sadd(x.target, x.word(0))
        x.start(NO_ROUTE, x.source, own, b.sconst(local), self.granules)
        x.wait(x.ready)

    def events(self) -> list[tuple[bool, GatherRound]]:
        """Starts (True) and ends of rounds, in the order in which they are about to happen."""
        ends = [(r.end, 0, k) for k, r in enumerate(self.rounds)]
        starts = [(r.start, 1, k) for k, r in enumerate(self.rounds)]
        return [(bool(is_start), self.rounds[k]) for _, is_start, k in sorted(starts + ends)]

    def parts(self) -> list[list[tuple[bool, GatherRound]]]:
        """The events in parts, each of which waits and then sends; the last one only waits."""
        found: list[list[tuple[bool, GatherRound]]] = [[]]
        for is_start, current in self.events():
            if not is_start and found[-1] and found[-1][-1][0]:
                found.append([])
            found[-1].append((is_start, current))
        return found

    def emit(self, x: ExchangeKernel) -> None:
        """Emit the kernel."""
        self.begin(x, LOCAL)
        if not self.emit_events(x, self.events(), LOCAL):
            x.wait(LOCAL)

    def emit_parts(self, x: ExchangeKernel, wanted: slice, local: int) -> None:
        """Wait for rounds and send, some of `parts`."""
        self.emit_events(x, chain.from_iterable(self.parts()[wanted]), local)

    def emit_events(
        self, x: ExchangeKernel, events: Iterable[tuple[bool, GatherRound]], local: int
    ) -> bool:
        """Wait for rounds and send; whether this core's own slot was waited for."""
        routes = self._routes(x)
        is_local = True
        for is_start, current in events:
            if not is_start:
                for send in current.sends:
                    x.wait(send.flag + x.flag_offset)
                continue
            if current.gathered and is_local:
                x.wait(local)
                is_local = False
            for send in current.sends:
                self._send(x, current, send, routes[send.route])
        return not is_local

    def _routes(self, x: ExchangeKernel) -> list[int]:
        return [route for pair in self.box.route_numbers(x.plan) for route in pair]

    def _send(self, x: ExchangeKernel, current: GatherRound, send: Send, route: int) -> None:
        b = x.builder
        place = b.saddi(b.sadd(x.target, x.word(send.word)), send.first)
        source = b.saddi(x.source, send.first) if current.is_operand else place
        flag = b.sconst(send.flag + x.flag_offset)
        dims = tuple(DmaDim(count, step, step) for count, step in current.gathered)
        descriptor = DmaDescriptor(HBM, HBM, send.end - send.first, dims, route=route)
        b.emit("dma.start", b.descriptor(descriptor), source, place, 0, flag, 0, 0)
