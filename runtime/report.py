"""What an execution cost: cycles by kernel and cause, utilisation, memory, roofline."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from runtime.energy import Energy, energy_of
from runtime.link_use import LinkUse
from runtime.origin_costs import UNKNOWN, Costs, by_line, by_scope, origin_costs
from runtime.trace import write_trace
from runtime.xspace import SUFFIX, write_xspace
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Slot
from tpu_sim.isa.origins import origin_table
from tpu_sim.isa.program import If, Kernel, Loop, Node, Program, While
from tpu_sim.machine.result import ExecutionResult, KernelRun

SCHEMA_VERSION = 1
"""Of the JSON object: raised when a field goes or changes its meaning (tpuc/report.schema.json)."""
VREG_ELEMENTS = 1024
"""Elements of 32 bits that a vector operation takes at a time."""


@dataclass(frozen=True)
class KernelReport:
    """All calls of one call site taken together."""

    name: str
    note: str
    calls: int
    cycles: int
    mxu_utilisation: float  # model multiply-adds over cycles times peak
    mxu_busy: float  # share of MXU cycles with a pass in them, padding included
    dma_wait_cycles: int
    hbm_bytes: int
    least_bytes: int  # what it reads and makes, once, without padding
    causes: dict[str, int]  # cycles by label of `Cause`; they add up to `cycles`
    roofline: str  # the roof above it: "hbm", "mxu", "vector", or "none" if it uses none of them
    roofline_cycles: float  # at that roof
    roofline_share: float  # cycles at that roof over cycles

    @property
    def amplification(self) -> float:
        """Bytes moved over the least, 1 for a kernel that needs none."""
        return self.hbm_bytes / self.least_bytes if self.least_bytes else 1.0

    @property
    def bound_by(self) -> str:
        """The cause that takes most cycles."""
        return max(self.causes, key=lambda label: self.causes[label])

    def to_json(self) -> dict[str, object]:
        """Return the JSON object of a kernel."""
        return {
            "name": self.name,
            "note": self.note,
            "calls": self.calls,
            "cycles": self.cycles,
            "mxu_utilisation": self.mxu_utilisation,
            "mxu_busy": self.mxu_busy,
            "dma_wait_cycles": self.dma_wait_cycles,
            "hbm_bytes": self.hbm_bytes,
            "least_bytes": self.least_bytes,
            "amplification": self.amplification,
            "bound_by": self.bound_by,
            "causes": self.causes,
            "roofline": self.roofline,
            "roofline_cycles": self.roofline_cycles,
            "roofline_share": self.roofline_share,
        }


Traced = tuple[Program, Chip, ExecutionResult]


@dataclass(frozen=True)
class Report:
    """What one execution cost, or would cost (an estimate). Times in seconds, memory in bytes.

    `causes` holds the kernels' cycles by cause, and ``main`` the cycles between kernels; they add
    up to `cycles`. `assumed_trips` is the trip count that an estimate gave to loops whose trip
    count depends on data, None for an execution. `remarks` are the compiler's: where it split a
    fusion or took a plan of last resort, and why. `links` is there for a program of several devices;
    all else is then that of the core that took longest, `energy` too.
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

    @cached_property
    def origin_costs(self) -> Costs:
        """Cycles of kernels by what the user wrote, worked out when asked for."""
        assert self.traced is not None, "made by build_report"
        program, _, result = self.traced
        return origin_costs(program.kernels, result.kernels, origin_table(program.metadata))

    def write_trace(self, path: str | Path) -> None:
        """Write what the report adds up as a trace: for ui.perfetto.dev (`runtime.trace`), or, to a
        file ``NAME.xplane.pb``, for xprof and TensorBoard (`runtime.xspace`)."""
        assert self.traced is not None, "made by build_report"
        write = write_xspace if str(path).endswith(SUFFIX) else write_trace
        write(path, *self.traced)

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
            "kernels": [kernel.to_json() | self._origins(kernel) for kernel in self.kernels],
            "lines": [
                {"line": line, **cost.to_json()}
                for line, cost in by_line(self.origin_costs).items()
            ],
            "scopes": by_scope(self.origin_costs).to_json(),
        }

    def _origins(self, kernel: KernelReport) -> dict[str, object]:
        """What a kernel's cycles went to, dearest first."""
        shares = ((o, cost.sites.get(kernel.name, 0.0)) for o, cost in self.origin_costs.items())
        found = sorted((s for s in shares if s[1] and s[0] != UNKNOWN), key=lambda s: -s[1])
        return {"origins": [o.to_json() | {"cycles": round(n)} for o, n in found]}


