"""What the calls of one call site cost, added up."""

from __future__ import annotations

from dataclasses import dataclass, field

from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Slot
from tpu_sim.isa.program import Kernel, Program
from tpu_sim.machine.result import ExecutionResult, KernelRun

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


@dataclass
class KernelSum:
    """Calls of a call site as they are added up."""

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
        # weights of dear operations are estimates: a kernel that gets by with fewer is at its roof
        at_vector_roof = min(self.element_ops / lanes, self.cycles)
        roofs = {"hbm": at_hbm_roof, "mxu": at_mxu_roof, "vector": at_vector_roof}
        roof = max(roofs, key=lambda name: roofs[name])
        return KernelReport(
            name=name,
            note=self.note,
            calls=self.calls,
            cycles=self.cycles,
            mxu_utilisation=share_of(at_mxu_roof, self.cycles),
            mxu_busy=share_of(self.mxu_busy_cycles / chip.device_mxu_units, self.cycles),
            dma_wait_cycles=self.dma_wait_cycles,
            hbm_bytes=self.hbm_bytes,
            least_bytes=self.least_bytes,
            causes={cause.label: self.causes[cause] for cause in Cause},
            roofline=roof if roofs[roof] else "none",
            roofline_cycles=roofs[roof],
            roofline_share=share_of(roofs[roof], self.cycles),
        )


@dataclass(frozen=True)
class Utilisation:
    """Shares of what the matrix units and HBM could do in the cycles of a run."""

    mxu: float  # by the model's own multiply-adds
    hbm: float


def utilisation_of(program: Program, chip: Chip, result: ExecutionResult) -> Utilisation:
    """The utilisation of a run."""
    flops = sum(program.kernels[run.name].flops * run.calls for run in result.kernels)
    at_mxu_roof = flops / 2 / peak_multiply_adds_per_cycle(chip)
    at_hbm_roof = result.hbm_bytes / chip.device_hbm_peak_bytes_per_cycle
    return Utilisation(share_of(at_mxu_roof, result.cycles), share_of(at_hbm_roof, result.cycles))


def share_of(ideal: float, cycles: int) -> float:
    """A part of some cycles; 0 of none."""
    return ideal / cycles if cycles else 0.0


def peak_multiply_adds_per_cycle(chip: Chip) -> float:
    """bf16 multiply-adds that the cores of a device can do in a cycle."""
    return chip.device_peak_flops / chip.clock_hz / 2
