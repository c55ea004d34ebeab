"""reduce-scatter over a box of chips: along each axis partial sums go round rings, all links at once.

It is the gather of `box_gather` backwards: each colour goes along its axes in the opposite order, on each
axis half of its part of every slot each way; with a step there is one block fewer to be summed. A *chain*
is a colour one way. In a *turn* each chain at most waits for one piece of a partial sum, adds the core's
own to it, and sends it on. Turns are in the order in which pieces arrive.

Where a device has two cores, each has the chains of one way: their ports, flags and windows are its own.

Partial sums come to the place of their slots in the scratch. The block that a core sends first along an
axis never comes to it, so in its place come those of the next axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from compiler.backend.exchange.box import DIRECTIONS, Colour, ExchangeBox, along_axes, colours
from compiler.backend.exchange.kernels import ExchangeKernel
from compiler.backend.exchange.plan import FIRST_DATA_FLAG
from compiler.backend.exchange.sums import Sum
from compiler.llo.ir import SReg
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM, MAX_FLAGS, VMEM, DmaDescriptor, DmaDim
from tpu_sim.isa.torus import I64

_BLOCK_GRANULES = (64, 2048)
"""The least that is worth a turn, and the most that it takes."""
PHASE_GRANULES = 256
"""The most in phases, whose kernels share VMEM with arrays that stay there."""
_PIECES = 4
"""With so many pieces in a step, one is on the link while another is added to."""
_FLAGS = range(FIRST_DATA_FLAG, MAX_FLAGS)
_MOST_PIECES = 1200
"""Pieces of all chains: more make a kernel that takes long to compile."""
_COPIES = 2
"""The first of the kernel's own flags for copies, two for each chain: turns alternate."""


@dataclass(frozen=True)
class GranulePiece:
    """A part of a block: from granule `at` on, `repeats` times `k` slots of `count` granules each.

    `step` is how far on the next repetition is, `stride` the next slot; `limit` ends the granules of all
    repetitions.
    """

    at: int
    k: int
    stride: int
    count: int
    repeats: int
    step: int
    limit: int


@dataclass(frozen=True)
class Phase:
    """A chain along one axis; a block are the slots of all coordinates along the axes after it.

    A core's table has, from `word` on, where the block of each step comes to, its own last; then how
    far from there its own part of it lies. `flags` are by step and piece.
    """

    axis: int
    way: int
    size: int
    pieces: tuple[GranulePiece, ...]
    word: int
    flags: tuple[tuple[int, ...], ...]
    cycles: int  # of a step
    is_last: bool


@dataclass(frozen=True, order=True)
class Event:
    """A chain's piece at a step of a phase, at about that time."""

    time: float
    chain: int
    phase: int
    step: int
    piece: int


