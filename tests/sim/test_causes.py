"""Where cycles go, counted by hand on v5e; every cycle has one cause, on both machines."""

from __future__ import annotations

import pytest

from tests.support.isa_programs import V5E, block, kernel_program
from tests.support.random_programs import random_program
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.program import HBM, VMEM, Program
from tpu_sim.isa.timing import dma_cost
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult

HBM_BYTES = 1 << 20
LLVM = LlvmMachine(V5E, cache=False)
LOADS = dma_cost(HBM, VMEM, V5E)
TRANSFER = LOADS.cycles(64 * 512) + LOADS.latency + V5E.dma_wait_cycles
CALL = V5E.call_overhead_cycles
MULTIPLY = ("vlane v1", "nop 1", "vmatmul.bf16 u0, v1")
START, WAIT = "dma.start d0, s0, s0, f0, s0, s0, s0", "dma.wait f0, s0"
STORE, STORED = "dma.start d1, s0, s0, f1, s0, s0, s0", "dma.wait f1, s0"


def run(program: Program) -> ExecutionResult:
    results = [m.run(program, HbmMemory(HBM_BYTES)) for m in (NumpyMachine(V5E), LLVM)]
    assert results[0] == results[1]
    assert LLVM.estimate(program) == results[0]
    return results[0]


def loop(trips: int, body: str) -> str:
    return f'loop s1 = 0 .. {trips} "" {{\n{body}\n}}\n'


def causes(body: str) -> dict[str, int]:
    """The causes of a kernel's cycles, without those of none."""
    (kernel,) = run(kernel_program(body)).kernels
    assert sum(kernel.causes) == kernel.cycles
    return {cause.label: kernel.causes[cause] for cause in Cause if kernel.causes[cause]}


def test_bundles_count_by_what_they_hold() -> None:
    found = causes(block("smovi s1 = 1", "nop 5", "smovi s1 = 1 ; vlane v1"))
    assert found == {"launch": CALL, "scalar": 1, "latency": 5, "vector": 1}


def test_an_iteration_has_overhead() -> None:
    found = causes(loop(3, block("vlane v1")))
    assert found == {"launch": CALL, "loop": 6, "vector": 3}


def test_a_pass_covers_its_occupancy_and_its_result_the_rest() -> None:
    found = causes(block(*MULTIPLY, "nop 3", "vpop.mrf v2 = u0", "vpop.mrf v3 = u0"))
    # the pass issues at 2, its results are ready at 122 and 130; six bundles stand from 2 on
    assert found == {"launch": CALL, "vector": 1, "latency": 1, "mxu": 6, "mxu_result": 123}


def test_waiting_for_an_occupied_mxu_is_the_mxu() -> None:
    again = block("vlane v1", "nop 1", "vmatmul.bf16 u0, v1", *["vpop.mrf v2 = u0"] * 4)
    found = causes(block(*MULTIPLY) + again)
    # issued at 2, the second could issue at 5 and does at 18; its bundles and what precedes: 8
    assert found["mxu"] == 8 + 13


def test_a_pass_reaches_into_the_next_block() -> None:
    pops = block("nop 20", "vpop.mrf v2 = u0", "vpop.mrf v2 = u0")
    assert causes(block(*MULTIPLY) + pops)["mxu"] == V5E.matmul_cycles


def test_passes_cover_the_overhead_of_their_loop() -> None:
    steady = block(*["vpop.mrf v2 = u0"] * 2, "vlane v1", "nop 13", "vmatmul.bf16 u0, v1")
    found = causes(block(*MULTIPLY) + loop(4, steady) + block(*["vpop.mrf v2 = u0"] * 2))
    assert "loop" not in found


def test_waits_count_by_the_direction_of_the_transfer() -> None:
    found = causes(block(START, WAIT, STORE, STORED))
    assert found["dma_in"] == found["dma_out"] == TRANSFER - 1
    assert found["scalar"] == 4


def test_weights_count_as_weights() -> None:
    found = causes(block("vlane v1", "nop 1", "vmatpush.bf16 u0, v1, 0", "vmatswap u0"))
    assert found["mxu_weights"] == 2


@pytest.mark.parametrize("seed", range(300, 308))
def test_causes_add_up_on_random_programs(seed: int) -> None:
    result = run(random_program(V5E, seed, 3, 60))
    assert result.kernels
    assert all(sum(kernel.causes) == kernel.cycles for kernel in result.kernels)
    assert sum(result.causes) + result.main_cycles == result.cycles
