"""Kernel calls: how native code goes from main to a kernel and back, with nothing on the native stack.

`sequencer_text` is the entry of a program. It calls the function of the body in which the run
stands, which goes on at the node in the context and returns a status: at its end, at a call, at a
border where the run is to pause, or at a fault. What a call costs is counted by `BEGIN_CALL` and
`END_CALL`, functions of the kernel library, which keep the rows of `tpu_sim.machine.result`.
"""

from __future__ import annotations

from tpu_sim.isa.causes import Cause
from tpu_sim.jit.context import Word
from tpu_sim.jit.emitter import Emitter
from tpu_sim.jit.host_state import ENTER, LEAVE, STATE_BYTES
from tpu_sim.machine.node_table import MAIN
from tpu_sim.machine.result import RECORD_WORDS

BEGIN_CALL = "tpuc_kernel_v1_begin_call"
END_CALL = "tpuc_kernel_v1_end_call"
CALL_FUNCTIONS = (BEGIN_CALL, END_CALL)
CALL_DECLARATIONS = f"""
declare void @{BEGIN_CALL}(ptr)
declare void @{END_CALL}(ptr)
"""
ENDED, PAUSED, CALLS, WAITS = 0, -1, -2, -3
"""What a function of a body returns, if it is not the number of a fault site."""
_COUNTERS = (
    *(int(word) for word in (Word.MXU_PASSES, Word.DMA_WAIT, Word.HBM_BYTES)),
    *(Word.CAUSES + cause for cause in Cause),
)
assert 3 + len(_COUNTERS) <= RECORD_WORDS


def sequencer_text(name: str, bodies: list[str], components: list[str]) -> str:
    """``i32 name(ctx)``: walks until the run ends, pauses, or faults; see `ENDED`.

    It sets the CPU state that the meanings assume, and the table of the program's components.
    """
    e = Emitter("e")
    e.store("ptr", "@component_table", _pointer(e, Word.COMPONENTS), 8)
    again, ended, calling, leaving = (e.new_label() for _ in range(4))
    e.do(f"%state = alloca [{STATE_BYTES} x i8], align 64")
    e.do(f"call void @{ENTER}(ptr %state)")
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
    e.branch(is_past, leaving, again)
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
    e.do(f"call void @{LEAVE}(ptr %state)")
    return (
        f"{_table('body_table', bodies)}{_table('component_table', components)}"
        f"define i32 @{name}(ptr %ctx) noinline #0 {{\nentry:\n{e.text()}\n ret i32 %left\n}}\n"
    )


def _table(name: str, functions: list[str]) -> str:
    pointers = ", ".join(f"ptr @{function}" for function in functions)
    return f"@{name} = internal constant [{len(functions)} x ptr] [{pointers}]\n\n"


def calls_text() -> str:
    """``begin_call(ctx)`` and ``end_call(ctx)``."""
    return "\n".join((_begin_call(), _end_call()))


def _begin_call() -> str:
    """Count from here what the call named in the context costs, and charge its overhead."""
    e = Emitter("r")
    now, overhead = _load(e, Word.NOW), _load(e, Word.CALL_CYCLES)
    _store(e, Word.CALL_START, now)
    for word in _COUNTERS:
        _store(e, word, "0")
    _store(e, Word.CAUSES + Cause.LAUNCH, overhead)
    _store(e, Word.NOW, e.value(f"add i64 {now}, {overhead}"))
    return f"define void @{BEGIN_CALL}(ptr %ctx) #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"


def _end_call() -> str:
    """Keep a record of the call, and go on behind it in main."""
    e = Emitter("r")
    count, call, start = (_load(e, w) for w in (Word.RECORD_COUNT, Word.CALL, Word.CALL_START))
    _store(e, Word.RECORD_COUNT, e.value(f"add i64 {count}, 1"))
    _store(e, Word.BODY, str(MAIN))
    _store(e, Word.NODE, _load(e, Word.RETURN_NODE))
    gains = [e.value(f"sub i64 {_load(e, Word.NOW)}, {start}")]
    gains += [_load(e, word) for word in _COUNTERS]
    single, total, following = e.new_label(), e.new_label(), e.new_label()
    e.branch(e.value(f"icmp ult i64 {count}, {_load(e, Word.MOST_RECORDS)}"), single, total)
    e.place(single)
    record = _row(e, Word.RECORDS, count)
    for position, value in enumerate([call, start, *gains]):
        e.store("i64", value, e.offset(record, position * 8), 8)
    e.jump(following)
    e.place(total)
    _add_up(e, _row(e, Word.TOTALS, call), start, gains)
    e.jump(following)
    e.place(following)
    return f"define void @{END_CALL}(ptr %ctx) #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"


def _pointer(e: Emitter, word: int) -> str:
    return e.offset("%ctx", int(word) * 8)


def _load(e: Emitter, word: int) -> str:
    return e.load("i64", _pointer(e, word), 8)


def _store(e: Emitter, word: int, value: str) -> None:
    e.store("i64", value, _pointer(e, word), 8)


def _row(e: Emitter, table: Word, index: str) -> str:
    base = e.load("ptr", _pointer(e, table), 8)
    return e.offset(base, e.value(f"mul i64 {index}, {RECORD_WORDS * 8}"))


def _add_up(e: Emitter, row: str, start: str, gains: list[str]) -> None:
    """One more call in a row of totals."""
    calls, first = e.load("i64", row, 8), e.load("i64", e.offset(row, 8), 8)
    is_first = e.value(f"icmp eq i64 {calls}, 0")
    e.store("i64", e.value(f"add i64 {calls}, 1"), row, 8)
    earliest = e.value(f"select i1 {is_first}, i64 {start}, i64 {first}")
    e.store("i64", earliest, e.offset(row, 8), 8)
    for position, gain in enumerate(gains, 2):
        place = e.offset(row, position * 8)
        e.store("i64", e.value(f"add i64 {e.load('i64', place, 8)}, {gain}"), place, 8)
