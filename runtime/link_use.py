"""What the links between the chips of a slice carried in a run: from bytes by route and core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Route
from tpu_sim.isa.torus import Link, Slice

_AXES = "xyz"


@dataclass(frozen=True)
class LinkUse:
    """Cycles of each core, bytes over links one way, and shares of the time at the published rate."""

    core_cycles: tuple[int, ...]
    link_bytes: int  # of all links, a byte counted on each that it takes
    busiest_link: str  # such as "chip 3 x+"
    busiest_bytes: int
    busiest_share: float
    mean_share: float
    room_bytes: float = 0.0  # what a link could have carried
    by_link: tuple[tuple[Link, int], ...] = ()  # bytes of each link that carried any

    def to_json(self) -> dict[str, object]:
        """The JSON object of it, without each link's bytes."""
        return {key: value for key, value in asdict(self).items() if key != "by_link"}


def link_use(
    cores: Slice,
    routes: Sequence[Route],
    sent: Sequence[Sequence[int]],
    cycles: Sequence[int],
    chip: Chip,
) -> LinkUse:
    """The use of links where ``sent[core][route]`` are the bytes that a core sent over a route."""
    loads: Counter[Link] = Counter()
    for core, by_route in enumerate(sent):
        for route, count in zip(routes, by_route, strict=True):
            target = route.targets[core]
            if count and target >= 0:
                for link in cores.torus.way(cores.chips[core], cores.chips[target]):
                    loads[link] += count
    room = max(max(cycles, default=0) * chip.ici_peak_bytes_per_cycle, 1.0)
    (where, most), *_ = [*loads.most_common(1), ((0, 0, 1), 0)]
    links = max(len(cores.torus.links), 1)
    name = link_name(where) if most else "none"
    total = sum(loads.values())
    return LinkUse(
        tuple(cycles),
        total,
        name,
        most,
        most / room,
        total / links / room,
        room,
        tuple(sorted(loads.items())),
    )


def link_name(link: Link) -> str:
    """What a link one way is called: ``chip 3 x+``."""
    chip, axis, way = link
    return f"chip {chip} {_AXES[axis]}{'+' if way > 0 else '-'}"
