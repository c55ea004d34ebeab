"""docs/adding-an-instruction.md is true: instructions added as it says, and nothing more, work everywhere.

Each test below defines a row, with its meaning or effect, and changes no other file or table than
those that the page names.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from compiler.llo.builder import LloBuilder
from compiler.llo.finalize import finalize_kernel
from tests.differential.test_machines_agree import CHIP, HBM_BYTES, run_both
from tests.support.kernel_runs import run_kernel, window_rows
from tests.support.random_programs import BlockBuilder
from tests.support.toy_rows import more_rows
from tpu_sim.isa import resources
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.control_flow import Call
from tpu_sim.isa.encoding import decode_bundles, encode_bundles
from tpu_sim.isa.errors import HazardError
from tpu_sim.isa.instruction import Crossing, Instr, Row, Slot, define
from tpu_sim.isa.program import HBM, VMEM, Block, DmaDescriptor, Kernel, Node, Program, Window
from tpu_sim.isa.reference import reference_text
from tpu_sim.isa.text import format_instr, parse_instr

ROWS_IN, ROWS_OUT = 32, 8
OUT_GRANULE = 64


@pytest.fixture(autouse=True)
def table() -> Iterator[None]:
    with more_rows():
        yield


def contents() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2**32, (ROWS_IN, 128), np.uint32)


def program(compute: list[Node], start: str = "dma.start") -> Program:
    """Window 0 holds `contents`; what `compute` leaves in window 1 is taken to HBM."""
    counts = (0, 0) if start == "dma.start" else ()
    builder = BlockBuilder(CHIP)
    builder.emit(start, 0, 0, 0, 0, 0, *counts)
    builder.emit("dma.wait", 0, 0)
    load = builder.finish("load")
    builder = BlockBuilder(CHIP)
    builder.emit("smovi", 1, OUT_GRANULE)
    builder.emit(start, 1, 0, 1, 0, 0, *counts)
    builder.emit("dma.wait", 0, 0)
    windows = [Window("in", 0, ROWS_IN), Window("out", ROWS_IN, ROWS_OUT)]
    copies = [DmaDescriptor(HBM, VMEM, ROWS_IN, (), 0), DmaDescriptor(VMEM, HBM, ROWS_OUT, (), 1)]
    body = [load, *compute, builder.finish("store")]
    kernel = Kernel("k", 0, windows, copies, body, flags=1)
    return Program("v5e", {"k": kernel}, [Call("k")], [], [], HBM_BYTES, 1024)


def outputs(made: Program) -> list[np.ndarray]:
    """What each machine leaves, after the program went through its text; they take equal time."""
    made = parse_program(print_program(made))
    check_program(made, CHIP)
    first = OUT_GRANULE * 128
    memories = run_both(made, contents().tobytes())
    return [words[first : first + ROWS_OUT * 128].reshape(ROWS_OUT, 128) for words in memories]


def assert_is_known(row: Row, *operands: int) -> None:
    """Encoder, assembler and reference page know the row."""
    instr = Instr(row, operands)
    assert decode_bundles(encode_bundles([(instr,)]), 1) == [(instr,)]
    assert parse_instr(format_instr(instr)) == instr
    assert f"`{row.name} " in reference_text()


def toy_function() -> Row:
    return define(
        "vtoy.s32", 250, Slot.VALU, "d:vd a:vs b:vs k:i32", "imul", "d = a * b + k, wrapping",
        lambda m, a, b, k: m.iadd(m.imul(a, b), m.const_i(k)),
    )  # fmt: skip


def test_a_function_of_lanes() -> None:
    row = toy_function()
    assert_is_known(row, 3, 1, 2, -5)
    builder = BlockBuilder(CHIP)
    builder.emit("vld", 1, 0, 0, 0, 1)
    builder.emit("vld", 2, 0, 0, 8, 1)
    builder.emit(row.name, 3, 1, 2, -5)
    builder.emit("vst", 1, 0, 0, 1, 3)
    words = contents()
    expected = words[:8] * words[8:16] - np.uint32(5)
    for found in outputs(program([builder.finish("toy")])):
        assert np.array_equal(found, expected)


def test_the_checker_knows_its_latency_and_the_scheduler_keeps_it() -> None:
    row = toy_function()
    early = Block([(Instr(row, (3, 3, 3, 0)),), (Instr(row, (4, 3, 3, 0)),)], "early")
    first = Block([], "none")
    with pytest.raises(HazardError, match="v3 is read but not written"):
        check_program(program([first, early]), CHIP)
    builder = LloBuilder("k", CHIP)
    x, y = builder.window("x", 8), builder.window("y", 8)
    value = builder.emit("vld", x, 0, 0, 1)
    twice = builder.emit(row.name, builder.emit(row.name, value, value, 1), value, 2)
    builder.emit("vst", y, 0, 0, 1, twice)
    kernel = finalize_kernel(builder.finish(), CHIP, check=True)
    cycle = {
        instr.row.name: at
        for block in kernel.body
        if isinstance(block, Block)
        for at, bundle in enumerate(block.bundles)
        for instr in bundle
    }
    assert cycle["vst"] >= CHIP.latency("load") + 2 * CHIP.latency("imul")
    words = contents()[:8]
    state = run_kernel(kernel, CHIP, {0: words})
    expected = (words * words + np.uint32(1)) * words + np.uint32(2)
    assert np.array_equal(window_rows(state, kernel, 1), expected)


def test_a_load_with_an_effect_of_its_own() -> None:
    row = define(
        "vld.rev", 250, Slot.LOAD, "d:vd w:win s:ss k:i32 stride:imm", "load",
        "vld from the last row to the first",
        lambda core, w, s, k, stride: core.load_rows(w, s, k + 7 * stride, -stride),
        crossing=Crossing.STATE, uses=(resources.VMEM,),
    )  # fmt: skip

    assert_is_known(row, 3, 0, 0, 4, 1)
    builder = BlockBuilder(CHIP)
    builder.emit(row.name, 3, 0, 0, 4, 1)
    builder.emit("vst", 1, 0, 0, 1, 3)
    for found in outputs(program([builder.finish("toy")])):
        assert np.array_equal(found, contents()[4:12][::-1])


@pytest.mark.parametrize(
    ("slot", "spec", "memory"),
    [
        (Slot.SCALAR, "b:ss j:i32 a:ss k:i32", resources.SMEM),
        (Slot.SCALAR, "a:ss j:i32", resources.SMEM),
        (Slot.LOAD, "d:vd w:win s:ss k:i32", resources.VMEM),
        (Slot.STORE, "w:win s:ss k:i32 stride:imm x:win t:ss", resources.VMEM),
    ],
    ids=["two_words", "offset_of_another_name", "no_stride", "two_windows"],
)
def test_a_row_of_memory_has_one_address(slot: Slot, spec: str, memory: resources.Resource) -> None:
    """A second one would be ordered with nothing."""
    with pytest.raises(AssertionError, match="a row has one"):
        define(
            "toy.move", 250, slot, spec, "scalar", "a move", lambda core, *_: None,
            crossing=Crossing.STATE, uses=(memory,), defines=(memory,),
        )  # fmt: skip


def test_a_kind_of_dma() -> None:
    row = define(
        "dma.start.plain", 250, Slot.MISC, "desc:desc src:ss dst:ss flag:flag f:ss", "dma",
        "dma.start of a descriptor without dynamic counts",
        lambda core, desc, src, dst, flag, f: core.start(desc, src, dst, flag, f, f, f),
        crossing=Crossing.STATE, defines=(resources.TRANSFER, resources.FLAG),
        held="dma_issue_cycles",
    )  # fmt: skip

    assert_is_known(row, 0, 1, 2, 0, 0)
    builder = BlockBuilder(CHIP)
    builder.emit("vld", 1, 0, 0, 16, 1)
    builder.emit("vst", 1, 0, 0, 1, 1)
    for found in outputs(program([builder.finish("toy")], start=row.name)):
        assert np.array_equal(found, contents()[16:24])


def test_a_format_of_passes(tmp_path: Path) -> None:
    """Each host's library of kernels is made once for a process, so this one has its own."""
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "TPUC_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}
    script = root / "tests" / "support" / "toy_pass_format.py"
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "equal\n"
