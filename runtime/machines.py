"""Which machine executes a program: the LLVM one or the NumPy one, with the same results.

A machine is a core: it belongs to a device and is made once for all programs that run there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from runtime.queue import RunInterruptedError
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Program
from tpu_sim.jit.host import processor_count
from tpu_sim.jit.llvm_machine import LlvmMachine, NativeProgram
from tpu_sim.jit.translated import estimate_kind
from tpu_sim.machine.far_core import FarCore
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult
from tpu_sim.machine.run import Run
from tpu_sim.system.machine import Machine, create_machine

_FIRST_PIECE_CYCLES = 20_000
"""A tenth of a millisecond on the LLVM machine, a tenth of a second on the NumPy machine."""
_PIECE_SECONDS = 0.05
"""A run that may be cancelled looks about this often."""


@dataclass(frozen=True)
class MachineOptions:
    """How to execute. `checked` finds races and uninitialised reads; `max_cycles` bounds the run.

    `threads` are host threads, by default one per processor; values and cycles do not depend on it.
    """

    machine: str = "llvm"
    threads: int = field(default_factory=processor_count)
    checked: bool = False
    max_cycles: int | None = None
    cache: bool = True


class Runnable(Protocol):
    """A program made ready on the machine of one device."""

    def run(
        self, hbm: HbmMemory, is_cancelled: Callable[[], bool] | None = None
    ) -> ExecutionResult:
        """Execute once on the given memory.

        One that may be cancelled asks now and then whether it is, and then raises
        `RunInterruptedError`.
        """

    def start(self, hbm: HbmMemory) -> Run:
        """A run on the given memory, at its start."""

    def far_core(self, hbm: HbmMemory) -> FarCore:
        """What stands for a core of another process, with as much HBM."""

    def quick(self, hbm: HbmMemory) -> QuickRunner | None:
        """What runs it on that memory without Python, where there is native code of one core."""

    def on(self, core: DeviceCore, options: MachineOptions) -> Runnable:
        """The same on another core of such a chip; nothing is translated again."""


@dataclass(frozen=True)
class QuickRunner:
    """`row` is for `tpu_sim.jit.quick_run`; before each such run, `begin` takes the machine."""

    row: list[int]
    begin: Callable[[], None]


@dataclass
class _OnNumpy:
    machine: Machine
    program: Program

    def run(
        self, hbm: HbmMemory, is_cancelled: Callable[[], bool] | None = None
    ) -> ExecutionResult:
        if is_cancelled is None:
            return self.machine.run(self.program, hbm)
        return _finish(self.machine.start(self.program, hbm), is_cancelled)

    def start(self, hbm: HbmMemory) -> Run:
        return self.machine.start(self.program, hbm)

    def far_core(self, hbm: HbmMemory) -> FarCore:
        return self.machine.far_core(hbm)

    def quick(self, hbm: HbmMemory) -> None:
        return None

    def on(self, core: DeviceCore, options: MachineOptions) -> Runnable:
        return core.prepare(self.program, options)


@dataclass
class _OnLlvm:
    machine: LlvmMachine
    program: NativeProgram

    def run(
        self, hbm: HbmMemory, is_cancelled: Callable[[], bool] | None = None
    ) -> ExecutionResult:
        if is_cancelled is None:
            return self.machine.run(self.program, hbm)
        return _finish(self.machine.start(self.program, hbm), is_cancelled)

    def start(self, hbm: HbmMemory) -> Run:
        return self.machine.start(self.program, hbm)

    def far_core(self, hbm: HbmMemory) -> FarCore:
        return self.machine.far_core(hbm)

    def quick(self, hbm: HbmMemory) -> QuickRunner | None:
        if self.program.program.routes or self.machine.max_cycles is not None:
            return None
        row = self.machine.quick_row(self.program, hbm)
        return QuickRunner(row, self.machine.begin_quick_run)

    def on(self, core: DeviceCore, options: MachineOptions) -> Runnable:
        machine = core.machine(options)
        assert isinstance(machine, LlvmMachine)
        return _OnLlvm(machine, self.program)


def _finish(run: Run, is_cancelled: Callable[[], bool]) -> ExecutionResult:
    """Run to the end in pieces; how long they take is found out on the way."""
    cycles = _FIRST_PIECE_CYCLES
    started = time.perf_counter()
    while not run.run_until(run.cycle + cycles):
        if is_cancelled():
            raise RunInterruptedError("the call was interrupted while it ran")
        now = time.perf_counter()
        if now - started < _PIECE_SECONDS:
            cycles *= 4
        started = now
    return run.result


class DeviceCore:
    """The core of one device: a machine for each way of executing that somebody asked for."""

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self._machines: dict[MachineOptions, Machine] = {}

    def machine(self, options: MachineOptions) -> Machine:
        """The machine that `options` name. The detectors of `checked` live in the NumPy machine."""
        found = self._machines.get(options)
        if found is None:
            found = self._machines[options] = create_machine(
                self.chip,
                options.machine,
                threads=options.threads,
                checked=options.checked,
                max_cycles=options.max_cycles,
                cache=options.cache,
            )
        return found

    def prepare(
        self, program: Program, options: MachineOptions, digest: str | None = None
    ) -> Runnable:
        """Make `program` ready; translation happens here.

        With the program's content `digest`, a translation made earlier is taken from disk.
        """
        machine = self.machine(options)
        if isinstance(machine, LlvmMachine):
            return _OnLlvm(machine, machine.prepare(program, digest=digest))
        return _OnNumpy(machine, program)


def estimate_cycles(
    program: Program, chip: Chip, options: MachineOptions, trips: int, digest: str | None = None
) -> tuple[ExecutionResult, float]:
    """Count cycles with values off; also returns the seconds that translation took.

    `trips` is how often loops run whose trip count depends on data. Only the LLVM machine does it,
    whatever `options` names; it has the cycles of both. It is a machine of its own, so that nobody
    waits for a run.
    """
    machine = LlvmMachine(chip, max_cycles=options.max_cycles, cache=options.cache)
    started = time.perf_counter()
    native = machine.prepare(program, estimate_kind(trips), digest)
    seconds = time.perf_counter() - started
    result = machine.estimate(program, trips)
    del native  # until here it was found ready
    return result, seconds