@dataclass
class _Sum:
    note: str = ""
    calls: int = 0
    cycles: int = 0
    multiply_adds: int = 0
    element_ops: int = 0
    least_bytes: int = 0
    mxu_busy_cycles: int = 0
    dma_wait_cycles: int = 0
    hbm_bytes: int = 0
    causes: list[int] = field(default_factory=lambda: [0] * len(Cause))

    def add(self, run: KernelRun, kernel: Kernel) -> None:
        """Take in a call of a kernel, or several added up."""
        self.calls += run.calls
        self.cycles += run.cycles
        self.multiply_adds += kernel.flops // 2 * run.calls
        self.element_ops += kernel.element_ops * run.calls
        self.least_bytes += kernel.least_bytes * run.calls
        self.mxu_busy_cycles += run.mxu_busy_cycles
        self.dma_wait_cycles += run.dma_wait_cycles
        self.hbm_bytes += run.hbm_bytes
        self.causes = [a + b for a, b in zip(self.causes, run.causes, strict=True)]

    def report(self, name: str, chip: Chip) -> KernelReport:
        """The sum as people read it."""
        at_mxu_roof = self.multiply_adds / peak_multiply_adds_per_cycle(chip)
        at_hbm_roof = self.least_bytes / chip.device_hbm_peak_bytes_per_cycle
        lanes = chip.slot_count(Slot.VALU) * VREG_ELEMENTS * chip.cores_per_device
        at_vector_roof = self.element_ops / lanes
        roofs = {"hbm": at_hbm_roof, "mxu": at_mxu_roof, "vector": at_vector_roof}
        roof = max(roofs, key=lambda name: roofs[name])
        return KernelReport(
            name=name,
            note=self.note,
            calls=self.calls,
            cycles=self.cycles,
            mxu_utilisation=_share(at_mxu_roof, self.cycles),
            mxu_busy=_share(self.mxu_busy_cycles / chip.device_mxu_units, self.cycles),
            dma_wait_cycles=self.dma_wait_cycles,
            hbm_bytes=self.hbm_bytes,
            least_bytes=self.least_bytes,
            causes={cause.label: self.causes[cause] for cause in Cause},
            roofline=roof if roofs[roof] else "none",
            roofline_cycles=roofs[roof],
            roofline_share=_share(roofs[roof], self.cycles),
        )


def _share(ideal: float, cycles: int) -> float:
    return ideal / cycles if cycles else 0.0


def peak_multiply_adds_per_cycle(chip: Chip) -> float:
    """bf16 multiply-adds that the cores of a device can do in a cycle."""
    return chip.device_peak_flops / chip.clock_hz / 2


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
    sums: dict[str, _Sum] = {}
    for run in result.kernels:
        kernel = program.kernels[run.name]
        sums.setdefault(run.site or run.name, _Sum(note=kernel.note)).add(run, kernel)
    multiply_adds = sum(s.multiply_adds for s in sums.values())
    at_mxu_roof = multiply_adds / peak_multiply_adds_per_cycle(chip)
    causes = {cause.label: count for cause, count in zip(Cause, result.causes, strict=True)}
    return Report(
        target=chip.name,
        cycles=result.cycles,
        seconds=result.cycles / chip.clock_hz,
        kernels=tuple(entry.report(name, chip) for name, entry in sums.items()),
        hbm_bytes=result.hbm_bytes,
        hbm_peak_bytes=program.hbm_bytes,
        hbm_utilisation=_share(
            result.hbm_bytes / chip.device_hbm_peak_bytes_per_cycle, result.cycles
        ),
        mxu_utilisation=_share(at_mxu_roof, result.cycles),
        mxu_busy=_share(result.mxu_busy_cycles / chip.device_mxu_units, result.cycles),
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
