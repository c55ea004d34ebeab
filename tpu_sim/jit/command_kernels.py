"""Lists of commands as constant data: how translated code runs components and MXU operations.

Code that sets up and makes thousands of calls would take LLVM longer than the work itself. A list is
an array of 64-bit words: most arguments of a command, then for each command a head (kind, number of
arguments, number of the component) and its arguments, at last a head of kind END. An argument is the
number of a base and an offset; its value is the base, taken from an array that the caller fills
(pointers, registers; number 0 holds zero), plus the offset. Or it is in a window whose data lie in
pieces: the base behind is the gap between two, the offset is rows, in its low half, and the number of
the piece above. Or it is a result in the ring of an MXU, whose number stands for the base: its number
from the oldest one, in the low half, and the ring's size (a power of two, as exponent) above. Or it is
in a weight block of an MXU, active or shadow when the command runs. Where results start and which block
is active stands in the context, and commands change it in their turn.

A fork's lists lie behind an array of their byte offsets. Each is a task (`tpu_sim.jit.fork_join`).
"""

from __future__ import annotations

from enum import IntEnum

from tpu_sim.isa.geometry import ROW_BYTES
from tpu_sim.isa.rows.mxu import PASS_FORMATS
from tpu_sim.jit.context import WEIGHT_BYTES, Word
from tpu_sim.jit.fork_join import MAX_TASKS, TASK_BYTES, TASK_WORDS, fork
from tpu_sim.jit.kernel_builtins import (
    Native,
    Words,
    WordTable,
    address_of,
    call_at,
    local_words,
    words_at,
)
from tpu_sim.jit.kernel_language import kernel

_PREFIX = "tpuc_kernel_v1_"
RUN_LIST = _PREFIX + "run_list"
FORK_LISTS = _PREFIX + "fork_lists"
MATPUSH = Native(_PREFIX + "matpush", ("ptr", "ptr"))
MATPUSH_TRANSPOSED = Native(_PREFIX + "matpush_transposed", ("ptr", "ptr"))
SETTLE_WEIGHTS = Native(_PREFIX + "settle_weights", ("ptr", "i64"))
TRANSPOSE = Native(_PREFIX + "transpose", ("ptr", "ptr"))
TRANSPOSE_HALVES = Native(_PREFIX + "transpose_halves", ("ptr", "ptr"))
COPY_VREG = Native(_PREFIX + "copy_vreg", ("ptr", "ptr"))
PASS_POINTERS = WordTable(_PREFIX + "pass_pointers", len(PASS_FORMATS))
"""In the order of `PASS_FORMATS`: the forms of the MXU's passes that lists use."""

OFFSET_BITS = 48
_RING_BIT = 1 << 63
_RING_SIZE_SHIFT = 32
_VREG_SHIFT = 12
_COUNT_SHIFT, _COMPONENT_SHIFT = 8, 32
_COUNT_MASK = (1 << _COMPONENT_SHIFT - _COUNT_SHIFT) - 1
_LOW_HALF = (1 << 32) - 1
_OFFSET_SIGN = 1 << OFFSET_BITS - 1
_PIECE_BIT = 1 << 62
_PIECE_SHIFT = 24
_UNIT_SHIFT, _SHADOW_SHIFT = 40, 32
_ROWS_SIGN = 1 << _PIECE_SHIFT - 1
_RECORD_WORDS = 3
MAX_BASES = 1 << (62 - OFFSET_BITS)
"""One more than the highest number of a base."""
FORK_BYTES = MAX_TASKS * (TASK_BYTES + 8 * _RECORD_WORDS)
"""Of the task memory, what a fork of lists may use."""


class CommandKind(IntEnum):
    """What a command does; all but components are kernels of the library."""

    END = 0
    COMPONENT = 1
    NOTE_PUSHES = 2  # of an MXU's weights, as bits
    COPY_VREG = 3
    MATPUSH_TRANSPOSED = 4
    SETTLE_WEIGHTS = 5
    TRANSPOSE = 6
    TRANSPOSE_HALVES = 7
    MATPUSH = 8
    SWAP_WEIGHTS = 9
    SET_HEAD = 10  # where an MXU's results start; or how much further
    MOVE_HEAD = 11


_FIRST_PASS = 16
PASS_KINDS = {name: _FIRST_PASS + number for number, name in enumerate(PASS_FORMATS)}
"""Commands that are passes of the MXU, by format: they have several forms each."""


def head_word(kind: int, arguments: int, component: int = 0) -> int:
    """The first word of a command."""
    return component << _COMPONENT_SHIFT | arguments << _COUNT_SHIFT | kind


def argument_word(base: int, offset: int) -> int:
    """Base number `base` plus a signed `offset`."""
    return base << OFFSET_BITS | offset & (1 << OFFSET_BITS) - 1


def ring_word(unit: int, number: int, entries: int) -> int:
    """Result `number` of a unit, from its oldest one."""
    size = entries.bit_length() - 1
    return _RING_BIT | unit << OFFSET_BITS | size << _RING_SIZE_SHIFT | number


