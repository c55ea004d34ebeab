"""Lists of commands, steps of the clock and crossing kernels: what translated code hands over."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.random_programs import BlockBuilder
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.control_flow import Call
from tpu_sim.isa.program import Block, Kernel, Program, Window
from tpu_sim.jit.command_kernels import (
    RUN_LIST,
    CommandKind,
    argument_word,
    head_word,
    piece_word,
    ring_word,
    weights_word,
)
from tpu_sim.jit.commands import CommandList, Commands, Pointer
from tpu_sim.jit.constant_table import ConstantTable
from tpu_sim.jit.context import (
    WEIGHT_BYTES,
    ContextSizes,
    ExecutionContext,
    MachineMemories,
    Word,
)
from tpu_sim.jit.crossing_kernels import crossing_kernel
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.installation import installed_library
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.memory import HbmMemory

CHIP = load_chip("v5e")
VREG_WORDS = 1024
Words = npt.NDArray[np.uint32]


def vregs(count: int) -> Words:
    """Zeroed vregs, aligned as native code wants them."""
    raw = np.zeros(4 * VREG_WORDS * count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + 4 * VREG_WORDS * count].view(np.uint32).reshape(count, VREG_WORDS)


def call(name: str, *arguments: int) -> None:
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * len(arguments))
    function(installed_library(False).address(name))(*arguments)


def new_context() -> ExecutionContext:
    return ExecutionContext(CHIP, MachineMemories(CHIP), ContextSizes(0, 0, 0, 4, 0))


def run_list(bases: list[int], words: list[int], context: ExecutionContext | None = None) -> None:
    context = context or new_context()
    array = np.array([*bases, 0], np.int64)
    data = np.array(words, np.uint64)
    call(RUN_LIST, context.address, data.ctypes.data, array.ctypes.data, 0)


def test_a_list_runs_its_commands_in_order() -> None:
    memory = vregs(4)
    memory[:] = np.arange(4)[:, None]
    commands = CommandList()
    for target, source in ((1, 0), (2, 1), (3, 2)):  # each reads what the one before wrote
        places = [argument_word(1, 4096 * (n - 2)) for n in (target, source)]  # offsets of any sign
        commands.add(CommandKind.COPY_VREG, places)
    run_list([0, int(memory[2].ctypes.data)], commands.data())
    assert (memory == 0).all()


def test_results_of_a_unit_lie_in_a_ring_from_where_they_start() -> None:
    context, target = new_context(), vregs(1)
    results = context.memory(Word.RESULTS, np.uint32).reshape(-1, VREG_WORDS)
    results[:8] = np.arange(8)[:, None]
    for unit, position, number in ((0, 0, 0), (0, 3, 2), (1, 1002, 5), (1, 4, 3)):
        context.words[Word.HEAD + unit] = position
        words = [
            2,
            head_word(CommandKind.COPY_VREG, 2),
            argument_word(1, 0),
            ring_word(unit, number, 4),
        ]
        run_list([0, target.ctypes.data], [*words, 0], context)
        assert (target == 4 * unit + (position + number) % 4).all()


def test_weights_are_found_in_the_block_that_is_active_when_a_command_runs() -> None:
    context, target = new_context(), vregs(4)
    weights = context.memory(Word.WEIGHTS, np.uint32).reshape(-1, WEIGHT_BYTES // 4)
    weights[:4] = np.arange(4)[:, None]
    unit, one = argument_word(0, 1), argument_word(0, 3)
    words = [2]
    for number, is_shadow in enumerate((False, True)):
        words += [head_word(CommandKind.COPY_VREG, 2), argument_word(1, 4096 * number)]
        words += [weights_word(1, is_shadow, 0)]
    words += [
        head_word(CommandKind.NOTE_PUSHES, 2),
        unit,
        one,
        head_word(CommandKind.SWAP_WEIGHTS, 1),
        unit,
    ]
    words += [
        head_word(CommandKind.COPY_VREG, 2),
        argument_word(1, 8192),
        weights_word(1, False, 0),
    ]
    words += [
        head_word(CommandKind.MOVE_HEAD, 2),
        unit,
        one,
        head_word(CommandKind.MOVE_HEAD, 2),
        unit,
        one,
        0,
    ]
    run_list([0, target.ctypes.data], words, context)
    assert target[:3, 0].tolist() == [2, 3, 3]
    found = [context.words[word + 1] for word in (Word.ACTIVE, Word.PUSHES, Word.HEAD)]
    assert found == [1, 0, 6]


def test_rows_of_a_window_in_pieces_lie_a_gap_further_on_for_each_piece() -> None:
    memory, target = vregs(8), vregs(1)
    memory[:] = np.arange(8)[:, None]
    at, gap = int(memory[3].ctypes.data), 4096
    for number, rows in ((0, 0), (1, 8), (-1, 0), (-2, 16), (4, -32), (1, -8)):
        words = [
            2,
            head_word(CommandKind.COPY_VREG, 2),
            argument_word(1, 0),
            piece_word(2, number, rows),
        ]
        run_list([0, target.ctypes.data, at, gap], [*words, 0])
        assert (target == 3 + number + rows // 8).all()


def test_commands_run_before_what_follows_and_once() -> None:
    emitter = FunctionEmitter()
    commands = Commands(emitter, ConstantTable("table"))
    assert commands.entry_lines() == []
    commands.add(
        CommandKind.COPY_VREG,
        [commands.pointer(Pointer("%a", 0)), commands.pointer(Pointer("%b", 64))],
    )
    commands.flush()
    commands.flush()
    assert emitter.text().count(f"@{RUN_LIST}(") == 1
    assert "alloca" in commands.entry_lines()[0]


def test_constant_lists_are_kept_once_and_aligned() -> None:
    table = ConstantTable("t")
    assert table.define() == ""
    assert [table.add([1, 2, 3], "I"), table.add([7], "Q"), table.add([1, 2, 3], "I")] == [0, 16, 0]
    assert "[24 x i8]" in table.define() and "align 8" in table.define()


@pytest.mark.parametrize(("stride", "out_stride"), [(64, 64), (512, 64), (64, 512)])
def test_sublanes_are_permuted_with_any_stride(stride: int, out_stride: int) -> None:
    source = np.random.default_rng(stride)
    a, index, out = vregs(1), vregs(1), vregs(1)
    a[0], index[0] = (source.integers(0, 2**32, VREG_WORDS, np.uint32) for _ in range(2))

    def chunks(words: Words, step: int) -> list[Words]:
        return [words[0, k * step // 4 : k * step // 4 + 16] for k in range(8)]

    places = (out.ctypes.data, out_stride, a.ctypes.data, stride, index.ctypes.data, stride)
    call(crossing_kernel("vperm.slane"), *places)
    values, picks = np.stack(chunks(a, stride)), np.stack(chunks(index, stride)) % 8
    expected = np.take_along_axis(values, picks.astype(np.int64), axis=0)
    assert np.array_equal(np.stack(chunks(out, out_stride)), expected)


def test_a_result_may_be_awaited_after_any_number_of_cycles() -> None:
    """More cycles between two steps of the clock than a step can say."""
    builder = BlockBuilder(CHIP)
    builder.emit("vmovi", 1, 0)
    for _ in range(2):
        builder.emit("vmatmul.bf16", 0, 1)
    first = builder.finish("b").bundles
    pops = BlockBuilder(CHIP)
    for _ in range(4):
        pops.emit("vpop.mrf", 2, 0)
    block = Block([*first, *[()] * 66_000, *pops.finish("b").bundles], "b")
    kernel = Kernel("k", 0, [Window("a", 0, 8)], [], [block])
    program = Program("v5e", {"k": kernel}, [Call("k", "site")], [], [], 4096, 1024)
    native = LlvmMachine(CHIP, cache=False).run(program, HbmMemory(4096))
    assert native == NumpyMachine(CHIP).run(program, HbmMemory(4096))
    assert native.cycles > 66_000
