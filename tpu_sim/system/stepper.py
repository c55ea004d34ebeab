"""`Stepper`: cores that are stepped bundle by bundle, forwards and backwards, at native speed in between.

A program of one core, or the cores of a slice that run one program. Each core's machine goes on from
border to border (`tpu_sim.machine.run`). To stand between two bundles of a block, a core is taken over
by the NumPy machine, on the same memories, and given back at the next border: values and cycles are
those of both. Going back is to restore a snapshot and to run forward again, which a deterministic
machine makes exact.

A *place* is the cycle of a core between two bundles, all that comes before the next one being done.
No two places of a core have the same cycle. The other cores of a slice stand wherever they must for
this one to be there: what they do later cannot be seen here, as flags carry their cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tpu_sim.interp.numpy_machine import NumpyMachine, NumpySequencer
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Program
from tpu_sim.machine.faults import DeadlockFault, MachineFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.node_table import MAIN, FlatNode, NodeStep, NodeTable
from tpu_sim.machine.run import NO_CALL, Core, Stop
from tpu_sim.machine.snapshots import Arrays, MemorySnapshot, core_arrays
from tpu_sim.machine.state import CoreState, CoreWords
from tpu_sim.system.machine import Machine

NEVER = (1 << 62) - 1
"""A cycle that does not come."""
_SNAPSHOT_BYTES = 2 << 30
"""About so much memory the snapshots of a run may take."""
_FIRST_REACH = 1 << 12
_FEW_CYCLES = 64
"""So near, bundles are stepped at once."""


@dataclass(frozen=True)
class _Moment:
    """Where all cores stood, and what they held."""

    cycles: tuple[int, ...]
    snapshots: tuple[MemorySnapshot, ...]


class _Stepped:
    """One core: on its own machine, or taken over by the NumPy machine within a block."""

    def __init__(self, core: Core, plain: NumpyMachine) -> None:
        self.core = core
        self._plain = plain
        self.fine: NumpySequencer | None = core if isinstance(core, NumpySequencer) else None
        self._is_plain = self.fine is not None

    def refine(self) -> NumpySequencer:
        """Be taken over by the NumPy machine."""
        if self.fine is None:
            core = self.core
            self.fine = self._plain.take_over(core.program, core.hbm, core.state())
        return self.fine

    def coarsen(self) -> None:
        """Give the core back to its machine, at a border: the end of the block where it stands in one."""
        fine = self.fine
        if fine is None:
            return
        state = fine.state()
        if fine.bundle or state.node not in fine.table.bodies[state.body].pauses:
            fine.advance(0)
        if not self._is_plain:
            self.core.adopt(fine.state())
            self.fine = None

    @property
    def state(self) -> CoreState:
        return self.core.state() if self.fine is None else self.fine.state()

    @property
    def words(self) -> CoreWords:
        return self.core.words if self.fine is None else self.fine.state()


class Stepper:
    """See above. Cores are numbered as in the slice; each has its own HBM, in `hbms`."""

    def __init__(
        self, program: Program, chip: Chip, machines: Sequence[Machine], hbms: Sequence[HbmMemory]
    ) -> None:
        self.program = program
        self.chip = chip
        self.hbms = list(hbms)
        runs = [m.start(program, hbm) for m, hbm in zip(machines, hbms, strict=True)]
        if len(runs) > 1:
            for number, run in enumerate(runs):
                run.connect(number, dict(enumerate(runs)))
        plain = NumpyMachine(chip)
        self._cores = [_Stepped(run.core, plain) for run in runs]
        self.table: NodeTable = self._cores[0].refine().table
        self._coarsen()
        self._moments: list[_Moment] = []
        self.keep()

    # where a core stands

    @property
    def count(self) -> int:
        """How many cores there are."""
        return len(self._cores)

    def now(self, core: int = 0) -> int:
        """The cycle at which a core stands."""
        return self._cores[core].words.now

    def words(self, core: int = 0) -> CoreWords:
        """The words of a core's state, which are looked at often."""
        return self._cores[core].words

    def state(self, core: int = 0) -> CoreState:
        """A core's state; within a block with its vector registers and queues."""
        return self._cores[core].state

    def place(self, core: int = 0) -> tuple[int, int, int]:
        """Body, node, and how many bundles of the node's block are done."""
        fine = self._cores[core].fine
        words = self.words(core)
        return words.body, words.node, 0 if fine is None else fine.bundle

    def node(self, core: int = 0) -> FlatNode:
        """The node at which a core stands."""
        body, node, _ = self.place(core)
        return self.table.bodies[body].nodes[node]

    def is_done(self, core: int = 0) -> bool:
        """Whether a core is at the end of main."""
        body, _, _ = self.place(core)
        return body == MAIN and self.node(core).step is NodeStep.END

    # forwards

    def reach_bundle(self, core: int = 0) -> bool:
        """Do what comes before the next bundle; False if there is none."""
        return self._finely(core, NumpySequencer.reach_bundle)

    def step_bundle(self, core: int = 0) -> bool:
        """Execute one bundle and reach the one behind it; False if there is none."""
        return self._finely(core, NumpySequencer.step_bundle)

    def advance(self, core: int = 0, until: int = NEVER, until_call: int = NO_CALL) -> bool:
        """Run to a border as `Core.advance` does, other cores as far as they must; False at the end.

        From within a block, or before one that cannot be entered, that block is run.
        """
        before = self.now(core)
        self._coarsen()
        if self.now(core) > before and self.now(core) >= until:
            return not self.is_done(core)
        while True:
            stop = self._cores[core].core.advance(until, until_call)
            if stop is not Stop.WAITING:
                return stop is Stop.PAUSED
            self._others_go_on(core)

    # back

    def keep(self) -> None:
        """Take a snapshot, to come back to; cores within a block finish it."""
        self._coarsen()
        cycles = tuple(core.words.now for core in self._cores)
        if any(moment.cycles == cycles for moment in self._moments):
            return
        before = self._moments[-1].snapshots if self._moments else (None,) * self.count
        taken = tuple(MemorySnapshot.take(self._arrays(n), old) for n, old in enumerate(before))
        self._moments.append(_Moment(cycles, taken))
        self._moments.sort(key=lambda moment: moment.cycles)
        self._thin_out()

    def go_to(self, cycle: int, core: int = 0) -> bool:
        """Bring a core to the first place at or behind `cycle`, back or forth; False if it ends before."""
        if self.now(core) > cycle or self.is_done(core):
            self._restore(cycle, core)
        if cycle - self.now(core) > _FEW_CYCLES:
            self._near(cycle, core)
        self.reach_bundle(core)
        while self.now(core) < cycle:
            if not self.step_bundle(core):
                return False
        return not self.is_done(core)

    def place_before(self, cycle: int, core: int = 0) -> int | None:
        """Go to the last place of a core before `cycle`; its cycle, or None if there is none."""
        goal = cycle - 1
        while True:
            self._restore(goal, core)
            self._near(goal, core)
            border = self.now(core)
            self.reach_bundle(core)
            if self.now(core) < cycle:
                break
            if border <= self._moments[0].cycles[core]:
                return None
            goal = border - 1  # an overhead leads from the border to here
        found = self.now(core)
        while self.step_bundle(core) and self.now(core) < cycle:
            found = self.now(core)
        self.go_to(found, core)
        return found

    def restart(self) -> None:
        """Back to the start."""
        self._moments = self._moments[:1]
        self._load(self._moments[0])

    def kept_before(self, cycle: int, core: int = 0) -> list[int]:
        """The cycles before `cycle` at which there are snapshots of a core, in order."""
        return sorted({m.cycles[core] for m in self._moments if m.cycles[core] < cycle})

    def find_fault(self, core: int = 0) -> int:
        """The cycle of the last place of a core before it faults, which it does for sure; the core means
        nothing afterwards but to be brought elsewhere (`go_to`)."""
        self._load(self._moments[-1])
        border = self.now(core)
        try:
            while self.advance(core, until=border):
                border = self.now(core)
        except MachineFault:
            pass
        self._restore(border, core)
        self.go_to(border, core)
        last = self.now(core)
        try:
            while self.step_bundle(core):
                last = self.now(core)
        except MachineFault:
            pass
        self._restore(last, core)
        return last

    # parts

    def _near(self, cycle: int, core: int) -> None:
        """Stand at the last border that is not behind `cycle`, from anywhere that is not."""
        start, reach = self.now(core), _FIRST_REACH
        while cycle - reach > start:
            if self._borders(cycle - reach, cycle, core) is not None:
                break
            self._restore(cycle, core)  # a block is longer than that
            reach *= 8
        at = self.now(core)
        while (border := self._borders(at, cycle, core)) is not None:
            at = border
        self._restore(cycle, core)
        if self.now(core) < at:
            self.advance(core, at)

    def _borders(self, until: int, most: int, core: int) -> int | None:
        """The cycle of the next border at or behind `until`; None if it is behind `most` or not reached."""
        try:
            more = self.advance(core, until)
        except MachineFault:
            return None
        return self.now(core) if more and self.now(core) <= most else None

    def _restore(self, cycle: int, core: int) -> None:
        """Load the last snapshot in which a core had not passed `cycle`."""
        earlier = [moment for moment in self._moments if moment.cycles[core] <= cycle]
        self._load(earlier[-1] if earlier else self._moments[0])

    def _load(self, moment: _Moment) -> None:
        for number, (stepped, snapshot) in enumerate(
            zip(self._cores, moment.snapshots, strict=True)
        ):
            state = stepped.state
            snapshot.restore(core_arrays(self.program, state, self.hbms[number]))
            if stepped.fine is not None and stepped.fine is stepped.core:
                stepped.core.adopt(state)
            else:
                stepped.fine = None
                stepped.core.adopt(state)

    def _arrays(self, core: int) -> Arrays:
        return core_arrays(self.program, self._cores[core].state, self.hbms[core])

    def _coarsen(self) -> None:
        for stepped in self._cores:
            stepped.coarsen()

    def _finely(self, core: int, move: Callable[[NumpySequencer], Stop]) -> bool:
        while True:
            fine = [stepped.refine() for stepped in self._cores]
            if self.count > 1:
                for number, one in enumerate(fine):
                    one.connect(number, dict(enumerate(fine)))
            stop = move(fine[core])
            if stop is not Stop.WAITING:
                return stop is Stop.PAUSED
            self._coarsen()  # a core waits at a border
            self._others_go_on(core)

    def _others_go_on(self, core: int) -> None:
        """Let the cores that `core` may wait for run to their next wait."""
        before = [(c.words.now, c.core.body_name, c.core.node) for c in self._cores]
        for number, stepped in enumerate(self._cores):
            if number != core and not self.is_done(number):
                stepped.core.advance(NEVER)
        if [(c.words.now, c.core.body_name, c.core.node) for c in self._cores] == before:
            raise DeadlockFault(
                f"core {core} waits for a transfer that no other core sends",
                self._cores[core].core.body_name,
            )

    def _thin_out(self) -> None:
        """Drop every other snapshot when they take too much memory; the first stays."""
        pages = {
            id(page): page.nbytes
            for moment in self._moments
            for snapshot in moment.snapshots
            for parts, _ in snapshot.parts.values()
            for page in parts
            if page is not None
        }
        if sum(pages.values()) > _SNAPSHOT_BYTES and len(self._moments) > 2:
            last = self._moments[-1]
            self._moments = self._moments[::2]
            if self._moments[-1] is not last:
                self._moments.append(last)
