"""Every fault is provoked once, and its nearest harmless neighbour runs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.isa_programs import (
    COPIES,
    HBM_BYTES,
    LOAD_X,
    STORE_Y,
    TWO_WINDOWS,
    V5E,
    block,
    execute,
    kernel_program,
    run_vector,
)
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.machine.faults import (
    CycleLimitFault,
    DmaCountFault,
    DmaRaceFault,
    MachineFault,
    OutOfMemoryRangeFault,
    OutOfWindowFault,
    UninitializedReadFault,
)
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.race_detector import POISON

START = "dma.start d0, s0, s0, f0, s0, s0, s0"
WAIT = "dma.wait f0, s0"
LOAD = "vld v1 = [w0 + s0 + 0] stride 1"
FILL_Y = block("vlane v1", "nop 1", *[f"vst [w1 + s0 + {8 * i}] stride 1, v1" for i in range(8)])
OUT = "dma.start d1, s0, s0, f0, s0, s0, s0"


def run(body: str, checked: bool = True, **kwargs: str) -> None:
    execute(kernel_program(body, **kwargs), checked=checked)


def faults(
    fault: type[MachineFault], body: str, message: str, checked: bool = True, **kwargs: str
) -> None:
    with pytest.raises(fault, match=message):
        run(body, checked, **kwargs)


def test_reading_a_target_before_the_wait_is_a_race() -> None:
    run(block(START, WAIT, LOAD))
    faults(DmaRaceFault, block(START, LOAD, WAIT), "read while they are the target")
    run(block(START, LOAD, WAIT), checked=False)


def test_reading_a_target_in_the_bundle_of_the_wait_is_a_race() -> None:
    faults(DmaRaceFault, block(START, f"{WAIT} ; {LOAD}"), "target of a DMA on sync flag 0")


def test_writing_a_target_before_the_wait_is_a_race() -> None:
    store = "vst [w0 + s0 + 0] stride 1, v1"
    faults(DmaRaceFault, block("vlane v1", START, store, WAIT), "written while they are the target")


def test_writing_a_source_before_the_wait_is_a_race() -> None:
    store = "vst [w1 + s0 + 0] stride 1, v1"
    run(FILL_Y + block("vlane v1", OUT, WAIT, store))
    faults(DmaRaceFault, FILL_Y + block("vlane v1", OUT, store, WAIT), "the source of a DMA")


def test_reading_a_source_is_no_race() -> None:
    run(FILL_Y + block(OUT, "vld v1 = [w1 + s0 + 0] stride 1", WAIT))


def test_two_transfers_to_one_place_are_a_race() -> None:
    faults(DmaRaceFault, block(START, START, WAIT), "are the target of a DMA while")


def test_reading_back_hbm_that_is_being_written_is_a_race() -> None:
    faults(DmaRaceFault, FILL_Y + block(OUT, START, WAIT), "HBM bytes .* the source of a DMA")


def test_a_wait_on_another_flag_does_not_help() -> None:
    faults(DmaRaceFault, block(START, "dma.wait f1, s0", LOAD, WAIT), "on sync flag 0")


def test_strided_transfers_race_only_where_they_lie() -> None:
    tables = TWO_WINDOWS + "descriptor d0 hbm -> vmem w0 chunk 1 dims [4 x 1 -> 16]"

    def at(row: int) -> str:
        store = f"vst [w0 + s0 + {row}] stride 1, v1"
        return block("vlane v1", START, store, WAIT)

    run(at(1), tables=tables)  # rows 1..8, between the chunks at 0 and 16
    faults(DmaRaceFault, at(9), "written while", tables=tables)


def test_a_kernel_may_not_end_with_a_transfer_in_flight() -> None:
    faults(DmaRaceFault, block(START), "the kernel ends while a DMA on sync flag 0")


def test_smem_races_are_found() -> None:
    tables = TWO_WINDOWS + "descriptor d0 hbm -> smem chunk 4 dims []"
    start = "smovi s1 = 200 ; dma.start d0, s0, s0, f0, s0, s0, s0"
    faults(DmaRaceFault, block(start, "sld s2 = s0, 3", WAIT), "SMEM bytes 12..16", tables=tables)
    run(block(start, "sld s2 = s0, 4", WAIT), tables=tables)


def test_reading_what_nobody_wrote() -> None:
    faults(UninitializedReadFault, block(LOAD), r"VMEM rows 0\.\.7 are read before any is written")
    run(block(LOAD), checked=False)
    store, load = "vst [w0 + s0 + 5] stride 0, v1", "vld v2 = [w0 + s0 + 5] stride 0"
    one_row = block("vlane v1", "nop 1", store, load)
    run(one_row)
    other = one_row.replace("v2 = [w0 + s0 + 5]", "v2 = [w0 + s0 + 16]")
    faults(UninitializedReadFault, other, r"VMEM rows 16\.\.16")
    faults(UninitializedReadFault, STORE_Y, "a DMA reads VMEM row 64")


def test_spill_slots_are_watched() -> None:
    head = "args 0 flags 8 spill 2 at 256 flops 0"
    run(block("vlane v1", "nop 1", "vst.spill x1, v1", "vld.fill v2 = x1"), head=head)
    faults(UninitializedReadFault, block("vld.fill v2 = x1"), "spill slot 1", head=head)


def test_an_access_outside_its_window_always_faults() -> None:
    def at(row: int) -> str:
        return block(f"smovi s1 = {row}", "vld v1 = [w0 + s1 + 0] stride 1")

    run(at(56), checked=False)
    faults(OutOfWindowFault, at(57), r"rows 57\.\.64 of window x", checked=False)
    faults(OutOfWindowFault, at(-1), r"rows -1\.\.6 of window x", checked=False)


def test_an_indexed_access_outside_its_window_faults() -> None:
    def body(limit: int) -> str:
        return block(f"vmovi v1 = {limit}", "nop 1", "vld.idx v2 = [w0 + s0], v1", "nop 135")

    run(body(64 * 128 - 1), checked=False)
    faults(OutOfWindowFault, body(64 * 128), r"rows 64\.\.64", checked=False)
    faults(OutOfWindowFault, body(-1), r"rows -1\.\.-1", checked=False)


def test_masked_lanes_of_an_indexed_store_touch_nothing() -> None:
    def body(mask: int) -> str:
        return block(
            f"vmovi v1 = -1 ; mmovi m1 = {mask}",
            "nop 1",
            "vst.idx [w0 + s0], v1, v1, m1",
            "nop 127",
        )

    run(body(0), checked=False)
    faults(OutOfWindowFault, body(1), "rows -1", checked=False)


def test_a_dma_outside_its_window_faults() -> None:
    body = block("smovi s1 = 1", "dma.start d0, s0, s1, f0, s0, s0, s0", WAIT)
    faults(OutOfWindowFault, body, r"rows 1\.\.65 of window x", checked=False)


def test_a_dma_outside_hbm_faults() -> None:
    def body(granule: int) -> str:
        return block(f"smovi s1 = {granule}", "dma.start d0, s1, s0, f0, s0, s0, s0", WAIT)

    last = HBM_BYTES // 512 - 64
    run(body(last), checked=False)
    faults(OutOfMemoryRangeFault, body(last + 1), "HBM bytes", checked=False)
    faults(OutOfMemoryRangeFault, body(-1), "HBM bytes -512", checked=False)


def test_an_smem_word_outside_faults() -> None:
    run(block(f"smovi s1 = {V5E.smem_words - 1}", "sld s2 = s1, 0"), checked=False)
    faults(OutOfMemoryRangeFault, block("sst s0, -1, s0"), "SMEM word -1", checked=False)
    body = block(f"smovi s1 = {V5E.smem_words}", "sld s2 = s1, 0")
    faults(OutOfMemoryRangeFault, body, "SMEM word 262144", checked=False)


def test_dynamic_counts_and_flags_are_bounded() -> None:
    tables = TWO_WINDOWS + "descriptor d0 hbm -> vmem w0 chunk 8 dims [c0 x 8 -> 8]"
    body = block("smovi s1 = -1", "dma.start d0, s0, s0, f0, s0, s1, s0", WAIT)
    faults(DmaCountFault, body, "DMA count -1", checked=False, tables=tables)
    faults(DmaCountFault, block("smovi s1 = 8", "dma.wait f0, s1"), "sync flag 8", checked=False)


def test_a_run_ends_at_its_cycle_limit() -> None:
    one = block("smovi s1 = 1")
    program = kernel_program(f'{one}while "" trips -1 {{\n{one}\n}} do s1 {{\n{block("nop 1")}\n}}')
    with pytest.raises(CycleLimitFault, match="passed 5000 cycles"):
        NumpyMachine(V5E, max_cycles=5000).run(program, HbmMemory(HBM_BYTES))


def test_an_empty_endless_loop_ends_too() -> None:
    one = block("smovi s1 = 1")
    program = kernel_program(f'{one}while "" trips -1 {{\n}} do s1 {{\n}}')
    with pytest.raises(CycleLimitFault):
        NumpyMachine(V5E, max_cycles=500).run(program, HbmMemory(HBM_BYTES))


def test_a_fault_names_kernel_and_bundle() -> None:
    with pytest.raises(DmaRaceFault) as caught:
        run(LOAD_X + block(START, LOAD, WAIT), tables=TWO_WINDOWS + COPIES)
    assert caught.value.kernel == "k"
    assert caught.value.bundle == f"{{ {LOAD} }}"


def test_a_load_may_reach_into_padding_which_is_poison() -> None:
    one_row = "vst [w1 + s0 + 0] stride 0, v1"
    y = run_vector("vlane v1", "nop 1", one_row, "vld v2 = [w1 + s0 + 0] stride 1", "nop 3",
                   *[f"vst [w1 + s0 + {8 * i}] stride 1, v2" for i in range(8)],
                   x=np.zeros((64, 128), np.uint32))  # fmt: skip
    assert y[0].tolist() == list(range(128))
    assert set(y[1:8].reshape(-1).tolist()) == {POISON}
    halves = y[1].view(np.uint16)
    assert ((halves & 0x7F80 == 0x7F80) & (halves & 0x7F != 0)).all()  # NaN as bf16, so as f32
