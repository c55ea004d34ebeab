"""Kernel calls: how native code goes from main to a kernel and back, with nothing on the native stack.

`sequencer_text` is the entry of a program. It calls the function of the body in which the run
stands, which goes on at the node in the context and returns a status: at its end, at a call, at a
border where the run is to pause, or at a fault. What a call costs is counted by `BEGIN_CALL` and
`END_CALL`, functions of the kernel library, which keep the rows of `tpu_sim.machine.result`.
"""

from __future__ import annotations

from tpu_sim.isa.causes import Cause
from tpu_sim.jit.context import Word
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.host_state import ENTER, LEAVE, STATE_BYTES
from tpu_sim.jit.kernel_builtins import Words, words_at
from tpu_sim.jit.kernel_language import kernel
from tpu_sim.jit.repeat_kernels import recall, remember
from tpu_sim.machine.node_table import MAIN
from tpu_sim.machine.result import RECORD_WORDS

BEGIN_CALL = "tpuc_kernel_v1_begin_call"
END_CALL = "tpuc_kernel_v1_end_call"
ENDED, PAUSED, CALLS, WAITS = 0, -1, -2, -3
"""What a function of a body returns, if it is not the number of a fault site."""
_CAUSES = len(Cause)
_COUNTS = 4 + _CAUSES
"""Cycles, passes, cycles in waits, bytes, and cycles by cause."""
_RECORD_BYTES = 8 * RECORD_WORDS
assert 2 + _COUNTS <= RECORD_WORDS


def sequencer_text(name: str, bodies: list[str], components: list[str]) -> str:
    """``i32 name(ctx)``: walks until the run ends, pauses, or faults; see `ENDED`.

    It sets the CPU state that the meanings assume, and the table of the program's components.
    """
    e = FunctionEmitter("e")
    e.store("ptr", "@component_table", _pointer(e, Word.COMPONENTS), 8)
    again, ended, calling, leaving = (e.new_label() for _ in range(4))
    e.do(f"%state = alloca [{STATE_BYTES} x i8], align 64")
    e.do(f"call void @{ENTER.symbol}(ptr %state)")
    e.jump(again)
    e.place(again)
    body = _load(e, Word.BODY)
    function = e.load("ptr", e.value(f"getelementptr ptr, ptr @body_table, i64 {body}"), 8)
    status = e.value(f"call i32 {function}(ptr %ctx)")
    cases = f"i32 {ENDED}, label %{ended} i32 {CALLS}, label %{calling}"
    e.do(f"switch i32 {status}, label %{leaving} [ {cases} ]")
    e.place(calling)
    e.do(f"call void @{BEGIN_CALL}(ptr %ctx)")
    is_past = e.value(f"icmp sge i64 {_load(e, Word.NOW)}, {_load(e, Word.UNTIL)}")
    is_call = e.value(f"icmp sge i64 {_load(e, Word.RECORD_COUNT)}, {_load(e, Word.UNTIL_CALL)}")
    e.branch(e.value(f"or i1 {is_past}, {is_call}"), leaving, again)
    e.place(ended)
    is_over = e.value(f"icmp eq i64 {body}, {MAIN}")
    returning = e.new_label()
    e.branch(is_over, leaving, returning)
    e.place(returning)
    e.do(f"call void @{END_CALL}(ptr %ctx)")
    e.jump(again)
    e.place(leaving)
    edges = f"[{status}, %{again}], [{PAUSED}, %{calling}], [{ENDED}, %{ended}]"
    e.do(f"%left = phi i32 {edges}")
    e.do(f"call void @{LEAVE.symbol}(ptr %state)")
    return (
        f"{_table('body_table', bodies)}{_table('component_table', components)}"
        f"define i32 @{name}(ptr %ctx) noinline #0 {{\nentry:\n{e.text()}\n ret i32 %left\n}}\n"
    )


def _table(name: str, functions: list[str]) -> str:
    pointers = ", ".join(f"ptr @{function}" for function in functions)
    return f"@{name} = internal constant [{len(functions)} x ptr] [{pointers}]\n\n"


