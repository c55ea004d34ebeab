"""Ranges of a loop's iterations as tasks: the kernel of the library that runs one.

A loop that threads may share is a function of its own (`tpu_sim.jit.scope.LoopScope`), which works on
the state that it is given: the core's, or one of a thread's own, in which a range counts for itself.
"""

from __future__ import annotations

from enum import IntEnum

from tpu_sim.jit.clock_kernels import TALLY_WORDS
from tpu_sim.jit.context import OWN_STATE, Word
from tpu_sim.jit.emitter import Emitter
from tpu_sim.machine.schema import MAX_SREGS

RUN_RANGE = "tpuc_kernel_v1_run_range"
RANGE_DECLARATION = f"declare void @{RUN_RANGE}(ptr, ptr)\n"
_NEVER = (1 << 63) - 1


class RangeWord(IntEnum):
    """The arguments of a range, and behind them room for what it gives back."""

    CONTEXT = 0
    FUNCTION = 1  # of the loop
    FIRST = 2
    END = 3
    COUNTER = 4  # the number of the loop's counter
    TEST = 5  # the node to begin with
    TRIP = 6  # iterations of the whole loop
    STATUS = 7  # 0, or the fault site
    TALLY = 8


RANGE_WORDS = RangeWord.TALLY + TALLY_WORDS


def range_text() -> str:
    """``run_range(arguments, scratch)``; the last range leaves its sregs to the core."""
    e = Emitter("g")
    words = {word: e.offset("%arguments", 8 * word) for word in RangeWord}
    context, function = (
        e.load("ptr", words[w], 8) for w in (RangeWord.CONTEXT, RangeWord.FUNCTION)
    )
    core = e.offset("%scratch", OWN_STATE)
    sregs, own_sregs = (e.offset(base, 8 * Word.SREGS) for base in (context, core))
    size = f"i64 {4 * MAX_SREGS}, i1 false"
    e.do(f"call void @llvm.memset.p0.i64(ptr {core}, i8 0, i64 {8 * TALLY_WORDS}, i1 false)")
    e.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {own_sregs}, ptr {sregs}, {size})")
    e.store("i64", str(_NEVER), e.offset(core, 8 * Word.UNTIL), 8)
    test = e.load("i64", words[RangeWord.TEST], 8)
    e.store("i64", test, e.offset(core, 8 * Word.NODE), 8)
    counter = e.load("i64", words[RangeWord.COUNTER], 8)
    end = e.load("i64", words[RangeWord.END], 8)
    for table, value in (
        (Word.COUNTERS, e.load("i64", words[RangeWord.FIRST], 8)),
        (Word.TRIPS, end),
    ):
        at = e.value(f"getelementptr i64, ptr {e.offset(core, 8 * table)}, i64 {counter}")
        e.store("i64", value, at, 8)
    status = e.value(f"call i32 {function}(ptr {context}, ptr {core}, ptr %scratch)")
    e.store("i64", e.value(f"sext i32 {status} to i64"), words[RangeWord.STATUS], 8)
    tally = f"i64 {8 * TALLY_WORDS}, i1 false"
    e.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {words[RangeWord.TALLY]}, ptr {core}, {tally})")
    trip = e.load("i64", words[RangeWord.TRIP], 8)
    with e.when(e.value(f"icmp eq i64 {end}, {trip}")):
        e.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {sregs}, ptr {own_sregs}, {size})")
    header = f"void @{RUN_RANGE}(ptr %arguments, ptr %scratch)"
    return f"define {header} #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"
