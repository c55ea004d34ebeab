"""Sync flags that another core raises, before or after somebody waits for them."""

from __future__ import annotations

import pytest

from tests.support.isa_programs import HBM_BYTES, V5E, block, kernel_program
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.program import Program
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.faults import DeadlockFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.run import Run

MACHINES = [NumpyMachine(V5E), LlvmMachine(V5E, cache=False)]
machines = pytest.mark.parametrize("machine", MACHINES, ids=["numpy", "llvm"])
FLAG, LATE = 5, 9000


def waiting() -> Program:
    """Waits in a branch for flag 2 + 3."""
    wait = block("dma.wait f2, s1", "saddi.s32 s2 = s1, 1")
    return kernel_program(block("smovi s1 = 3", "nop 4") + f"if s1 {{\n{wait}}}\n" + block("nop 2"))


def paused(machine: NumpyMachine | LlvmMachine) -> Run:
    """Before the first block of the kernel."""
    run = machine.start(waiting(), HbmMemory(HBM_BYTES))
    run.step()
    return run


@machines
def test_a_block_waits_for_another_core(machine: NumpyMachine | LlvmMachine) -> None:
    whole = machine.run(waiting(), HbmMemory(HBM_BYTES)).cycles
    run = paused(machine)
    run.state.expect_raise(FLAG)
    assert not run.run_until() and run.is_waiting
    before = run.cycle
    assert not run.run_until() and run.is_waiting and run.cycle == before
    saved = run.save()
    for other in MACHINES:
        again = other.restore(waiting(), HbmMemory(HBM_BYTES), saved)
        assert not again.run_until() and again.is_waiting
        again.state.raise_flag(FLAG, LATE)
        assert again.finish().cycles == whole + LATE - before
        assert again.state.sreg(2) == 4 and not again.is_waiting


@machines
def test_a_raise_may_come_first(machine: NumpyMachine | LlvmMachine) -> None:
    cycles = []
    for is_first in (True, False):
        run = paused(machine)
        if is_first:
            run.state.raise_flag(FLAG, LATE)
            run.state.expect_raise(FLAG)
        else:
            run.state.expect_raise(FLAG)
            run.state.raise_flag(FLAG, LATE)
        cycles.append(run.finish().cycles)
    assert cycles[0] == cycles[1] > LATE


@machines
def test_a_flag_raised_before_its_kernel_stays_raised(machine: NumpyMachine | LlvmMachine) -> None:
    run = machine.start(waiting(), HbmMemory(HBM_BYTES))
    run.state.raise_flag(FLAG, LATE)
    run.state.expect_raise(FLAG)
    assert run.finish().cycles > LATE


@machines
def test_a_wait_that_nobody_ends_is_a_fault(machine: NumpyMachine | LlvmMachine) -> None:
    run = paused(machine)
    run.state.expect_raise(FLAG)
    with pytest.raises(DeadlockFault, match="waits for another core") as caught:
        run.finish()
    assert caught.value.kernel == "k"
