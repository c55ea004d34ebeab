"""Several cores under one clock: the runs of one program that exchange data until all are over.

Each run goes on by itself to the next wait for a flag that another core has yet to raise, several of
them at a time on host threads. Flags carry the cycle at which they were raised, so neither values nor
cycles depend on who goes first. So a slice may be cut: each process has a `SlicePart` of its cores, and
what they send to those of another one is a `Letter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from tpu_sim.machine.far_core import FarCore, Letter
from tpu_sim.machine.faults import DeadlockFault
from tpu_sim.machine.run import Run

_MOST_NAMED = 8
Place = tuple[int, str, int]
"""What changes when a run gets anywhere: no two waits have the same cycle and node."""


class SlicePart:
    """Cores of a slice, by number, all at their start; `far` stand for those elsewhere that they send to."""

    def __init__(
        self, runs: Mapping[int, Run], far: Mapping[int, FarCore] | None = None, threads: int = 1
    ) -> None:
        self.runs = runs
        self._far = far or {}
        self._threads = max(1, min(threads, len(runs)))
        for number, run in runs.items():
            run.connect(number, {**runs, **self._far})

    @property
    def waiting(self) -> dict[int, Place]:
        """Where each core stands that is not done."""
        return {number: _place(run) for number, run in self.runs.items() if not run.is_done}

    def advance(self) -> None:
        """Run until every core is done or waits for one elsewhere. Raises the first core's `MachineFault`."""
        before: Mapping[int, Place] = {}
        with ThreadPoolExecutor(self._threads) as pool:
            while (waiting := self.waiting) and waiting != before:
                before = waiting
                jobs = [pool.submit(self.runs[number].run_until) for number in waiting]
                errors = [job.exception() for job in jobs]  # all have ended before one is raised
                for number, error in zip(waiting, errors, strict=True):
                    if error is not None:
                        error.add_note(f"  on core {number}")
                        raise error

    def take(self) -> dict[int, Letter]:
        """What the cores sent to those elsewhere since the last time, by number."""
        letters = {number: far.take() for number, far in self._far.items()}
        return {number: letter for number, letter in letters.items() if letter is not None}

    def deliver(self, letters: Mapping[int, Letter]) -> None:
        """Give cores of this part what others sent to them."""
        for number, letter in letters.items():
            core = self.runs[number].core
            letter.open(core.words, core.hbm)


def far_numbers(targets: Iterable[Sequence[int]], numbers: Iterable[int]) -> list[int]:
    """The cores elsewhere that the cores `numbers` send to; `targets` are those of the program's routes."""
    here = set(numbers)
    found = {target[number] for target in targets for number in here}
    return sorted(found - here - {-1})


def expect_done(waiting: Mapping[int, Place]) -> None:
    """Raise `DeadlockFault` if any core of a slice is left, for nobody will raise its flag."""
    if not waiting:
        return
    places = [
        f"core {number} in {body} at cycle {cycle}"
        for number, (cycle, body, _) in sorted(waiting.items())
    ]
    more = f" and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
    raise DeadlockFault(
        "every core that is not done waits for a transfer that no other core sends: "
        f"{'; '.join(places[:_MOST_NAMED])}{more}"
    )


def _place(run: Run) -> Place:
    return run.cycle, run.body_name, run.node
