"""Several cores under one clock: the runs of one program that exchange data until all are over.

Each run goes on by itself to the next wait for a flag that another core has yet to raise, several of
them at a time on host threads. Flags carry the cycle at which they were raised, so neither values nor
cycles depend on who goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tpu_sim.machine.faults import DeadlockFault
from tpu_sim.machine.result import ExecutionResult
from tpu_sim.machine.run import Run

_MOST_NAMED = 8


def connect(runs: Sequence[Run]) -> None:
    """Make the runs the cores of a slice, numbered in this order; all stand at their start."""
    for number, run in enumerate(runs):
        run.connect(number, runs)


def finish_together(runs: Sequence[Run], threads: int = 1) -> list[ExecutionResult]:
    """Run all to their ends.

    Raises the first core's `MachineFault`, or `DeadlockFault` when every core that is not done waits.
    """
    waiting = list(enumerate(runs))
    with ThreadPoolExecutor(max(1, min(threads, len(runs)))) as pool:
        while waiting:
            before = [_place(run) for _, run in waiting]
            jobs = [pool.submit(run.run_until) for _, run in waiting]
            errors = [job.exception() for job in jobs]  # all have ended before one is raised
            for (number, _), error in zip(waiting, errors, strict=True):
                if error is not None:
                    error.add_note(f"  on core {number}")
                    raise error
            is_stuck = not any(run.is_done for _, run in waiting)
            if is_stuck and [_place(run) for _, run in waiting] == before:
                raise _deadlock(waiting)
            waiting = [(number, run) for number, run in waiting if not run.is_done]
    return [run.result for run in runs]


def _place(run: Run) -> tuple[int, str, int]:
    """What changes when a run gets anywhere: no two waits have the same cycle and node."""
    return run.cycle, run.body_name, run.node


def _deadlock(waiting: Sequence[tuple[int, Run]]) -> DeadlockFault:
    places = [f"core {number} in {run.body_name} at cycle {run.cycle}" for number, run in waiting]
    more = f" and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
    return DeadlockFault(
        "every core that is not done waits for a transfer that no other core sends: "
        f"{'; '.join(places[:_MOST_NAMED])}{more}"
    )
