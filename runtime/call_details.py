"""What happens within a kernel's call, where it happens: slices for a trace, from the kernel's profile.

    grid steps           iterations of the kernel's outermost loops
    DMA in, out, ..      each transfer while it is in the engine, with its bytes and window
    waits                stalls in ``dma.wait``; an arrow leads there from each transfer that ended it
    MXU 0, ..            bursts of passes

They come from `tpu_sim.machine.kernel_profile`: exact where a call's cycles do not depend on data, which
is checked against what the machine recorded. A call that took another time is marked, and what would
lie behind its end left out. Of programs with many calls the first of each kernel come first, then
others in their order, as long as there are no more than `MOST_DETAILS` events; the trace says how many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.origins import OriginTable, origin_table
from tpu_sim.isa.program import HBM, Program
from tpu_sim.machine.kernel_profile import KernelProfile, TransferSpan, profile_kernel
from tpu_sim.machine.result import KernelRun

MOST_DETAILS = 60_000
"""Events within calls that a trace has; about 12 MB."""
TRANSFERS = ("DMA in", "DMA out", "DMA within HBM", "DMA on chip", "between chips")
STEPS, WAITS = "grid steps", "waits"
_MOST_ORIGINS = 3
"""Of a slice in a trace, whose tooltip is small."""


@dataclass(frozen=True)
class Detail:
    """A slice on a track, in cycles since the call; `arrows` are numbers of transfers that end here."""

    track: str
    name: str
    start: int
    end: int
    about: dict[str, object]
    transfer: int = -1
    arrows: tuple[int, ...] = ()


class CallDetails:
    """The details of a program's calls; each kernel is profiled once, when it is first wanted."""

    def __init__(self, program: Program, chip: Chip) -> None:
        self._program = program
        self._chip = chip
        self._origins: OriginTable = origin_table(program.metadata)
        self._profiles: dict[str, KernelProfile] = {}

    def tracks(self, runs: Sequence[KernelRun]) -> list[str]:
        """The tracks that the details of these calls need."""
        names = dict.fromkeys(run.name for run in runs)
        used = {d.track for name in names for d in self._details(name, name)}
        mxus = [self._unit_name(unit) for unit in range(self._chip.mxu_units)]
        order = (STEPS, *TRANSFERS, WAITS, *mxus)
        return [t for base in order for t in sorted(used) if t.partition(" (")[0] == base]

    def chosen(self, runs: Sequence[KernelRun]) -> list[KernelRun]:
        """The calls to show in detail, in their order."""
        first = {run.name: number for number, run in reversed(list(enumerate(runs)))}
        order = [*sorted(first.values()), *(n for n in range(len(runs)) if n not in first.values())]
        room, found = MOST_DETAILS, []
        for number in order:
            run = runs[number]
            count = self._count(run.name)
            if run.calls == 1 and count <= room:
                room -= count
                found.append(number)
        return [runs[number] for number in sorted(found)]

    def of_call(self, run: KernelRun) -> Iterator[Detail]:
        """The slices within a call, by their start on each track."""
        profile = self._profile(run.name)
        is_same = profile.is_whole and profile.cycles == run.cycles
        for detail in self._details(run.name, run.site or run.name):
            if is_same:
                yield detail
            elif detail.end <= run.cycles:
                yield Detail(**(vars(detail) | {"about": detail.about | {"timing": "approximate"}}))

    def written_share(self, name: str) -> float:
        """The part of a kernel's HBM traffic that goes to HBM, of the transfers that were followed."""
        read = written = 0
        for span in self._profile(name).transfers:
            track = self._direction(name, span)
            read += span.size * (track in ("DMA in", "DMA within HBM"))
            written += span.size * (track in ("DMA out", "DMA within HBM"))
        return written / (read + written) if read + written else 0.0

    def _profile(self, name: str) -> KernelProfile:
        if name not in self._profiles:
            kernel = self._program.kernels[name]
            self._profiles[name] = profile_kernel(kernel, self._chip, self._program.routes)
        return self._profiles[name]

    def _count(self, name: str) -> int:
        """Events of a call: slices, and two for each arrow."""
        profile = self._profile(name)
        bursts = sum(len(spans) for spans in profile.bursts.values())
        return len(profile.steps) + 3 * len(profile.transfers) + len(profile.waits) + bursts

    def _details(self, name: str, site: str) -> Iterator[Detail]:
        """The slices of a kernel; of a track those that overlap lie on a second one, ``DMA in (2)``."""
        ends: dict[str, list[int]] = {}
        for detail in self._all(name, site):
            lanes = ends.setdefault(detail.track, [])
            lane = next((n for n, end in enumerate(lanes) if end <= detail.start), len(lanes))
            lanes[lane : lane + 1] = [detail.end]
            yield replace(detail, track=f"{detail.track} ({lane + 1})") if lane else detail

    def _all(self, name: str, site: str) -> Iterator[Detail]:
        profile, kernel = self._profile(name), self._program.kernels[name]
        for number, step in enumerate(profile.steps):
            yield Detail(STEPS, f"{site} step {number}", step.start, step.end, {"kernel": name})
        for number, span in enumerate(profile.transfers):
            window = kernel.descriptors[span.descriptor].window
            moved = kernel.windows[window].name if window >= 0 else span.source
            about: dict[str, object] = {
                "kernel": name,
                "bytes": span.size,
                "issued at cycle": span.issue,
                "flag done at cycle": span.done,
                **self._from(site, span.source),
            }
            yield Detail(self._direction(name, span), moved, span.start, span.end, about, number)
        for wait in profile.waits:
            about = {"kernel": name, "cycles": wait.end - wait.start}
            about |= self._from(site, wait.what)
            yield Detail(
                WAITS, wait.what or "wait", wait.start, wait.end, about, -1, wait.transfers
            )
        for unit, bursts in profile.bursts.items():
            for burst in bursts:
                yield Detail(self._unit_name(unit), site, burst.start, burst.end, {"kernel": name})

    def _direction(self, name: str, span: TransferSpan) -> str:
        if span.cause is Cause.ICI:
            return TRANSFERS[4]
        descriptor = self._program.kernels[name].descriptors[span.descriptor]
        ends = (descriptor.src_space == HBM, descriptor.dst_space == HBM)
        return TRANSFERS[((True, False), (False, True), (True, True), (False, False)).index(ends)]

    def _unit_name(self, unit: int) -> str:
        mxu, part = divmod(unit, self._chip.units_per_mxu)
        return f"MXU {mxu}" if self._chip.units_per_mxu == 1 else f"MXU {mxu} unit {part}"

    def _from(self, site: str, source: str) -> dict[str, object]:
        return described(self._origins, site, source)


def described(table: OriginTable, site: str, source: str = "") -> dict[str, object]:
    """What a slice says of where it comes from: names and lines, the first few."""
    origins = (table.of(site, source) if source else table.of_all(site))[:_MOST_ORIGINS]
    found: dict[str, object] = {}
    names = [origin.op_name for origin in origins if origin.op_name]
    places = dict.fromkeys(origin.place for origin in origins if origin.place)
    if names:
        found["op_name"] = ", ".join(names)
    if places:
        found["source"] = ", ".join(places)
    return found
