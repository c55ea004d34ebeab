"""Unrolled parallel loops do what they did, in fewer cycles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.llo.builder import LloBuilder, f32_bits
from compiler.llo.finalize import finalize_kernel
from compiler.llo.ir import LloKernel, SReg
from compiler.llo.passes.unroll import unroll_parallel_loops
from compiler.llo.walk import blocks
from tests.support.kernel_runs import CycleCounter, run_in_source_order, run_kernel, window_rows
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.control_flow import Loop
from tpu_sim.isa.program import HBM, Block, DmaDescriptor

CHIP = load_chip("v5e")
ROWS = 1024
Body = Callable[[LloBuilder, int, int, SReg], None]


def chain(b: LloBuilder, x: int, y: int, i: SReg) -> None:
    row = b.smuli(i, 8)
    value = b.emit("vrcp.f32", b.emit("vld", x, row, 0, 1))
    b.emit("vst", y, row, 0, 1, b.emit("vlanefold.max.f32", value))


def in_place(b: LloBuilder, x: int, y: int, i: SReg) -> None:
    row = b.saddi(b.sshli(i, 4), 8)
    for tile in (0, 8):
        old = b.emit("vld", y, row, tile, 1)
        total = b.emit("vadd.f32", old, b.emit("vld", x, 0, 0, 0))
        b.emit("vst", y, row, tile, 1, b.emit("vmuli.f32", total, f32_bits(0.5)))


def index_as_value(b: LloBuilder, x: int, y: int, i: SReg) -> None:
    row = b.smuli(i, 24)
    wrapped = b.sandi(b.saddi(i, 3), 5)  # not affine in the index
    value = b.emit("vadd.s32", b.emit("vsplat", i), b.emit("vsplat", wrapped))
    moved = b.emit("vrot.lane", b.emit("vld", x, b.smuli(wrapped, 8), 0, 1), i, 2)
    b.emit("vst", y, row, 0, 1, b.emit("vxor", value, moved))
    b.emit("vst", y, b.ssub(b.sconst(900), row), 0, 1, b.emit("vsplat", b.ssub(row, i)))


def masked(b: LloBuilder, x: int, y: int, i: SReg) -> None:
    limit = b.emit("vsplat", b.smuli(i, 9))
    mask = b.emit("vcmp.lt.s32", b.emit("vlane"), limit)
    value = b.emit("vsqrt.f32", b.emit("vld", x, b.smuli(i, 8), 0, 1))
    b.emit("vst.msk", y, b.smuli(i, 8), 0, 1, value, mask)


def by_words(b: LloBuilder, x: int, y: int, i: SReg) -> None:
    row = b.smuli(i, 8)
    own = b.emit("vtos", b.emit("vld", x, row, 3, 1))
    shared = b.emit("vtos", b.emit("vld", x, 0, 5, 1))
    place = b.sandi(own, 511)
    value = b.emit("vadd.s32", b.emit("vld", x, place, 0, 1), b.emit("vsplat", shared))
    b.emit("vst", y, row, 0, 1, b.emit("vxor", value, b.emit("vsplat", own)))


def kernel_of(body: Body, trip: int, parallel: bool = True) -> LloKernel:
    b = LloBuilder("k", CHIP)
    x, y = b.window("x", ROWS), b.window("y", ROWS)
    with b.loop(trip, "rows", parallel=parallel) as i:
        body(b, x, y, i)
    return b.finish()


@pytest.mark.parametrize("trip", [2, 7, 9, 11, 16])
@pytest.mark.parametrize("body", [chain, in_place, index_as_value, masked, by_words])
def test_the_meaning_stays(body: Body, trip: int) -> None:
    rng = np.random.default_rng(trip)
    values = rng.standard_normal((2, ROWS, 128)).astype(np.float32).view(np.uint32)
    before = {0: values[0], 1: values[1]}
    llo = kernel_of(body, trip)
    want = window_rows(run_in_source_order(llo, CHIP, before), llo, 1)
    unrolled = kernel_of(body, trip)
    unroll_parallel_loops(unrolled, CHIP)
    loops = [node for node in unrolled.body if isinstance(node, Loop)]
    assert all(loop.trip < trip for loop in loops), "unrolled, in part or whole"
    kernel = finalize_kernel(kernel_of(body, trip), CHIP, check=True)
    got = window_rows(run_kernel(kernel, CHIP, before), kernel, 1)
    nan = np.isnan(got.view(np.float32)) & np.isnan(want.view(np.float32))
    np.testing.assert_array_equal(got[~nan], want[~nan])


def test_nested_loops_unroll_from_the_inside() -> None:
    def nested() -> LloKernel:
        b = LloBuilder("k", CHIP)
        x, y = b.window("x", ROWS), b.window("y", ROWS)
        with b.loop(10, "rows", parallel=True) as i:
            row = b.smuli(i, 24)
            with b.loop(3, "columns", parallel=True) as j:
                at = b.sadd(row, b.smuli(j, 8))
                old = b.emit("vld", y, at, 8, 1)
                value = b.emit("vrcp.f32", b.emit("vld", x, at, 0, 1))
                b.emit("vst", y, at, 8, 1, b.emit("vadd.f32", value, old))
        return b.finish()

    values = np.random.default_rng(0).standard_normal((2, ROWS, 128)).astype(np.float32)
    before = dict(enumerate(values.view(np.uint32)))
    llo = nested()
    want = window_rows(run_in_source_order(llo, CHIP, before), llo, 1)
    kernel = finalize_kernel(nested(), CHIP, check=True)
    loops = [node for node in kernel.body if isinstance(node, Loop)]
    assert len(loops) == 1 and loops[0].trip < 10
    assert all(isinstance(node, Block) for node in loops[0].body)
    np.testing.assert_array_equal(
        window_rows(run_kernel(kernel, CHIP, before), kernel, 1)[:480], want[:480]
    )


def test_latencies_are_hidden() -> None:
    fast = finalize_kernel(kernel_of(chain, 64), CHIP)
    slow = finalize_kernel(kernel_of(chain, 64, parallel=False), CHIP)
    cycles = [CycleCounter(CHIP).count(kernel.body).now for kernel in (fast, slow)]
    assert cycles[0] < cycles[1] / 4


def test_chains_longer_than_the_next_operations_run_side_by_side() -> None:
    """Rounds of a generator of random bits: each operation waits for the one before it."""

    def rounds(b: LloBuilder, x: int, y: int, i: SReg) -> None:
        row = b.smuli(i, 8)
        value = b.emit("vld", x, row, 0, 1)
        for k in range(120):
            value = b.emit("vxori", b.emit("vaddi.s32", value, k), 0x55555555)
        b.emit("vst", y, row, 0, 1, value)

    kernel = finalize_kernel(kernel_of(rounds, 64), CHIP, check=True)
    assert CycleCounter(CHIP).count(kernel.body).now < 2 * 64 * 240 / CHIP.slots["valu"]


def test_copies_that_would_be_spilled_are_not_made() -> None:
    """What all copies share is held from the first to the last."""

    def shares(b: LloBuilder, x: int, y: int, i: SReg) -> None:
        value = b.emit("vrcp.f32", b.emit("vld", x, b.smuli(i, 8), 0, 1))
        for k in range(150):
            value = b.emit("vmul.f32", value, b.emit("vld", x, 0, k, 0))
        b.emit("vst", y, b.smuli(i, 8), 0, 1, value)

    assert finalize_kernel(kernel_of(shares, 64), CHIP).spill_slots == 0


def test_a_loop_of_one_block_with_a_variable_stays() -> None:
    b = LloBuilder("k", CHIP)
    y = b.window("y", ROWS)
    total = b.variable(constant=0)
    with b.loop(8, parallel=True):
        b.assign_add(total, 8)
        b.emit("vst", y, total, 0, 1, b.emit("vlane"))
    llo = b.finish()
    unroll_parallel_loops(llo, CHIP)
    loop = llo.body[-1]
    assert isinstance(loop, Loop) and loop.trip == 8


def test_what_does_not_vary_is_computed_once() -> None:
    llo = kernel_of(in_place, 16)
    unroll_parallel_loops(llo, CHIP)
    loop = llo.body[-1]
    assert isinstance(loop, Loop)
    ops = loop.body[0].ops  # type: ignore[union-attr]
    assert sum(op.row.name == "vld" and op.operands[1] == 0 for op in ops) == 1
    assert sum(op.row.slot.value == "scalar" for op in ops) == 3, "shift by copies, row, offset"


@pytest.mark.parametrize(("flag", "begin"), [(0, 2), (1, 0)])
def test_waits_for_what_the_kernel_does_not_start_begin_their_blocks(flag: int, begin: int) -> None:
    """The done of a reduction between chips, which has transfers of its own; here on flag 1."""
    b = LloBuilder("k", CHIP)
    own = b.descriptor(DmaDescriptor(HBM, HBM, 1))
    for number in (5, 6):
        with b.loop(2, "block"):
            b.emit("dma.start", own, 0, b.sconst(8), 1, 0, 0, 0)
        index = b.sconst(number)
        b.new_block()
        b.emit("dma.wait", flag, index)
    kernel = b.finish()
    unroll_parallel_loops(kernel, CHIP)
    found = [block.ops[0].row.name for block in blocks(kernel.body)]
    assert found.count("dma.wait") == begin
