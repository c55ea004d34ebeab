"""The main part of a document: what a run cost, by kernel, call, buffer and origin."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

from compiler.analysis.buffer_assignment import Allocation
from compiler.driver import CompiledModule
from runtime.executable import Executable
from runtime.kernel_report import VREG_ELEMENTS
from runtime.origin_costs import UNKNOWN
from runtime.report import Report
from runtime.slice_executable import SliceExecutable
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.instruction import Slot
from tpu_sim.isa.origins import Origin, origin_table
from tpu_sim.isa.program import HBM, SMEM, VMEM, Node
from tpu_sim.machine.result import MOST_RECORDS, KernelRun
from tpuc.view.document import (
    AdviceRow,
    Calls,
    ChipFacts,
    CostRow,
    KernelSite,
    Main,
    SliceFacts,
    ViewBuffer,
    ViewMemory,
)

_SPACES = {HBM: "HBM", VMEM: "VMEM", SMEM: "SMEM"}
MOST_CALLS = 20_000
"""Calls that are shown one by one."""
MOST_BUFFERS = 4_000
"""Buffers that are shown: the largest."""
_MOST_SOURCE_BYTES = 4 << 20
"""Of a source file that a page holds whole: generated ones of megabytes would make it slow."""
Number = Callable[[Origin], int]


class RunFacts:
    """See `main`."""

    def __init__(
        self,
        model: str,
        compiled: CompiledModule,
        executable: Executable,
        report: Report,
        number: Number,
    ) -> None:
        assert report.traced is not None, "made by build_report"
        self._model = model
        self._compiled = compiled
        self._executable = executable
        self._report = report
        self._number = number
        self._program, self._chip, self._result = report.traced
        self._table = origin_table(self._program.metadata)

    @property
    def runs(self) -> tuple[KernelRun, ...]:
        """The kernel calls."""
        return self._result.kernels

    def main(self) -> Main:
        """The part; `kernels`, `origins` and `lines` are for the caller to fill in."""
        report = self._report
        return Main(
            model=self._model,
            module=self._compiled.module.name,
            target=self._executable.device.topology.name,
            is_estimate=report.assumed_trips is not None,
            chip=chip_facts(self._chip),
            cycles=report.cycles,
            seconds=report.seconds,
            totals={
                "MXU utilisation": report.mxu_utilisation,
                "MXU busy": report.mxu_busy,
                "HBM bytes": report.hbm_bytes,
                "HBM peak bytes": report.hbm_peak_bytes,
                "HBM utilisation": report.hbm_utilisation,
                "compile seconds": round(report.compile_seconds, 3),
                "execute seconds": round(report.execute_seconds, 3),
                "joules": 0.0 if report.energy is None else report.energy.joules,
                "watts": 0.0 if report.energy is None else report.energy.watts,
                "assumed energies": [] if report.energy is None else list(report.energy.assumed),
                "assumed trips": report.assumed_trips,
                "assumed loops": list(report.assumed_loops),
            },
            causes=report.causes,
            remarks=list(report.remarks),
            sites=self._sites(),
            origins=[],
            lines={},
            costs=self._costs(),
            calls=self._calls(),
            memory=self._memory(),
            kernels=[],
            slice=self._slice(),
            advice=[
                AdviceRow(a.why, a.remedy, round(a.saved_cycles), list(a.places), list(a.kernels))
                for a in report.advice
            ],
        )

    def _sites(self) -> list[KernelSite]:
        kernels = {run.site or run.name: run.name for run in self._result.kernels}
        found = []
        for row in self._report.kernels:
            kernel = self._program.kernels[kernels[row.name]]
            found.append(
                KernelSite(
                    name=row.name,
                    kernel=kernel.name,
                    note=row.note,
                    calls=row.calls,
                    cycles=row.cycles,
                    causes={label: n for label, n in row.causes.items() if n},
                    mxu=row.mxu_utilisation,
                    hbm_bytes=row.hbm_bytes,
                    least_bytes=row.least_bytes,
                    flops=kernel.flops * row.calls,
                    element_ops=kernel.element_ops * row.calls,
                    roofline=row.roofline,
                    roofline_cycles=round(row.roofline_cycles, 1),
                    origins=[self._number(o) for o in self._table.of_all(row.name)],
                )
            )
        return found

    def _costs(self) -> list[CostRow]:
        return [
            CostRow(
                -1 if origin == UNKNOWN else self._number(origin),
                {label: round(cycles, 1) for label, cycles in cost.causes.items()},
                {site: round(cycles, 1) for site, cycles in cost.sites.items()},
            )
            for origin, cost in self._report.origin_costs.items()
        ]

    def _calls(self) -> Calls:
        """The first calls one by one; what the page leaves out is in the kernels' sums."""
        numbers = {row.name: number for number, row in enumerate(self._report.kernels)}
        rows: list[int] = []
        runs = self._result.kernels
        for run in runs[:MOST_CALLS]:
            rows += [numbers[run.site or run.name], run.start_cycle, run.cycles, run.calls]
        total = sum(run.calls for run in runs)
        return Calls(rows, min(len(runs), MOST_CALLS, MOST_RECORDS), total)

    def _memory(self) -> ViewMemory:
        buffers = self._compiled.buffers
        shapes = {(b.offset_bytes, b.size_bytes): b for b in self._program.buffers if b.shape}
        largest = sorted(enumerate(buffers.allocations), key=lambda item: -item[1].size_bytes)
        rows = []
        for number, place in largest[:MOST_BUFFERS]:
            known = shapes.get((place.offset, place.size_bytes)) if place.space == HBM else None
            name = known.name if known is not None else buffers.names.get(number, f"#{number}")
            shape = known.shape if known is not None else ""
            space = _SPACES.get(place.space, "")
            live = [place.live[0], place.live[1]]
            rows.append(
                ViewBuffer(name, _kind(place), space, place.offset, place.size_bytes, live, shape)
            )
        return ViewMemory(rows, self._steps(), buffers.peak_bytes)

    def _steps(self) -> list[list[int | str]]:
        """Where in the schedule each call site stands, and when it was first called."""
        started: dict[str, int] = {}
        for run in self._result.kernels:
            started.setdefault(run.site or run.name, run.start_cycle)
        places: list[list[int | str]] = [
            [span.start, instr.name, started[instr.name]]
            for instr, span in self._compiled.buffers.positions.items()
            if instr.name in started
        ]
        return sorted(places, key=lambda row: int(row[0]))

    def _slice(self) -> SliceFacts | None:
        """Of a program of one device, all other chips of the target stand still."""
        executable, use = self._executable, self._report.links
        topology = executable.device.topology
        if topology.chip_count == 1:
            return None
        torus = topology.torus
        idle = [0] * (topology.chip_count * topology.devices_per_chip)
        facts = SliceFacts(
            name=topology.name,
            size=list(topology.dims),
            wraps=[bool(wrap) for wrap in torus.wraps],
            chips=[list(torus.coordinates(c)) for c in range(torus.chip_count)],
            core_cycles=[self._report.cycles, *idle[1:]],
            links=[],
            room_bytes=0.0,
            collectives=[],
        )
        if use is not None:
            facts.core_cycles = list(use.core_cycles)
            facts.links = [[chip, axis, way, count] for (chip, axis, way), count in use.by_link]
            facts.room_bytes = use.room_bytes
        if isinstance(executable, SliceExecutable):
            collectives = executable.collectives
            facts.collectives = [{k: _word(v) for k, v in c.items()} for c in collectives]
        return facts

    def lines(self, origins: Iterable[Origin], own_file: str) -> dict[str, str]:
        """The text of the origins' lines, where the file is Python or the model's own, and still there."""
        found: dict[str, str] = {}
        for origin in origins:
            text = (
                _source_lines(origin.file)
                if origin.file == own_file or origin.file.endswith(".py")
                else ()
            )
            if 0 < origin.line <= len(text):
                found[origin.place] = text[origin.line - 1].strip()[:200]
        return found