def weights_word(unit: int, is_shadow: bool, offset: int) -> int:
    """Bytes from the start of a unit's active or shadow weights."""
    return _PIECE_BIT | unit << _UNIT_SHIFT | is_shadow << _SHADOW_SHIFT | offset


def piece_word(base: int, number: int, rows: int) -> int:
    """Rows from where a window's data would start, `number` gaps between its pieces further on."""
    low = (1 << _PIECE_SHIFT) - 1
    return _PIECE_BIT | base << OFFSET_BITS | (number & low) << _PIECE_SHIFT | rows & low


def _argument(word: int, ctx: Words, bases: Words) -> int:
    """The value of an argument."""
    at = word >> OFFSET_BITS & MAX_BASES - 1
    value = 0
    if word < 0:
        size = word >> _RING_SIZE_SHIFT & 63
        entry = ctx[Word.HEAD + at] + (word & _LOW_HALF) & (1 << size) - 1
        value = ctx[Word.RESULTS] + ((at << size) + entry << _VREG_SHIFT)
    elif word & _PIECE_BIT == 0:
        value = bases[at] + (word & (1 << OFFSET_BITS) - 1 ^ _OFFSET_SIGN) - _OFFSET_SIGN
    elif at != 0:
        rows = (word & (1 << _PIECE_SHIFT) - 1 ^ _ROWS_SIGN) - _ROWS_SIGN
        number = (word >> _PIECE_SHIFT & (1 << _PIECE_SHIFT) - 1 ^ _ROWS_SIGN) - _ROWS_SIGN
        value = bases[at] + bases[at + 1] * number + rows * ROW_BYTES
    else:
        unit = word >> _UNIT_SHIFT & 255
        block = 2 * unit + (ctx[Word.ACTIVE + unit] ^ word >> _SHADOW_SHIFT & 1)
        value = ctx[Word.WEIGHTS] + block * WEIGHT_BYTES + (word & _LOW_HALF)
    return value


@kernel(RUN_LIST)
def run_list(ctx: Words, commands: Words, bases: Words, scratch: Words) -> None:
    """Run the commands of a list in order."""
    arguments = local_words(commands[0])
    components = words_at(ctx[Word.COMPONENTS])
    at = 1
    while True:
        head = commands[at]
        kind = head & 255
        count = head >> _COUNT_SHIFT & _COUNT_MASK
        for number in range(count):
            arguments[number] = _argument(commands[at + 1 + number], ctx, bases)
        at += 1 + count
        if kind == CommandKind.COMPONENT:
            call_at(components[head >> _COMPONENT_SHIFT], arguments, scratch)
        elif kind >= _FIRST_PASS:
            form = PASS_POINTERS[kind - _FIRST_PASS]
            call_at(form, arguments[0], arguments[1], arguments[2], arguments[3])
        elif kind == CommandKind.COPY_VREG:
            COPY_VREG(arguments[0], arguments[1])
        elif kind == CommandKind.MATPUSH:
            MATPUSH(arguments[0], arguments[1])
        elif kind == CommandKind.MATPUSH_TRANSPOSED:
            MATPUSH_TRANSPOSED(arguments[0], arguments[1])
        elif kind == CommandKind.SETTLE_WEIGHTS:
            SETTLE_WEIGHTS(arguments[0], ctx[Word.PUSHES + arguments[1]])
        elif kind == CommandKind.SWAP_WEIGHTS:
            ctx[Word.ACTIVE + arguments[0]] ^= 1
            ctx[Word.PUSHES + arguments[0]] = 0
        elif kind == CommandKind.NOTE_PUSHES:
            ctx[Word.PUSHES + arguments[0]] |= arguments[1]
        elif kind == CommandKind.MOVE_HEAD:
            ctx[Word.HEAD + arguments[0]] += arguments[1]
        elif kind == CommandKind.SET_HEAD:
            ctx[Word.HEAD + arguments[0]] = arguments[1]
        elif kind == CommandKind.TRANSPOSE:
            TRANSPOSE(arguments[0], arguments[1])
        elif kind == CommandKind.TRANSPOSE_HALVES:
            TRANSPOSE_HALVES(arguments[0], arguments[1])
        elif kind == CommandKind.END:
            return


@kernel(_PREFIX + "list_task")
def list_task(record: Words, scratch: Words) -> None:
    """A task: context, list and bases of a command list."""
    run_list(words_at(record[0]), words_at(record[1]), words_at(record[2]), scratch)


@kernel(FORK_LISTS)
def fork_lists(ctx: Words, table: Words, count: int, bases: Words, scratch: Words) -> None:
    """Fork over the `count` lists of a table."""
    tasks_at = ctx[Word.TASKS]
    tasks = words_at(tasks_at)
    for number in range(count):
        record = MAX_TASKS * TASK_WORDS + number * _RECORD_WORDS
        tasks[record] = address_of(ctx)
        tasks[record + 1] = address_of(table) + table[number]
        tasks[record + 2] = address_of(bases)
        tasks[TASK_WORDS * number] = address_of(list_task)
        tasks[TASK_WORDS * number + 1] = tasks_at + 8 * record
    fork(ctx, count, scratch)


KERNELS = (run_list, list_task, fork_lists)
