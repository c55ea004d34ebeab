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
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.machine_fuzz.flow import HBM_BYTES
from benchmarks.machine_fuzz.programs import Case
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.program import Program
from tpu_sim.jit.lanes import LlvmLanes
from tpu_sim.jit.llvm_machine import LlvmMachine, NativeProgram
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
_Starts = tuple[Callable[[HbmMemory], Run], Callable[[HbmMemory, bytes], Run]]
"""How a run begins on a machine, and how a saved one goes on there."""


def run(machine: Machine, program: Program | NativeProgram, contents: bytes) -> Outcome:
    """Run on a memory of given contents; native code on the LLVM machine alone."""
    hbm = _memory(contents)
    if isinstance(machine, LlvmMachine):
        return _outcome(lambda: machine.start(program, hbm), hbm)
    assert isinstance(program, Program)
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


class Runs:
    """Runs of one case: what was run, checked, translated or compiled once is not again.

    Machines are new for each run, but code of theirs is not: neither the checker nor native code
    knows limits of cycles, what memories hold, or what a NaN is. `threads` is how many host threads
    share the work of the LLVM machine.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self._chip = load_chip(case.program.target)
        self._numpy = NumpyMachine(self._chip)
        self._outcomes: dict[tuple[int, int, int | None], Outcome] = {}
        self._native: dict[tuple[int, bool], NativeProgram] = {}

    def numpy_machine(self, max_cycles: int, nan: int, window_words: int | None) -> NumpyMachine:
        """The one of this case, with other settings: it has looked at the program once."""
        machine = self._numpy
        machine.max_cycles, machine.nan, machine.window_words = max_cycles, nan, window_words
        return machine

    def plain(self, max_cycles: int, nan: int, window_words: int | None) -> Outcome:
        """What the NumPy machine gives."""
        key = (max_cycles, nan, window_words)
        if key not in self._outcomes:
            machine = self.numpy_machine(*key)
            self._outcomes[key] = run(machine, self.case.program, self.case.contents)
        return self._outcomes[key]

    def llvm_machine(self, threads: int = 1, max_cycles: int = MAX_CYCLES) -> LlvmMachine:
        """One whose VMEM holds zeros, as that of the NumPy machine does at first."""
        return LlvmMachine(self._chip, threads=threads, max_cycles=max_cycles, cache=False)

    def code(self, machine: LlvmMachine, same_nan: bool = False) -> NativeProgram:
        """The program for that machine; with `same_nan` its NaN is that of the NumPy machine."""
        key = (machine.threads, same_nan)
        if key not in self._native:
            with _same_nan() if same_nan else nullcontext():
                self._native[key] = machine.prepare(self.case.program)
        return self._native[key]

    def native(self, threads: int, max_cycles: int, same_nan: bool = False) -> Outcome:
        """What the LLVM machine gives."""
        machine = self.llvm_machine(threads, max_cycles)
        return run(machine, self.code(machine, same_nan), self.case.contents)


def compare(runs: Runs, threads: int = 1, max_cycles: int = MAX_CYCLES) -> tuple[str, Outcome]:
    """How the machines differ, "" if they agree; and what the NumPy machine gave."""
    first = runs.plain(max_cycles, NANS[0], None)
    second = runs.plain(max_cycles, NANS[1], _WINDOW_WORDS)
    if _same_end(first, second):
        native = runs.native(threads, max_cycles)
        if not _differ(first, native, first.memory == second.memory, threads):
            return "", first
    second = runs.plain(max_cycles, NANS[0], _WINDOW_WORDS)
    if not _same_end(first, second):
        return "", first
    native = runs.native(threads, max_cycles, same_nan=True)
    return _differ(first, native, first.memory == second.memory, threads), first


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


def compare_pauses(runs: Runs, source: random.Random, cycles: int, threads: int = 1) -> str:
    """How a run that goes from machine to machine, saved and restored, differs from a whole one.

    Mostly with native code that has been made already, whose NaN is the host's; words that hang on it
    are then not compared, and what seems to differ is looked at with the same NaN on both.
    """
    pauses = sorted(source.randrange(cycles + 1) for _ in range(source.choice([1, 2, 4])))
    is_native_first, is_same_nan = source.random() < 0.5, source.random() < 0.25
    for same_nan in (True,) if is_same_nan else (False, True):
        nan = NANS[0] if same_nan else NANS[1]
        plain = [runs.plain(MAX_CYCLES, *bits) for bits in ((NANS[0], None), (nan, _WINDOW_WORDS))]
        wrong = ""
        if _same_end(*plain):
            paused = _paused(runs, threads, pauses, is_native_first, same_nan)
            wrong = _differ(plain[0], paused, plain[0].memory == plain[1].memory, threads)
            if not wrong:
                break
    return wrong


def _paused(
    runs: Runs, threads: int, pauses: list[int], is_native_first: bool, same_nan: bool
) -> Outcome:
    """What a run gives that changes machines at `pauses`."""
    native = runs.llvm_machine(threads)
    numpy = runs.numpy_machine(MAX_CYCLES, NANS[0], None)
    code, program = runs.code(native, same_nan), runs.case.program
    starts = [
        (lambda hbm: native.start(code, hbm), lambda hbm, data: native.restore(code, hbm, data)),
        (
            lambda hbm: numpy.start(program, hbm),
            lambda hbm, data: numpy.restore(program, hbm, data),
        ),
    ]
    hbm = _memory(runs.case.contents)
    return _outcome(lambda: _carried(starts if is_native_first else starts[::-1], pauses, hbm), hbm)


def _carried(starts: list[_Starts], pauses: list[int], hbm: HbmMemory) -> Run:
    """The last part of a run that was on several machines."""
    execution = starts[0][0](hbm)
    for number, cycle in enumerate(pauses, 1):
        execution.run_until(cycle)
        if not execution.is_done:
            execution.step()
        saved = execution.save()
        hbm.bytes[:] = 0x55
        execution = starts[number % 2][1](hbm, saved)
        assert execution.save() == saved, "what is restored is not what was saved"
    return execution


def _name(outcome: Outcome) -> str:
    return "none" if outcome.fault is None else f"{outcome.fault[0].__name__} in {outcome.fault[1]}"


def compare_estimate(runs: Runs, cycles: int) -> str:
    """How an estimate differs from the cycles of a run."""
    estimated = runs.llvm_machine().estimate(runs.case.program).cycles
    return "" if estimated == cycles else f"estimate: {estimated} cycles, the run {cycles}"


def _difference(a: ExecutionResult | None, b: ExecutionResult | None) -> str:
    if a is None or b is None or a.cycles != b.cycles:
        return f"NumPy {a and a.cycles}, LLVM {b and b.cycles}"
    pairs = zip(a.kernels, b.kernels, strict=False)
    return next((f"{x} and {y}" for x, y in pairs if x != y), "number of calls")
