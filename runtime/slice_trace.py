"""What a trace has of a slice beside the device that is followed: how long each ran, what each link carried.

A link's slice is as long as its bytes take at the published rate: it says how much, not when.
"""

from __future__ import annotations

from collections.abc import Iterator

from runtime.link_use import LinkUse, link_name
from runtime.trace import Event, slice_of, track_names
from tpu_sim.isa.chips import Chip

_DEVICES_PROCESS, _LINKS_PROCESS = 4, 5
MOST_TRACKS = 256
"""Devices, and links, that have a track each: the first, and the busiest."""


def slice_events(name: str, use: LinkUse, chip: Chip) -> Iterator[Event]:
    """The events of a slice of that name, names of tracks first."""
    devices = list(enumerate(use.core_cycles))[:MOST_TRACKS]
    title = f"devices of {name}{_part(len(devices), len(use.core_cycles), 'first')}"
    yield from track_names(_DEVICES_PROCESS, title, [f"device {number}" for number, _ in devices])
    for track, (number, cycles) in enumerate(devices, 1):
        about: Event = {"cycles": cycles}
        yield slice_of((_DEVICES_PROCESS, track), f"device {number}", 0, cycles, about, chip)
    links = sorted(use.by_link, key=lambda row: -row[1])[:MOST_TRACKS]
    title = (
        f"links of {name}, at the published rate{_part(len(links), len(use.by_link), 'busiest')}"
    )
    yield from track_names(_LINKS_PROCESS, title, [link_name(link) for link, _ in links])
    for track, (link, count) in enumerate(links, 1):
        cycles = round(count / chip.ici_peak_bytes_per_cycle)
        about = {"bytes": count, "share of what it could carry": f"{count / use.room_bytes:.1%}"}
        yield slice_of((_LINKS_PROCESS, track), link_name(link), 0, cycles, about, chip)


def _part(shown: int, total: int, which: str) -> str:
    return f", the {which} {shown} of {total}" if shown < total else ""
