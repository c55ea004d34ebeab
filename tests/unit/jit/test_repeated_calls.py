"""Which calls of an estimate are remembered, and that remembering them changes nothing."""

from __future__ import annotations

import pytest

from tests.support.random_programs import BlockBuilder
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.control_flow import Call, If, Loop
from tpu_sim.isa.program import HBM, SMEM, VMEM, Block, DmaDescriptor, Kernel, Node, Program, Window
from tpu_sim.jit import program_translator
from tpu_sim.jit.context import (
    CONTEXT_WORDS,
    REPEAT_FLAG_WORDS,
    REPEAT_FLAGS,
    RepeatWord,
    Word,
)
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.jit.repeat_kernels import recall, remember
from tpu_sim.jit.repeated_calls import NOT_REMEMBERED, flags_of_calls, is_repeatable
from tpu_sim.machine.node_table import node_table
from tpu_sim.machine.result import ExecutionResult

CHIP = load_chip("v5e")
COPIES = [DmaDescriptor(HBM, VMEM, 32, (), 0), DmaDescriptor(VMEM, HBM, 32, (), 0)]
ARGUMENT = ("sld", (1, 0, 0))
FETCH = ("dma.start", (0, 1, 0, 0, 0, 0, 0))
WAIT = ("dma.wait", (0, 0))


def block(*instructions: tuple[str, tuple[int, ...]]) -> Block:
    builder = BlockBuilder(CHIP)
    for name, operands in instructions:
        builder.emit(name, *operands)
    return builder.finish("b")


def kernel(body: list[Node], copies: list[DmaDescriptor] | None = None, name: str = "k") -> Kernel:
    return Kernel(name, 0, [Window("a", 0, 64)], copies or COPIES, body)


def test_an_address_in_smem_does_not_matter() -> None:
    assert is_repeatable(kernel([block(ARGUMENT, FETCH, WAIT)]))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param([block(ARGUMENT), Loop(-1, 2, [block(WAIT)], trip_sreg=1)], id="trips"),
        pytest.param([block(ARGUMENT), If(1, [block(WAIT)])], id="branch"),
        pytest.param(
            [block(ARGUMENT, ("saddi.s32", (2, 1, 1))), If(2, [block(WAIT)])], id="branch on a sum"
        ),
        pytest.param(
            [
                block(ARGUMENT),
                If(3, [block(("smovi", (2, 1)))], [block(("smov", (2, 1)))]),
                If(2, []),
            ],
            id="branch on a move",
        ),
        pytest.param(
            [Loop(2, 4, [If(1, [block(WAIT)]), block(ARGUMENT)])], id="branch behind a trip"
        ),
        pytest.param(
            [block(ARGUMENT, ("dma.start", (0, 0, 0, 0, 1, 0, 0)))], id="flag of a transfer"
        ),
        pytest.param(
            [block(ARGUMENT, ("dma.start", (0, 0, 0, 0, 0, 1, 0)))], id="count of a transfer"
        ),
        pytest.param([block(ARGUMENT, ("dma.wait", (0, 1)))], id="flag of a wait"),
        pytest.param([block(("sst", (0, 3, 1)))], id="store"),
    ],
)
def test_what_smem_decides_is_counted_each_time(body: list[Node]) -> None:
    assert not is_repeatable(kernel(body))


def test_a_register_that_is_set_anew_holds_nothing_of_smem() -> None:
    body: list[Node] = [
        block(ARGUMENT, FETCH, ("smovi", (1, 0))),
        If(1, [block(WAIT)]),
        block(ARGUMENT),
        Loop(3, 1, [If(1, [block(WAIT)])]),
    ]
    assert is_repeatable(kernel(body))


def test_transfers_to_smem_are_counted_each_time() -> None:
    assert not is_repeatable(kernel([block(WAIT)], [DmaDescriptor(HBM, SMEM, 1, (), -1)]))


