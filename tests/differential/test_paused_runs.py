"""Runs that are paused, looked at, saved, and gone on with: on one machine or from one to the other."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.machine_fuzz.compare import (
    MAX_CYCLES,
    NANS,
    Runs,
    _memory,
    _same_nan,
    compare_pauses,
)
from benchmarks.machine_fuzz.trial import Variant as Plain
from benchmarks.machine_fuzz.trial import accepted_case, judge, shared_work
from tests.support.isa_programs import (
    HBM_BYTES,
    V5E,
    block,
    kernel_program,
    kernel_text,
    program_text,
)
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.container import write_tpux
from tpu_sim.isa.program import Program
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.checkpoint import CheckpointError
from tpu_sim.machine.faults import CycleLimitFault, MachineFault, OutOfWindowFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.node_table import MAIN, node_table
from tpu_sim.machine.run import Run
from tpu_sim.machine.schema import SCHEMA
from tpu_sim.machine.state import CoreState

Machine = NumpyMachine | LlvmMachine
MACHINES: list[Machine] = [
    NumpyMachine(V5E),
    LlvmMachine(V5E, cache=False),
    LlvmMachine(V5E, 2, cache=False),
]
NAMES = ["numpy", "llvm", "llvm, two threads"]
machines = pytest.mark.parametrize("machine", MACHINES, ids=NAMES)
UNSPECIFIED = ("until", "until_call", "mrf_ready")


def counting(trips: int = 5) -> Program:
    """Counts to `trips` in a loop of two blocks, after a block of its own."""
    body = block("smovi s1 = 0", "nop 2")
    body += (
        f'loop s2 = 0 .. {trips} "count" {{\n{block("saddi.s32 s1 = s1, 1")}\n{block("nop 3")}}}\n'
    )
    return kernel_program(body)


def words_of(state: CoreState) -> dict[str, list[int]]:
    """The words that are told apart by name."""
    at, found = 0, {}
    for field in SCHEMA:
        if field.name not in UNSPECIFIED:
            found[field.name] = state.words[at : at + field.count].tolist()
        at += field.count
    return found


@machines
def test_steps_stop_at_every_border(machine: Machine) -> None:
    run = machine.start(counting(2), HbmMemory(HBM_BYTES))
    seen = []
    while not run.step():
        seen.append((run.cycle, run.state.body, run.state.node, run.state.sreg(1)))
    call, loop = V5E.call_overhead_cycles, V5E.loop_overhead_cycles
    expected, now = [(call, 1, 0, 0), (call + 3, 1, 2, 0)], call + 3
    for count in (1, 2):
        expected += [(now + 1, 1, 5, count), (now + 4, 1, 6, count), (now + 4 + loop, 1, 3, count)]
        now += 4 + loop
    assert seen == expected
    assert run.is_done and run.cycle == now
    assert run.result == machine.run(counting(2), HbmMemory(HBM_BYTES))


@machines
def test_a_limit_is_kept_within_a_block(machine: Machine) -> None:
    """In straight-line code too, and whatever part of the program the limit lies in."""
    straight = parse_program(program_text("", "\n".join(block("nop 10") for _ in range(20))))
    for program in (straight, counting(50)):
        whole = machine.run(program, HbmMemory(HBM_BYTES)).cycles
        for limit in (0, 1, 15, 60, whole - 1):
            limited = type(machine)(V5E, max_cycles=limit)
            run = limited.start(program, HbmMemory(HBM_BYTES))
            with pytest.raises(CycleLimitFault):
                run.finish()
            assert limit < run.cycle <= limit + max(10, V5E.call_overhead_cycles)
            with pytest.raises(RuntimeError, match="ended with a fault"):
                run.step()
        assert (
            type(machine)(V5E, max_cycles=whole).run(program, HbmMemory(HBM_BYTES)).cycles == whole
        )


@machines
def test_a_register_changed_in_a_pause_counts(machine: Machine) -> None:
    out = "descriptor d0 hbm -> vmem w0 chunk 1 dims [c0 x 1 -> 1]"
    copy = block("dma.start d0, s0, s0, f0, s0, s1, s0", "dma.wait f0, s0")
    tables = f'window w0 "x" rows 0 + 64\n{out}'
    run = machine.start(kernel_program(block("smovi s1 = 4") + copy, tables), HbmMemory(HBM_BYTES))
    run.step()
    run.step()
    run.state.sregs[1] = 9
    assert run.finish().kernels[0].hbm_bytes == 9 * 512


@machines
def test_a_fault_ends_a_run_for_good(machine: Machine) -> None:
    run = machine.start(
        kernel_program(block("smovi s1 = 60", "vld v1 = [w0 + s1 + 0] stride 1")),
        HbmMemory(HBM_BYTES),
    )
    run.step()
    with pytest.raises(OutOfWindowFault):
        run.step()
    with pytest.raises(RuntimeError, match="ended with a fault"):
        run.save()


def test_a_machine_has_one_run_at_a_time() -> None:
    machine = LlvmMachine(V5E, cache=False)
    first = machine.start(counting(), HbmMemory(HBM_BYTES))
    first.step()
    machine.run(counting(3), HbmMemory(HBM_BYTES))
    with pytest.raises(RuntimeError, match="another run has begun"):
        first.step()


def _step(run: Run) -> bool | type[MachineFault]:
    """Whether a run is over after one more step, or the fault that it ends with."""
    try:
        return run.step()
    except MachineFault as fault:
        return type(fault)


@pytest.mark.parametrize("seed", range(1, 10))
def test_both_machines_stand_alike_at_every_border(seed: int) -> None:
    """Words and SMEM; elsewhere there may be what nothing reads any more, as spills of a block.

    Some programs end with a fault, on both machines at the same border.
    """
    case = accepted_case(seed)
    chip = load_chip(case.program.target)
    with _same_nan():
        plain = NumpyMachine(chip, nan=NANS[0], max_cycles=MAX_CYCLES).start(
            case.program, _memory(case.contents)
        )
        native = Runs(case).llvm_machine().start(case.program, _memory(case.contents))
        ended: bool | type[MachineFault] = False
        while not ended:
            ended = _step(plain)
            assert _step(native) == ended
            if isinstance(ended, type):
                return
            ours, theirs = plain.state, native.state
            assert words_of(ours) == words_of(theirs)
            assert np.array_equal(ours.smem, theirs.smem)
    assert plain.result == native.result


@pytest.mark.parametrize("seed", range(6_000_000, 6_000_012))
def test_a_run_goes_from_machine_to_machine(seed: int) -> None:
    case = accepted_case(seed)
    verdict, outcome = judge(Runs(case), Plain())
    assert not verdict.is_wrong and outcome is not None
    for threads in (1, 2) if outcome.cycles else ():
        source = random.Random(seed + threads)
        with shared_work():
            assert not compare_pauses(Runs(case), source, outcome.cycles, threads)


LOOP_AT_THE_END = 'loop s1 = 0 .. 2 "calls" {\ncall "k" site "k.1"\n}'
BRANCH_AT_THE_END = f"{block('smovi s1 = 0')}if s1 {{\n{block('nop 2')}}} else {{\n}}"


@machines
@pytest.mark.parametrize("main", ["", LOOP_AT_THE_END, BRANCH_AT_THE_END, block("nop 2")])
def test_a_run_that_is_over_stands_at_the_end_of_main(machine: Machine, main: str) -> None:
    """Though no time passes before it, so that a run which is not over does not stand there."""
    program = parse_program(program_text(kernel_text(block("nop 3")), main))
    run = machine.start(program, HbmMemory(HBM_BYTES))
    result = run.finish()
    end = len(node_table(program, V5E).bodies[MAIN].nodes) - 1
    assert (run.state.body, run.state.node) == (MAIN, end)
    data = run.save()
    for other in MACHINES:
        restored = other.restore(program, HbmMemory(HBM_BYTES), data)
        assert restored.is_done and restored.finish() == result
        assert restored.save() == data


RESUME = """
import sys
from tpu_sim.isa.container import read_tpux
from tpu_sim.isa.chips import load_chip
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.memory import HbmMemory
program = read_tpux(sys.argv[1])
run = LlvmMachine(load_chip("v5e"), cache=False).restore(
    program, HbmMemory(program.hbm_bytes), open(sys.argv[2], "rb").read()
)
print(run.finish().cycles, run.state.sreg(1))
"""


def test_another_process_goes_on(tmp_path: Path) -> None:
    program = counting(7)
    run = NumpyMachine(V5E).start(program, HbmMemory(HBM_BYTES))
    run.run_until(V5E.call_overhead_cycles + 30)
    write_tpux(program, tmp_path / "p.tpux")
    (tmp_path / "run").write_bytes(run.save())
    command = [sys.executable, "-c", RESUME, str(tmp_path / "p.tpux"), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    cycles, count = map(int, done.stdout.split())
    assert (cycles, count) == (run.finish().cycles, 7)


def saved() -> tuple[Run, bytes]:
    run = NumpyMachine(V5E).start(counting(), HbmMemory(HBM_BYTES))
    run.run_until(V5E.call_overhead_cycles + 5)
    return run, run.save()


@machines
def test_what_cannot_be_gone_on_with_is_refused(machine: Machine) -> None:
    data = saved()[1]
    hbm = HbmMemory(HBM_BYTES)
    for program, bytes_, why in (
        (counting(4), data, "another program"),
        (counting(), data[:-1], "digest"),
        (counting(), data[:40] + bytes([data[40] ^ 1]) + data[41:], "digest"),
        (counting(), b"TPUX" + data[4:], "magic"),
        (counting(), data[:5] + b"\7" + data[6:], "version 7"),
        (counting(), b"", "not a saved run"),
    ):
        with pytest.raises(CheckpointError, match=why):
            machine.restore(program, hbm, bytes_)
    with pytest.raises(CheckpointError, match="another chip"):
        other = kernel_program(block("nop 1"), target="v4")
        type(machine)(load_chip("v4")).restore(other, hbm, data)


@machines
@pytest.mark.parametrize(
    ("word", "value"),
    [("body", 2), ("body", -1), ("node", 99), ("node", 4), ("return_node", 77), ("call", 9),
     ("call", -1), ("flag_cause", 99), ("record_count", -1), ("mrf_pushed", 100)],
)  # fmt: skip
def test_a_state_outside_the_program_is_refused(machine: Machine, word: str, value: int) -> None:
    run, _ = saved()
    at = {field.name: sum(f.count for f in SCHEMA[:n]) for n, field in enumerate(SCHEMA)}[word]
    run.state.words[at] = value
    with pytest.raises(CheckpointError, match="stands nowhere"):
        machine.restore(counting(), HbmMemory(HBM_BYTES), run.save())


@machines
def test_a_run_that_is_over_and_stands_elsewhere_is_refused(machine: Machine) -> None:
    run, _ = saved()
    run.is_done = True
    with pytest.raises(CheckpointError, match="stands nowhere"):
        machine.restore(counting(), HbmMemory(HBM_BYTES), run.save())


def test_a_checked_run_is_not_restored() -> None:
    with pytest.raises(CheckpointError, match="checked"):
        NumpyMachine(V5E, checked=True).restore(counting(), HbmMemory(HBM_BYTES), saved()[1])
