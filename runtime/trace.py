"""An execution as a trace for ui.perfetto.dev or chrome://tracing (Chrome's JSON trace format).

Times are microseconds at the chip's clock. The tracks:

    program          one slice per kernel call, at its place in time
    unit tracks      MXU, vector, scalar, waits for DMA, ...: within each call, one slice as long as
                     the cycles the unit accounts for, set at the start of the call, by the kernel's
                     name; the cause is an argument
    counters         HBM traffic in GB/s and MXU occupancy in percent, a step per kernel call

The resolution is a kernel call: how a unit's cycles spread within a call is not recorded, nor how
passes spread over the MXUs, which have one track. A run of more than `MOST_CALLS` calls has several
consecutive ones in a slice, so that a trace of any run can be opened; all after the first
`MOST_RECORDS`, which were not recorded one by one, are in one last slice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.files import fill_whole
from tpu_sim.isa.program import Program
from tpu_sim.machine.result import MOST_RECORDS, ExecutionResult, KernelRun

Event = dict[str, object]

_PROCESS = 1
_PROGRAM_TRACK = 1
_SHOWN_NAMES = 4
_UNITS: dict[str, tuple[Cause, ...]] = {
    "MXU": (Cause.MXU,),
    "MXU fill, drain, weights": (Cause.MXU_RESULT, Cause.MXU_WEIGHTS),
    "vector": (Cause.VECTOR, Cause.LATENCY),
    "scalar": (Cause.SCALAR, Cause.LOOP, Cause.LAUNCH),
    "wait for DMA in": (Cause.DMA_IN,),
    "wait for DMA out": (Cause.DMA_OUT,),
}
"""Every cause has one track, so the slices of a call add up to the call."""
MOST_CALLS = 20_000
"""Calls that have a slice each; a trace has about 2 kB for each."""


def trace_events(program: Program, chip: Chip, result: ExecutionResult) -> Iterator[Event]:
    """All events of a run, names of tracks first."""
    yield _name("process_name", 0, f"{chip.name} at {chip.clock_hz / 1e9:g} GHz")
    for number, track in enumerate(("program", *_UNITS), _PROGRAM_TRACK):
        yield _name("thread_name", number, track)
        yield _metadata("thread_sort_index", number, {"sort_index": number})
    end = 0
    for number, run in _joined(result.kernels):
        if run.start_cycle > end:
            yield from _counters(end, 0.0, 0.0, chip)
        note = program.kernels[run.name].note if number == 1 else f"{number} calls added up"
        yield from _call_events(run, note, chip)
        end = run.start_cycle + run.cycles
    yield from _counters(end, 0.0, 0.0, chip)


def _joined(runs: Sequence[KernelRun]) -> Iterator[tuple[int, KernelRun]]:
    """The calls, as many at a time (given first) as leave no more than `MOST_CALLS`."""
    single, later = runs[:MOST_RECORDS], runs[MOST_RECORDS:]
    step = max(1, -(-len(single) // MOST_CALLS))
    parts = [single[first : first + step] for first in range(0, len(single), step)]
    for part in (*parts, later) if later else parts:
        run = part[0] if len(part) == 1 else _sum(part)
        yield run.calls, run


def _sum(runs: Sequence[KernelRun]) -> KernelRun:
    """Consecutive calls as one; the cycles between them are not among its own."""
    names = list(dict.fromkeys(run.site or run.name for run in runs))
    shown = names if len(names) <= _SHOWN_NAMES else [*names[:_SHOWN_NAMES], ".."]
    return KernelRun(
        name=", ".join(shown),
        site="",
        cycles=sum(run.cycles for run in runs),
        mxu_busy_cycles=sum(run.mxu_busy_cycles for run in runs),
        dma_wait_cycles=sum(run.dma_wait_cycles for run in runs),
        hbm_bytes=sum(run.hbm_bytes for run in runs),
        start_cycle=runs[0].start_cycle,
        causes=tuple(sum(run.causes[cause] for run in runs) for cause in Cause),
        calls=sum(run.calls for run in runs),
    )


def write_trace(path: Path | str, program: Program, chip: Chip, result: ExecutionResult) -> None:
    """Write the trace of a run as a JSON object, whole or not at all."""

    def fill(file: BinaryIO) -> None:
        file.write(b'{"displayTimeUnit": "ns", "traceEvents": [')
        for number, event in enumerate(trace_events(program, chip, result)):
            file.write(f"{',' if number else ''}\n{json.dumps(event)}".encode())
        file.write(b"\n]}\n")

    fill_whole(path, fill)


def _call_events(run: KernelRun, note: str, chip: Chip) -> Iterator[Event]:
    busy = run.mxu_busy_cycles / (chip.mxu_units * run.cycles) if run.cycles else 0.0
    causes = {cause.label: run.causes[cause] for cause in Cause if run.causes[cause]}
    about: Event = {"kernel": run.name, "what": note, "cycles": run.cycles}
    about |= {"HBM bytes": run.hbm_bytes, "MXU busy": f"{busy:.1%}", "cycles by cause": causes}
    name = run.site or run.name
    yield _slice(_PROGRAM_TRACK, name, run.start_cycle, run.cycles, about, chip)
    for number, parts in enumerate(_UNITS.values(), _PROGRAM_TRACK + 1):
        start = run.start_cycle
        for cause in parts:
            cycles = run.causes[cause]
            if cycles:
                share: Event = {"cause": cause.label, "cycles": cycles}
                yield _slice(number, name, start, cycles, share, chip)
            start += cycles
    seconds = run.cycles / chip.clock_hz
    rate = run.hbm_bytes / seconds / 1e9 if seconds else 0.0
    yield from _counters(run.start_cycle, rate, 100 * busy, chip)


def _slice(track: int, name: str, start: int, cycles: int, about: Event, chip: Chip) -> Event:
    return {
        "ph": "X",
        "pid": _PROCESS,
        "tid": track,
        "name": name,
        "ts": _microseconds(start, chip),
        "dur": _microseconds(cycles, chip),
        "args": about,
    }


def _counters(cycle: int, gigabytes: float, busy: float, chip: Chip) -> Iterator[Event]:
    for name, unit, value in (("HBM traffic", "GB/s", gigabytes), ("MXU busy", "%", busy)):
        yield {
            "ph": "C",
            "pid": _PROCESS,
            "name": name,
            "ts": _microseconds(cycle, chip),
            "args": {unit: round(value, 3)},
        }


def _name(kind: str, track: int, name: str) -> Event:
    return _metadata(kind, track, {"name": name})


def _metadata(kind: str, track: int, about: Event) -> Event:
    return {"ph": "M", "pid": _PROCESS, "tid": track, "name": kind, "args": about}


def _microseconds(cycles: int, chip: Chip) -> float:
    return cycles * 1e6 / chip.clock_hz