class BoxReduce:
    """The schedule of a reduce-scatter of slots of that many granules."""

    def __init__(
        self, box: ExchangeBox, granules: int, chip: Chip, flags: range = _FLAGS, most: int = 0
    ) -> None:
        self.box, self.granules, self.chip = box, granules, chip
        self.most = most or _BLOCK_GRANULES[1]
        self.words: list[I64] = []  # of every core's table
        parts = [Colour(p.order[::-1], p.first, p.end) for p in colours(box, granules)]
        chains = [(part, way, *_half(part, way)) for part in parts for way in (0, 1)]
        chains = [chain for chain in chains if chain[3] > chain[2]]
        count = range(len(box.axes))
        for repeats in (1, 2, 4, 8, 16, 32):
            pieces = [
                [_pieces(self, c, a, e, phase, repeats) for phase in count] for c, _, a, e in chains
            ]
            sends = [
                len(pieces[c][p])
                for c, (colour, *_) in enumerate(chains)
                for p in count
                for _ in range(box.axes[colour.order[p]].size - 1)
            ]
            if sum(sends) <= _MOST_PIECES:
                break
        self.groups = _flags_each(sends, len(flags))
        self.fits = self.groups > 0 and sum(sends) <= _MOST_PIECES
        self.chains: list[list[Phase]] = []
        self.turns: list[list[Event]] = []
        self.cycles = 0
        self._used = flags.start
        if self.fits:
            self.chains = [
                [self._phase(colour, way, phase, found) for phase, found in enumerate(own)]
                for (colour, way, *_), own in zip(chains, pieces, strict=True)
            ]
            self._plan(parts, [parts.index(chain[0]) for chain in chains])

    @property
    def rows(self) -> list[list[int]]:
        """The table of each core."""
        rows: list[list[int]] = np.stack(self.words, axis=1).tolist()
        return rows

    def _phase(
        self, colour: Colour, way: int, number: int, pieces: tuple[GranulePiece, ...]
    ) -> Phase:
        axis = self.box.axes[colour.order[number]]
        word, flags = self._words(colour, way, number), []
        for _ in range(axis.size - 1):
            groups = min(self.groups, len(pieces))
            flags.append(tuple(self._used + k * groups // len(pieces) for k in range(len(pieces))))
            self._used += groups
        sent = sum(piece.k * piece.limit for piece in pieces) * GRANULE_BYTES
        both = 2 if axis.size == 2 else 1  # both ways are one link
        cycles = axis.cycles(sent * both, self.chip)
        is_last = number == len(self.box.axes) - 1
        return Phase(
            colour.order[number], way, axis.size, pieces, word, tuple(flags), cycles, is_last
        )

    def _words(self, colour: Colour, way: int, number: int) -> int:
        """Write a phase's words into the table of each core; return the first one's number."""
        word, box = len(self.words), self.box
        base = behind = np.zeros(len(box.places), np.int64)
        for done in colour.order[:number]:
            free = box.ranks_along(done, _block(0, way))
            behind = box.ranks_along(done) - free
            base = base + free
        here = colour.order[number]
        for step in range(box.axes[here].size):
            self.words.append((base + box.ranks_along(here, _block(step, way))) * self.granules)
        self.words.append(behind * self.granules)
        return word

    def _plan(self, parts: list[Colour], colour_of: list[int]) -> None:
        """Order the pieces of all chains by when they arrive, and put them into turns."""
        events: list[Event] = []

        def run(colour: int, phase: int, start: float) -> float:
            end = start
            for chain in (c for c, of in enumerate(colour_of) if of == colour):
                own = self.chains[chain][phase]
                end = max(end, start + (own.size - 1) * own.cycles)
                events.extend(_events(chain, phase, own, start))
            return end

        self.cycles = int(along_axes([part.order for part in parts], run))
        most = max(
            sum(event.chain == chain for event in events) for chain in range(len(self.chains))
        )
        unit = self.cycles / most
        for event in sorted(events, key=lambda e: (e.time // unit, e)):
            if not self.turns or any(self._apart(event, other) for other in self.turns[-1]):
                self.turns.append([])
            self.turns[-1].append(event)

    def _apart(self, event: Event, other: Event) -> bool:
        """Whether two are for different turns: a turn is repeated for all of its pieces."""
        repeats = [self.chains[e.chain][e.phase].pieces[e.piece].repeats for e in (event, other)]
        return event.chain == other.chain or repeats[0] != repeats[1]

    def emit(self, x: ExchangeKernel) -> None:
        """Emit the kernel."""
        _Emitter(self, x).emit(range(len(self.turns)))

    def emit_phase(self, x: ExchangeKernel, phase: int, phases: int) -> None:
        """Emit one of the kernels in phases: first the turns that wait for nothing, then the others."""
        first = next(k for k, turn in enumerate(self.turns) if any(event.step for event in turn))
        rest = len(self.turns) - first
        bounds = [0, *(first + rest * number // phases for number in range(phases + 1))]
        _Emitter(self, x).emit(range(bounds[phase], bounds[phase + 1]))


def _events(chain: int, number: int, phase: Phase, start: float) -> Iterator[Event]:
    """The pieces of a chain along an axis that begins at `start`, when they arrive."""
    count = len(phase.pieces)
    for step in range(phase.size):
        for k in range(count):
            # What goes first waits for nothing.
            arrival = (step - 1 + (k + 1) / count) * phase.cycles if step else 0
            yield Event(start + arrival, chain, number, step, k)


class _Emitter:
    def __init__(self, plan: BoxReduce, x: ExchangeKernel) -> None:
        self.plan, self.x, self.b = plan, x, x.builder
        self.routes = plan.box.route_numbers(x.plan)
        self.sum = Sum(x.kernel)
        rows = max(p.k * p.count for chain in plan.chains for phase in chain for p in phase.pieces)
        self.windows = [
            [self.sum.windows(f"{chain}.{turn}", rows) for turn in range(2)]
            for chain in range(len(plan.chains))
        ]
        self.scratch = x.scratch

    def emit(self, turns: range) -> None:
        """Emit some of the turns, the chains of each way on a core of their own if there are two."""
        axes, cores = self.plan.box.axes, self.plan.chip.cores_per_device
        if cores != len(DIRECTIONS) or any(axis.size == 2 for axis in axes):  # one link for both
            self._emit(turns, (0, 1), self.x.ready)
            return
        self.b.cores = cores
        core = self.b.emit("score")
        for way in (0, 1):
            with self.b.if_(self.b.emit("scmp.eq.s32", core, self.b.sconst(way))):
                self._emit(turns, (way,), self.x.ready + way)

    def _emit(self, turns: range, ways: tuple[int, ...], ready: int) -> None:
        """Emit what turns do for some ways; before the first turn neighbours say that they are ready."""
        x, is_begin = self.x, turns.start == 0
        x.start_table(self.plan.rows)
        for axis, (forward, backward) in zip(self.plan.box.axes, self.routes, strict=True):
            for way in axis.directions if is_begin else ():
                if way in ways:
                    x.signal((forward if axis.size == 2 else (backward, forward)[way]), ready)
        x.await_table()
        if is_begin:
            x.wait(ready)
        chosen = [
            [event for event in self.plan.turns[number] if self._phase(event).way in ways]
            for number in turns
        ]
        self._take_turns([turn for turn in chosen if turn])

    def _take_turns(self, turns: list[list[Event]]) -> None:
        before: list[Event] = []
        for number, turn in enumerate(turns):
            repeats = max(self._piece(event).repeats for event in turn)
            is_early = repeats == 1 and not self._depends(turn, before)
            if is_early:  # its copies go on while the sums before are made
                self._load(turn, number, 0)
            self._finish(before, number - 1, 0)
            before = turn
            if repeats > 1:
                with self.b.loop(repeats, "repeat") as repeat:
                    self._load(turn, number, repeat)
                    self._finish(turn, number, repeat)
                before = []
            elif not is_early:
                self._load(turn, number, 0)
        self._finish(before, len(turns) - 1, 0)

    def _depends(self, turn: list[Event], before: list[Event]) -> bool:
        """Whether a chain cannot go on before its piece of the turn before is done, here or elsewhere."""
        last = {event.chain: event for event in before}
        return any(
            event.chain in last
            and (
                event.phase != last[event.chain].phase
                or event.piece == last[event.chain].piece
                or event.step > last[event.chain].step + 1
            )
            for event in turn
        )

    def _phase(self, event: Event) -> Phase:
        return self.plan.chains[event.chain][event.phase]

    def _piece(self, event: Event) -> GranulePiece:
        return self._phase(event).pieces[event.piece]

    def _load(self, turn: list[Event], number: int, repeat: SReg) -> None:
        """Begin to bring what came and this core's own part into VMEM."""
        adding = [event for event in turn if event.step]
        for event in adding:
            self.x.wait(self._phase(event).flags[event.step - 1][event.piece])
        for event in adding:
            at, count = self._range(event, repeat)
            windows, flag = self._windows(event, number), self._flag(event, number)
            for window, place in zip(
                windows, (self._landing(event), self._own(event)), strict=True
            ):
                self._copy(event, window, self.b.sadd(place, at), count, flag, to_vmem=True)

    def _finish(self, turn: list[Event], number: int, repeat: SReg) -> None:
        """Add what was loaded, and send the sums on or keep them."""
        x = self.x
        adding = [event for event in turn if event.step]
        for event in adding:
            x.wait(self._flag(event, number))
            piece, windows = self._piece(event), self._windows(event, number)
            self.sum.add(windows, piece.k * piece.count)
            at, count = self._range(event, repeat)
            place = x.target if self._is_result(event) else self._landing(event)
            flag = self._flag(event, number)
            self._copy(event, windows[0], self.b.sadd(place, at), count, flag, to_vmem=False)
        for event in adding:
            x.wait(self._flag(event, number))
        for event in turn:
            if event.step < self._phase(event).size - 1:
                self._send(event, repeat)
        self.b.new_block()

    def _windows(self, event: Event, number: int) -> tuple[int, int]:
        """The windows of a chain in a turn: the next turn has others."""
        return self.windows[event.chain][number % 2]

    def _flag(self, event: Event, number: int) -> int:
        return _COPIES + 2 * event.chain + number % 2

    def _is_result(self, event: Event) -> bool:
        phase = self._phase(event)
        return phase.is_last and event.step == phase.size - 1

    def _landing(self, event: Event) -> SReg:
        """Where the block of a step comes to."""
        return self.b.sadd(self.scratch, self.x.word(self._phase(event).word + event.step))

    def _own(self, event: Event) -> SReg:
        """Where this core's own part of it lies: in the operand, or what the axis before left."""
        x, phase = self.x, self._phase(event)
        word = x.word(phase.word + event.step)
        if event.phase == 0:
            return self.b.sadd(x.source, word)
        behind = x.word(phase.word + phase.size)
        return self.b.sadd(self.b.sadd(self.scratch, word), behind)

    def _range(self, event: Event, repeat: SReg) -> tuple[SReg, SReg]:
        """Where in its block a repetition starts, and its granules of each slot."""
        b, piece = self.b, self._piece(event)
        at = b.sconst(piece.at)
        if piece.repeats == 1 or piece.k > 1:
            count = b.sconst(min(piece.count, piece.limit))
        else:
            rest = b.ssub(b.sconst(piece.limit), b.smuli(repeat, piece.count))
            count = b.smax(b.smin(rest, b.sconst(piece.count)), b.sconst(0))
        return (b.sadd(at, b.smuli(repeat, piece.step)) if repeat else at), count

    def _copy(
        self, event: Event, window: int, place: SReg, count: SReg, flag: int, *, to_vmem: bool
    ) -> None:
        b, piece = self.b, self._piece(event)
        spaces = (HBM, VMEM) if to_vmem else (VMEM, HBM)
        steps = (piece.stride, piece.count) if to_vmem else (piece.count, piece.stride)
        dims = (*([DmaDim(piece.k, *steps)] if piece.k > 1 else []), DmaDim(-1, 1, 1))
        descriptor = b.descriptor(DmaDescriptor(*spaces, 1, dims, window))
        ends = (place, 0) if to_vmem else (0, place)
        b.emit("dma.start", descriptor, *ends, flag, 0, count, 0)

    def _send(self, event: Event, repeat: SReg) -> None:
        b, phase, piece = self.b, self._phase(event), self._piece(event)
        at, count = self._range(event, repeat)
        landing = self._landing(event)
        source = landing if event.step else self._own(event)
        dims = (
            *([DmaDim(piece.k, piece.stride, piece.stride)] if piece.k > 1 else []),
            DmaDim(-1, 1, 1),
        )
        route = self.routes[phase.axis][phase.way if phase.size > 2 else 0]
        descriptor = b.descriptor(DmaDescriptor(HBM, HBM, 1, dims, route=route))
        flag = b.sconst(phase.flags[event.step][event.piece])
        ends = (b.sadd(source, at), b.sadd(landing, at))
        b.emit("dma.start", descriptor, *ends, 0, flag, count, 0)


def _half(part: Colour, way: int) -> tuple[int, int]:
    """The granules of a colour that go one way."""
    middle = part.end - (part.end - part.first) // 2
    return (part.first, middle) if way == 0 else (middle, part.end)


def _block(step: int, way: int) -> int:
    """How far along its ring from a core the block lies that it sends at a step; the last one is its own."""
    return -step - 1 if way == 0 else step + 1


def _pieces(
    plan: BoxReduce, colour: Colour, first: int, end: int, phase: int, repeats: int
) -> tuple[GranulePiece, ...]:
    """The pieces of a block, in order: parts of slots, at most so many in one; or runs of slots along the
    last axis after this one."""
    axes = [plan.box.axes[number] for number in colour.order[phase + 1 :]]
    granules, length = plan.granules, end - first
    inner = axes[-1].size if axes else 1
    stride = axes[-1].stride * granules if axes else 0
    outer = [
        sum(k * axis.stride for k, axis in zip(place, axes[:-1], strict=True)) * granules
        for place in product(*(range(axis.size) for axis in axes[:-1]))
    ]
    whole = length * inner * len(outer)
    size = min(plan.most, max(_BLOCK_GRANULES[0], -(-whole // _PIECES)))
    if length >= size:  # a slot in blocks
        parts = -(-length // size)
        count = -(-length // parts)
        return tuple(
            GranulePiece(
                first + base + k * stride + at * count,
                1,
                0,
                count,
                min(repeats, parts - at),
                count,
                min(length - at * count, repeats * count),
            )
            for base in outer
            for k in range(inner)
            for at in range(0, parts, repeats)
        )
    most = max(1, size // length)
    k = max(n for n in range(1, inner + 1) if inner % n == 0 and n <= most)
    return tuple(
        GranulePiece(first + base + group * k * stride, k, stride, length, 1, 0, length)
        for base in outer
        for group in range(inner // k)
    )


def _flags_each(sends: list[int], room: int) -> int:
    """The most flags for the pieces of one step, so that there are enough for all; 0 if there are not."""
    most = max(sends, default=0)
    while most > 0 and sum(min(most, pieces) for pieces in sends) > room:
        most -= 1
    return most
