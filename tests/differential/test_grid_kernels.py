"""Kernels whose loops are shared between threads and whose windows are read in place."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.grid_kernels import BLOCK_ROWS, ROW, SLOT, TILE_ROW, Emit, Grid
from tests.support.random_programs import BlockBuilder
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.control_flow import Call
from tpu_sim.isa.program import HBM, SMEM, VMEM, DmaDescriptor, DmaDim, Kernel, Program, Window
from tpu_sim.jit import dma_copies, hbm_windows, parallel_loops, window_kernels
from tpu_sim.jit.context import Word
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.faults import OutOfWindowFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.result import ExecutionResult

CHIP = load_chip("v5e")
HBM_BYTES = 1 << 20
STEPS = 5
BEHIND = STEPS * BLOCK_ROWS
Memory = npt.NDArray[np.uint8]


@pytest.fixture(autouse=True)
def share_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel_loops, "MIN_WORK", 1)
    monkeypatch.setattr(dma_copies, "_SHARED_BYTES", 1)
    monkeypatch.setattr(dma_copies, "_STREAMED_BYTES", 1)
    monkeypatch.setattr(hbm_windows, "_MIN_BYTES", 1)


def contents() -> Memory:
    floats = np.random.default_rng(5).standard_normal(HBM_BYTES // 4).astype(np.float32)
    return floats.view(np.uint8)


def run(machine: NumpyMachine | LlvmMachine, program: Program) -> tuple[Memory, ExecutionResult]:
    hbm = HbmMemory(HBM_BYTES)
    hbm.bytes[:] = contents()
    result = machine.run(program, hbm)
    return hbm.bytes.copy(), result


def check(program: Program) -> None:
    """All thread counts give the memory and the cycles of the NumPy machine."""
    want, cycles = run(NumpyMachine(CHIP), program)
    assert not np.array_equal(want, contents())
    for threads in (1, 3):  # the steps of a grid are no multiple of three
        found, result = run(LlvmMachine(CHIP, threads=threads, cache=False), program)
        assert np.array_equal(found, want)
        assert result == cycles


def double(builder: BlockBuilder) -> None:
    builder.emit("vld", 1, 0, ROW, 0, 1)
    builder.emit("vadd.f32", 2, 1, 1)
    builder.emit("vst", 1, ROW, 0, 1, 2)


def moves(builder: BlockBuilder) -> None:
    """Rotations and broadcasts of loads and of computed values, by known and unknown amounts."""
    builder.emit("vld", 1, 0, ROW, 0, 1)
    builder.emit("vmul.f32", 2, 1, 1)
    results = []
    for number, (row, source, scalar, k) in enumerate(
        (
            ("vrot.lane", 1, 0, 127), ("vrot.lane", 2, 0, 35), ("vrot.lane", 1, TILE_ROW, 1),
            ("vrot.slane", 1, 0, 3), ("vrot.slane", 2, TILE_ROW, 5), ("vrot.slane", 2, 0, 0),
            ("vbcast.lane", 1, 0, 77), ("vbcast.lane", 2, TILE_ROW, 9), ("vbcast.slane", 2, 0, 6),
            ("vbcast.slane", 1, TILE_ROW, 2),
        )
    ):  # fmt: skip
        builder.emit(row, source, scalar, k)
        builder.emit("vpop.xlu", 10 + number)
        results.append(10 + number)
    total = results[0]
    for number, value in enumerate(results[1:]):
        builder.emit("vadd.f32", 30 + number, total, value)
        total = 30 + number
    builder.emit("vrot.slane", total, 0, 1)
    builder.emit("vpop.xlu", 50)
    builder.emit("vrot.lane", 50, 0, 16)
    builder.emit("vpop.xlu", 51)
    builder.emit("vst", 1, ROW, 0, 1, 51)


def transposes(builder: BlockBuilder) -> None:
    for row in range(16):
        builder.emit("vld", 1 + row % 4, 0, ROW, 0, 1)
        builder.emit("vxpose.push", 2, 1 + row % 4, row)
    builder.emit("vxpose.swap", 2)
    builder.emit("vxpose.read", 20, 2, 3)
    builder.emit("vst", 1, ROW, 0, 1, 20)


def over_the_end(builder: BlockBuilder) -> None:
    """The second load of the last tile reaches into the other slot."""
    builder.emit("vld", 1, 0, ROW, 0, 1)
    builder.emit("vld", 2, 0, TILE_ROW, 36, 1)
    builder.emit("vadd.f32", 3, 1, 2)
    builder.emit("vst", 1, ROW, 0, 1, 3)


@pytest.mark.parametrize("tile", [double, moves, transposes])
@pytest.mark.parametrize("target_row", [BEHIND, 0, 32], ids=["apart", "in place", "overlapping"])
def test_grids_agree(tile: Emit, target_row: int) -> None:
    check(Grid(CHIP, STEPS, target_row, tile).program(HBM_BYTES))


def across_pieces(builder: BlockBuilder) -> None:
    """Loads, a rotation and a broadcast whose rows lie in several pieces, and a row of one."""
    builder.emit("vld", 1, 0, ROW, 0, 1)
    builder.emit("vld", 2, 0, SLOT, 9, 2)
    builder.emit("vld", 3, 0, SLOT, 36, 3)
    builder.emit("vld", 4, 0, SLOT, 21, 0)
    builder.emit("vld", 5, 0, SLOT, 12, 1)
    builder.emit("vrot.slane", 2, 0, 3)
    builder.emit("vpop.xlu", 6)
    builder.emit("vbcast.slane", 3, TILE_ROW, 2)
    builder.emit("vpop.xlu", 7)
    total = 1
    for number, value in enumerate(range(2, 8)):
        builder.emit("vadd.f32", 10 + number, total, value)
        total = 10 + number
    builder.emit("vst", 1, ROW, 0, 1, total)


def products(builder: BlockBuilder) -> None:
    """Passes of all MXUs, each followed by the sum of their results, with weights from the window."""
    for unit in range(4):
        for row in range(8):
            builder.emit("vld", 1 + row, 0, SLOT, (8 * row + 2 * unit) % 56, 1)
            builder.emit("vmatpush.bf16", unit, 1 + row, row)
        builder.emit("vmatswap", unit)
    total = 30
    builder.emit("vld", total, 0, ROW, 0, 1)
    for number in range(3):
        for unit in range(4):
            builder.emit("vld", 1, 0, SLOT, 8 * number + unit, 1)
            builder.emit("vmatmul.bf16", unit, 1)
        for unit in range(4):
            for half in (0, 1):
                builder.emit("vpop.mrf", 2 + half, unit)
                builder.emit("vadd.f32", total + 1, total, 2 + half)
                total += 1
    builder.emit("vst", 1, ROW, 0, 1, total)


@pytest.mark.parametrize("tile", [double, moves, across_pieces])
@pytest.mark.parametrize("piece_rows", [0, 8, 16])
@pytest.mark.parametrize("target_row", [BEHIND, 0, 24], ids=["apart", "in place", "overlapping"])
def test_blocks_that_lie_in_pieces(tile: Emit, piece_rows: int, target_row: int) -> None:
    check(Grid(CHIP, STEPS, target_row, tile, piece_rows=piece_rows).program(HBM_BYTES))


@pytest.mark.parametrize(("piece_rows", "target_row"), [(0, 24), (8, BEHIND), (16, 0)])
def test_products_of_blocks_in_pieces(piece_rows: int, target_row: int) -> None:
    """Much native code, so not every pair."""
    check(Grid(CHIP, STEPS, target_row, products, piece_rows=piece_rows).program(HBM_BYTES))


def test_a_block_in_pieces_is_read_in_place() -> None:
    program = Grid(CHIP, STEPS, BEHIND, across_pieces, piece_rows=8).program(HBM_BYTES)
    text = LlvmMachine(CHIP, threads=1, cache=False).prepare(program).translated.text
    assert f"call i1 @{window_kernels.REFER}(" in text
    assert "%h0 = load i64" in text, "the components do not know of the gaps between pieces"


def test_a_second_pass_reads_what_the_first_wrote() -> None:
    check(Grid(CHIP, STEPS, 0, double, passes=3).program(HBM_BYTES))


def test_a_load_across_two_blocks() -> None:
    check(Grid(CHIP, 2, BEHIND, over_the_end).program(HBM_BYTES))


def test_loops_are_shared_and_windows_read_in_place() -> None:
    program = Grid(CHIP, STEPS, BEHIND, double).program(HBM_BYTES)
    text = LlvmMachine(CHIP, threads=2, cache=False).prepare(program).translated.text
    assert "@kernel1_loop0(" in text
    # not UNTIL: a run that Python asks back for its signals shares its loops all the same
    assert f"getelementptr i8, ptr %ctx, i64 {8 * Word.GOAL}\n" in text
    assert f"call i64 @{window_kernels.RESOLVE}(" in text
    assert f"call i1 @{window_kernels.REFER}(" in text


@pytest.mark.parametrize("threads", [1, 3])
def test_a_fault_in_a_shared_loop_is_found(threads: int) -> None:
    def outside(builder: BlockBuilder) -> None:
        builder.emit("vld", 1, 0, ROW, BLOCK_ROWS + 8, 1)
        builder.emit("vst", 1, ROW, 0, 1, 1)

    program = Grid(CHIP, STEPS, BEHIND, outside).program(HBM_BYTES)
    with pytest.raises(OutOfWindowFault, match="window in"):
        run(LlvmMachine(CHIP, threads=threads, cache=False), program)


def shared(builder: BlockBuilder) -> None:
    """All tiles write one row range."""
    builder.emit("vld", 1, 0, ROW, 0, 1)
    builder.emit("vst", 1, 0, 0, 1, 1)


def stale_transpose(builder: BlockBuilder) -> None:
    builder.emit("vld", 1, 0, ROW, 0, 1)
    builder.emit("vxpose.push", 0, 1, 0)
    builder.emit("vxpose.swap", 0)
    builder.emit("vxpose.read", 20, 0, 0)
    builder.emit("vst", 1, ROW, 0, 1, 20)


@pytest.mark.parametrize("tile", [shared, stale_transpose])
def test_dependent_iterations_stay_in_order(tile: Callable[[BlockBuilder], None]) -> None:
    program = Grid(CHIP, STEPS, BEHIND, tile).program(HBM_BYTES)
    text = LlvmMachine(CHIP, threads=2, cache=False).prepare(program).translated.text
    assert "_loop0(" not in text
    check(program)


@pytest.mark.parametrize(
    ("descriptors", "source", "target"),
    [
        ([DmaDescriptor(HBM, SMEM, 128), DmaDescriptor(SMEM, HBM, 128)], 2, 600),
        (
            [
                DmaDescriptor(HBM, VMEM, 4, (DmaDim(3, 40, 16), DmaDim(4, 4, 4)), 0),
                DmaDescriptor(VMEM, HBM, 2, (DmaDim(12, 2, 4), DmaDim(2, 24, 200)), 0),
            ],
            5,
            700,
        ),
    ],
    ids=["words", "merged rows"],
)
def test_copies_of_all_shapes(descriptors: list[DmaDescriptor], source: int, target: int) -> None:
    builder = BlockBuilder(CHIP)
    builder.emit("smovi", 1, source)
    builder.emit("smovi", 2, 5)
    builder.emit("smovi", 3, target)
    builder.emit("dma.start", 0, 1, 2, 0, 0, 0, 0)
    builder.emit("dma.wait", 0, 0)
    load = builder.finish("load")
    builder = BlockBuilder(CHIP)
    builder.emit("dma.start", 1, 2, 3, 1, 0, 0, 0)
    builder.emit("dma.wait", 1, 0)
    body = [load, builder.finish("store")]
    kernel = Kernel("k", 0, [Window("w", 0, BLOCK_ROWS)], descriptors, list(body))
    check(Program("v5e", {"k": kernel}, [Call("k", "k")], [], [], HBM_BYTES, 1024))
