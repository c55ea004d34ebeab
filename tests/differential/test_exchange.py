"""Transfers between cores: both machines agree on values and cycles, whoever goes first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.support.isa_programs import HBM_BYTES, V5E, block, kernel_text, program_text
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.container import dump_program, load_program
from tpu_sim.isa.errors import HazardError, ProgramError
from tpu_sim.isa.program import Program, core_word
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.faults import DeadlockFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult
from tpu_sim.machine.run import Run
from tpu_sim.system.machine import Machine
from tpu_sim.system.slice import SlicePart, expect_done, far_numbers

Kind = Callable[[Chip], Machine]
MACHINES: list[Kind] = [NumpyMachine, LlvmMachine]
RING = "route r0 port 1 hops 1 load 1.0 [1 2 3 0]\n"
BACK = "route r1 port 2 hops 1 load 1.0 [3 0 1 2]\n"
TABLES = """
descriptor d0 hbm -> hbm chunk 2 dims [] route 0
descriptor d1 hbm -> hbm chunk 1 dims [0 x 0 -> 0] route 1
"""
READY = block("dma.start d1, s0, s0, f1, s0, s0, s0") + block("dma.wait f1, s0")
SHIFT = block("smovi s1 = 8", "dma.start d0, s0, s1, f0, s0, s0, s0") + block("dma.wait f0, s0")


def finish_together(runs: Sequence[Run], threads: int = 1) -> list[ExecutionResult]:
    """Run all cores of a slice, numbered in this order, from their start to their ends.

    Raises the first core's `MachineFault`, or `DeadlockFault` when every core that is not done waits.
    """
    part = SlicePart(dict(enumerate(runs)), threads=threads)
    part.advance()
    expect_done(part.waiting)
    return [run.result for run in runs]


def program(body: str, routes: str = RING + BACK, tables: str = TABLES) -> Program:
    text = program_text(kernel_text(body, tables))
    head, rest = text.split("\n", 1)
    return parse_program(f"{head}\n{routes}{rest}")


def run_on(
    kind: Kind, source: Program, cores: int = 4, threads: int = 1
) -> tuple[list[ExecutionResult], list[np.ndarray], list[Run]]:
    hbms = memories(cores)
    runs = [kind(V5E).start(source, hbm) for hbm in hbms]
    results = finish_together(runs, threads)
    return results, arrived(hbms), runs


def memories(cores: int) -> list[HbmMemory]:
    hbms = [HbmMemory(HBM_BYTES) for _ in range(cores)]
    for number, hbm in enumerate(hbms):
        hbm.write(0, np.full(256, 100 + number, np.int32).tobytes())
    return hbms


def arrived(hbms: list[HbmMemory]) -> list[np.ndarray]:
    return [np.frombuffer(hbm.read(8 * 512, 1024), np.int32) for hbm in hbms]


@pytest.mark.parametrize("kind", MACHINES)
def test_each_core_gets_what_the_core_before_it_sent(kind: Kind) -> None:
    results, got, runs = run_on(kind, program(READY + SHIFT))
    for number, values in enumerate(got):
        assert (values == 100 + (number - 1) % 4).all()
    assert len({result.cycles for result in results}) == 1
    assert [int(run.state.smem[core_word(V5E.smem_words)]) for run in runs] == [0, 1, 2, 3]


def test_machines_and_threads_agree_on_cycles() -> None:
    source = program(READY + SHIFT)
    wanted = [result.cycles for result in run_on(NumpyMachine, source)[0]]
    for threads in (1, 2):
        found = run_on(LlvmMachine, source, threads=threads)[0]
        assert [result.cycles for result in found] == wanted
    assert LlvmMachine(V5E).estimate(source).cycles == wanted[0]
    bytes_cycles = V5E.ici_setup_cycles + -(-1024 // V5E.ici_bytes_per_cycle)
    least = V5E.ici_sync_cycles + V5E.ici_hop_cycles + V5E.call_overhead_cycles + bytes_cycles
    assert least < wanted[0] < least + 200


def test_transfers_on_a_shared_link_take_as_much_longer() -> None:
    alone = run_on(NumpyMachine, program(SHIFT))[0][0].cycles
    shared = run_on(NumpyMachine, program(SHIFT, RING.replace("load 1.0", "load 3.0") + BACK))
    assert shared[0][0].cycles - alone == pytest.approx(2 * 1024 / V5E.ici_bytes_per_cycle, abs=2)


@pytest.mark.parametrize("kind", MACHINES)
def test_a_core_that_nothing_comes_to_waits_for_nothing(kind: Kind) -> None:
    results, got, _ = run_on(kind, program(SHIFT, RING.replace("[1 2 3 0]", "[1 2 3 -1]") + BACK))
    assert (got[0] == 0).all()
    assert (got[3] == 102).all()
    assert results[3].cycles > results[0].cycles


@pytest.mark.parametrize("kind", MACHINES)
def test_cores_that_wait_for_nobody_are_named(kind: Kind) -> None:
    others = block(f"smovi s4 = {core_word(V5E.smem_words)}", "smovi s5 = 3")
    others += block("sld s3 = s4, 0", "nop 8") + block("scmp.ne.s32 s2 = s3, s5", "nop 3")
    odd = "if s2 {\n" + SHIFT + "}\n"
    with pytest.raises(DeadlockFault, match="core 0 in k at cycle"):
        run_on(kind, program(others + odd))


@pytest.mark.parametrize("kind", MACHINES)
def test_a_program_of_several_cores_does_not_run_alone(kind: Kind) -> None:
    with pytest.raises(DeadlockFault, match="runs alone"):
        kind(V5E).run(program(SHIFT), HbmMemory(HBM_BYTES))


def _waits_behind(start: str, tables: str = TABLES) -> Program:
    return program(block(start) + block("smovi s2 = 8", "dma.wait f0, s0"), tables=tables)


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("descriptor", ["d0", "d2"])
def test_a_wait_of_a_kernel_with_routes_begins_its_block(kind: Kind, descriptor: str) -> None:
    """Behind other bundles it would wait for nobody; of what goes by no route as well."""
    tables = TABLES + "descriptor d2 hbm -> hbm chunk 2 dims []\n"
    source = _waits_behind(f"dma.start {descriptor}, s0, s0, f0, s0, s0, s0", tables)
    with pytest.raises(HazardError, match=r"bundle 1: .*sends by a route"):
        kind(V5E).start(source, HbmMemory(HBM_BYTES))


LOCAL = "descriptor d0 hbm -> hbm chunk 2 dims []\n"


@pytest.mark.parametrize("kind", MACHINES)
def test_a_wait_for_what_another_kernel_sent_begins_its_block(kind: Kind) -> None:
    """The done of an exchange in halves: its kernel starts nothing on the flag that it waits for."""
    source = _waits_behind("dma.start d0, s0, s0, f1, s0, s0, s0", LOCAL)
    with pytest.raises(HazardError, match="starts nothing on f0"):
        kind(V5E).start(source, HbmMemory(HBM_BYTES))


def test_waits_for_a_kernels_own_transfers_stand_anywhere() -> None:
    check_program(_waits_behind("dma.start d0, s0, s0, f0, s0, s0, s0", LOCAL), V5E)
    alone = parse_program(program_text(kernel_text(block("smovi s1 = 8", "dma.wait f0, s0"), "")))
    check_program(alone, V5E)


def test_routes_have_a_text_and_a_file_and_are_checked() -> None:
    source = program(SHIFT)
    assert print_program(parse_program(print_program(source))) == print_program(source)
    assert load_program(dump_program(source)) == source
    for wrong in ("[1 1 3 0]", "[1 2 3 4]", "[1 2 3]"):
        with pytest.raises(ProgramError, match="route r"):
            check_program(
                program(
                    SHIFT,
                    BACK.replace("r1", "r0") + RING.replace("r0", "r1").replace("[1 2 3 0]", wrong),
                ),
                V5E,
            )
    with pytest.raises(ProgramError, match="route 0, the program has 0"):
        check_program(program(SHIFT, ""), V5E)


def test_a_flag_goes_between_the_packets_of_a_transfer_that_is_under_way() -> None:
    """It arrives as early as alone; a second transfer of the same port waits for the first one."""
    both = RING + BACK.replace("port 2", "port 1")
    behind = block("smovi s1 = 8", "dma.start d0, s0, s1, f0, s0, s0, s0") + READY
    for kind in MACHINES:
        alone = run_on(kind, program(READY, both))[0][0].cycles
        found = run_on(kind, program(behind, both))[0][0].cycles
        assert alone <= found < alone + 20


def run_in_parts(
    kind: Kind, source: Program, shares: list[list[int]]
) -> tuple[list[ExecutionResult], list[np.ndarray]]:
    """The same as `run_on`, the cores in parts that have nothing but letters of each other."""
    hbms = memories(sum(map(len, shares)))
    parts, targets = [], [route.targets for route in source.routes]
    for share in shares:
        machines = {number: kind(V5E) for number in share}
        runs = {number: machines[number].start(source, hbms[number]) for number in share}
        some = machines[share[0]]
        far = {number: some.far_core(hbms[number]) for number in far_numbers(targets, share)}
        parts.append(SlicePart(runs, far))
    while True:
        for part in parts:
            part.advance()
        sent = [part.take() for part in parts]
        if not any(sent):
            break
        for part in parts:
            for letters in sent:
                part.deliver({n: one for n, one in letters.items() if n in part.runs})
    expect_done({n: place for part in parts for n, place in part.waiting.items()})
    runs = {number: run for part in parts for number, run in part.runs.items()}
    return [runs[number].result for number in sorted(runs)], arrived(hbms)


PIECES = """
descriptor d0 hbm -> hbm chunk 1 dims [2 x 1 -> 2] route 0
descriptor d1 hbm -> hbm chunk 1 dims [0 x 0 -> 0] route 1
"""


@pytest.mark.parametrize("kind", MACHINES)
@pytest.mark.parametrize("shares", [[[0, 1], [2, 3]], [[2], [0, 3], [1]]])
@pytest.mark.parametrize("tables", [TABLES, PIECES])
def test_a_slice_cut_into_parts_has_the_same_values_and_cycles(
    kind: Kind, shares: list[list[int]], tables: str
) -> None:
    source = program(
        READY + SHIFT + READY + SHIFT.replace("smovi s1 = 8", "smovi s1 = 9"), tables=tables
    )
    whole, wanted, _ = run_on(kind, source)
    results, got = run_in_parts(kind, source, shares)
    assert results == whole
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", MACHINES)
def test_what_lies_between_the_pieces_of_a_transfer_stays(kind: Kind) -> None:
    """Nothing but what was sent goes into a letter: what the far core had beside it is its own."""
    source = program(SHIFT.replace("smovi s1 = 8", "smovi s1 = 0"), tables=PIECES)
    hbms = memories(4)
    some = kind(V5E)
    far = {number: some.far_core(hbms[0]) for number in (1, 3)}
    part = SlicePart({0: some.start(source, hbms[0])}, far)
    part.advance()
    letter = part.take()[1]
    assert letter.places.tolist() == [[0, 512], [1024, 512]]
    assert part.take() == {}


@pytest.mark.parametrize("kind", MACHINES)
def test_parts_that_wait_for_nobody_are_a_deadlock(kind: Kind) -> None:
    others = block(f"smovi s4 = {core_word(V5E.smem_words)}", "smovi s5 = 3")
    others += block("sld s3 = s4, 0", "nop 8") + block("scmp.ne.s32 s2 = s3, s5", "nop 3")
    with pytest.raises(DeadlockFault, match="core 0 in k at cycle"):
        run_in_parts(kind, program(others + "if s2 {\n" + SHIFT + "}\n"), [[0, 1], [2, 3]])
