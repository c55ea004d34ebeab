"""What an execution cost: cycles by kernel, utilisation, memory; as a table or as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Program
from tpu_sim.machine.result import ExecutionResult


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


@dataclass(frozen=True)
class Report:
    """The last execution of an executable. Times in seconds, memory in bytes."""

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

    def to_json(self) -> dict[str, object]:
        """Return the JSON object of ``tpuc run --json``."""
        return {
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
            "kernels": [
                {
                    "name": k.name,
                    "note": k.note,
                    "calls": k.calls,
                    "cycles": k.cycles,
                    "mxu_utilisation": k.mxu_utilisation,
                    "mxu_busy": k.mxu_busy,
                    "dma_wait_cycles": k.dma_wait_cycles,
                    "hbm_bytes": k.hbm_bytes,
                }
                for k in self.kernels
            ],
        }


@dataclass
class _Sum:
    note: str = ""
    calls: int = 0
    cycles: int = 0
    multiply_adds: int = 0
    mxu_busy_cycles: int = 0
    dma_wait_cycles: int = 0
    hbm_bytes: int = 0


def peak_multiply_adds_per_cycle(chip: Chip) -> float:
    """bf16 multiply-adds one core can do in a cycle."""
    return chip.peak_flops / chip.clock_hz / 2


def build_report(
    program: Program,
    chip: Chip,
    result: ExecutionResult,
    compile_seconds: float,
    execute_seconds: float,
    stages: dict[str, float],
) -> Report:
    """Sum the kernel runs of `result` by call site."""
    sums: dict[str, _Sum] = {}
    for run in result.kernels:
        kernel = program.kernels[run.name]
        entry = sums.setdefault(run.site or run.name, _Sum(note=kernel.note))
        entry.calls += 1
        entry.cycles += run.cycles
        entry.multiply_adds += kernel.flops // 2
        entry.mxu_busy_cycles += run.mxu_busy_cycles
        entry.dma_wait_cycles += run.dma_wait_cycles
        entry.hbm_bytes += run.hbm_bytes
    peak = peak_multiply_adds_per_cycle(chip)

    def share(amount: float, cycles: int, per_cycle: float) -> float:
        return amount / (cycles * per_cycle) if cycles else 0.0

    kernels = tuple(
        KernelReport(
            name=name,
            note=s.note,
            calls=s.calls,
            cycles=s.cycles,
            mxu_utilisation=share(s.multiply_adds, s.cycles, peak),
            mxu_busy=share(s.mxu_busy_cycles, s.cycles, chip.mxu_count),
            dma_wait_cycles=s.dma_wait_cycles,
            hbm_bytes=s.hbm_bytes,
        )
        for name, s in sums.items()
    )
    everything = list(sums.values())
    hbm_bytes = sum(s.hbm_bytes for s in everything)
    return Report(
        target=chip.name,
        cycles=result.cycles,
        seconds=result.cycles / chip.clock_hz,
        kernels=kernels,
        hbm_bytes=hbm_bytes,
        hbm_peak_bytes=program.hbm_bytes,
        hbm_utilisation=share(hbm_bytes, result.cycles, chip.hbm_peak_bytes_per_cycle),
        mxu_utilisation=share(sum(s.multiply_adds for s in everything), result.cycles, peak),
        mxu_busy=share(sum(s.mxu_busy_cycles for s in everything), result.cycles, chip.mxu_count),
        compile_seconds=compile_seconds,
        execute_seconds=execute_seconds,
        stages=stages,
    )