@kernel(BEGIN_CALL)
def begin_call(ctx: Words) -> None:
    """Count from here what the call named in the context costs, and charge its overhead; a call of an
    estimate that goes as one before did is over at once."""
    ctx[Word.CALL_START] = ctx[Word.NOW]
    ctx[Word.MXU_PASSES] = 0
    ctx[Word.DMA_WAIT] = 0
    ctx[Word.HBM_BYTES] = 0
    ctx[Word.CORE] = 0
    ctx[Word.CORE_DMA] = ctx[Word.DMA_FREE]
    ctx[Word.CORE_DMA_FREE] = 0
    ctx[Word.CORE_END] = 0
    is_known = 0
    if ctx[Word.REPEATS] != 0:
        table = words_at(ctx[Word.REPEATS])
        if table[ctx[Word.CALL]] != 0:
            is_known = recall(ctx, words_at(table[ctx[Word.CALL]]))
    if is_known != 0:
        _record(ctx)
    else:
        _launch(ctx)


def _launch(ctx: Words) -> None:
    """A core begins its part of the call."""
    overhead = ctx[Word.CALL_CYCLES]
    for cause in range(_CAUSES):
        ctx[Word.CAUSES + cause] = 0
    ctx[Word.CAUSES + Cause.LAUNCH] = overhead
    ctx[Word.NOW] = ctx[Word.CALL_START] + overhead


@kernel(END_CALL)
def end_call(ctx: Words) -> None:
    """A core is through: the next one that has a part of the kernel begins its own, at the time at which
    this one did; behind the last the slowest counts, and the run goes on in main."""
    if ctx[Word.NOW] > ctx[Word.CORE_END]:
        ctx[Word.CORE_END] = ctx[Word.NOW]
        for cause in range(_CAUSES):
            ctx[Word.CORE_CAUSES + cause] = ctx[Word.CAUSES + cause]
    ctx[Word.CORE_DMA_FREE] = max(ctx[Word.CORE_DMA_FREE], ctx[Word.DMA_FREE])
    if ctx[Word.CORE] + 1 < ctx[Word.CORES]:
        ctx[Word.CORE] += 1
        for flag in range(ctx[Word.CORE_FLAGS]):
            ctx[Word.FLAG_DONE + flag] = 0
        ctx[Word.DMA_FREE] = ctx[Word.CORE_DMA]
        ctx[Word.NODE] = 0
        _launch(ctx)
    else:
        _join(ctx)
        if ctx[Word.REPEATS] != 0:
            table = words_at(ctx[Word.REPEATS])
            if table[ctx[Word.CALL]] != 0:
                remember(ctx, words_at(table[ctx[Word.CALL]]))
        _record(ctx)


def _join(ctx: Words) -> None:
    """The kernel is over when its slowest core is through and that is known."""
    ctx[Word.NOW] = ctx[Word.CORE_END]
    ctx[Word.DMA_FREE] = ctx[Word.CORE_DMA_FREE]
    for cause in range(_CAUSES):
        ctx[Word.CAUSES + cause] = ctx[Word.CORE_CAUSES + cause]
    if ctx[Word.CORES] > 1:
        ctx[Word.NOW] += ctx[Word.JOIN_CYCLES]
        ctx[Word.CAUSES + Cause.LATENCY] += ctx[Word.JOIN_CYCLES]
    ctx[Word.CORE] = 0


def _record(ctx: Words) -> None:
    """Keep a record of the call, or add it to the calls that have none, and go on behind it in main."""
    count = ctx[Word.RECORD_COUNT]
    ctx[Word.RECORD_COUNT] = count + 1
    ctx[Word.BODY] = MAIN
    ctx[Word.NODE] = ctx[Word.RETURN_NODE]
    start = ctx[Word.CALL_START]
    if count < ctx[Word.MOST_RECORDS]:
        row = words_at(ctx[Word.RECORDS] + count * _RECORD_BYTES)
        row[0] = ctx[Word.CALL]
        row[1] = start
        for word in range(_COUNTS):
            row[2 + word] = 0
    else:
        row = words_at(ctx[Word.TOTALS] + ctx[Word.CALL] * _RECORD_BYTES)
        if row[0] == 0:
            row[1] = start
        row[0] += 1
    row[2] += ctx[Word.NOW] - start
    row[3] += ctx[Word.MXU_PASSES]
    row[4] += ctx[Word.DMA_WAIT]
    row[5] += ctx[Word.HBM_BYTES]
    for cause in range(_CAUSES):
        row[6 + cause] += ctx[Word.CAUSES + cause]


KERNELS = (begin_call, end_call)


def _pointer(e: FunctionEmitter, word: int) -> str:
    return e.offset("%ctx", int(word) * 8)


def _load(e: FunctionEmitter, word: int) -> str:
    return e.load("i64", _pointer(e, word), 8)
