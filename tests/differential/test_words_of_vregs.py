"""`vtos`: a word of a vreg on the scalar unit, on both machines, bit for bit, and at its latency."""

from __future__ import annotations

import numpy as np
import pytest

from tests.differential.test_machines_agree import (
    CHIP,
    HBM_BYTES,
    SPECIAL_WORDS,
    llvm_machine,
    run_both,
)
from tests.support.random_programs import BlockBuilder
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.control_flow import Call, If, Loop
from tpu_sim.isa.errors import HazardError
from tpu_sim.isa.instruction import ROWS, Instr
from tpu_sim.isa.program import HBM, VMEM, Block, DmaDescriptor, Kernel, Node, Program, Window
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.memory import HbmMemory

ROWS_IN, ROWS_OUT = 64, 64
OUT_GRANULE = 128


def program(*compute: Node) -> Program:
    """Window 0 holds what HBM starts with; what `compute` leaves in window 1 is taken there."""
    builder = BlockBuilder(CHIP)
    for number in range(2):
        builder.emit("dma.start", number, 0, 0, 0, 0, 0, 0)
    builder.emit("dma.wait", 0, 0)
    load = builder.finish("load")
    builder = BlockBuilder(CHIP)
    builder.emit("smovi", 1, OUT_GRANULE)
    builder.emit("dma.start", 2, 0, 1, 0, 0, 0, 0)
    builder.emit("dma.wait", 0, 0)
    windows = [Window("in", 0, ROWS_IN), Window("out", ROWS_IN, ROWS_OUT)]
    copies = [
        DmaDescriptor(HBM, VMEM, ROWS_IN, (), 0),
        DmaDescriptor(HBM, VMEM, ROWS_OUT, (), 1),
        DmaDescriptor(VMEM, HBM, ROWS_OUT, (), 1),
    ]
    body = [load, *compute, builder.finish("store")]
    kernel = Kernel("k", 0, windows, copies, body, flags=1)
    made = Program("v5e", {"k": kernel}, [Call("k")], [], [], HBM_BYTES, 1024)
    check_program(made, CHIP)
    return made


def contents() -> np.ndarray:
    """Special words in the first column, anything else beside them."""
    words = np.random.default_rng(3).integers(0, 2**32, (ROWS_IN, 128), np.uint32)
    words[:, 0] = np.resize(SPECIAL_WORDS, ROWS_IN)
    return words


def outputs(made: Program, words: np.ndarray) -> list[np.ndarray]:
    first = OUT_GRANULE * 128
    memories = run_both(made, words.tobytes())
    return [memory[first : first + ROWS_OUT * 128].reshape(ROWS_OUT, 128) for memory in memories]


def test_every_word_comes_as_it_is() -> None:
    """NaNs keep their bits, -0 its sign, and denormals are not flushed."""
    builder = BlockBuilder(CHIP)
    builder.emit("vld", 1, 0, 5, 0, 1)
    builder.emit("vtos", 2, 1)
    builder.emit("vsplat", 3, 2)
    builder.emit("vst", 1, 5, 0, 0, 3)
    words = contents()
    for found in outputs(program(Loop(ROWS_OUT - 7, 5, [builder.finish("word")])), words):
        assert (found[: ROWS_OUT - 7] == words[: ROWS_OUT - 7, :1]).all()


def test_what_is_in_queues_and_registers_outlives_a_word() -> None:
    builder = BlockBuilder(CHIP)
    builder.emit("vld", 1, 0, 0, 0, 1)
    builder.emit("vcmp.lt.s32", 1, 1, 1)
    builder.emit("vrot.slane", 1, 0, 3)
    builder.emit("vtos", 2, 1)
    builder.emit("vpop.xlu", 4)
    builder.emit("vtos", 3, 4)
    builder.emit("sadd.s32", 6, 2, 3)
    builder.emit("vsplat", 5, 6)
    builder.emit("vsel", 5, 1, 1, 5)
    builder.emit("vst", 1, 0, 0, 1, 5)
    builder.emit("vst", 1, 0, 8, 1, 4)
    words = contents()
    for found in outputs(program(builder.finish("words")), words):
        rotated = np.roll(words[:8], 3, axis=0)
        assert (found[:8] == words[0, 0] + rotated[0, 0]).all()
        assert (found[8:16] == rotated).all()


