"""Short runs from native code: a program's whole run is one call of a function, without Python.

`LlvmMachine.run` prepares a run in Python, which takes longer than a small program does.
`QUICK_RUN` does the same to a row of words (`QuickWord`) that is filled once: the context is set to the
start of main, the program's entry is called, and what a run may have left in SMEM is noted. Whoever calls it
has the machine for himself (`LlvmMachine.begin_quick_run`), and takes any status but `ENDED` as if
nothing had run: a fault is then raised by an ordinary run.
"""

from __future__ import annotations

from enum import IntEnum

from tpu_sim.isa.causes import LOWERED
from tpu_sim.jit.context import Word
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.machine.run import NO_CALL

QUICK_RUN = "tpuc_quick_run"
QUICK_CYCLES = 1 << 18
"""A run of more cycles than this is no quick one, and pauses."""


class QuickWord(IntEnum):
    """Words of the row that `QUICK_RUN` gets."""

    CONTEXT = 0
    ENTRY = 1
    HBM = 2
    HBM_GRANULES = 3
    SMEM_WORDS = 4  # that the program owns
    SMEM_END = 5  # address of the word behind which SMEM is zero (`Memories.end_address`)
    TOTALS_BYTES = 6


QUICK_WORDS = len(QuickWord)


def quick_run_text() -> str:
    """``i32 QUICK_RUN(row)``: runs the program and returns its status (`tpu_sim.jit.calls`)."""
    e = FunctionEmitter("q")
    context = _pointer(e, QuickWord.CONTEXT)
    end = _pointer(e, QuickWord.SMEM_END)
    _clear_smem(e, context, end)
    _clear(e, _pointer_at(e, context, Word.TOTALS), _word(e, QuickWord.TOTALS_BYTES))
    _clear(e, context, str(8 * Word.READY))
    _fill_causes(e, context)
    for word in (Word.TRANSPOSE_INDEX, Word.WINDOW_COUNT, Word.SMEM_END):
        e.store("i64", "0", e.offset(context, 8 * word), 8)
    ends = ((Word.GOAL, QUICK_CYCLES), (Word.UNTIL, QUICK_CYCLES), (Word.UNTIL_CALL, NO_CALL))
    for word, last in ends:
        e.store("i64", str(last), e.offset(context, 8 * word), 8)
    for word, source in ((Word.HBM, QuickWord.HBM), (Word.HBM_GRANULES, QuickWord.HBM_GRANULES)):
        e.store("i64", _word(e, source), e.offset(context, 8 * word), 8)
    status = e.value(f"call i32 {_pointer(e, QuickWord.ENTRY)}(ptr {context})")
    _note_smem(e, context, end)
    return f"define i32 @{QUICK_RUN}(ptr %row) {{\nentry:\n{e.text()}\n ret i32 {status}\n}}\n"


def _fill_causes(e: FunctionEmitter, context: str) -> None:
    first = e.offset(context, 8 * Word.FLAG_CAUSE)
    with e.loop(Word.FLAG_PENDING - Word.FLAG_CAUSE) as flag:
        e.store("i64", str(int(LOWERED)), e.shifted(first, ((flag, 3),)), 8)


def _clear_smem(e: FunctionEmitter, context: str, end: str) -> None:
    """SMEM up to the last word that anybody wrote; from now on the program's own words count as written."""
    owned, before = _word(e, QuickWord.SMEM_WORDS), e.load("i64", end, 8)
    most = _larger(e, owned, before)
    _clear(e, _pointer_at(e, context, Word.SMEM), e.value(f"shl i64 {most}, 2"))
    e.store("i64", owned, end, 8)


def _note_smem(e: FunctionEmitter, context: str, end: str) -> None:
    written = e.load("i64", e.offset(context, 8 * Word.SMEM_END), 8)
    e.store("i64", _larger(e, written, e.load("i64", end, 8)), end, 8)


def _larger(e: FunctionEmitter, a: str, b: str) -> str:
    is_larger = e.value(f"icmp sgt i64 {a}, {b}")
    return e.value(f"select i1 {is_larger}, i64 {a}, i64 {b}")


def _clear(e: FunctionEmitter, pointer: str, size_bytes: str) -> None:
    e.do(f"call void @llvm.memset.p0.i64(ptr {pointer}, i8 0, i64 {size_bytes}, i1 false)")


def _word(e: FunctionEmitter, word: QuickWord) -> str:
    return e.load("i64", e.offset("%row", 8 * word), 8)


def _pointer(e: FunctionEmitter, word: QuickWord) -> str:
    return e.load("ptr", e.offset("%row", 8 * word), 8)


def _pointer_at(e: FunctionEmitter, context: str, word: Word) -> str:
    return e.load("ptr", e.offset(context, 8 * word), 8)
