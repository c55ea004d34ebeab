"""The native side of repeated calls: what one cost is kept in a row (`RepeatWord`), and recalled.

`RECALL` compares the times that a call finds with those that the call before it at this place found,
and puts what that one cost and left into the context. Where they differ it keeps what this call finds, and
`REMEMBER` adds what it cost when it is over. Times are kept as they are seen from the begin of the call;
one that has passed by then is as good as any other that has.
"""

from __future__ import annotations

from tpu_sim.isa.causes import Cause
from tpu_sim.jit.context import REPEAT_FLAG_WORDS, REPEAT_FLAGS, RepeatWord, Word
from tpu_sim.jit.kernel_builtins import Words
from tpu_sim.jit.kernel_language import kernel

RECALL = "tpuc_kernel_v1_recall_call"
REMEMBER = "tpuc_kernel_v1_remember_call"
_CAUSES = len(Cause)
_DONE_BEFORE, _CAUSE_BEFORE, _DONE_AFTER, _CAUSE_AFTER = range(REPEAT_FLAG_WORDS)


def _flag_row(flag: int) -> int:
    return REPEAT_FLAGS + REPEAT_FLAG_WORDS * flag


@kernel(RECALL)
def recall(ctx: Words, row: Words) -> int:
    """1 if the call that begins goes as one before did: it is over then, but for its record. Else 0.

    A call is counted in full where a run is to pause in it, or at the call behind it, and while flags
    wait for other cores.
    """
    start = ctx[Word.CALL_START]
    is_same = row[RepeatWord.IS_KNOWN]
    is_plain = 1
    engine = max(ctx[Word.DMA_FREE] - start, 0)
    if engine != row[RepeatWord.ENGINE_BEFORE]:
        is_same = 0
    row[RepeatWord.ENGINE_BEFORE] = engine
    for flag in range(row[RepeatWord.FLAGS]):
        at = _flag_row(flag)
        done = max(ctx[Word.FLAG_DONE + flag] - start, 0)
        cause = ctx[Word.FLAG_CAUSE + flag]
        if done != row[at + _DONE_BEFORE]:
            is_same = 0
        if cause != row[at + _CAUSE_BEFORE]:
            is_same = 0
        if ctx[Word.FLAG_PENDING + flag] != 0:
            is_plain = 0
        row[at + _DONE_BEFORE] = done
        row[at + _CAUSE_BEFORE] = cause
    if is_plain == 0:
        is_same = 0
    row[RepeatWord.IS_KNOWN] = is_same
    row[RepeatWord.START] = start if is_plain != 0 else -1
    if start + row[RepeatWord.CYCLES] >= ctx[Word.UNTIL]:
        is_same = 0
    if ctx[Word.RECORD_COUNT] + 1 >= ctx[Word.UNTIL_CALL]:
        is_same = 0
    if is_same != 0:
        _put(ctx, row)
    return is_same


def _put(ctx: Words, row: Words) -> None:
    """What the remembered call cost, and the times that it leaves."""
    start = ctx[Word.CALL_START]
    ctx[Word.NOW] = start + row[RepeatWord.CYCLES]
    ctx[Word.MXU_PASSES] = row[RepeatWord.MXU_PASSES]
    ctx[Word.DMA_WAIT] = row[RepeatWord.DMA_WAIT]
    ctx[Word.HBM_BYTES] = row[RepeatWord.HBM_BYTES]
    for cause in range(_CAUSES):
        ctx[Word.CAUSES + cause] = row[RepeatWord.CAUSES + cause]
    if row[RepeatWord.ENGINE_AFTER] > 0:
        ctx[Word.DMA_FREE] = start + row[RepeatWord.ENGINE_AFTER]
    for flag in range(row[RepeatWord.FLAGS]):
        at = _flag_row(flag)
        if row[at + _DONE_AFTER] > 0:
            ctx[Word.FLAG_DONE + flag] = start + row[at + _DONE_AFTER]
        ctx[Word.FLAG_CAUSE + flag] = row[at + _CAUSE_AFTER]


@kernel(REMEMBER)
def remember(ctx: Words, row: Words) -> None:
    """Keep what the call that is over cost, if its begin was seen."""
    start = ctx[Word.CALL_START]
    if row[RepeatWord.START] == start:
        row[RepeatWord.IS_KNOWN] = 1
        row[RepeatWord.CYCLES] = ctx[Word.NOW] - start
        row[RepeatWord.MXU_PASSES] = ctx[Word.MXU_PASSES]
        row[RepeatWord.DMA_WAIT] = ctx[Word.DMA_WAIT]
        row[RepeatWord.HBM_BYTES] = ctx[Word.HBM_BYTES]
        for cause in range(_CAUSES):
            row[RepeatWord.CAUSES + cause] = ctx[Word.CAUSES + cause]
        row[RepeatWord.ENGINE_AFTER] = max(ctx[Word.DMA_FREE] - start, 0)
        for flag in range(row[RepeatWord.FLAGS]):
            at = _flag_row(flag)
            row[at + _DONE_AFTER] = max(ctx[Word.FLAG_DONE + flag] - start, 0)
            row[at + _CAUSE_AFTER] = ctx[Word.FLAG_CAUSE + flag]


KERNELS = (recall, remember)
