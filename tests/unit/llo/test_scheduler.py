"""Scheduled, spilled, allocated kernels do what their LLO does in source order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.diagnostics import CompileError, ResourceExhaustedError
from compiler.llo.builder import LloBuilder, f32_bits
from compiler.llo.finalize import finalize_kernel
from compiler.llo.ir import LloKernel
from compiler.llo.walk import op_count
from tests.support.kernel_runs import run_in_source_order, run_kernel, window_rows
from tests.support.random_kernels import WINDOW_ROWS, WINDOWS, random_kernel
from tpu_sim.isa.chips import Chip, load_chip
from tpu_sim.isa.control_flow import Loop
from tpu_sim.isa.program import HBM, VMEM, Block, DmaDescriptor, Kernel

CHIP = load_chip("v5e")
TIGHT = replace(CHIP, vregs=12, vmasks=4, sregs=10, eup_entries=2, xlu_entries=3)


def contents(seed: int) -> dict[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((WINDOWS, WINDOW_ROWS, 128)).astype(np.float32)
    return dict(enumerate(values.view(np.uint32)))


def canonical(rows: np.ndarray) -> np.ndarray:
    """Any NaN equals any NaN."""
    return np.where(np.isnan(rows.view(np.float32)), np.uint32(0x7FC00000), rows)


def assert_same_effect(make: LloKernel, again: LloKernel, chip: Chip, seed: int) -> Kernel:
    before = contents(seed)
    want = run_in_source_order(make, chip, before)
    kernel = finalize_kernel(again, chip, check=True)
    got = run_kernel(kernel, chip, before)
    for window in range(WINDOWS):
        np.testing.assert_array_equal(
            canonical(window_rows(got, kernel, window)), canonical(window_rows(want, make, window))
        )
    return kernel


@pytest.mark.parametrize("seed", range(6))
def test_random_kernels_keep_their_meaning(seed: int) -> None:
    first, second = random_kernel(seed, CHIP), random_kernel(seed, CHIP)
    assert_same_effect(first, second, CHIP, seed)


@pytest.mark.parametrize("seed", range(20, 23))
def test_spilling_keeps_the_meaning(seed: int) -> None:
    kernels = [random_kernel(seed, CHIP, 250, pressure=110) for _ in range(2)]
    assert assert_same_effect(kernels[0], kernels[1], CHIP, seed).spill_slots > 10


@pytest.mark.parametrize("seed", range(30, 34))
def test_a_chip_with_few_registers_and_short_queues_is_enough(seed: int) -> None:
    kernels = [random_kernel(seed, TIGHT, 100) for _ in range(2)]
    assert_same_effect(kernels[0], kernels[1], TIGHT, seed)


def test_finalizing_takes_microseconds_per_operation_and_gives_dense_bundles() -> None:
    b = LloBuilder("k", CHIP)
    x, y = b.window("x", 1024), b.window("y", 1024)
    for tile in range(100):
        value = b.emit("vld", x, 0, 8 * tile, 1)
        tanh = b.emit("vtanh.f32", b.emit("vmuli.f32", value, f32_bits(0.5)))
        total = b.emit("vadd.f32", b.emit("vlanefold.add.f32", tanh), value)
        b.emit("vst", y, 0, 8 * tile, 1, total)
    llo = b.finish()
    count = op_count(llo)
    kernel = finalize_kernel(llo, CHIP)
    block = kernel.body[0]
    assert isinstance(block, Block)
    assert sum(map(len, block.bundles)) == count
    assert len(block.bundles) < 165, "the EUP allows 100 and latencies fill about 40"


def test_values_of_zero_latency_order_share_bundles() -> None:
    """A store may issue with the last load of the rows it overwrites."""
    b = LloBuilder("k", CHIP)
    x = b.window("x", 16)
    old = b.emit("vld", x, 0, 0, 1)
    b.emit("vst", x, 0, 0, 1, b.emit("vmovi", 1))
    b.emit("vst", x, 0, 8, 1, old)
    block = finalize_kernel(b.finish(), CHIP, check=True).body[0]
    assert isinstance(block, Block)
    assert len(block.bundles) == 5  # vld's latency of 4, then the second store


def test_dead_code_goes_with_its_queue_push() -> None:
    b = LloBuilder("k", CHIP)
    x = b.window("x", 16)
    b.emit("vtanh.f32", b.emit("vld", x, 0, 0, 1))
    b.emit("vst", x, 0, 8, 1, b.emit("vlane"))
    block = finalize_kernel(b.finish(), CHIP).body[0]
    assert isinstance(block, Block)
    assert [i.row.name for bundle in block.bundles for i in bundle] == ["vlane", "vst"]


def test_a_dma_start_follows_the_stores_of_its_window_and_loads_its_wait() -> None:
    b = LloBuilder("k", CHIP)
    x, y = b.window("x", 16), b.window("y", 16)
    out = b.descriptor(DmaDescriptor(VMEM, HBM, 8, (), x))
    flag = b.flag()
    b.emit("vst", x, 0, 0, 1, b.emit("vlane"))
    b.emit("dma.start", out, 0, 0, flag, 0, 0, 0)
    b.emit("dma.wait", flag, 0)
    b.emit("vst", y, 0, 0, 1, b.emit("vld", x, 0, 0, 1))
    block = finalize_kernel(b.finish(), CHIP, check=True).body[0]
    assert isinstance(block, Block)
    issue = {i.row.name: c for c, bundle in enumerate(block.bundles) for i in bundle}
    first_store = next(c for c, bd in enumerate(block.bundles) for i in bd if i.row.name == "vst")
    assert first_store < issue["dma.start"] < issue["dma.wait"] < issue["vld"]


def test_indexed_loads_hold_their_slot() -> None:
    b = LloBuilder("k", CHIP)
    x, y = b.window("x", 16), b.window("y", 64)
    for tile in range(4):
        index = b.emit("vmovi", tile)
        b.emit("vst", y, 0, 8 * tile, 1, b.emit("vld.idx", x, 0, index))
    block = finalize_kernel(b.finish(), CHIP, check=True).body[0]
    assert isinstance(block, Block)
    loads = [
        c for c, bundle in enumerate(block.bundles) for i in bundle if i.row.slot.value == "load"
    ]
    assert loads[3] - loads[0] >= CHIP.load_indexed_cycles


def test_scalars_of_a_loop_are_kept_across_its_blocks() -> None:
    """Many live sregs: constants are made again, the rest goes through SMEM."""
    few = replace(CHIP, sregs=8)
    b = LloBuilder("k", few)
    x = b.window("x", 512)
    arguments = [b.argument(i) for i in range(6)]
    squares = [b.sbinary("smul.s32", a, a) for a in arguments]
    with b.loop(3) as i, b.loop(4) as j:
        row = b.saddi(b.smuli(b.sadd(b.smuli(i, 4), j), 8), 8)
        total = row
        for square, argument in zip(squares, arguments, strict=True):
            total = b.sadd(total, b.sbinary("smul.s32", square, argument))
        b.emit("vst", x, row, 0, 1, b.emit("vsplat", total))
    kernel = finalize_kernel(b.finish(), few, check=True)
    state = run_kernel(kernel, few, {})
    rows = window_rows(state, kernel, x)
    assert [int(rows[8 * step + 8, 0]) for step in range(12)] == [8 * s + 8 for s in range(12)]


def test_windows_beyond_vmem_are_refused() -> None:
    b = LloBuilder("k", CHIP)
    b.window("big", CHIP.vmem_rows + 8)
    with pytest.raises(ResourceExhaustedError, match="big"):
        finalize_kernel(b.finish(), CHIP)


def test_mxu_results_left_over_are_refused() -> None:
    b = LloBuilder("k", CHIP)
    b.emit("vmatmul.bf16", 0, b.emit("vlane"))
    with pytest.raises(CompileError, match="unread"):
        finalize_kernel(b.finish(), CHIP)


def test_a_loop_must_leave_as_many_mxu_results_as_it_found() -> None:
    b = LloBuilder("k", CHIP)
    with b.loop(3, "grow"):
        b.emit("vmatmul.bf16", 0, b.emit("vlane"))
    with pytest.raises(CompileError, match="loop grow"):
        finalize_kernel(b.finish(), CHIP)


def test_loop_fields_are_mapped() -> None:
    b = LloBuilder("k", CHIP)
    x = b.window("x", 64)
    with b.loop_dynamic(b.argument(0), "rows", parallel=True) as i:
        b.emit("vst", x, i, 0, 1, b.emit("vsplat", i))
    loop = finalize_kernel(b.finish(), CHIP, check=True).body[-1]
    assert isinstance(loop, Loop)
    assert (loop.trip, loop.parallel, loop.name) == (-1, True, "rows")
    assert loop.trip_sreg not in (0, loop.index)
