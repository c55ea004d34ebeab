"""What an execution reports: cycles and counts, per kernel call and in total.

Both machines return the same `ExecutionResult`, and equal programs give equal results. The first
`MOST_RECORDS` calls of a run have a `KernelRun` each; later ones are added up by call site, so that
a loop may go on for as long as it likes.

While it runs, a machine keeps rows of `RECORD_WORDS` numbers: of a call its number in the program,
then start cycle, cycles, MXU passes, DMA wait cycles, HBM bytes, and cycles by cause; of calls that
are added up, by number of the call, how many there were in place of that number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip

MOST_RECORDS = 65_536
"""Calls of a run that are recorded one by one."""
RECORD_WORDS = 17
_FIRST_CAUSE = 6
assert _FIRST_CAUSE + len(Cause) <= RECORD_WORDS

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KernelRun:
    """One call of a kernel, or `calls` of one site added up, the first at `start_cycle`.

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
    calls: int = 1


class RunTotals:
    """Calls added up by kernel and call site, in the order of their first ones."""

    def __init__(self) -> None:
        self._totals: dict[tuple[str, str], KernelRun] = {}

    def add(self, run: KernelRun) -> None:
        """Take in one call, or several added up."""
        key = (run.name, run.site)
        total = self._totals.get(key)
        if total is None:
            self._totals[key] = run
            return
        self._totals[key] = replace(
            total,
            cycles=total.cycles + run.cycles,
            mxu_busy_cycles=total.mxu_busy_cycles + run.mxu_busy_cycles,
            dma_wait_cycles=total.dma_wait_cycles + run.dma_wait_cycles,
            hbm_bytes=total.hbm_bytes + run.hbm_bytes,
            start_cycle=min(total.start_cycle, run.start_cycle),
            causes=tuple(a + b for a, b in zip(total.causes, run.causes, strict=True)),
            calls=total.calls + run.calls,
        )

    def runs(self) -> list[KernelRun]:
        """One for each kernel and site."""
        return sorted(self._totals.values(), key=lambda run: run.start_cycle)


@dataclass(frozen=True)
class ExecutionResult:
    """A whole run: `cycles` from the first bundle of main to the last.

    `kernels` are the calls in order, then what followed the first `MOST_RECORDS` of them, added up.
    """

    cycles: int
    kernels: tuple[KernelRun, ...]
    route_bytes: tuple[int, ...] = ()
    """Bytes that this core sent over each route of the program."""

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


def execution_result(
    cycles: int,
    calls: Sequence[tuple[str, str]],
    records: Rows,
    totals: Rows,
    chip: Chip,
    route_bytes: Sequence[int] = (),
) -> ExecutionResult:
    """The result of a run of a program with these `calls` (kernel and site), from its rows.

    `totals` has no rows if no calls were added up.
    """
    runs = [_kernel_run(calls[row[0]], 1, row[1:], chip) for row in records.tolist()]
    later = RunTotals()
    for call, row in zip(calls, totals.tolist(), strict=False):
        if row[0]:
            later.add(_kernel_run(call, row[0], row[1:], chip))
    return ExecutionResult(cycles, (*runs, *later.runs()), tuple(route_bytes))


def _kernel_run(call: tuple[str, str], count: int, row: list[int], chip: Chip) -> KernelRun:
    start, cycles, passes, wait, moved, *causes = row
    name, site = call
    busy = passes * chip.matmul_cycles
    used = tuple(causes[: len(Cause)])
    return KernelRun(name, site, cycles, busy, wait, moved, start, used, count)
