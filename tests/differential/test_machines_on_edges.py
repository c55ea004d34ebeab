"""Programs on which the machines once differed, each the smallest of its family."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from benchmarks.machine_fuzz.compare import MAX_CYCLES, Outcome, Runs, compare, run
from benchmarks.machine_fuzz.flow import HBM_BYTES
from benchmarks.machine_fuzz.programs import Case
from benchmarks.machine_fuzz.trial import shared_work
from tests.support.isa_programs import block, kernel_text
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.program import Program
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.faults import (
    CycleLimitFault,
    DmaCountFault,
    OutOfMemoryRangeFault,
    OutOfWindowFault,
)

CONTENTS = np.random.default_rng(0).integers(1, 2**31, HBM_BYTES // 4, np.uint32).tobytes()
WINDOWS = """
window w0 "x" rows 0 + 64
window w1 "y" rows 64 + 64
descriptor d0 hbm -> vmem w0 chunk 64 dims []
descriptor d1 vmem -> hbm w1 chunk 64 dims []
"""
LOAD = block("dma.start d0, s0, s0, f0, s0, s0, s0", "dma.wait f0, s0")
STORE = block("smovi s1 = 64", "dma.start d1, s0, s1, f0, s0, s0, s0", "dma.wait f0, s0")
ZERO = "".join(
    block(f"vmovi v0 = 0 ; smovi s1 = {8 * n}", "nop 1", "vst [w1 + s1 + 0] stride 1, v0")
    for n in range(8)
)
HEAD = "args 0 flags 8 spill 4 at 256 flops 0"
WRITE = "vst [w1 + s0 + 0] stride 1, v5"


def program(body: str, tables: str = "", main: str = 'call "k" site "k"') -> Program:
    """A kernel that fills w0 and writes w1 around `body`."""
    kernel = kernel_text(LOAD + ZERO + body + STORE, WINDOWS + tables, HEAD)
    return parse_program(
        f'target "v5e" hbm {HBM_BYTES} smem 1024 args 0\n{kernel}\nmain {{\n{main}\n}}\n'
    )


def agree(made: Program, threads: int = 1, max_cycles: int = MAX_CYCLES) -> Outcome:
    """What both machines give."""
    wrong, outcome = compare(Runs(Case(0, made, CONTENTS, False)), threads, max_cycles)
    assert not wrong
    return outcome


def test_a_transpose_unit_that_a_while_leaves_half_filled() -> None:
    inner = block(
        "vld v1 = [w0 + s0 + 0] stride 1", "nop 3", "vxpose.push 0, v1, 3", "vxpose.swap 0", "nop 139",
        "vxpose.read v5 = 0, 2 ; saddi.s32 s2 = s2, -1", "nop 3", WRITE,
    )  # fmt: skip
    test = block("nop 1")
    body = block("smovi s2 = 2") + f'while "w" trips 2 {{\n{test}}} do s2 {{\n{inner}}}\n'
    both = program(body + body, main='call "k" site "a"\ncall "k" site "b"')
    assert agree(both).fault is None


@pytest.mark.parametrize("spill", ["vst.spill x1, v1", "mst.spill x1, m1"])
@pytest.mark.parametrize("fill", ["vld.fill v5 = x1", "mld.fill m2 = x1"])
def test_spill_slots_carry_values_between_blocks(spill: str, fill: str) -> None:
    first = block(
        "vld v1 = [w0 + s0 + 0] stride 1", "nop 3", "vcmp.gt.s32 m1 = v1, v1", "nop 1", spill
    )
    use = block(fill, "nop 3", WRITE)
    if "mld" in fill:
        use = block(fill, "vlane v3 ; vsublane v4", "nop 3", "vsel v5 = m2, v3, v4", "nop 1", WRITE)
    assert agree(program(first + use)).fault is None
    assert agree(program(use + first)).fault is None  # a slot that nobody wrote holds zeros
    assert agree(program(f'loop s9 = 0 .. 3 "l" {{\n{use}{first}}}\n')).fault is None
    same_block = block(
        "vld v1 = [w0 + s0 + 0] stride 1", "nop 3", "vcmp.gt.s32 m1 = v1, v1 ; vmovi v3 = 3",
        "vlane v4", spill, fill, "nop 3", WRITE.replace("v5", "v5" if "vld" in fill else "v4"),
    )  # fmt: skip
    assert agree(program(same_block)).fault is None


@pytest.mark.parametrize(
    ("scalars", "k", "inside"),
    [
        ("smovi s2 = 2147483647|sst s0, 9, s2|sld s3 = s0, 9|nop 3|saddi.s32 s4 = s3, 2", 2147483647, True),
        ("smovi s2 = 2147483647|sst s0, 9, s2|sld s3 = s0, 9|nop 3|saddi.s32 s4 = s3, 1", -2147483648, False),
        ("smovi s2 = -2147483648|sst s0, 9, s2|sld s3 = s0, 9|nop 3|saddi.s32 s4 = s3, -2147483648", 8, True),
        ("smovi s2 = -2147483648|sst s0, 9, s2|sld s4 = s0, 9|nop 3", -2147483648, False),
        ("smovi s4 = -2147483648", 2147483647, False),
    ],
)  # fmt: skip
def test_sums_that_wrap(scalars: str, k: int, inside: bool) -> None:
    body = block(*scalars.split("|"), f"vld v5 = [w0 + s4 + {k}] stride 1", "nop 3", WRITE)
    outcome = agree(program(body))
    assert outcome.fault == (None if inside else (OutOfWindowFault, "k"))


def test_the_limit_holds_on_straight_lines() -> None:
    total = agree(program(block("nop 100"))).cycles
    assert agree(program(block("nop 100")), max_cycles=total).fault is None
    for limit in (total - 1, total - 100, 5, 0):
        assert agree(program(block("nop 100")), max_cycles=limit).fault == (CycleLimitFault, "k")
    lines = block("nop 60") + block("nop 60")
    assert agree(program("", main=lines), max_cycles=100).fault == (CycleLimitFault, "main")


def test_queues_may_differ_between_the_test_and_the_body_of_a_while() -> None:
    test = block("vld v1 = [w0 + s0 + 0] stride 1", "nop 3", "vmatmul.bf16 u0, v1")
    inner = block("vpop.mrf v1 = u0", "vpop.mrf v2 = u0 ; saddi.s32 s2 = s2, -1")
    after = block("vpop.mrf v5 = u0", "vpop.mrf v6 = u0", "nop 1", WRITE)
    made = f'while "w" trips 2 {{\n{test}}} do s2 {{\n{inner}}}\n'
    assert agree(program(block("smovi s2 = 2") + made + after)).fault is None


def test_weights_that_one_branch_alone_swapped() -> None:
    push = block(
        "vld v1 = [w0 + s0 + 0] stride 1",
        "nop 3",
        "vmatpush.bf16 u0, v1, 0",
        "vmatswap u0",
        "nop 1",
    )
    multiply = block(
        "vld v1 = [w0 + s0 + 8] stride 1", "nop 3", "vmatmul.bf16 u0, v1", "vpop.mrf v5 = u0",
        "vpop.mrf v6 = u0", "nop 1", WRITE,
    )  # fmt: skip
    body = f"if s7 {{\n{push}}}\n{multiply}"
    twice = "".join(
        block(f"smovi s3 = {n}", "sst s0, 0, s3") + 'call "k" site "k"\n' for n in (1, 0)
    )
    assert agree(program(block("sld s7 = s0, 0", "nop 3") + body, main=twice)).fault is None


FAULTS = {
    "window": ("smovi s5 = 60", "vld v1 = [w0 + s5 + 0] stride 1", OutOfWindowFault),
    "smem": ("smovi s6 = -1", "sld s7 = s6, 0", OutOfMemoryRangeFault),
    "flag": ("smovi s6 = 8", "dma.wait f0, s6", DmaCountFault),
    "transfer": ("smovi s6 = -1", "dma.start d0, s6, s0, f0, s0, s0, s0", OutOfMemoryRangeFault),
}


@pytest.mark.parametrize("first", FAULTS)
@pytest.mark.parametrize("second", FAULTS)
def test_the_first_fault_of_a_block_ends_a_run(first: str, second: str) -> None:
    """Register values come from SMEM, so that nothing is known before the run."""
    (set_a, a, kind), (set_b, b, _) = FAULTS[first], FAULTS[second]
    hide = ["sst s0, 20, s5", "sst s0, 21, s6", "sld s5 = s0, 20", "sld s6 = s0, 21", "nop 3"]
    zero = "smovi s5 = 0 ; smovi s6 = 0"
    outcome = agree(program(block(zero, set_a, set_b, *hide, a, "nop 3", b, "nop 3")))
    assert outcome.fault is not None
    if set_a.split()[1] != set_b.split()[1] or set_a == set_b:
        assert outcome.fault[0] is kind


def test_products_of_counts_do_not_wrap() -> None:
    dims = ", ".join(["c0 x 0 -> 0"] * 3)
    tables = f"descriptor d2 hbm -> vmem w0 chunk 1 dims [{dims}]\n"
    body = block("smovi s5 = 4194304", "dma.start d2, s0, s0, f0, s0, s5, s0")
    assert agree(program(body, tables)).fault == (DmaCountFault, "k")


def test_the_source_of_a_transfer_is_looked_at_first() -> None:
    body = block("smovi s5 = 60", "smovi s6 = -1", "dma.start d0, s6, s5, f0, s0, s0, s0")
    assert agree(program(body)).fault == (OutOfMemoryRangeFault, "k")


def test_threads_share_no_copy_whose_pieces_overlap() -> None:
    tables = "descriptor d2 hbm -> vmem w1 chunk 16 dims [4 x 16 -> 1]\n"
    body = block("dma.start d2, s0, s0, f0, s0, s0, s0", "dma.wait f0, s0")
    with shared_work():
        assert agree(program(body, tables), threads=2).fault is None


def test_nothing_is_left_in_smem_by_another_program() -> None:
    machine = LlvmMachine(load_chip("v5e"), cache=False)
    leave = program(block("smovi s2 = 7", "smovi s3 = 5000", "sst s3, 0, s2", "sst s0, 6000, s2"))
    look = program(
        block("sld s2 = s0, 5000", "sld s3 = s0, 6000", "nop 3", "sadd.s32 s4 = s2, s3", "vsplat v5 = s4",
              "nop 1", WRITE))  # fmt: skip
    run(machine, leave, CONTENTS)
    native = run(machine, look, CONTENTS)
    plain = run(NumpyMachine(load_chip("v5e")), look, CONTENTS)
    assert (native.memory == plain.memory).all()


def test_a_nan_of_scalars_folds_and_functions_is_canonical() -> None:
    body = block(
        "smovi s2 = -1", "sadd.f32 s3 = s2, s2", "vmovi v1 = -1 ; vmovi v2 = 2146435074", "nop 1",
        "vlanefold.add.f32 v1 ; vrsqrt.f32 v2", "nop 11", "vpop.xlu v3 ; vpop.eup v4", "vsplat v5 = s3",
        "vxor v6 = v3, v4", "nop 1", "vxor v5 = v5, v6", "nop 1", WRITE,
    )  # fmt: skip
    memory = agree(program(body)).memory.reshape(-1, 128)
    assert (memory[64:72] == 0x7FC00000).all()


def test_a_machine_leaves_no_thread_behind() -> None:
    made = program(block("nop 5"))
    run(LlvmMachine(load_chip("v5e"), cache=False), made, CONTENTS)
    gc.collect()
    before = threading.active_count()
    for _ in range(5):
        run(LlvmMachine(load_chip("v5e"), cache=False), made, CONTENTS)
    gc.collect()
    for thread in threading.enumerate():
        if thread.name == "tpuc-run":
            thread.join(0.2)
    assert threading.active_count() <= before


def test_a_large_transfer_into_a_window_that_a_later_kernel_reads() -> None:
    """Read in place it would be gone when its kernel ends."""
    head = f'target "v5e" hbm {HBM_BYTES} smem 1024 args 0\n'
    windows = WINDOWS.replace("rows 0 + 64", "rows 0 + 64 kept")
    fill = kernel_text(LOAD, windows, HEAD).replace('"k"', '"fill"')
    copy = "".join(
        block(f"vld v5 = [w0 + s0 + {8 * n}] stride 1", "nop 3", f"vst [w1 + s0 + {8 * n}] stride 1, v5")
        for n in range(8)
    )  # fmt: skip
    read = kernel_text(copy + STORE, windows, HEAD)
    main = 'call "fill" site "a"\ncall "k" site "b"'
    assert agree(parse_program(f"{head}{fill}{read}\nmain {{\n{main}\n}}\n")).fault is None
