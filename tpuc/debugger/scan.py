"""Finding where breakpoints are hit: runs at native speed from call to call, and looks closer where needed.

A *unit* is the rest of a kernel's call up to the begin of the next one. It is run through first. What can
be told at its end (a call begins or is over, a cycle was passed, bytes changed, a NaN is in a result) is
told there. If something within it may count (a bundle, a step), or to find the bundle that did it, the
core goes back and from border to border, and within the blocks in question from bundle to bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM, SMEM
from tpu_sim.machine.node_table import MAIN, NodeStep
from tpu_sim.machine.result import MOST_RECORDS
from tpuc.debugger.bad_values import BadValues
from tpuc.debugger.breakpoints import Breakpoint, BreakpointKind
from tpuc.debugger.target import Mark, Target
from tpuc.debugger.values import ArrayBuffer

_NAN_KINDS = {BreakpointKind.NAN: "nan", BreakpointKind.INF: "inf"}


@dataclass(frozen=True)
class Hit:
    """A breakpoint that was hit, and what there is to say of it."""

    breakpoint: Breakpoint
    note: str = ""


@dataclass(frozen=True)
class _Candidate:
    """Something that happened in a unit, at the place at or behind `cycle`."""

    cycle: int
    breakpoint: Breakpoint
    note: str = ""


class Scanner:
    """Runs cores of a target up to what is hit."""

    def __init__(self, target: Target, is_true: Callable[[Breakpoint, int], bool]) -> None:
        """`is_true` evaluates a breakpoint's condition where a core stands."""
        self._target = target
        self._stepper = target.stepper
        self._map = target.map
        self._is_true = is_true
        self._bad = BadValues(target, self.first_place)

    def unit(self, core: int, breakpoints: Sequence[Breakpoint]) -> Hit | None:
        """Run to the first hit behind the present place, or through one unit."""
        stepper = self._stepper
        start, body = stepper.now(core), stepper.place(core)[0]
        site = self._target.site(core)
        state = stepper.words(core)
        calls, call_start = state.record_count, state.call_start
        if self._looks_inside(breakpoints, body) and stepper.place(core)[2] == 0:
            stepper.keep()
        watched = [(b, self.held(core, b.watched)) for b in breakpoints if b.watched is not None]
        stepper.advance(core, until_call=calls + (body != MAIN))
        end = stepper.now(core)
        found = [
            _Candidate(b.cycle, b)
            for b in breakpoints
            if b.kind is BreakpointKind.CYCLE and start < b.cycle <= end
        ]
        found += self._at_begin(core, breakpoints, end)
        if site is not None and stepper.words(core).record_count > calls:
            found += self._after_call(core, breakpoints, site, calls, call_start, end)
        for one, before in watched:
            if one.watched is not None and self.held(core, one.watched) != before:
                found += self._change(core, one, start, end, before)
        if found or self._looks_inside(breakpoints, body):
            return self._first(core, sorted(found, key=lambda c: c.cycle), breakpoints, start, end)
        return None

    def _first(
        self,
        core: int,
        found: Sequence[_Candidate],
        breakpoints: Sequence[Breakpoint],
        start: int,
        end: int,
    ) -> Hit | None:
        """The first of the candidates and of what counts within, whose condition holds."""
        stepper = self._stepper
        at = start
        for one in found:
            if one.cycle <= start:
                continue
            hit = self._inside(core, breakpoints, at, one.cycle - 1)
            if hit is not None:
                return hit
            stepper.go_to(one.cycle, core)
            at = max(at, one.cycle - 1)
            if self._is_true(one.breakpoint, core):
                return Hit(one.breakpoint, one.note)
        hit = self._inside(core, breakpoints, at, end)
        if hit is None and stepper.now(core) < end:
            stepper.advance(core, until=end)
        return hit

    # what can be told at the end

    def _at_begin(
        self, core: int, breakpoints: Sequence[Breakpoint], end: int
    ) -> Iterator[_Candidate]:
        """What stops where a call begins."""
        state = self._stepper.words(core)
        if state.body == MAIN or state.node != 0:
            return
        site = self._map.sites[state.call]
        for one in breakpoints:
            is_step = (
                one.kind is BreakpointKind.STEP
                and not one.step
                and self._begins_with_step(state.body)
            )
            if site in one.sites and (one.kind is BreakpointKind.BEGIN or is_step):
                yield _Candidate(end, one)

    def _begins_with_step(self, body: int) -> bool:
        """Whether the first bundle of a kernel is in its outermost loop."""
        node, _ = self._map.bodies[body].place(0)
        return bool(self._map.bodies[body].around(node))

    def _after_call(
        self,
        core: int,
        breakpoints: Sequence[Breakpoint],
        site: str,
        call: int,
        call_start: int,
        end: int,
    ) -> Iterator[_Candidate]:
        """What stops because a call is over, or for what it made."""
        for one in breakpoints:
            if one.kind is BreakpointKind.END and site in one.sites:
                yield _Candidate(self._over(core, call, end), one)
            elif one.kind in _NAN_KINDS:
                bad = self._bad.born(core, site, _NAN_KINDS[one.kind], call_start, end)
                if bad is not None:
                    yield _Candidate(bad.cycle, one, bad.note)

    def _over(self, core: int, call: int, end: int) -> int:
        """The cycle at which a call was over; that of the unit's end if there is no record of it."""
        if call >= MOST_RECORDS:
            return end
        row = self._stepper.state(core).records[call]
        return int(row[1] + row[2])

    def _change(
        self, core: int, one: Breakpoint, start: int, end: int, before: bytes
    ) -> Iterator[_Candidate]:
        """The bundle that changed watched bytes."""
        stepper, watched = self._stepper, one.watched
        assert watched is not None
        stepper.go_to(start, core)
        at = start
        while self.held(core, watched) == before and stepper.now(core) < end:
            at = stepper.now(core)
            stepper.advance(core, until=at)
        stepper.go_to(at, core)
        body, node, offset = stepper.place(core)
        while self.held(core, watched) == before and stepper.step_bundle(core):
            if self.held(core, watched) == before:
                body, node, offset = stepper.place(core)
        where = self._map.bodies[body]
        number = where.number(node, offset)
        note = "" if number is None else f"changed by bundle {number} of {where.name}"
        yield _Candidate(stepper.now(core), one, note)
        stepper.go_to(end, core)

    def held(self, core: int, buffer: ArrayBuffer | None) -> bytes:
        """The bytes in a range of memory."""
        if buffer is None:
            return b""
        at, size = buffer.offset, buffer.size_bytes
        if buffer.space == HBM:
            return self._target.hbms[core].read(at, size)
        state = self._stepper.state(core)
        if buffer.space == SMEM:
            return bytes(state.smem[at // 4 : (at + size) // 4].tobytes())
        rows = state.vmem[at // GRANULE_BYTES : -(-(at + size) // GRANULE_BYTES)]
        return bytes(rows.tobytes())

    # what counts within

    def _looks_inside(self, breakpoints: Sequence[Breakpoint], body: int) -> bool:
        """Whether something may count between bundles of a body, or of main behind it."""
        bodies = {body, MAIN}
        sites = set() if body == MAIN else set(self._map.sites_of(body))
        return any(
            any(spot.body in bodies for spot in b.spots)
            or (b.kind is BreakpointKind.STEP and b.sites & sites)
            for b in breakpoints
        )

    def _inside(
        self, core: int, breakpoints: Sequence[Breakpoint], start: int, end: int
    ) -> Hit | None:
        """The first hit of a bundle or step in (start, end]; the core stands there, or at or behind `end`."""
        mine = [b for b in breakpoints if b.spots or b.kind is BreakpointKind.STEP]
        stepper = self._stepper
        if not mine or start >= end:
            return None
        nodes = {
            (spot.body, self._map.bodies[spot.body].place(spot.bundle)[0])
            for b in mine
            for spot in b.spots
        }
        stepper.go_to(start, core)
        mark = self.mark(core)
        while stepper.now(core) < end and not stepper.is_done(core):
            at = stepper.now(core)
            more = stepper.advance(core, until=at)
            after = self.mark(core)
            if self._ran(core) in nodes or (
                mark != after and any(b.kind is BreakpointKind.STEP for b in mine)
            ):
                hit = self._closely(core, mine, mark, at, min(end, stepper.now(core)), start)
                if hit is not None:
                    return hit
                after = self.mark(core)
            if not more:
                break
            mark = after
        return None

    def _closely(
        self,
        core: int,
        breakpoints: Sequence[Breakpoint],
        mark: Mark,
        at: int,
        end: int,
        start: int,
    ) -> Hit | None:
        """As `_inside`, from bundle to bundle, from the place at cycle `at`, where `mark` was before."""
        stepper = self._stepper
        is_there = stepper.go_to(at, core)
        while is_there:
            after = self.mark(core)
            if start < stepper.now(core):
                for one in breakpoints:
                    if self._counts(core, one, mark, after) and self._is_true(one, core):
                        return Hit(one)
            mark = after
            if stepper.now(core) >= end:
                return None
            is_there = stepper.step_bundle(core)
        return None

    def _counts(self, core: int, one: Breakpoint, before: Mark, after: Mark) -> bool:
        body, node, offset = self._stepper.place(core)
        site = self._target.site(core) or ""
        if one.kind is BreakpointKind.STEP:
            is_new = before != after and after.step is not None
            return is_new and site in one.sites and one.step in (None, after.step)
        number = self._map.bodies[body].number(node, offset)
        return any(s.body == body and s.bundle == number and s.site == site for s in one.spots)

    def mark(self, core: int) -> Mark:
        """The step in which a core stands."""
        state = self._stepper.words(core)
        return Mark(state.record_count, state.body, self._target.step(core))

    def _ran(self, core: int) -> tuple[int, int]:
        """The block that a core at a border has just run, if it was a block."""
        body, node, _ = self._stepper.place(core)
        before = self._stepper.table.bodies[body].nodes[node - 1] if node else None
        return body, (node - 1 if before is not None and before.step is NodeStep.RUN else -1)

    def first_place(self, core: int, call_start: int) -> int:
        """Go to the first bundle of the call that began at a cycle; returns its cycle."""
        self._stepper.go_to(call_start, core)
        return self._stepper.now(core)
