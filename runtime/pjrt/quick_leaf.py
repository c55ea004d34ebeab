"""The native function that runs a small program: arguments in, run, results out, without Python.

`EXECUTE` gets the arguments of `LoadedExecutable_Execute` and a row of words that `runtime.pjrt.quick` fills
once: what the run needs (`QuickWord`), then the tables of `QuickTable`, each as many rows as its count says.
It changes nothing before it knows that it can go through.
"""

from __future__ import annotations

from enum import IntEnum

from runtime.pjrt.blocks import SLOTS
from runtime.pjrt.layouts import structure
from runtime.pjrt.recycling import (
    COUNT,
    FIRST,
    RECYCLE,
    SET_APART,
    TAKE_FIRST,
    recycle,
    set_apart_kept,
    take_first,
)
from tpu_sim.jit.kernel_builtins import Words, copy_bytes, words_at
from tpu_sim.jit.kernel_language import kernel
from tpu_sim.jit.quick_run import QUICK_RUN, QUICK_WORDS, quick_run_text

EXECUTE = "execute_quickly"
_TAKE, _HAND_OUT, _READY = "take_arguments", "hand_out_results", "@done"
_HOST_WORD_BYTES = 8

_ARGUMENTS = structure("LoadedExecutable_Execute")
_LISTS = _ARGUMENTS.argument_lists.offset // _HOST_WORD_BYTES
_COUNT = _ARGUMENTS.num_args.offset // _HOST_WORD_BYTES
_OUTPUTS = _ARGUMENTS.output_lists.offset // _HOST_WORD_BYTES
_EVENTS = _ARGUMENTS.device_complete_events.offset // _HOST_WORD_BYTES
_ADDRESS, _LAYOUT = SLOTS["buffer"]["address"], SLOTS["buffer"]["layout"]
_IS_DELETED = SLOTS["buffer"]["is_deleted"]


class QuickTable(IntEnum):
    """Words behind the run's own: how many there are of each, then where the tables begin."""

    ARGUMENTS = QUICK_WORDS
    RESULTS = QUICK_WORDS + 1
    COPIES_IN = QUICK_WORDS + 2
    COPIES_OUT = QUICK_WORDS + 3
    HANDED_OUT = QUICK_WORDS + 4
    """Whether the last call has results that PJRT may not have heard of."""
    FIRST = QUICK_WORDS + 5


COPY_WORDS = 4
"""A copy: number of the argument or result, offset in it, host address in the program's memory, bytes."""


class Status(IntEnum):
    """What became of a call. After all but `DONE` and `DONE_AND_KEPT` nothing has happened to buffers."""

    DONE = 0
    DONE_AND_KEPT = 1  # and there are blocks that Python is to let go of
    UNPLACED = 2  # an argument has no fixed place, or another layout
    EMPTY = 3  # a stack of results is empty
    BROKEN = 4  # the run came to no end


@kernel(_TAKE)
def take_arguments(a: Words, row: Words) -> int:
    """Copy the arguments to the program's memory; a `Status`."""
    count = row[QuickTable.ARGUMENTS]
    if a[_COUNT] != count:
        return Status.UNPLACED
    handles = a
    if count != 0:
        handles = words_at(words_at(a[_LISTS])[0])
    for number in range(count):
        block = words_at(handles[number])
        is_there = block[_ADDRESS] != 0 and block[_IS_DELETED] == 0
        if not is_there or block[_LAYOUT] != row[QuickTable.FIRST + number]:
            return Status.UNPLACED
    for number in range(row[QuickTable.RESULTS]):
        if words_at(row[QuickTable.FIRST + count + number])[COUNT] == 0:
            return Status.EMPTY
    at = QuickTable.FIRST + count + row[QuickTable.RESULTS]
    for _ in range(row[QuickTable.COPIES_IN]):
        source = words_at(handles[row[at]])[_ADDRESS] + row[at + 1]
        copy_bytes(row[at + 2], source, row[at + 3])
        at += COPY_WORDS
    return Status.DONE


@kernel(_HAND_OUT)
def hand_out_results(a: Words, row: Words, ready: int, kept: Words) -> int:
    """Take buffers from the stacks, copy the results there, hand them over; a `Status`."""
    results = row[QuickTable.RESULTS]
    at = QuickTable.FIRST + row[QuickTable.ARGUMENTS]
    outputs = a
    if results != 0:
        outputs = words_at(words_at(a[_OUTPUTS])[0])
    for number in range(results):
        stack = words_at(row[at + number])
        stack[COUNT] -= 1
        outputs[number] = stack[FIRST + stack[COUNT]]
    row[QuickTable.HANDED_OUT] = 1
    at += results + COPY_WORDS * row[QuickTable.COPIES_IN]
    for _ in range(row[QuickTable.COPIES_OUT]):
        target = words_at(outputs[row[at]])[_ADDRESS] + row[at + 1]
        copy_bytes(target, row[at + 2], row[at + 3])
        at += COPY_WORDS
    if a[_EVENTS] != 0:
        words_at(a[_EVENTS])[0] = ready
    return Status.DONE_AND_KEPT if kept[0] != 0 else Status.DONE


def quick_leaf_text() -> str:
    """The functions as LLVM IR, beside those of `runtime.pjrt.leaves`."""
    names = (recycle, set_apart_kept, take_first, take_arguments, hand_out_results)
    kernels = [one.text() for one in names]
    return "\n".join([_KEPT, *kernels, quick_run_text(), _EXECUTE])


_KEPT = f"""
@kept = global i64 0
@set_apart = global i64 0
define ptr @collect() {{
  %first = call ptr @take()
  %number = ptrtoint ptr %first to i64
  call void @{RECYCLE}(i64 %number, ptr @kept)
  call void @{SET_APART}(ptr @kept, ptr @set_apart)
  ret ptr null
}}
define ptr @next_released() {{
  %number = call i64 @{TAKE_FIRST}(ptr @set_apart)
  %found = inttoptr i64 %number to ptr
  ret ptr %found
}}
"""
_EXECUTE = f"""
define i64 @{EXECUTE}(ptr %a, ptr %row) {{
  %first = call ptr @take()
  %number = ptrtoint ptr %first to i64
  call void @{RECYCLE}(i64 %number, ptr @kept)
  %status = call i64 @{_TAKE}(ptr %a, ptr %row)
  %is_taken = icmp eq i64 %status, {Status.DONE:d}
  br i1 %is_taken, label %run, label %out
run:
  %ended = call i32 @{QUICK_RUN}(ptr %row)
  %is_over = icmp eq i32 %ended, 0
  br i1 %is_over, label %hand, label %broken
hand:
  %ready = ptrtoint ptr {_READY} to i64
  %last = call i64 @{_HAND_OUT}(ptr %a, ptr %row, i64 %ready, ptr @kept)
  ret i64 %last
broken:
  ret i64 {Status.BROKEN:d}
out:
  ret i64 %status
}}
"""