def looped() -> Program:
    """Five trips of two kernels: the second waits for what the first left under way."""
    starts: list[Node] = [block(ARGUMENT, *[FETCH] * 3)]
    ends: list[Node] = [block(WAIT), Loop(4, 2, [block(ARGUMENT, FETCH, WAIT)])]
    asks: list[Node] = [block(ARGUMENT), If(1, [block(FETCH, WAIT)])]
    kernels = {
        name: kernel(body, name=name)
        for name, body in (("starts", starts), ("ends", ends), ("asks", asks))
    }
    trip: list[Node] = [Call("starts", "first"), Call("ends", "second"), Call("asks", "third")]
    main: list[Node] = [Call("ends", "alone"), Loop(5, 3, trip, name="loop")]
    return Program("v5e", kernels, main, [], [], 1 << 18, 1024)


def test_calls_outside_of_loops_are_not_remembered() -> None:
    assert flags_of_calls(node_table(looped(), CHIP)) == (NOT_REMEMBERED, 8, 8, NOT_REMEMBERED)
    alone = looped()
    alone.main = [Call("ends", "alone")]
    assert flags_of_calls(node_table(alone, CHIP)) == ()


def estimated(most_trips: int, remembers: bool) -> ExecutionResult:
    with pytest.MonkeyPatch.context() as patch:
        if not remembers:
            patch.setattr(program_translator, "flags_of_calls", lambda table: ())
        return LlvmMachine(CHIP, cache=False).estimate(looped(), most_trips)


def test_an_estimate_is_the_same_if_no_call_is_remembered() -> None:
    result = estimated(10, remembers=True)
    assert result == estimated(10, remembers=False)
    assert len(result.kernels) == 16
    assert len({run.cycles for run in result.kernels if run.site == "second"}) == 1


def call_at(start: int, done: int) -> list[int]:
    """A context at the begin of a call, with a transfer that is done `done` cycles later."""
    ctx = [0] * CONTEXT_WORDS
    ctx[Word.CALL_START] = start
    ctx[Word.UNTIL] = ctx[Word.UNTIL_CALL] = 1 << 40
    ctx[Word.FLAG_DONE + 1] = ctx[Word.DMA_FREE] = max(0, start + done)
    ctx[Word.FLAG_CAUSE + 1] = Cause.DMA_IN
    return ctx


def seen_call(start: int, done: int) -> list[int]:
    """The row of a call that took 70 cycles and left a transfer of its own, done 90 cycles on."""
    row = [0] * (REPEAT_FLAGS + 2 * REPEAT_FLAG_WORDS)
    row[RepeatWord.FLAGS] = 2
    ctx = call_at(start, done)
    assert recall(ctx, row) == 0
    ctx[Word.NOW] = start + 70
    ctx[Word.HBM_BYTES] = 512
    ctx[Word.CAUSES + Cause.DMA_IN] = 70
    ctx[Word.FLAG_DONE + 0] = start + 90
    ctx[Word.FLAG_CAUSE + 0] = Cause.VECTOR
    remember(ctx, row)
    return row


@pytest.mark.parametrize("done", [-20, 0, 30])
def test_a_call_that_finds_the_same_is_over_at_once(done: int) -> None:
    row = seen_call(100, done)
    ctx = call_at(5000, done)
    assert recall(ctx, row) == 1
    assert (ctx[Word.NOW], ctx[Word.HBM_BYTES], ctx[Word.CAUSES + Cause.DMA_IN]) == (5070, 512, 70)
    assert (ctx[Word.FLAG_DONE], ctx[Word.FLAG_CAUSE]) == (5090, Cause.VECTOR)
    assert ctx[Word.FLAG_DONE + 1] == ctx[Word.DMA_FREE] == 5000 + done


def test_times_that_have_passed_are_alike() -> None:
    assert recall(call_at(5000, -4000), seen_call(100, -20)) == 1


@pytest.mark.parametrize(
    ("word", "value"),
    [
        (Word.FLAG_DONE + 1, 5031),
        (Word.FLAG_DONE, 5001),
        (Word.FLAG_CAUSE, Cause.ICI),
        (Word.FLAG_PENDING, 1),
        (Word.DMA_FREE, 5029),
        (Word.UNTIL, 5070),
        (Word.UNTIL_CALL, 1),
    ],
)
def test_a_call_that_finds_otherwise_is_counted(word: int, value: int) -> None:
    ctx, row = call_at(5000, 30), seen_call(100, 30)
    ctx[word] = value
    assert recall(ctx, row) == 0
    assert ctx[Word.NOW] == 0
