"""Static checks: one program per rule that breaks it, and the nearest one that does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.isa_programs import (
    TWO_WINDOWS,
    V5E,
    block,
    kernel_program,
    kernel_text,
    program_text,
)
from tpu_sim.isa import checker
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.block_checker import BlockSummary
from tpu_sim.isa.checker import check_kernel, check_program
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.control_flow import If
from tpu_sim.isa.errors import HazardError, ProgramError
from tpu_sim.isa.program import Block, Program, Route

LOAD = "vld v1 = [w0 + s0 + 0] stride 1"


def check(body: str, **kwargs: str) -> None:
    check_program(kernel_program(body, **kwargs), V5E)


def refused(body: str, message: str, **kwargs: str) -> None:
    with pytest.raises(ProgramError, match=message):
        check(body, **kwargs)


def test_a_result_is_not_read_before_its_latency() -> None:
    check(block(LOAD, "nop 3", "vmov v2 = v1"))
    refused(block(LOAD, "nop 2", "vmov v2 = v1"), "v1 is read 1 cycles before it is ready")


def test_a_way_may_lead_past_chips_that_take_no_part() -> None:
    program = kernel_program(block("nop 1"))
    program.routes.append(Route((1, 0), hops=4, load=1.0, port=0))
    check_program(program, V5E)
    program.routes[0] = Route((1, 0), hops=checker.MAX_CORES + 1, load=1.0, port=0)
    with pytest.raises(ProgramError, match="hops by port 0"):
        check_program(program, V5E)


def test_the_hazard_shows_its_bundle() -> None:
    with pytest.raises(HazardError, match=r"> \{ vmov v2 = v1 ; vlane v3 \}"):
        check(block(LOAD, "vmov v2 = v1 ; vlane v3"))


def test_a_bundle_reads_before_it_writes() -> None:
    check(block("vlane v1", "nop 1", "vmov v2 = v1 ; vmovi v1 = 3"))


def test_vregs_do_not_live_across_blocks() -> None:
    refused(
        block(LOAD, "nop 4") + block("vmov v2 = v1"), "v1 is read but not written in this block"
    )


def test_vmasks_do_not_live_across_blocks() -> None:
    refused(block("mmovi m1 = 1", "nop 4") + block("mnot m2 = m1"), "m1 is read but not written")


def test_a_slower_write_under_way_is_not_overtaken() -> None:
    refused(block(LOAD, "vlane v1"), "v1 is written while an earlier, slower write")


def test_two_writes_of_a_register_in_one_bundle() -> None:
    refused(block("vlane v1 ; vsublane v1"), "v1 is written twice")


def test_slots_are_limited() -> None:
    check(block("; ".join(f"vlane v{i}" for i in range(4))))
    refused(block("; ".join(f"vlane v{i}" for i in range(5))), "5 valu slots in use, v5e has 4")


def test_an_indexed_load_holds_its_slot() -> None:
    start = ("vlane v1", "nop 1", "vld.idx v2 = [w0 + s0], v1")
    three = "; ".join(f"vld v{i} = [w0 + s0 + 0] stride 1" for i in (3, 4, 5))
    check(block(*start, "nop 127", three))
    refused(block(*start, "nop 126", three, "nop 1"), "4 load slots in use")
    refused(block(*start, "nop 126"), "holds its load slot")


def test_registers_are_in_range() -> None:
    v4 = kernel_program(block("vlane v40"), target="v4")
    with pytest.raises(ProgramError, match=r"operand d is 40, want 0\.\.31"):
        check_program(v4, load_chip("v4"))
    refused(block("mmovi m16 = 1"), r"operand d is 16, want 0\.\.15")


def test_s0_is_not_written() -> None:
    refused(block("smovi s0 = 1"), "s0 always reads 0")


@pytest.mark.parametrize(
    ("bundle", "message"),
    [
        ("vld v1 = [w2 + s0 + 0] stride 1", r"operand w is 2, want 0\.\.1"),
        ("dma.start d2, s0, s0, f0, s0, s0, s0", r"operand desc is 2, want 0\.\.1"),
        ("dma.wait f8, s0", r"operand flag is 8, want 0\.\.7"),
        ("vld.fill v1 = x0", "operand n is 0"),
        ("vmatswap u4", r"operand u is 4, want 0\.\.3"),
        ("vxpose.read v1 = 0, 16", r"operand row is 16, want 0\.\.15"),
        ("vxpose.read v1 = 3, 1", r"operand unit is 3, want 0\.\.2"),
        ("vld v1 = [w0 + s0 + 57] stride 1", r"rows 57\.\.64 of window x, which has 64"),
        ("vld v1 = [w0 + s0 + 6] stride -1", r"rows 6\.\.-1 of window x"),
    ],
)
def test_tables_and_constant_addresses_are_in_range(bundle: str, message: str) -> None:
    refused(block(bundle), message)


def test_queues_pop_in_time_and_in_number() -> None:
    push, pop = "vpow2.f32 v1", "vpop.eup v2"
    check(block("vlane v1", "nop 1", push, "nop 11", pop))
    refused(block("vlane v1", "nop 1", push, "nop 10", pop), "comes 1 cycles before the result")
    refused(block(pop), "vpop.eup of an empty queue")
    refused(block("vlane v1", "nop 1", push, "nop 20"), "ends with 1 results in the eup queue")


def test_a_queue_does_not_overflow() -> None:
    pushes = ["vpow2.f32 v1"] * 17
    refused(block("vlane v1", "nop 1", *pushes), "eup queue overflows its 16 entries")


def test_a_later_quick_result_waits_behind_a_slow_one() -> None:
    pushes = ("vlane v1", "nop 1", "vdiv.s32 v1, v1", "vpow2.f32 v1")
    check(block(*pushes, "nop 38", "vpop.eup v2", "vpop.eup v3"))
    refused(block(*pushes, "nop 11", "vpop.eup v2"), "comes 27 cycles before")


def test_mxu_passes_keep_their_distance() -> None:
    start = ("vlane v1", "nop 1", "vmatmul.bf16 u0, v1")
    pops = ("vpop.mrf v2 = u0 ; vpop.mrf v3 = u0", "vpop.mrf v2 = u0 ; vpop.mrf v3 = u0")
    check(block(*start, "nop 15", "vmatmul.bf16 u0, v1", *pops))
    refused(block(*start, "nop 14", "vmatmul.bf16 u0, v1", *pops), "1 cycles before unit 0 is free")
    check(block(*start, "vmatmul.bf16 u1, v1", pops[0], "vpop.mrf v2 = u1", "vpop.mrf v2 = u1"))


def test_one_instruction_per_mxu() -> None:
    refused(
        block("vlane v1", "nop 1", "vmatpush.bf16 u0, v1, 0 ; vmatswap u0"),
        "two instructions for the slot",
    )


def test_mxu_results_may_span_blocks_but_not_kernels() -> None:
    start = block("vlane v1", "nop 1", "vmatmul.bf16 u0, v1")
    pop = block("vpop.mrf v1 = u0")
    check(start + pop + pop)
    refused(start + pop, r"MXU results \{0: 1\} are unread at the end")
    refused(pop, "empty result queue of MXU 0")


def test_mxu_queue_levels_agree_on_all_paths() -> None:
    start = block("vlane v1", "nop 1", "vmatmul.bf16 u0, v1")
    pops = block("vpop.mrf v1 = u0", "vpop.mrf v1 = u0")
    condition = block("smovi s1 = 1")
    refused(condition + f"if s1 {{\n{start}\n}}\n" + pops, "differ between paths")
    refused(f'loop s1 = 0 .. 4 "" {{\n{start}\n}}', "differ between paths")
    check(f'{start}\nloop s1 = 0 .. 4 "" {{\n{start}{pops}\n}}\n{pops}')


def test_mxu_queue_does_not_overflow() -> None:
    passes = ["vlane v1", "nop 1"]
    for _ in range(33):
        passes += ["vmatmul.bf16 u0, v1", "nop 15"]
    refused(block(*passes), "MXU 0 overflows its 64 entries")


def test_the_transpose_unit_takes_its_time() -> None:
    start = ("vlane v1", "nop 1", "vxpose.push 1, v1, 0", "vxpose.swap 1")
    check(block(*start, "nop 139", "vxpose.read v2 = 1, 0"))
    refused(
        block(*start, "nop 138", "vxpose.read v2 = 1, 0"),
        "transposed block 1 is used 1 cycles before",
    )
    refused(
        block(*start) + block("vxpose.read v2 = 1, 0"),
        "transposed block 1 is used before it is ready",
    )
    refused(
        block("vlane v1", "nop 1", "vxpose.push 1, v1, 0 ; vxpose.swap 1"),
        "in the bundle of a swap",
    )


def test_integer_passes_need_a_chip_that_has_them() -> None:
    passes = block("vlane v1", "nop 1", "vmatmul.s8 u0, v1", "nop 140", "vpop.mrf v2 = u0",
                   "vpop.mrf v3 = u0")  # fmt: skip
    check(passes)
    with pytest.raises(ProgramError, match=r"vmatmul.s8: v4 does not have it \(int8_rate is 0\)"):
        check_kernel(kernel_program(passes).kernels["k"], load_chip("v4"))


def test_sregs_are_written_on_every_path() -> None:
    condition = block("smovi s1 = 1")
    write = block("smovi s2 = 1")
    read = block("smov s3 = s2")
    check(condition + f"if s1 {{\n{write}\n}} else {{\n{write}\n}}\n" + read)
    refused(
        condition + f"if s1 {{\n{write}\n}}\n" + read, "s2 is read but not written on every path"
    )
    check(f'loop s1 = 0 .. 2 "" {{\n{write}\n}}\n{read}')
    trips = condition + 'loop s4 = 0 .. s1 "" {\n' + write + "\n}\n"
    refused(trips + read, "s2 is read but not written on every path")


def test_sreg_latency_counts_across_blocks() -> None:
    load = block("sld s1 = s0, 0")
    check(load + block("nop 3", "smov s2 = s1"))
    refused(load + block("nop 2", "smov s2 = s1"), "s1 is read 1 cycles before")
    refused(load + f"if s1 {{\n{block('smovi s2 = 1')}\n}}", "s1 is read 3 cycles before")


def test_sreg_latency_counts_around_a_loop() -> None:
    body = block("smov s3 = s2", "sld s2 = s0, 0")
    text = block("smovi s2 = 0") + f'loop s1 = 0 .. 2 "" {{\n{body}\n}}'
    refused(text, "s2 is read 3 cycles before")


def test_a_while_reads_its_condition_when_it_has_landed() -> None:
    def loop(test: str) -> str:
        return f'while "" trips -1 {{\n{test}\n}} do s1 {{\n{block("smovi s2 = 1")}\n}}'

    check(loop(block("sld s1 = s0, 0", "nop 3")))
    refused(loop(block("sld s1 = s0, 0", "nop 2")), "s1 is read 1 cycles before")
    refused(loop(block("sld s3 = s0, 0", "nop 3")), "s1 is read but not written")


def test_a_loop_index_is_gone_after_the_loop() -> None:
    text = f'loop s1 = 0 .. 2 "" {{\n{block("smov s2 = s1")}\n}}\n' + block("smov s3 = s1")
    refused(text, "s1 is read but not written")


def test_parallel_iterations_carry_no_sreg() -> None:
    start = block("smovi s2 = 0")
    carried = block("saddi.s32 s2 = s2, 1")
    fresh = block("saddi.s32 s3 = s2, 1", "saddi.s32 s3 = s3, 1")
    check(start + f'loop s1 = 0 .. 2 "" {{\n{carried}\n}}')
    check(start + f'loop s1 = 0 .. 2 parallel "" {{\n{fresh}\n}}')
    refused(start + f'loop s1 = 0 .. 2 parallel "" {{\n{carried}\n}}', "s2 is read but not written")


@pytest.mark.parametrize(
    ("tables", "head", "message"),
    [
        ('window w0 "x" rows 0 + 9\nwindow w1 "y" rows 8 + 8', "", "windows x and y overlap"),
        ('window w0 "x" rows 262140 + 8', "", "are not within VMEM's 262144"),
        ('window w0 "x" rows 0 + 0', "", "window x"),
        (TWO_WINDOWS, "args 0 flags 8 spill 2 at 120 flops 0", r"y and \(spill slots\) overlap"),
        (TWO_WINDOWS, "args 0 flags 8 cores 2 spill 0 at 0 flops 0", "cores 2, a device of v5e has 1"),
        (TWO_WINDOWS, "args 1025 flags 8 spill 0 at 0 flops 0", "1025 arguments"),
        (TWO_WINDOWS, "args 0 flags 3000 spill 0 at 0 flops 0", "3000 sync flags"),
        (TWO_WINDOWS + "descriptor d0 hbm -> vmem chunk 8 dims []", "", "window -1, want"),
        (TWO_WINDOWS + "descriptor d0 hbm -> vmem w2 chunk 8 dims []", "", "window 2, want"),
        (TWO_WINDOWS + "descriptor d0 hbm -> vmem w0 chunk 0 dims []", "", "chunk 0"),
        (TWO_WINDOWS + "descriptor d0 hbm -> vmem w0 chunk 1 dims [-3 x 1 -> 1]", "", "count -3"),
        (
            TWO_WINDOWS + "descriptor d0 hbm -> vmem w0 chunk 1 dims [1 x 134217728 -> 1]", "",
            "stride is out of range",
        ),
    ],
)  # fmt: skip
def test_kernel_tables_are_checked(tables: str, head: str, message: str) -> None:
    refused(block("smovi s1 = 1"), message, tables=tables, head=head)


def refused_main(main: str, message: str) -> None:
    program = parse_program(program_text(kernel_text(block("smovi s1 = 1")), main))
    with pytest.raises(ProgramError, match=message):
        check_program(program, V5E)


def test_main_is_scalar_and_loses_registers_at_calls() -> None:
    refused_main(block("vlane v1"), "vlane in main")
    refused_main('call "q" site ""', "there is no such kernel")
    call = 'call "k" site ""\n'
    refused_main(block("smovi s1 = 1") + call + block("smov s2 = s1"), "s1 is read but not written")
    refused_main(f'loop s1 = 0 .. 2 "" {{\n{call}{block("smov s2 = s1")}\n}}', "s1 is read")


def test_kernels_do_not_call() -> None:
    refused('call "k" site ""', "only main calls kernels")


def test_memory_sizes_are_checked() -> None:
    program = kernel_program(block("smovi s1 = 1"))
    program.constants.append((program.hbm_bytes - 1, b"ab"))
    with pytest.raises(ProgramError, match="constant 0: bytes"):
        check_program(program, V5E)
    program.constants.clear()
    program.hbm_bytes = V5E.hbm_bytes + 1
    with pytest.raises(ProgramError, match="bytes of HBM, v5e has"):
        check_program(program, V5E)


def test_a_program_runs_on_its_own_chip_only() -> None:
    with pytest.raises(ProgramError, match="for v5e, the machine is v6e"):
        check_program(kernel_program(block("smovi s1 = 1")), load_chip("v6e"))


def test_endless_nesting_is_refused_quickly() -> None:
    program = kernel_program(block("smovi s1 = 1"))
    body = program.kernels["k"].body
    for _ in range(80):
        body = [Block([]), If(0, body, [])]
    program.kernels["k"].body = body
    with pytest.raises(ProgramError, match="nested deeper than 64"):
        check_program(program, V5E)


def _moved(program: Program, rows: int) -> Program:
    """The program with a second kernel of the same body, whose first window has so many rows."""
    kernel = program.kernels["k"]
    first, *others = kernel.windows
    windows = [replace(first, rows=rows), *others]
    program.kernels["moved"] = replace(kernel, name="moved", windows=windows)
    return program


def test_a_body_that_kernels_share_is_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Block] = []
    summarize = checker.summarize_block

    def counted(block: Block, *others: Any) -> BlockSummary:
        looked.append(block)
        return summarize(block, *others)

    monkeypatch.setattr(checker, "summarize_block", counted)
    program = kernel_program(block(LOAD))
    rows = program.kernels["k"].windows[0].rows
    check_program(program, V5E)
    alone = len(looked)
    check_program(_moved(program, rows), V5E)
    assert len(looked) == 2 * alone


def test_a_shared_body_is_checked_again_where_it_may_do_less() -> None:
    with pytest.raises(ProgramError, match=r"kernel moved.*rows 0\.\.7 of window"):
        check_program(_moved(kernel_program(block(LOAD)), 4), V5E)
