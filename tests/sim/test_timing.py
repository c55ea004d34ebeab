"""Cycles of hand-written programs, counted by hand on v5e.

v5e: loop iteration 2, MXU pass 16, results after 120 and 128; what is fitted is read off the chip.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.support.isa_programs import (
    COPIES,
    LOAD_X,
    TWO_WINDOWS,
    V5E,
    block,
    execute,
    kernel_program,
    kernel_text,
    program_text,
)
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.program import HBM, SMEM, VMEM, Program
from tpu_sim.isa.timing import PASS_BITS, dma_cost, dma_times, unit_free
from tpu_sim.machine.result import ExecutionResult

CALL = V5E.call_overhead_cycles
LATENCY, SETUP, WAIT = V5E.dma_latency_cycles, V5E.dma_setup_cycles, V5E.dma_wait_cycles
LOADS = dma_cost(HBM, VMEM, V5E)
PASS, FIRST, SECOND = 16, 120, 128
MATMUL = ("vlane v1", "nop 1", "vmatmul.bf16 u0, v1")


def run(program: Program) -> ExecutionResult:
    result, _ = execute(program, checked=False)
    return result


def kernel_cycles(body: str) -> int:
    """Cycles of a kernel without its call."""
    (kernel,) = run(kernel_program(body)).kernels
    return kernel.cycles - CALL


def copy_cycles(size: int) -> int:
    return SETUP + math.ceil(size / V5E.hbm_bytes_per_cycle)


def test_a_bundle_is_a_cycle_and_so_is_a_bubble() -> None:
    assert kernel_cycles(block("smovi s1 = 1", "nop 5", "smovi s1 = 1 ; vlane v1")) == 7


def test_a_call_costs_its_overhead_and_main_its_bundles() -> None:
    kernels = kernel_text(block("nop 10"))
    main = block("smovi s1 = 1", "nop 2") + 'call "k" site "a"\ncall "k" site "b"'
    result = run(parse_program(program_text(kernels, main)))
    assert result.cycles == 3 + 2 * (CALL + 10)
    assert [(k.site, k.start_cycle, k.cycles) for k in result.kernels] == [
        ("a", 3, CALL + 10),
        ("b", CALL + 13, CALL + 10),
    ]


def test_loop_iterations_cost_their_overhead() -> None:
    assert kernel_cycles(f'loop s1 = 0 .. 5 "" {{\n{block("nop 10")}\n}}') == 5 * (10 + 2)
    assert kernel_cycles(f'loop s1 = 0 .. 0 "" {{\n{block("nop 10")}\n}}') == 0


def test_dynamic_trips_and_branches_follow_values() -> None:
    start = block("smovi s1 = 3")
    assert kernel_cycles(start + f'loop s2 = 0 .. s1 "" {{\n{block("nop 10")}\n}}') == 1 + 3 * 12
    arms = f"if s1 {{\n{block('nop 10')}\n}} else {{\n{block('nop 20')}\n}}"
    assert kernel_cycles(start + arms) == 1 + 10
    assert kernel_cycles(block("smovi s1 = 0") + arms) == 1 + 20


def test_a_negative_trip_count_runs_nothing() -> None:
    text = block("smovi s1 = -4") + f'loop s2 = 0 .. s1 "" {{\n{block("nop 10")}\n}}'
    assert kernel_cycles(text) == 1


def test_a_while_pays_for_every_test() -> None:
    test = block("scmp.lt.s32 s2 = s1, s3", "nop 3")
    body = block("saddi.s32 s1 = s1, 1")
    start = block("smovi s1 = 0 ; smovi s3 = 4")
    text = f'{start}while "" trips -1 {{\n{test}\n}} do s2 {{\n{body}\n}}'
    assert kernel_cycles(text) == 1 + 5 * 4 + 4 * (1 + 2)


def test_a_pop_waits_for_its_result() -> None:
    # the pass issues at 2, its results are ready at 122 and 130
    assert kernel_cycles(block(*MATMUL, "vpop.mrf v2 = u0", "vpop.mrf v3 = u0")) == 2 + SECOND + 1
    late = block(*MATMUL, "nop 200", "vpop.mrf v2 = u0", "vpop.mrf v3 = u0")
    assert kernel_cycles(late) == 3 + 200 + 2


def test_two_pops_in_a_bundle_wait_for_the_second() -> None:
    body = block(*MATMUL, "vpop.mrf v2 = u0 ; vpop.mrf v3 = u0", "nop 1")
    assert kernel_cycles(body) == 2 + SECOND + 1 + 1


def test_a_stalled_pop_delays_what_follows() -> None:
    body = block(*MATMUL, "nop 15", "vmatmul.bf16 u0, v1", *["vpop.mrf v2 = u0"] * 4)
    # second pass at 18: its results at 138 and 146; the first's at 122 and 130
    assert kernel_cycles(body) == 18 + SECOND + 1


def test_an_mxu_is_busy_across_blocks() -> None:
    pops = block(*["vpop.mrf v2 = u0"] * 4)
    body = block(*MATMUL) + block("vlane v1", "nop 1", "vmatmul.bf16 u0, v1") + pops
    # first pass at 2; the next block would issue its own at 5, but the MXU is free at 18
    result = run(kernel_program(body))
    assert result.kernels[0].cycles - CALL == 18 + SECOND + 1
    assert result.mxu_busy_cycles == 2 * PASS


def test_units_do_not_wait_for_each_other() -> None:
    body = block("vlane v1", "nop 1", "vmatmul.bf16 u0, v1 ; vmatmul.bf16 u1, v1")
    pops = block("vpop.mrf v1 = u0 ; vpop.mrf v2 = u1", "vpop.mrf v1 = u0 ; vpop.mrf v2 = u1")
    assert kernel_cycles(body + pops) == 2 + SECOND + 1


def test_a_dma_takes_bytes_over_rate_plus_latency() -> None:
    result = run(kernel_program(LOAD_X))
    done = copy_cycles(64 * 512) + LATENCY  # issued at 0 of the kernel
    assert result.kernels[0].cycles - CALL == done + WAIT + 1
    assert result.dma_wait_cycles == done + WAIT - 1
    assert result.hbm_bytes == 64 * 512


def test_transfers_share_one_engine() -> None:
    body = block(
        "smovi s1 = 64",
        "dma.start d0, s0, s0, f0, s0, s0, s0",
        "dma.start d0, s1, s0, f1, s0, s0, s0",
        "dma.wait f1, s0",
        "dma.wait f0, s0",
    )
    done = 1 + 2 * copy_cycles(64 * 512) + LATENCY
    assert kernel_cycles(body) == done + 2 * (WAIT + 1)


def test_the_engine_rests_between_distant_transfers() -> None:
    start = "dma.start d0, s0, s0, f0, s0, s0, s0"
    body = block(start, "nop 999", start, "dma.wait f0, s0")
    assert kernel_cycles(body) == 1000 + copy_cycles(64 * 512) + LATENCY + WAIT + 1


def test_the_engine_outlives_a_kernel() -> None:
    kernels = kernel_text(block("dma.start d0, s0, s0, f0, s0, s0, s0"))
    kernels += kernel_text(LOAD_X).replace('"k"', '"l"')
    result = run(parse_program(program_text(kernels, 'call "k" site ""\ncall "l" site ""')))
    engine_free = CALL + 2 * copy_cycles(64 * 512)
    assert (
        result.cycles == max(engine_free, 2 * CALL + 1 + copy_cycles(64 * 512)) + LATENCY + WAIT + 1
    )


def test_waiting_work_hides_a_transfer() -> None:
    body = block("dma.start d0, s0, s0, f0, s0, s0, s0", "nop 4000", "dma.wait f0, s0")
    result = run(kernel_program(body))
    assert result.kernels[0].cycles - CALL == 4002 + WAIT
    assert result.dma_wait_cycles == WAIT


def test_a_copy_within_hbm_reads_and_writes() -> None:
    tables = TWO_WINDOWS + "descriptor d0 hbm -> hbm chunk 64 dims []"
    body = block("smovi s1 = 64", "dma.start d0, s0, s1, f0, s0, s0, s0", "dma.wait f0, s0")
    result = run(kernel_program(body, tables))
    size = 64 * 512
    both = 2 * size / V5E.hbm_bytes_per_cycle / V5E.hbm_copy_efficiency
    taken = 1 + SETUP + math.ceil(both) + 2 * LATENCY + WAIT + 1
    assert result.kernels[0].cycles - CALL == taken
    assert result.hbm_bytes == 2 * size


def test_a_flag_is_not_done_before_an_earlier_transfer() -> None:
    """A copy within HBM takes two latencies, a small load behind it one."""
    tables = TWO_WINDOWS + (
        "descriptor d0 hbm -> hbm chunk 64 dims []\ndescriptor d1 hbm -> vmem w0 chunk 1 dims []"
    )
    both = ("smovi s1 = 64", "dma.start d0, s0, s1, f0, s0, s0, s0")
    alone = kernel_program(block(*both, "nop 1", "dma.wait f0, s0"), tables)
    body = block(*both, "dma.start d1, s0, s0, f0, s0, s0, s0", "dma.wait f0, s0")
    assert run(kernel_program(body, tables)).cycles == run(alone).cycles


def test_a_transfer_of_nothing_still_has_its_latency() -> None:
    tables = TWO_WINDOWS + "descriptor d0 hbm -> vmem w0 chunk 8 dims [c0 x 8 -> 8]"
    body = block("dma.start d0, s0, s0, f0, s0, s0, s0", "dma.wait f0, s0")
    result = run(kernel_program(body, tables))
    assert result.kernels[0].cycles - CALL == SETUP + LATENCY + WAIT + 1
    assert result.hbm_bytes == 0


def test_dynamic_counts_are_counted() -> None:
    tables = TWO_WINDOWS + "descriptor d0 hbm -> vmem w0 chunk 2 dims [c0 x 8 -> 8, c1 x 4 -> 2]"
    body = block(
        "smovi s1 = 3 ; smovi s2 = 2", "dma.start d0, s0, s0, f0, s0, s1, s2", "dma.wait f0, s0"
    )
    assert run(kernel_program(body, tables)).hbm_bytes == 3 * 2 * 2 * 512


@pytest.mark.parametrize("size", [0, 1, 4, 512, 4096, 32768, 1 << 20, 123_456_789])
def test_fixed_point_transfer_time_is_the_quotient(size: int) -> None:
    once = size / V5E.hbm_bytes_per_cycle
    twice = 2 * once / V5E.hbm_copy_efficiency
    for spaces, exact in (((HBM, VMEM), once), ((SMEM, HBM), once), ((HBM, HBM), twice)):
        taken = dma_cost(*spaces, V5E).cycles(size) - SETUP
        assert abs(taken - exact) <= 1 + exact * 2e-5


def test_dma_times_queue_up() -> None:
    size = round(10 * V5E.hbm_bytes_per_cycle)
    assert dma_times(10, 0, size, LOADS)[0] in (20 + SETUP, 21 + SETUP)
    assert dma_times(10, 100, 0, LOADS) == (100 + SETUP, 100 + SETUP + LATENCY)


def test_passes_keep_up_the_sustained_rate() -> None:
    chip = replace(V5E, mxu_sustained=0.9)
    now = free = 0
    for _ in range(900):
        now = max(now, free >> PASS_BITS)
        free = unit_free(free, now, chip)
    assert now == pytest.approx(16 * 899 / 0.9, rel=1e-3)


def test_the_same_program_takes_the_same_time() -> None:
    program = kernel_program(
        LOAD_X + block(*MATMUL, *["vpop.mrf v2 = u0"] * 2), TWO_WINDOWS + COPIES
    )
    assert run(program) == run(program)
