"""Which machine executes a program: the LLVM one or the NumPy one, with the same results."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Program
from tpu_sim.jit.host import processor_count
from tpu_sim.jit.llvm_machine import LlvmMachine, NativeProgram
from tpu_sim.jit.program_translator import estimate_kind
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult
from tpu_sim.system import machine as system


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


class Machine(Protocol):
    """A program made ready on some machine."""

    def run(self, hbm: HbmMemory) -> ExecutionResult:
        """Execute once on the given memory."""


@dataclass
class _OnNumpy:
    machine: system.Machine
    program: Program

    def run(self, hbm: HbmMemory) -> ExecutionResult:
        return self.machine.run(self.program, hbm)


@dataclass
class _OnLlvm:
    machine: LlvmMachine
    program: NativeProgram

    def run(self, hbm: HbmMemory) -> ExecutionResult:
        return self.machine.run(self.program, hbm)


def estimate_cycles(
    program: Program, chip: Chip, options: MachineOptions, trips: int, digest: str | None = None
) -> tuple[ExecutionResult, float]:
    """Count cycles with values off; also returns the seconds that translation took.

    `trips` is how often loops run whose trip count depends on data. Only the LLVM machine does it,
    whatever `options` names; it has the cycles of both.
    """
    machine = LlvmMachine(chip, max_cycles=options.max_cycles, cache=options.cache)
    started = time.perf_counter()
    machine.prepare(program, estimate_kind(trips), digest)
    seconds = time.perf_counter() - started
    return machine.estimate(program, trips), seconds


def make_machine(
    program: Program, chip: Chip, options: MachineOptions, digest: str | None = None
) -> Machine:
    """Prepare `program` for the machine that `options` names; translation happens here.

    With the program's content `digest`, a translation made earlier is taken from disk.

    The detectors of `checked` live in the NumPy machine, so a checked run goes there.
    """
    machine = system.create_machine(
        chip,
        options.machine,
        threads=options.threads,
        checked=options.checked,
        max_cycles=options.max_cycles,
        cache=options.cache,
    )
    if isinstance(machine, LlvmMachine):
        return _OnLlvm(machine, machine.prepare(program, digest=digest))
    return _OnNumpy(machine, program)
