"""`NumpyMachine`: executes a program bundle by bundle, slowly and plainly.

It is the second opinion on the LLVM machine: same memory afterwards, same `ExecutionResult`.
"""

from __future__ import annotations

import numpy as np

from tpu_sim.interp.bundle_executor import BundleExecutor
from tpu_sim.isa.causes import Cause, Counts, IssueCauses
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import (
    Block,
    Bundle,
    Call,
    If,
    Kernel,
    Loop,
    Node,
    Program,
    While,
    spill_rows,
)
from tpu_sim.isa.text import format_bundle
from tpu_sim.machine.faults import CycleLimitFault, MachineFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.race_detector import POISON, RaceDetector
from tpu_sim.machine.result import MOST_RECORDS, ExecutionResult, KernelRun, RunTotals
from tpu_sim.machine.state import CoreState

DEFAULT_MAX_CYCLES = 1 << 40


class NumpyMachine:
    """A core of `chip`. `checked` finds DMA races and uninitialised VMEM reads.

    A run longer than `max_cycles` ends with `CycleLimitFault` at the end of a block, of an iteration or of
    a call, where the time is looked at. `nan` are the bits of each NaN that the vector unit gives, None
    for what the host gives; `window_words` is what windows hold when a kernel starts, None for what was
    there. Both are no part of the machine: what differs between two choices depends on them.
    """

    def __init__(
        self,
        chip: Chip,
        checked: bool = False,
        max_cycles: int | None = None,
        nan: int | None = None,
        window_words: int | None = None,
    ) -> None:
        self.nan = nan
        self.window_words = POISON if checked else window_words
        self.chip = chip
        self.checked = checked
        self.max_cycles = DEFAULT_MAX_CYCLES if max_cycles is None else max_cycles
        self._accepted: Program | None = None

    def run(self, program: Program, hbm: HbmMemory) -> ExecutionResult:
        """Execute `program` on `hbm`, whose constants and inputs are in place.

        Raises `ProgramError` before running a wrong program, `MachineFault` during the run.
        """
        if self._accepted is not program:
            check_program(program, self.chip)
            self._accepted = program
        with np.errstate(all="ignore"):
            return _Run(self, program, hbm).run()


class _Run:
    """One execution."""

    def __init__(self, machine: NumpyMachine, program: Program, hbm: HbmMemory) -> None:
        self.chip = machine.chip
        self.max_cycles = machine.max_cycles
        self.program = program
        self.hbm = hbm
        self.state = CoreState(machine.chip)
        self.races = RaceDetector(machine.chip.vmem_rows) if machine.checked else None
        self.nan = machine.nan
        self.window_words = machine.window_words
        self.executor = BundleExecutor(self.state, hbm, None, self.races, self.nan)
        self.kernel_name = ""
        self.bundle: Bundle = ()
        self.kernels: list[KernelRun] = []
        self.later = RunTotals()
        self.causes = {
            name: IssueCauses(kernel.body, machine.chip) for name, kernel in program.kernels.items()
        }
        self.issued = self.of_main = IssueCauses(program.main, machine.chip)

    def run(self) -> ExecutionResult:
        try:
            self._nodes(self.program.main)
        except MachineFault as fault:
            bundle = format_bundle(self.bundle) if self.bundle else ""
            kernel = self.kernel_name or "main"
            raise type(fault)(fault.message, kernel, bundle) from fault
        return ExecutionResult(self.state.now, (*self.kernels, *self.later.runs()))

    def _nodes(self, nodes: list[Node]) -> None:
        for node in nodes:
            match node:
                case Block():
                    self._block(node)
                case Loop():
                    self._loop(node)
                case If():
                    taken = self.state.sreg(node.condition) != 0
                    self._nodes(node.then if taken else node.orelse)
                case While():
                    self._while(node)
                case Call():
                    self._call(node)

    def _block(self, block: Block) -> None:
        for bundle in block.bundles:
            self.bundle = bundle
            self.executor.execute(bundle)
        self._charge(self.issued.of_block(block))
        self._check_limit()

    def _charge(self, counts: Counts) -> None:
        for cause, count in counts:
            self.state.counts.causes[cause] += count

    def _check_limit(self) -> None:
        if self.state.now > self.max_cycles:
            raise CycleLimitFault(f"the run passed {self.max_cycles} cycles")

    def _end_iteration(self, loop: Loop | While) -> None:
        self.state.now += self.chip.loop_overhead_cycles
        self._charge(self.issued.of_iteration(loop))
        self._check_limit()

    def _loop(self, loop: Loop) -> None:
        trip = loop.trip if loop.trip >= 0 else self.state.sreg(loop.trip_sreg)
        for index in range(trip):
            self.state.sregs[loop.index] = index
            self._nodes(loop.body)
            self._end_iteration(loop)

    def _while(self, loop: While) -> None:
        while True:
            self._nodes(loop.test)
            if self.state.sreg(loop.condition) == 0:
                return
            self._nodes(loop.body)
            self._end_iteration(loop)

    def _call(self, call: Call) -> None:
        kernel = self.program.kernels[call.kernel]
        state = self.state
        start = state.now
        outer = self.executor
        self.kernel_name = kernel.name
        state.now += self.chip.call_overhead_cycles
        self._enter(kernel)
        self.issued = self.causes[kernel.name]
        state.counts.causes[Cause.LAUNCH] = self.chip.call_overhead_cycles
        self._nodes(kernel.body)
        if self.races:
            self.races.leave_kernel()
        run = KernelRun(
            name=kernel.name,
            site=call.site,
            cycles=state.now - start,
            mxu_busy_cycles=state.counts.matmuls * self.chip.matmul_cycles,
            dma_wait_cycles=state.counts.dma_wait_cycles,
            hbm_bytes=state.counts.hbm_bytes,
            start_cycle=start,
            causes=tuple(state.counts.causes),
        )
        if len(self.kernels) < MOST_RECORDS:
            self.kernels.append(run)
        else:
            self.later.add(run)
        self.kernel_name = ""
        self.issued = self.of_main
        self.executor = outer
        state.enter_kernel(0)
        self._check_limit()

    def _enter(self, kernel: Kernel) -> None:
        self.state.enter_kernel(kernel.flags)
        self.state.vmem[spill_rows(kernel)] = 0
        self.executor = BundleExecutor(self.state, self.hbm, kernel, self.races, self.nan)
        if self.races:
            self.races.enter_kernel()
        if self.window_words is not None:
            for window in kernel.windows:
                rows = slice(window.base_row, window.base_row + window.rows)
                self.state.vmem[rows] = self.window_words
