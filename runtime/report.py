"""What an execution cost: cycles by kernel and cause, utilisation, memory, roofline."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from runtime.advice import Advice, advise
from runtime.energy import Energy, energy_of
from runtime.kernel_report import KernelReport, KernelSum, share_of, utilisation_of
from runtime.link_use import LinkUse
from runtime.origin_costs import UNKNOWN, Costs, by_line, by_scope, origin_costs
from runtime.slice_trace import slice_events
from runtime.trace import Event, trace_events, write_trace
from runtime.trace_names import is_xspace_name
from runtime.xspace import write_xspace
from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.origins import Origin, origin_table
from tpu_sim.isa.program import Node, Program
from tpu_sim.machine.result import ExecutionResult

SCHEMA_VERSION = 1
"""Of the JSON object: raised when a field goes or changes its meaning (tpuc/report.schema.json)."""


_SHOWN = 3
"""Kernels of a report's printed form."""

Traced = tuple[Program, Chip, ExecutionResult]


@dataclass(frozen=True, repr=False)
class Report:
    """What one execution cost, or would cost (an estimate). Times in seconds, memory in bytes.

    `causes` holds the kernels' cycles by cause, and ``main`` the cycles between kernels; they add
    up to `cycles`. `assumed_trips` is the trip count that an estimate gave to loops whose trip
    count depends on data, None for an execution. `remarks` are the compiler's: where it split a
    fusion or took a plan of last resort, and why. `links` is there for a program of several devices;
    all else is then that of the core that took longest, `energy` too; `cores` has what each did.
    """

    target: str
    cycles: int
    seconds: float
    kernels: tuple[KernelReport, ...]
    hbm_bytes: int
    hbm_peak_bytes: int
    hbm_utilisation: float
    mxu_utilisation: float
    mxu_busy: float
    compile_seconds: float
    execute_seconds: float
    stages: dict[str, float] = field(default_factory=dict)
    causes: dict[str, int] = field(default_factory=dict)
    assumed_trips: int | None = None
    assumed_loops: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    links: LinkUse | None = None
    energy: Energy | None = None
    traced: Traced | None = field(default=None, repr=False, compare=False)
    cores: tuple[ExecutionResult, ...] = field(default=(), repr=False, compare=False)

    def __repr__(self) -> str:
        """A few lines: the totals, the dearest kernels, and what would help most."""
        done = "cycles" if self.assumed_trips is None else "cycles estimated"
        lines = [
            f"<tpuc.Report {self.target}: {self.cycles:,} {done}, {self.seconds * 1e3:,.3f} ms, "
            f"MXU {self.mxu_utilisation:.1%}, HBM {self.hbm_utilisation:.1%} of peak"
        ]
        dearest = sorted(self.kernels, key=lambda kernel: -kernel.cycles)[:_SHOWN]
        lines += [
            f"  {k.name}: {k.cycles:,} cycles in {k.calls:,} calls, bound by {k.bound_by}"
            for k in dearest
        ]
        if len(self.kernels) > _SHOWN:
            lines.append(f"  {len(self.kernels) - _SHOWN:,} more kernels (.kernels)")
        if self.traced is not None and self.advice:
            best = self.advice[0]
            lines.append(
                f"  saves {best.saved_cycles / max(self.cycles, 1):.0%}: {best.remedy} (.advice)"
            )
        return "\n".join(lines) + ">"

    @property
    def operations(self) -> int:
        """Multiplications, additions and what other elements take, in all calls (of one device)."""
        assert self.traced is not None, "made by build_report"
        program, _, result = self.traced
        kernels = [(program.kernels[run.name], run.calls) for run in result.kernels]
        return sum((kernel.flops + kernel.element_ops) * calls for kernel, calls in kernels)

    @cached_property
    def origin_costs(self) -> Costs:
        """Cycles of kernels by what the user wrote, worked out when asked for."""
        assert self.traced is not None, "made by build_report"
        program, _, result = self.traced
        return origin_costs(program.kernels, result.kernels, origin_table(program.metadata))

    @cached_property
    def advice(self) -> tuple[Advice, ...]:
        """What would help, and about how much; worked out when asked for."""
        assert self.traced is not None, "made by build_report"
        program, chip, result = self.traced
        kernels = {run.site or run.name: run.name for run in result.kernels}
        sites = [(kernels[kernel.name], kernel) for kernel in self.kernels]
        return advise(program, chip, sites, self.origin_costs, self.cycles)

    def write_trace(self, path: str | Path) -> None:
        """Write what the report adds up as a trace: ``NAME.json`` for ui.perfetto.dev (`runtime.trace`), or
        ``NAME.xplane.pb`` for xprof and TensorBoard (`runtime.xspace`).

        Raises TraceNameError for another name."""
        assert self.traced is not None, "made by build_report"
        if is_xspace_name(path):
            write_xspace(path, *self.traced, self.cores if self.links is not None else ())
            return
        device = ""
        beside: Iterator[Event] = iter(())
        if self.links is not None:
            device = f"{self.target}, the slowest of {len(self.links.core_cycles)} devices,"
            beside = slice_events(self.target, self.links, self.cores, self.traced[1])
        write_trace(path, chain(trace_events(*self.traced, device=device), beside))

    def to_json(self) -> dict[str, object]:
        """Return the JSON object of ``tpuc run --json`` and ``tpuc estimate --json``."""
        return {
            "schema": SCHEMA_VERSION,
            "estimated": self.assumed_trips is not None,
            "assumed_trips": self.assumed_trips,
            "assumed_loops": list(self.assumed_loops),
            "target": self.target,
            "cycles": self.cycles,
            "seconds": self.seconds,
            "hbm_bytes": self.hbm_bytes,
            "hbm_peak_bytes": self.hbm_peak_bytes,
            "hbm_utilisation": self.hbm_utilisation,
            "mxu_utilisation": self.mxu_utilisation,
            "mxu_busy": self.mxu_busy,
            "compile_seconds": self.compile_seconds,
            "execute_seconds": self.execute_seconds,
            "stages": self.stages,
            "causes": self.causes,
            "remarks": list(self.remarks),
            **({} if self.links is None else {"links": self.links.to_json()}),
            **({} if self.energy is None else {"energy": self.energy.to_json()}),
            "advice": [advice.to_json(self.cycles) for advice in self.advice],
            "kernels": [kernel.to_json() | self._origins(kernel) for kernel in self.kernels],
            "lines": [
                {"line": line, **cost.to_json()}
                for line, cost in by_line(self.origin_costs).items()
            ],
            "scopes": by_scope(self.origin_costs).to_json(),
        }

    @cached_property
    def _origins_of_sites(self) -> dict[str, list[tuple[Origin, float]]]:
        """What the cycles of each call site went to, dearest first."""
        found: dict[str, list[tuple[Origin, float]]] = defaultdict(list)
        for origin, cost in self.origin_costs.items():
            for site, cycles in cost.sites.items():
                if cycles and origin != UNKNOWN:
                    found[site].append((origin, cycles))
        return {site: sorted(shares, key=lambda s: -s[1]) for site, shares in found.items()}

    def _origins(self, kernel: KernelReport) -> dict[str, object]:
        """What a kernel's cycles went to, dearest first."""
        found = self._origins_of_sites.get(kernel.name, [])
        return {"origins": [o.to_json() | {"cycles": round(n)} for o, n in found]}


