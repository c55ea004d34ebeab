"""Runs a case on both machines, and says how they differ.

The bits of a NaN that the VALU gives are the host's (docs/numerics.md), and what windows hold when a
kernel starts is not specified (docs/isa.md). So the NumPy machine runs a case twice, with different
bits for all of these: a word that depends on them differs between the two runs, and is not compared.
A case whose control flow or faults depend on them has no meaning of its own. Two choices do not show
every dependence on NaN bits: what seems to differ is compared once more with the same on both machines.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.machine_fuzz.flow import HBM_BYTES
from benchmarks.machine_fuzz.programs import Case
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.program import Program
from tpu_sim.jit.lanes import LlvmLanes
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.faults import CycleLimitFault, MachineFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult
from tpu_sim.machine.run import Run

NANS = (0x7FC00000, 0xFFED1C35)
_WINDOW_WORDS = 0x5A3C96E1
MAX_CYCLES = 60_000
"""Where loops that would never end do."""

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Outcome:
    """What a run gave: a result, or a fault and the kernel it is in; and HBM."""

    result: ExecutionResult | None
    fault: tuple[type[MachineFault], str] | None
    memory: Words

    @property
    def cycles(self) -> int:
        """Cycles of a run that ended well."""
        return 0 if self.result is None else self.result.cycles


Machine = NumpyMachine | LlvmMachine


def run(machine: Machine, program: Program, contents: bytes) -> Outcome:
    """Run on a memory of given contents."""
    hbm = _memory(contents)
    return _outcome(lambda: machine.start(program, hbm), hbm)


def _memory(contents: bytes) -> HbmMemory:
    hbm = HbmMemory(HBM_BYTES)
    hbm.write(0, contents)
    return hbm


def _outcome(start: Callable[[], Run], hbm: HbmMemory) -> Outcome:
    result, fault = None, None
    try:
        result = start().finish()
    except MachineFault as error:
        fault = (type(error), error.kernel)
    return Outcome(result, fault, hbm.bytes.view(np.uint32).copy())


def _llvm(target: str, threads: int, max_cycles: int) -> LlvmMachine:
    """A machine whose VMEM holds zeros, as that of the NumPy machine does at first."""
    return LlvmMachine(load_chip(target), threads=threads, max_cycles=max_cycles, cache=False)


def compare(case: Case, threads: int = 1, max_cycles: int = MAX_CYCLES) -> tuple[str, Outcome]:
    """How the machines differ, "" if they agree; and what the NumPy machine gave."""
    first = _plain(case, max_cycles, NANS[0], None)
    second = _plain(case, max_cycles, NANS[1], _WINDOW_WORDS)
    if _same_end(first, second):
        native = run(_llvm(case.program.target, threads, max_cycles), case.program, case.contents)
        if not _differ(first, native, first.memory == second.memory, threads):
            return "", first
    second = _plain(case, max_cycles, NANS[0], _WINDOW_WORDS)
    if not _same_end(first, second):
        return "", first
    with _same_nan():
        native = run(_llvm(case.program.target, threads, max_cycles), case.program, case.contents)
    return _differ(first, native, first.memory == second.memory, threads), first


def _plain(case: Case, max_cycles: int, nan: int, window_words: int | None) -> Outcome:
    machine = NumpyMachine(
        load_chip(case.program.target), max_cycles=max_cycles, nan=nan, window_words=window_words
    )
    return run(machine, case.program, case.contents)


def _same_end(a: Outcome, b: Outcome) -> bool:
    return (a.result, a.fault) == (b.result, b.fault)


@contextmanager
def _same_nan() -> Iterator[None]:
    """Native code made meanwhile gives the NaN of the first run on the NumPy machine."""
    LlvmLanes.nan = NANS[0]
    try:
        yield
    finally:
        LlvmLanes.nan = None


def _differ(plain: Outcome, native: Outcome, defined: npt.NDArray[np.bool_], threads: int) -> str:
    if native.fault != plain.fault:
        return f"fault: NumPy {_name(plain)}, LLVM {_name(native)}"
    if native.result != plain.result:
        return f"cycles: {_difference(plain.result, native.result)}"
    if plain.fault is not None and (plain.fault[0] is not CycleLimitFault or threads > 1):
        return ""
    wrong = (plain.memory != native.memory) & defined
    if not wrong.any():
        return ""
    at = int(np.flatnonzero(wrong)[0])
    values = f"NumPy {plain.memory[at]:#010x}, LLVM {native.memory[at]:#010x}"
    return f"memory: {int(wrong.sum())} words, the first is {at}: {values}"


def compare_pauses(case: Case, source: random.Random, cycles: int, threads: int = 1) -> str:
    """How a run that goes from machine to machine, saved and restored, differs from a whole one."""
    plain = [_plain(case, MAX_CYCLES, NANS[0], words) for words in (None, _WINDOW_WORDS)]
    if not _same_end(*plain):
        return ""
    pauses = sorted(source.randrange(cycles + 1) for _ in range(source.choice([1, 2, 4])))
    with _same_nan():
        machines = [
            _llvm(case.program.target, threads, MAX_CYCLES),
            NumpyMachine(load_chip(case.program.target), max_cycles=MAX_CYCLES, nan=NANS[0]),
        ]
        source.shuffle(machines)
        hbm = _memory(case.contents)
        paused = _outcome(lambda: _carried(case.program, machines, pauses, hbm), hbm)
    return _differ(plain[0], paused, plain[0].memory == plain[1].memory, threads)


def _carried(program: Program, machines: list[Machine], pauses: list[int], hbm: HbmMemory) -> Run:
    """The last part of a run that was on several machines."""
    execution = machines[0].start(program, hbm)
    for number, cycle in enumerate(pauses, 1):
        execution.run_until(cycle)
        if not execution.is_done:
            execution.step()
        saved = execution.save()
        hbm.bytes[:] = 0x55
        execution = machines[number % 2].restore(program, hbm, saved)
        assert execution.save() == saved, "what is restored is not what was saved"
    return execution


def _name(outcome: Outcome) -> str:
    return "none" if outcome.fault is None else f"{outcome.fault[0].__name__} in {outcome.fault[1]}"


def compare_estimate(case: Case, cycles: int) -> str:
    """How an estimate differs from the cycles of a run."""
    machine = _llvm(case.program.target, 1, MAX_CYCLES)
    estimated = machine.estimate(case.program).cycles
    return "" if estimated == cycles else f"estimate: {estimated} cycles, the run {cycles}"


def _difference(a: ExecutionResult | None, b: ExecutionResult | None) -> str:
    if a is None or b is None or a.cycles != b.cycles:
        return f"NumPy {a and a.cycles}, LLVM {b and b.cycles}"
    pairs = zip(a.kernels, b.kernels, strict=False)
    return next((f"{x} and {y}" for x, y in pairs if x != y), "number of calls")
