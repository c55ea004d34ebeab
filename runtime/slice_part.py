"""Calls on devices of a slice whose cores run together: all of them, or those of this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from runtime.loaded import ProgramCall
from tpu_sim.isa.program import Program
from tpu_sim.system.slice import SlicePart, far_numbers


@contextmanager
def started(
    calls: Mapping[int, ProgramCall], program: Program, threads: int
) -> Iterator[SlicePart]:
    """The cores of `calls`, by their numbers in the program, at their start; in the end they are handed out.

    Each device is nobody else's meanwhile. Cores of other numbers are those of other processes.
    """
    with ExitStack() as stack:
        for call in sorted(calls.values(), key=lambda call: call.loaded.device.id):
            # in one order for all programs: two that wait for each other's devices never end
            stack.enter_context(call.loaded.device.queue.turn())
        for call in calls.values():
            stack.enter_context(call.loaded.loaded(call))
        ready = {n: (call.loaded.runnable, call.loaded.arena.hbm) for n, call in calls.items()}
        runs = {number: runnable.start(hbm) for number, (runnable, hbm) in ready.items()}
        runnable, hbm = next(iter(ready.values()))
        targets = [route.targets for route in program.routes]
        far = {number: runnable.far_core(hbm) for number in far_numbers(targets, calls)}
        try:
            part = SlicePart(runs, far, threads)
            yield part
        except BaseException:
            for call in calls.values():
                call.loaded.arena.spoil()
            raise
        for number, call in calls.items():
            call.cost, call.is_ended = part.runs[number].result, True
            call.loaded.hand_out(call)
