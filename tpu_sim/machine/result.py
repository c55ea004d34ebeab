"""What an execution reports: cycles and counts, per kernel call and in total.

Both machines return the same `ExecutionResult`, and equal programs give equal results.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpu_sim.isa.causes import Cause


@dataclass(frozen=True)
class KernelRun:
    """One call of a kernel.

    `cycles` runs from the call, its overhead included, to the cycle after its last bundle.
    `mxu_busy_cycles` is the number of ``vmatmul`` times their occupancy, summed over MXUs.
    `dma_wait_cycles` are stalls in ``dma.wait``; `hbm_bytes` moved by DMA to or from HBM.
    `causes` says by `Cause` what each of the cycles went to; they add up to `cycles`.
    """

    name: str
    site: str
    cycles: int
    mxu_busy_cycles: int
    dma_wait_cycles: int
    hbm_bytes: int
    start_cycle: int = 0
    causes: tuple[int, ...] = (0,) * len(Cause)


@dataclass(frozen=True)
class ExecutionResult:
    """A whole run: `cycles` from the first bundle of main to the last; calls in order."""

    cycles: int
    kernels: tuple[KernelRun, ...]

    @property
    def mxu_busy_cycles(self) -> int:
        """Busy cycles of all MXUs together."""
        return sum(run.mxu_busy_cycles for run in self.kernels)

    @property
    def dma_wait_cycles(self) -> int:
        """Cycles stalled in ``dma.wait``."""
        return sum(run.dma_wait_cycles for run in self.kernels)

    @property
    def causes(self) -> tuple[int, ...]:
        """Cycles by `Cause`, over all kernel calls; main's own cycles are not among them."""
        return tuple(sum(run.causes[cause] for run in self.kernels) for cause in Cause)

    @property
    def main_cycles(self) -> int:
        """Cycles between kernel calls: arguments, loops and branches of main."""
        return self.cycles - sum(run.cycles for run in self.kernels)

    @property
    def hbm_bytes(self) -> int:
        """Bytes moved by DMA to or from HBM."""
        return sum(run.hbm_bytes for run in self.kernels)

    def seconds(self, clock_hz: float) -> float:
        """The run's time at a clock."""
        return self.cycles / clock_hz
