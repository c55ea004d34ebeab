"""Kernel calls from main: a kernel of the library runs one, charges the call and keeps a record.

A record is: number of the call in the program, start cycle, and what cycles, MXU passes, DMA wait
cycles, HBM bytes and cycles by cause the call added. The first `MOST_RECORDS` calls have one each;
later ones are added up by number of the call: how many, start cycle of the first, and the sums.
"""

from __future__ import annotations

from tpu_sim.isa.causes import Cause
from tpu_sim.jit.context import RECORD_WORDS, Word
from tpu_sim.jit.emitter import Emitter

RUN_CALL = "tpuc_kernel_v1_run_call"
CALL_DECLARATION = f"declare i32 @{RUN_CALL}(ptr, i64, ptr)\n"
PAST_LIMIT = -2
"""A status of the helper that is not the number of a fault site."""
_COUNTERS = (
    *(int(word) for word in (Word.NOW, Word.MXU_PASSES, Word.DMA_WAIT, Word.HBM_BYTES)),
    *(Word.CAUSES + cause for cause in Cause),
)
assert 2 + len(_COUNTERS) <= RECORD_WORDS


def run_call_text() -> str:
    """``run_call(ctx, number, kernel)``: the kernel's fault site, `PAST_LIMIT`, or 0."""
    e = Emitter("r")
    before = [_load(e, word) for word in _COUNTERS]
    overhead = _load(e, Word.CALL_CYCLES)
    for word in (Word.NOW, Word.CAUSES + Cause.LAUNCH):
        start = before[_COUNTERS.index(word)]
        _store(e, word, e.value(f"add i64 {start}, {overhead}"))
    status = e.value("call i32 %kernel(ptr %ctx)")
    _return_if(e, e.value(f"icmp ne i32 {status}, 0"), status)
    _record(e, before)
    past = e.value(f"icmp sgt i64 {_load(e, Word.NOW)}, {_load(e, Word.CYCLE_LIMIT)}")
    _return_if(e, past, str(PAST_LIMIT))
    return (
        f"define i32 @{RUN_CALL}(ptr %ctx, i64 %number, ptr %kernel) #0 {{\nentry:\n"
        f"{e.text()}\n ret i32 0\n}}\n"
    )


def _pointer(e: Emitter, word: int) -> str:
    return e.offset("%ctx", int(word) * 8)


def _load(e: Emitter, word: int) -> str:
    return e.load("i64", _pointer(e, word), 8)


def _store(e: Emitter, word: int, value: str) -> None:
    e.store("i64", value, _pointer(e, word), 8)


def _return_if(e: Emitter, condition: str, status: str) -> None:
    leaving, following = e.new_label(), e.new_label()
    e.branch(condition, leaving, following)
    e.place(leaving)
    e.do(f"ret i32 {status}")
    e.place(following)


def _record(e: Emitter, before: list[str]) -> None:
    count = _load(e, Word.RECORD_COUNT)
    _store(e, Word.RECORD_COUNT, e.value(f"add i64 {count}, 1"))
    gains = [
        e.value(f"sub i64 {_load(e, word)}, {start}")
        for word, start in zip(_COUNTERS, before, strict=True)
    ]
    single, total, following = e.new_label(), e.new_label(), e.new_label()
    most = _load(e, Word.MOST_RECORDS)
    e.branch(e.value(f"icmp ult i64 {count}, {most}"), single, total)
    e.place(single)
    record = _row(e, Word.RECORDS, count)
    for position, value in enumerate(["%number", before[0], *gains]):
        e.store("i64", value, e.offset(record, position * 8), 8)
    e.jump(following)
    e.place(total)
    _add_up(e, _row(e, Word.TOTALS, "%number"), before[0], gains)
    e.jump(following)
    e.place(following)


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
