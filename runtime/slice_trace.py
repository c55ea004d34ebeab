"""What a trace has of a slice beside the device that is followed: what each ran when, what each link carried.

A device has a slice for each call; beyond `MOST_CALLS` of all, later devices have one for the whole run.

A link's slice is as long as its bytes take at the published rate: it says how much, not when.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime.link_use import LinkUse, link_name
from runtime.trace import Event, slice_of, track_names
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.machine.result import ExecutionResult

_DEVICES_PROCESS, _LINKS_PROCESS = 4, 5
MOST_TRACKS = 256
"""Devices, and links, that have a track each: the first, and the busiest."""
MOST_CALLS = 40_000
"""Slices of all devices' tracks; about 6 MB."""


def slice_events(
    name: str, use: LinkUse, cores: Sequence[ExecutionResult], chip: Chip
) -> Iterator[Event]:
    """The events of a slice of that name, names of tracks first; `cores` has what each device did."""
    devices = list(enumerate(cores))[:MOST_TRACKS]
    title = f"devices of {name}{_part(len(devices), len(cores), 'first')}"
    tracks = [f"device {number}, {core.cycles:,} cycles" for number, core in devices]
    yield from track_names(_DEVICES_PROCESS, title, tracks)
    room = MOST_CALLS
    for track, (number, core) in enumerate(devices, 1):
        room -= len(core.kernels)
        place = (_DEVICES_PROCESS, track)
        if room >= 0:
            yield from _calls(place, core, chip)
            continue
        about: Event = {"cycles": core.cycles, "calls that are not shown": len(core.kernels)}
        yield slice_of(place, f"device {number}", 0, core.cycles, about, chip)
    links = sorted(use.by_link, key=lambda row: -row[1])[:MOST_TRACKS]
    title = (
        f"links of {name}, at the published rate{_part(len(links), len(use.by_link), 'busiest')}"
    )
    yield from track_names(_LINKS_PROCESS, title, [link_name(link) for link, _ in links])
    for track, (link, count) in enumerate(links, 1):
        cycles = round(count / chip.ici_peak_bytes_per_cycle)
        about = {"bytes": count, "share of what it could carry": f"{count / use.room_bytes:.1%}"}
        yield slice_of((_LINKS_PROCESS, track), link_name(link), 0, cycles, about, chip)


def _calls(place: tuple[int, int], core: ExecutionResult, chip: Chip) -> Iterator[Event]:
    """What a device called when, and how long it waited for others."""
    for run in core.kernels:
        about: Event = {"cycles": run.cycles, "HBM bytes": run.hbm_bytes}
        if waited := run.causes[Cause.ICI]:
            about["cycles that waited for other chips"] = waited
        yield slice_of(place, run.site or run.name, run.start_cycle, run.cycles, about, chip)


def _part(shown: int, total: int, which: str) -> str:
    return f", the {which} {shown} of {total}" if shown < total else ""
