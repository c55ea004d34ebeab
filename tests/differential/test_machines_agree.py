"""The NumPy machine and the LLVM machine: same memory, same cycles, on every program."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.random_programs import (
    LANE_ROWS,
    WINDOW_ROWS,
    BlockBuilder,
    random_program,
)
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.chips import Chip, load_chip
from tpu_sim.isa.control_flow import Call, Loop
from tpu_sim.isa.instruction import ROWS, Instr, Kind, Row
from tpu_sim.isa.program import HBM, VMEM, Block, DmaDescriptor, Kernel, Program, Window
from tpu_sim.jit import context, segment, state_ops
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine import state
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult

CHIP = load_chip("v5e")
HBM_BYTES = 1 << 20
Words = npt.NDArray[np.uint32]

SPECIAL_WORDS = np.array(
    [
        0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345,
        0x7F800001, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x7FFFFFFF, 0xFFFFFFFF, 31, 32, 33, 5,
        127, 128, 0x3F000000, 0x40200000, 0xC0200000, 0x4B000001, 0x4F000000, 0xCF000000,
        0x4F800000, 0x42B17218, 0xC3000000, 0xC3160000, 0x7F7FFFFF, 0x3EFFFFFF,
    ],
    np.uint32,
)  # fmt: skip
"""Zeros, infinities, NaNs, denormals, INT_MIN and -1, shift counts, rounding and range ends."""


@cache
def llvm_machine() -> LlvmMachine:
    return LlvmMachine(CHIP, cache=False)


def run_both(program: Program, contents: bytes, chip: Chip = CHIP) -> tuple[Words, Words]:
    """Run on both machines from equal memories; the results must be equal, the memories return."""
    llvm = llvm_machine() if chip is CHIP else LlvmMachine(chip, cache=False)
    memories: list[Words] = []
    results: list[ExecutionResult] = []
    for machine in (NumpyMachine(chip), llvm):
        hbm = HbmMemory(HBM_BYTES)
        hbm.write(0, contents)
        results.append(machine.run(program, hbm))
        memories.append(hbm.bytes.view(np.uint32).copy())
    assert results[0] == results[1]
    return memories[0], memories[1]


def equal_as_floats(a: Words, b: Words) -> npt.NDArray[np.bool_]:
    """Equal bits, or both NaN."""
    return (a == b) | (np.isnan(a.view(np.float32)) & np.isnan(b.view(np.float32)))


def special_inputs() -> Words:
    """Four vregs: special words, random bits, and floats of all sizes, mixed."""
    source = np.random.default_rng(0)
    shape = (4, 1024)
    special = source.choice(SPECIAL_WORDS, shape)
    bits = source.integers(0, 2**32, shape, np.uint32)
    scales = np.exp(8 * source.standard_normal(shape))
    floats = (source.standard_normal(shape) * scales).astype(np.float32).view(np.uint32)
    kind = source.integers(0, 4, shape)
    return np.where(kind < 2, special, np.where(kind == 2, bits, floats)).astype(np.uint32)


def row_kernel(row: Row) -> Kernel:
    """Load four vregs, apply `row` to the first ones, store the result."""
    builder = BlockBuilder(CHIP)
    builder.emit("smovi", 1, 32)
    builder.emit("smovi", 2, 77)
    builder.emit("dma.start", 0, 0, 0, 0, 0, 0, 0)
    builder.emit("dma.wait", 0, 0)
    load = builder.finish("load")
    builder = BlockBuilder(CHIP)
    for i in range(4):
        builder.emit("vld", 1 + i, 0, 0, 8 * i, 1)
    builder.emit("vcmp.lt.s32", 1, 1, 2)
    builder.emit("vcmp.gt.f32", 2, 3, 4)
    builder.emit(row.name, *row_operands(row))
    if row.pushes:
        builder.emit(f"vpop.{row.pushes}", 10)
    if row.operands[0].kind is Kind.MD:
        builder.emit("vmovi", 11, 0)
        builder.emit("vmovi", 12, 1)
        builder.emit("vsel", 10, 10, 12, 11)
    builder.emit("vst", 1, 0, 0, 1, 10)
    compute = builder.finish("compute")
    builder = BlockBuilder(CHIP)
    builder.emit("dma.start", 1, 0, 1, 0, 0, 0, 0)
    builder.emit("dma.wait", 0, 0)
    windows = [Window("in", 0, 32), Window("out", 32, 8)]
    copies = [DmaDescriptor(HBM, VMEM, 32, (), 0), DmaDescriptor(VMEM, HBM, 8, (), 1)]
    return Kernel("k", 0, windows, copies, [load, compute, builder.finish("store")])


def row_operands(row: Row) -> list[int]:
    """Vregs 1.., masks 1.., sreg 2 (77), destination 10, immediates."""
    vregs, masks = iter(range(1, 5)), iter(range(1, 3))
    values: list[int] = []
    for operand in row.operands:
        match operand.kind:
            case Kind.VS:
                values.append(next(vregs))
            case Kind.MS:
                values.append(next(masks))
            case Kind.SS:
                values.append(2)
            case Kind.F32:
                values.append(0x3FC00000)
            case Kind.I32:
                values.append(19)
            case Kind.IMM:
                values.append(1)
            case _:
                values.append(10)
    return values


@pytest.mark.parametrize("row", LANE_ROWS, ids=lambda row: row.name)
def test_meaning_of_row_is_the_same_on_special_values(row: Row) -> None:
    kernel = row_kernel(row)
    program = Program("v5e", {"k": kernel}, [Call("k")], [], [], HBM_BYTES, 1024)
    plain, native = run_both(program, special_inputs().tobytes())
    assert equal_as_floats(plain, native).all()


def random_contents(seed: int) -> bytes:
    """Windows of floats, integers and packed bf16, with special values among them."""
    source = np.random.default_rng(seed)
    words = WINDOW_ROWS * 128
    floats = (3 * source.standard_normal(words)).astype(np.float32)
    floats[::97], floats[::101], floats[5::311], floats[7::313] = 0, -0.0, np.inf, 1e-40
    integers = source.integers(-(2**31), 2**31, words, np.int64).astype(np.int32)
    integers[::3] %= 200
    integers[::50], integers[1::50] = 0, -(2**31)
    halves = (source.standard_normal(2 * words).astype(np.float32).view(np.uint32) >> 16).astype(
        np.uint16
    )
    halves[::53], halves[3::55], halves[11::57], halves[13::57] = 1, 0x8003, 0x0150, 0x2F80
    return floats.tobytes() + integers.tobytes() + halves.tobytes()


@pytest.mark.parametrize(
    ("seed", "blocks", "size"),
    [(seed, 2, 8) for seed in range(25)]
    + [(seed, 3, 40) for seed in range(100, 125)]
    + [(seed, 3, 150) for seed in range(200, 212)],
)
def test_random_programs_leave_the_same_memory_and_cycles(
    seed: int, blocks: int, size: int
) -> None:
    program = random_program(CHIP, seed, blocks, size)
    plain, native = run_both(program, random_contents(seed))
    window = WINDOW_ROWS * 128
    floats = slice(3 * window, 4 * window)
    assert equal_as_floats(plain[floats], native[floats]).all()
    plain[floats], native[floats] = 0, 0
    assert np.array_equal(plain, native)


@pytest.mark.parametrize("seed", [7, 8, 9])
@pytest.mark.parametrize("name", ["v4", "v6e", "7x"])
def test_other_chips_agree_too(name: str, seed: int) -> None:
    chip = load_chip(name)
    program = random_program(chip, seed, 3, 40)
    plain, native = run_both(program, random_contents(seed), chip)
    integers = slice(4 * WINDOW_ROWS * 128, 5 * WINDOW_ROWS * 128)
    assert np.array_equal(plain[integers], native[integers])


def test_estimate_gives_the_cycles_of_a_run() -> None:
    program = random_program(CHIP, 3, 4, 60)
    hbm = HbmMemory(HBM_BYTES)
    hbm.write(0, random_contents(3))
    assert llvm_machine().estimate(program) == llvm_machine().run(program, hbm)


def test_calls_beyond_the_records_are_added_up_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = NumpyMachine(CHIP).run(looped_calls(), HbmMemory(HBM_BYTES))
    for module in (context, state):
        monkeypatch.setattr(module, "MOST_RECORDS", 3)
    machine = LlvmMachine(CHIP, cache=False)
    for _ in range(2):  # the sums of a run do not add to those before
        result = machine.run(looped_calls(), HbmMemory(HBM_BYTES))
        assert result == NumpyMachine(CHIP).run(looped_calls(), HbmMemory(HBM_BYTES))
        assert result.kernels[:3] == whole.kernels[:3]
        assert [(run.site, run.calls) for run in result.kernels[3:]] == [
            ("call 1", 4),
            ("call 0", 3),
        ]
        for total in result.kernels[3:]:
            later = [run for run in whole.kernels[3:] if run.site == total.site]
            assert total.start_cycle == later[0].start_cycle
        for name in ("cycles", "causes", "main_cycles", "hbm_bytes", "dma_wait_cycles"):
            assert getattr(result, name) == getattr(whole, name), name


def looped_calls() -> Program:
    """Ten calls of a kernel from two sites in turn."""
    program = random_program(CHIP, 3)
    return replace(program, main=[Loop(5, 9, program.main)])


def test_threads_change_neither_values_nor_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "_WORK_TO_SHARE", 1)
    monkeypatch.setattr(state_ops, "_PASSES_TO_SHARE", 2)
    shared = LlvmMachine(CHIP, threads=3, cache=False)
    for seed in range(100, 104):
        program = random_program(CHIP, seed, 3, 60)
        assert shared.prepare(program).translated.has_forks
        memories, results = [], []
        for machine in (llvm_machine(), shared):
            hbm = HbmMemory(HBM_BYTES)
            hbm.write(0, random_contents(seed))
            results.append(machine.run(program, hbm))
            memories.append(hbm.bytes.copy())
        assert results[0] == results[1]
        assert np.array_equal(memories[0], memories[1])


def skewed_kernel() -> Kernel:
    """Results and weights cross blocks: pops of a pass follow the multiplications of the next."""
    tiles = 4
    windows = [Window("x", 0, 8 * tiles), Window("w", 64, 64), Window("out", 128, 16 * tiles)]
    copies = [
        DmaDescriptor(HBM, VMEM, 8 * tiles, (), 0),
        DmaDescriptor(HBM, VMEM, 64, (), 1),
        DmaDescriptor(VMEM, HBM, 16 * tiles, (), 2),
    ]
    builder = BlockBuilder(CHIP)
    builder.emit("smovi", 1, 64)
    builder.emit("dma.start", 0, 0, 0, 0, 0, 0, 0)
    builder.emit("dma.start", 1, 1, 0, 0, 0, 0, 0)
    builder.emit("dma.wait", 0, 0)
    load = builder.finish("load")
    builder = BlockBuilder(CHIP)
    for row in range(8):
        builder.emit("vld", row, 1, 0, 8 * row, 1)
        builder.emit("vmatpush.bf16", 2, row, row)
    builder.emit("vmatswap", 2)
    builder.emit("vld", 10, 0, 0, 0, 1)
    builder.emit("vmatmul.bf16", 2, 10)
    builder.emit("vmatmul.bf16", 2, 10)
    fill = builder.finish("fill")
    builder = BlockBuilder(CHIP)
    builder.emit("sshli", 6, 5, 3)
    builder.emit("sshli", 7, 5, 4)
    builder.emit("vld", 1, 0, 6, 0, 1)
    builder.emit("vmatmul.bf16", 2, 1)
    for half in range(2):
        builder.emit("vpop.mrf", 2 + half, 2)
        builder.emit("vst", 2, 7, 8 * half, 1, 2 + half)
    body = builder.finish("body")
    builder = BlockBuilder(CHIP)
    for half in range(4):
        builder.emit("vpop.mrf", 1 + half, 2)
        builder.emit("vst", 2, 0, 8 * half + 16, 1, 1 + half)
    builder.emit("smovi", 1, 256)
    builder.emit("dma.start", 2, 0, 1, 1, 0, 0, 0)
    builder.emit("dma.wait", 1, 0)
    return Kernel(
        "k", 0, windows, copies, [load, fill, Loop(tiles, 5, [body]), builder.finish("drain")]
    )


def test_results_and_weights_may_cross_blocks() -> None:
    program = Program("v5e", {"k": skewed_kernel()}, [Call("k"), Call("k")], [], [], HBM_BYTES, 64)
    halves = np.random.default_rng(1).standard_normal(2 * 128 * 128).astype(np.float32)
    contents = (halves.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    plain, native = run_both(program, contents)
    assert np.array_equal(plain, native)
    assert plain[256 * 128 : 272 * 128].any()


def test_a_transfer_reads_its_registers_before_its_bundle_writes_them() -> None:
    copies = [DmaDescriptor(HBM, VMEM, 8, (), 0), DmaDescriptor(VMEM, HBM, 8, (), 0)]
    latency = CHIP.latencies["scalar"]
    set_up = [(Instr(ROWS["smovi"], (1, 8)),), *[()] * latency]
    start = (Instr(ROWS["dma.start"], (0, 1, 0, 0, 0, 0, 0)), Instr(ROWS["smovi"], (1, 32)))
    wait = (Instr(ROWS["dma.wait"], (0, 0)),)
    back = (Instr(ROWS["dma.start"], (1, 0, 1, 0, 0, 0, 0)),)
    block = Block([*set_up, start, wait, *[()] * latency, back, wait], "b")
    kernel = Kernel("k", 0, [Window("a", 0, 8)], copies, [block])
    program = Program("v5e", {"k": kernel}, [Call("k")], [], [], HBM_BYTES, 64)
    rows = np.arange(16 * 128, dtype=np.uint32)
    for memory in run_both(program, rows.tobytes()):
        assert np.array_equal(memory[32 * 128 : 40 * 128], rows[8 * 128 :])
