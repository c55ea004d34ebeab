"""An execution as a trace for ui.perfetto.dev or chrome://tracing (Chrome's JSON trace format).

Times are microseconds at the chip's clock, to the nanosecond. Three groups of tracks:

    in time          what happens within a call, where it happens (`runtime.call_details`): grid steps, each
                     transfer with its bytes, waits with arrows from what they waited for, bursts of passes
    units            `program`, with one slice per kernel call at its place in time, and a track per
                     unit (each MXU, vector, scalar, DMA in and out, ..): within each call one slice
                     as long as the unit is busy (`runtime.unit_use`). Units work at the same time.
    cycles by cause  a track per cause of cycles: within each call one slice per cause; these add up
                     to the call
    counters         HBM traffic in GB/s and MXU occupancy in percent, a step per kernel call
    devices, links   of a slice: how long each ran, what each carried (`runtime.slice_trace`)

Slices of the last two say how long, not when: they are set at the start of their call. A run of more
than `MOST_CALLS` calls has several consecutive ones in a slice, so that a trace of any run can be opened;
all after the first `MOST_RECORDS`, which were not recorded one by one, are in one last slice.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from runtime.call_details import CallDetails, Detail, described
from runtime.unit_use import UnitUse
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.files import fill_whole
from tpu_sim.isa.origins import origin_table
from tpu_sim.isa.program import Program
from tpu_sim.machine.result import MOST_RECORDS, ExecutionResult, KernelRun

Event = dict[str, object]

_SHOWN_NAMES = 4
_UNITS_PROCESS, _CAUSES_PROCESS, _TIME_PROCESS = 1, 2, 3
_PROGRAM_TRACK = 1
_CAUSES: dict[str, tuple[Cause, ...]] = {
    "MXU": (Cause.MXU,),
    "MXU fill, drain, weights": (Cause.MXU_RESULT, Cause.MXU_WEIGHTS),
    "vector": (Cause.VECTOR, Cause.LATENCY),
    "scalar": (Cause.SCALAR, Cause.LOOP, Cause.LAUNCH),
    "wait for DMA in": (Cause.DMA_IN,),
    "wait for DMA out": (Cause.DMA_OUT,),
}
"""Every cause has one track, so the slices of a call add up to the call."""
MOST_CALLS = 15_000
"""Calls that have a slice each; a trace has about 2.5 kB for each."""


@dataclass(frozen=True)
class _Call:
    """One call, or several consecutive ones (`calls` of `run`) in a slice of their own."""

    run: KernelRun
    units: dict[str, int]


def trace_events(
    program: Program, chip: Chip, result: ExecutionResult, device: str = ""
) -> Iterator[Event]:
    """All events of a run, names of tracks first; `device` says which one is followed, of several."""
    use = UnitUse(program.kernels, chip)
    cores = f", one of {chip.cores_per_device} cores" if chip.cores_per_device > 1 else ""
    title = f"{device or chip.name} at {chip.clock_hz / 1e9:g} GHz{cores}"
    units = ["program", *use.tracks()]
    yield from track_names(_UNITS_PROCESS, title, units)
    yield from track_names(_CAUSES_PROCESS, "cycles by cause", list(_CAUSES))
    details = CallDetails(program, chip)
    chosen = details.chosen(result.kernels[:MOST_RECORDS])
    tracks = details.tracks(chosen)
    if tracks:
        count = f"{len(chosen):,} of {sum(run.calls for run in result.kernels):,} calls"
        yield from track_names(_TIME_PROCESS, f"in time, {count}", tracks, order=0)
    numbers = {unit: number for number, unit in enumerate(units, _PROGRAM_TRACK)}
    table = origin_table(program.metadata)
    end = 0
    for call in _joined(result.kernels, use):
        run = call.run
        if run.start_cycle > end:
            yield from _counters(end, 0.0, 0.0, chip)
        note = program.kernels[run.name].note if run.calls == 1 else f"{run.calls} calls added up"
        origins = described(table, run.site or run.name) if run.calls == 1 else {}
        yield from _call_events(call, note, origins, numbers, chip)
        end = run.start_cycle + run.cycles
    yield from _counters(end, 0.0, 0.0, chip)
    places = {track: (_TIME_PROCESS, n) for n, track in enumerate(tracks, _PROGRAM_TRACK)}
    arrows = itertools.count(1)
    for run in chosen:
        yield from _detail_events(details.of_call(run), run, arrows, places, chip)


def _detail_events(
    found: Iterable[Detail],
    run: KernelRun,
    numbers: Iterator[int],
    places: dict[str, tuple[int, int]],
    chip: Chip,
) -> Iterator[Event]:
    """The slices within a call, and arrows from the transfers to the waits that they end.

    Each arrow takes the next of `numbers`: Perfetto drops arrows whose name is no integer.
    """
    ends: dict[int, tuple[tuple[int, int], int]] = {}
    for detail in found:
        place, start = places[detail.track], run.start_cycle + detail.start
        cycles = detail.end - detail.start
        yield slice_of(place, detail.name, start, cycles, detail.about, chip)
        if detail.transfer >= 0:
            ends[detail.transfer] = place, run.start_cycle + detail.end
        for transfer in detail.arrows:
            if transfer in ends:
                arrow = next(numbers)
                yield _arrow("s", arrow, *ends[transfer], chip)
                yield _arrow("f", arrow, place, start + cycles, chip)


def _arrow(phase: str, name: int, place: tuple[int, int], cycle: int, chip: Chip) -> Event:
    """One end of an arrow, in the last nanosecond of the slice that ends then."""
    event: Event = {"ph": phase, "pid": place[0], "tid": place[1], "name": "data", "cat": "dma"}
    event |= {"id": name, "ts": max(0, _nanoseconds(cycle, chip) - 1) / 1000}
    return event | {"bp": "e"} if phase == "f" else event


def _joined(runs: Sequence[KernelRun], use: UnitUse) -> Iterator[_Call]:
    """The calls, as many at a time as leave no more than `MOST_CALLS`."""
    single, later = runs[:MOST_RECORDS], runs[MOST_RECORDS:]
    step = max(1, -(-len(single) // MOST_CALLS))
    parts = [single[first : first + step] for first in range(0, len(single), step)]
    for part in (*parts, later) if later else parts:
        yield _Call(part[0], use.of_call(part[0])) if len(part) == 1 else _sum(part, use)


def _sum(runs: Sequence[KernelRun], use: UnitUse) -> _Call:
    """Consecutive calls as one; the cycles between them are not among its own."""
    names = list(dict.fromkeys(run.site or run.name for run in runs))
    shown = names if len(names) <= _SHOWN_NAMES else [*names[:_SHOWN_NAMES], ".."]
    units: dict[str, int] = {}
    for run in runs:
        for unit, cycles in use.of_call(run).items():
            units[unit] = units.get(unit, 0) + cycles
    total = KernelRun(
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
    return _Call(total, units)


def write_trace(path: Path | str, events: Iterable[Event]) -> None:
    """Write events as a JSON object, whole or not at all."""

    def fill(file: BinaryIO) -> None:
        file.write(b'{"displayTimeUnit": "ns", "traceEvents": [')
        for number, event in enumerate(events):
            text = json.dumps(event, separators=(",", ":"))
            file.write(f"{',' if number else ''}\n{text}".encode())
        file.write(b"\n]}\n")

    fill_whole(path, fill)


def _call_events(
    call: _Call, note: str, origins: Event, numbers: dict[str, int], chip: Chip
) -> Iterator[Event]:
    run = call.run
    busy = run.mxu_busy_cycles / (chip.device_mxu_units * run.cycles) if run.cycles else 0.0
    causes = {cause.label: run.causes[cause] for cause in Cause if run.causes[cause]}
    about: Event = {"kernel": run.name, "what": note, "cycles": run.cycles}
    about |= {"HBM bytes": run.hbm_bytes, "MXU busy": f"{busy:.1%}", "cycles by cause": causes}
    about |= origins
    name, start = run.site or run.name, run.start_cycle
    place = (_UNITS_PROCESS, _PROGRAM_TRACK)
    yield slice_of(place, name, start, run.cycles, about, chip)
    for unit, cycles in call.units.items():
        yield slice_of(
            (_UNITS_PROCESS, numbers[unit]), name, start, cycles, {"cycles": cycles}, chip
        )
    for number, parts in enumerate(_CAUSES.values(), _PROGRAM_TRACK):
        start = run.start_cycle
        for cause in parts:
            cycles = run.causes[cause]
            if cycles:
                share: Event = {"cause": cause.label, "cycles": cycles}
                yield slice_of((_CAUSES_PROCESS, number), name, start, cycles, share, chip)
            start += cycles
    seconds = run.cycles / chip.clock_hz
    rate = run.hbm_bytes / seconds / 1e9 if seconds else 0.0
    yield from _counters(run.start_cycle, rate, 100 * busy, chip)


def slice_of(
    place: tuple[int, int], name: str, start: int, cycles: int, about: Event, chip: Chip
) -> Event:
    """A slice on a track. Both ends are whole nanoseconds, so that it ends where the next one begins."""
    begin, end = _nanoseconds(start, chip), _nanoseconds(start + cycles, chip)
    return {
        "ph": "X",
        "pid": place[0],
        "tid": place[1],
        "name": name,
        "ts": begin / 1000,
        "dur": (end - begin) / 1000,
        "args": about,
    }


def _counters(cycle: int, gigabytes: float, busy: float, chip: Chip) -> Iterator[Event]:
    for name, unit, value in (("HBM traffic", "GB/s", gigabytes), ("MXU busy", "%", busy)):
        yield {
            "ph": "C",
            "pid": _UNITS_PROCESS,
            "name": name,
            "ts": _nanoseconds(cycle, chip) / 1000,
            "args": {unit: round(value, 3)},
        }


def track_names(
    process: int, title: str, tracks: Sequence[str], order: int | None = None
) -> Iterator[Event]:
    """The names of a group of tracks, numbered from 1, and of each track; `order` is the group's place."""
    place = process if order is None else order
    yield _metadata("process_name", process, 0, {"name": title})
    yield _metadata("process_sort_index", process, 0, {"sort_index": place})
    for number, track in enumerate(tracks, _PROGRAM_TRACK):
        yield _metadata("thread_name", process, number, {"name": track})
        yield _metadata("thread_sort_index", process, number, {"sort_index": number})


def _metadata(kind: str, process: int, track: int, about: Event) -> Event:
    return {"ph": "M", "pid": process, "tid": track, "name": kind, "args": about}


def _nanoseconds(cycles: int, chip: Chip) -> int:
    return round(cycles * 1e9 / chip.clock_hz)