def test_a_bundle_reads_its_vreg_before_it_writes_it() -> None:
    def bundle(*instrs: tuple[str, tuple[int, ...]]) -> tuple[Instr, ...]:
        return tuple(Instr(ROWS[name], operands) for name, operands in instrs)

    wait = [()] * CHIP.latency("to_scalar")
    block = Block(
        [
            bundle(("vld", (1, 0, 0, 0, 1)), ("vld", (2, 0, 0, 8, 1))),
            *wait,
            bundle(("vtos", (1, 1)), ("vmov", (1, 2)), ("vtos", (2, 2)), ("vld", (2, 0, 0, 16, 1))),
            *wait,
            bundle(("vtos", (3, 1)), ("vtos", (4, 2))),
            *wait,
            *(
                step
                for number in range(1, 5)
                for step in (bundle(("vsplat", (4, number))), (), bundle(("vst", (1, 0, number, 0, 4))))
            ),
        ],
        "words",
    )  # fmt: skip
    words = contents()
    for found in outputs(program(block), words):
        assert found[1:5, 5].tolist() == words[[0, 8, 8, 16], 0].tolist()


def test_a_word_decides() -> None:
    """Which branch runs, how often a loop turns, and which row is read."""
    builder = BlockBuilder(CHIP)
    builder.emit("vld", 1, 0, 5, 0, 1)
    builder.emit("vtos", 2, 1)
    test = builder.finish("test")
    branches: list[Block] = []
    for row in (8, 16):
        builder = BlockBuilder(CHIP)
        builder.emit("sandi", 3, 2, 7)
        builder.emit("vld", 1, 0, 3, row, 0)
        builder.emit("vst", 1, 5, 0, 0, 1)
        branches.append(builder.finish(f"row {row}"))
    builder = BlockBuilder(CHIP)
    builder.emit("vld", 1, 0, 0, 4, 1)
    builder.emit("vtos", 8, 1)
    trips = builder.finish("trips")
    builder = BlockBuilder(CHIP)
    builder.emit("vmovi", 1, 77)
    builder.emit("vst", 1, 9, 20, 0, 1)
    count = builder.finish("count")
    words = contents()
    words[:4, 0], words[4, 0] = (3, 0, 0xFFFFFFFF, 0), 9
    body = [Loop(4, 5, [test, If(2, [branches[0]], [branches[1]])]), trips, Loop(-1, 9, [count], 8)]
    for found in outputs(program(*body), words):
        chosen = [words[8 + 3], words[16], words[8 + 7], words[16]]
        assert (found[:4] == chosen).all()
        assert (found[20:29] == 77).all() and (found[29] == words[29]).all()


@pytest.mark.parametrize("is_by_word", [False, True])
def test_a_loop_by_words_is_not_shared_by_threads(is_by_word: bool) -> None:
    """A word is another one in each iteration: here all write the same rows."""
    builder = BlockBuilder(CHIP)
    builder.emit("vld", 1, 0, 5, 0, 1)
    builder.emit("vtos", 2, 1)
    builder.emit("sshli", 6, 5, 3)
    if is_by_word:
        builder.emit("sadd.s32", 6, 6, 2)
    for _ in range(100):
        builder.emit("vst", 1, 6, 0, 1, 1)
    loop = Loop(6, 5, [builder.finish("scatter")], parallel=True)
    words = contents()
    words[:6, 0] = 40 - 8 * np.arange(6)
    made = program(loop)
    plain, _ = outputs(made, words)
    shared = LlvmMachine(CHIP, threads=3, cache=False)
    hbm = HbmMemory(HBM_BYTES)
    hbm.write(0, words.tobytes())
    shared.run(made, hbm)
    first = OUT_GRANULE * 128
    found = hbm.bytes.view(np.uint32)[first : first + ROWS_OUT * 128]
    assert np.array_equal(found, plain.reshape(-1))
    assert shared.prepare(made).translated.has_forks is not is_by_word


def test_it_lands_after_its_latency() -> None:
    latency = CHIP.latency("to_scalar")
    early = [
        (Instr(ROWS["vmovi"], (1, 5)),),
        (),
        (Instr(ROWS["vtos"], (2, 1)),),
        *[()] * (latency - 2),
        (Instr(ROWS["smov"], (3, 2)),),
    ]
    with pytest.raises(HazardError, match="s2 is read 1 cycles before it is ready"):
        program(Block(early, "early"))
    builder = BlockBuilder(CHIP)
    builder.emit("vmovi", 1, 5)
    builder.emit("vtos", 2, 1)
    builder.emit("smov", 3, 2)
    program(builder.finish("in time"))


def test_an_estimate_takes_as_long_where_nothing_is_decided() -> None:
    builder = BlockBuilder(CHIP)
    builder.emit("vld", 1, 0, 5, 0, 1)
    builder.emit("vtos", 2, 1)
    builder.emit("sst", 0, 40, 2)
    made = program(Loop(20, 5, [builder.finish("words")]))
    hbm = HbmMemory(HBM_BYTES)
    hbm.write(0, contents().tobytes())
    run = NumpyMachine(CHIP).run(made, hbm)
    assert llvm_machine().estimate(made) == run
