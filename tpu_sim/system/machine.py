"""Choosing a machine: the fast native one, or the plain one that finds races."""

from __future__ import annotations

from typing import Protocol

from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Program
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.far_core import FarCore
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult
from tpu_sim.machine.run import Run

ENGINES = ("llvm", "numpy")


class Machine(Protocol):
    """What both machines do."""

    def run(self, program: Program, hbm: HbmMemory) -> ExecutionResult:
        """Execute `program` on `hbm`."""
        ...

    def start(self, program: Program, hbm: HbmMemory) -> Run:
        """A run that stands at the start of `program`, to be stepped."""
        ...

    def far_core(self, hbm: HbmMemory) -> FarCore:
        """What stands for a core of another process, with as much HBM, for those of such machines."""
        ...

    def restore(self, program: Program, hbm: HbmMemory, data: bytes) -> Run:
        """A run that stands where the one did whose `Run.save` gave `data`, on whatever machine."""
        ...


def create_machine(
    chip: Chip,
    engine: str = "llvm",
    threads: int = 1,
    checked: bool = False,
    max_cycles: int | None = None,
    cache: bool = True,
) -> Machine:
    """A machine for `chip`. `engine` is one of `ENGINES`.

    `checked` runs find DMA races and uninitialised reads; only the NumPy machine does that, so a
    checked run uses it whatever `engine` says.
    """
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}: want one of {', '.join(ENGINES)}")
    if checked or engine == "numpy":
        return NumpyMachine(chip, checked=checked, max_cycles=max_cycles)
    return LlvmMachine(chip, threads=threads, max_cycles=max_cycles, cache=cache)