def build_report(
    program: Program,
    chip: Chip,
    result: ExecutionResult,
    compile_seconds: float,
    execute_seconds: float,
    stages: dict[str, float],
    assumed_trips: int | None = None,
) -> Report:
    """Sum the kernel runs of `result` by call site."""
    sums: dict[str, KernelSum] = {}
    for run in result.kernels:
        kernel = program.kernels[run.name]
        sums.setdefault(run.site or run.name, KernelSum(note=kernel.note)).add(run, kernel)
    utilisation = utilisation_of(program, chip, result)
    causes = {cause.label: count for cause, count in zip(Cause, result.causes, strict=True)}
    return Report(
        target=chip.name,
        cycles=result.cycles,
        seconds=result.cycles / chip.clock_hz,
        kernels=tuple(entry.report(name, chip) for name, entry in sums.items()),
        hbm_bytes=result.hbm_bytes,
        hbm_peak_bytes=program.hbm_bytes,
        hbm_utilisation=utilisation.hbm,
        mxu_utilisation=utilisation.mxu,
        mxu_busy=share_of(result.mxu_busy_cycles / chip.device_mxu_units, result.cycles),
        compile_seconds=compile_seconds,
        execute_seconds=execute_seconds,
        stages=stages,
        causes=causes | {"main": result.main_cycles},
        assumed_trips=assumed_trips,
        assumed_loops=() if assumed_trips is None else _all_assumed_loops(program),
        remarks=tuple(program.metadata.get("remarks", "").splitlines()),
        energy=energy_of(program, chip, result),
        traced=(program, chip, result),
    )


def _all_assumed_loops(program: Program) -> tuple[str, ...]:
    bodies = [program.main, *(kernel.body for kernel in program.kernels.values())]
    return tuple(name for body in bodies for name in _assumed_loops(body))


def _assumed_loops(nodes: list[Node]) -> tuple[str, ...]:
    """Names of the loops whose trip count the program does not state."""
    found: list[str] = []
    for node in nodes:
        match node:
            case Loop():
                found += _assumed_loops(node.body)
            case If():
                found += _assumed_loops(node.then) + _assumed_loops(node.orelse)
            case While():
                found += [node.name] if node.expected_trips < 0 else []
                found += _assumed_loops(node.test) + _assumed_loops(node.body)
    return tuple(found)