def chip_facts(chip: Chip) -> ChipFacts:
    """What the page says of a chip."""
    lanes = chip.slot_count(Slot.VALU) * VREG_ELEMENTS * chip.cores_per_device
    return ChipFacts(
        name=chip.name,
        clock_hz=chip.clock_hz,
        peak_flops=chip.device_peak_flops,
        hbm_bytes_per_second=chip.device_hbm_peak_bytes_per_cycle * chip.clock_hz,
        hbm_bytes=chip.hbm_bytes,
        vmem_bytes=chip.vmem_bytes,
        mxus=chip.mxu_count,
        mxu_units=chip.mxu_units,
        cores=chip.cores_per_device,
        vector_ops_per_second=lanes * chip.clock_hz,
        slots=dict(chip.slots),
    )


def _word(value: object) -> int | float | str:
    return value if isinstance(value, int | float | str) else str(value)


def _kind(place: Allocation) -> str:
    if place.parameter is not None:
        return "parameter"
    if place.outputs:
        return "output"
    return "constant" if place.is_constant else "temp"


@lru_cache(maxsize=256)
def _source_lines(file: str) -> tuple[str, ...]:
    path = Path(file)
    try:
        if path.stat().st_size > _MOST_SOURCE_BYTES:
            return ()
        return tuple(path.read_text(encoding="utf-8", errors="replace").splitlines())
    except OSError:
        return ()


def calls_of(nodes: list[Node]) -> Iterator[tuple[str, str]]:
    """Kernel and site of every call of main."""
    for node in nodes:
        match node:
            case Call():
                yield node.kernel, node.site
            case Loop():
                yield from calls_of(node.body)
            case If():
                yield from calls_of([*node.then, *node.orelse])
            case While():
                yield from calls_of([*node.test, *node.body])
