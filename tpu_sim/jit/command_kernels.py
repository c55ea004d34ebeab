"""Lists of commands as constant data: how translated code runs components and MXU operations.

Code that sets up and makes thousands of calls would take LLVM longer than the work itself. A list is
an array of 64-bit words: most arguments of a command, then for each command a head (kind, number of
arguments, number of the component) and its arguments, at last a head of kind END. An argument is the
number of a base and an offset; its value is the base, taken from an array that the caller fills
(pointers, registers; number 0 holds zero), plus the offset. Or it is an entry of a ring of vregs:
base and the one behind it are the ring and a position in it, the offset is the entry's number from
there, in its low half, and the ring's size (a power of two, as exponent) above.

A fork's lists lie behind an array of their byte offsets. Each is a task (`tpu_sim.jit.fork_join`).
"""

from __future__ import annotations

from enum import IntEnum

from tpu_sim.isa.rows.mxu import PASS_FORMATS
from tpu_sim.jit.context import Word
from tpu_sim.jit.emitter import Emitter
from tpu_sim.jit.fork_join import FORK, MAX_TASKS, TASK_BYTES

_PREFIX = "tpuc_kernel_v1_"
RUN_LIST = _PREFIX + "run_list"
FORK_LISTS = _PREFIX + "fork_lists"
PASS_POINTERS = _PREFIX + "pass_pointers"
"""A table in the order of `PASS_FORMATS`: the forms of the MXU's passes that lists use."""
COMMAND_FUNCTIONS = (RUN_LIST, FORK_LISTS)
COMMAND_DECLARATIONS = f"""
declare void @{RUN_LIST}(ptr, ptr, ptr, ptr)
declare void @{FORK_LISTS}(ptr, ptr, i64, ptr, ptr)
"""

OFFSET_BITS = 48
_RING_BIT = 1 << 63
_RING_SIZE_SHIFT = 32
_VREG_SHIFT = 12
_COUNT_SHIFT, _COMPONENT_SHIFT = 8, 32
_RECORD_BYTES = 24
MAX_BASES = 1 << (63 - OFFSET_BITS)
"""One more than the highest number of a base."""
FORK_BYTES = MAX_TASKS * (TASK_BYTES + _RECORD_BYTES)
"""Of the task memory, what a fork of lists may use."""


class Kind(IntEnum):
    """What a command does; all but components are kernels of the library."""

    END = 0
    COMPONENT = 1
    COPY_VREG = 3
    MATPUSH_TRANSPOSED = 4
    SETTLE_WEIGHTS = 5
    TRANSPOSE = 6
    TRANSPOSE_HALVES = 7
    MATPUSH = 8


PASS_KINDS = {name: 16 + number for number, name in enumerate(PASS_FORMATS)}
"""Commands that are passes of the MXU, by format: they have several forms each."""


def head_word(kind: int, arguments: int, component: int = 0) -> int:
    """The first word of a command."""
    return component << _COMPONENT_SHIFT | arguments << _COUNT_SHIFT | kind


def argument_word(base: int, offset: int) -> int:
    """Base number `base` plus a signed `offset`."""
    return base << OFFSET_BITS | offset & (1 << OFFSET_BITS) - 1


Kernels = dict[Kind, tuple[str, tuple[str, ...]]]
"""By kind of command its kernel's name and types of arguments."""
_PASS_ARGUMENTS = ("ptr",) * 4


def ring_word(base: int, number: int, entries: int) -> int:
    """Entry `number` of a ring from where a position lies."""
    size = entries.bit_length() - 1
    return _RING_BIT | base << OFFSET_BITS | size << _RING_SIZE_SHIFT | number


def command_text(kernels: Kernels) -> str:
    """The functions of this module."""
    return "\n".join((_list_function(kernels), _task_function(), _fork_function()))


def _list_function(kernels: Kernels) -> str:
    """Run the commands of a list in order."""
    e = Emitter("q")
    most = e.load("i64", "%list", 8)
    e.do(f"%arguments = alloca i64, i64 {most}, align 8")
    components = e.load("ptr", e.offset("%ctx", int(Word.COMPONENTS) * 8), 8)
    first = e.offset("%list", 8)
    following, run, over = e.new_label(), e.new_label(), e.new_label()
    e.jump(following)
    e.place(following)
    e.do(f"%at = phi ptr [{first}, %entry], [%next, %{run}_end]")
    head = e.load("i64", "%at", 8)
    kind = e.value(f"and i64 {head}, 255")
    shifted = e.value(f"lshr i64 {head}, {_COUNT_SHIFT}")
    count = e.value(f"and i64 {shifted}, {(1 << _COMPONENT_SHIFT - _COUNT_SHIFT) - 1}")
    e.branch(e.value(f"icmp eq i64 {kind}, {int(Kind.END)}"), over, run)
    e.place(run)
    words = e.offset("%at", 8)
    e.do(f"%next = getelementptr i64, ptr {words}, i64 {count}")
    with e.loop(count) as number:
        _resolve(e, words, number)
    numbers = [*map(int, kernels), *PASS_KINDS.values()]
    cases = " ".join(f"i64 {number}, label %{run}_{number}" for number in numbers)
    e.do(f"switch i64 {kind}, label %{run}_component [ {cases} ]")
    e.place(f"{run}_component")
    index = e.value(f"lshr i64 {head}, {_COMPONENT_SHIFT}")
    entry = e.value(f"getelementptr ptr, ptr {components}, i64 {index}")
    e.do(f"call void {e.load('ptr', entry, 8)}(ptr %arguments, ptr %scratch)")
    e.jump(f"{run}_end")
    for one, (name, types) in kernels.items():
        e.place(f"{run}_{int(one)}")
        _call(e, f"@{name}", types)
        e.jump(f"{run}_end")
    for position, one_pass in enumerate(PASS_KINDS.values()):
        e.place(f"{run}_{one_pass}")
        _call(e, e.load("ptr", e.offset(f"@{PASS_POINTERS}", 8 * position), 8), _PASS_ARGUMENTS)
        e.jump(f"{run}_end")
    e.place(f"{run}_end")
    e.jump(following)
    e.place(over)
    header = f"void @{RUN_LIST}(ptr %ctx, ptr %list, ptr %bases, ptr %scratch)"
    table = f"@{PASS_POINTERS} = global [{len(PASS_KINDS)} x ptr] zeroinitializer\n"
    return f"{table}define {header} #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"


def _call(e: Emitter, function: str, types: tuple[str, ...]) -> None:
    places = [e.offset("%arguments", 8 * n) for n in range(len(types))]
    values = [f"{t} {e.load(t, place, 8)}" for t, place in zip(types, places, strict=True)]
    e.do(f"call void {function}({', '.join(values)})")


def _resolve(e: Emitter, words: str, number: str) -> None:
    """Write the value of an argument."""
    word = e.load("i64", e.value(f"getelementptr i64, ptr {words}, i64 {number}"), 8)
    base = e.value(f"and i64 {e.value(f'lshr i64 {word}, {OFFSET_BITS}')}, {MAX_BASES - 1}")
    high = e.value(f"shl i64 {word}, {64 - OFFSET_BITS}")
    plain = e.value(f"ashr i64 {high}, {64 - OFFSET_BITS}")
    base_at = e.value(f"getelementptr i64, ptr %bases, i64 {base}")
    position = e.load("i64", e.offset(base_at, 8), 8)
    moved = e.value(f"add i64 {position}, {e.value(f'and i64 {word}, {(1 << 32) - 1}')}")
    size = e.value(f"and i64 {e.value(f'lshr i64 {word}, {_RING_SIZE_SHIFT}')}, 63")
    outside = e.value(f"shl i64 -1, {size}")
    entry = e.value(f"and i64 {moved}, {e.value(f'xor i64 {outside}, -1')}")
    in_ring = e.value(f"shl i64 {entry}, {_VREG_SHIFT}")
    is_ring = e.value(f"icmp slt i64 {word}, 0")
    offset = e.value(f"select i1 {is_ring}, i64 {in_ring}, i64 {plain}")
    total = e.value(f"add i64 {e.load('i64', base_at, 8)}, {offset}")
    e.store("i64", total, e.value(f"getelementptr i64, ptr %arguments, i64 {number}"), 8)


def _task_function() -> str:
    """A task: context, list and bases of a command list."""
    e = Emitter("q")
    words = [e.load("ptr", e.offset("%record", 8 * n), 8) for n in range(3)]
    pointers = ", ".join(f"ptr {word}" for word in words)
    e.do(f"call void @{RUN_LIST}({pointers}, ptr %scratch)")
    return (
        f"define internal void @list_task(ptr %record, ptr %scratch) #0 {{\nentry:\n{e.text()}\n"
        " ret void\n}\n"
    )


def _fork_function() -> str:
    """Fork over the `count` lists of a table."""
    e = Emitter("q")
    tasks = e.load("ptr", e.offset("%ctx", int(Word.TASKS) * 8), 8)
    records = e.offset(tasks, MAX_TASKS * TASK_BYTES)
    with e.loop("%count") as number:
        at = e.value(f"getelementptr i64, ptr %table, i64 {number}")
        start = e.value(f"getelementptr i8, ptr %table, i64 {e.load('i64', at, 8)}")
        record = e.offset(records, e.value(f"mul i64 {number}, {_RECORD_BYTES}"))
        for position, word in enumerate(("%ctx", start, "%bases")):
            e.store("ptr", word, e.offset(record, 8 * position), 8)
        task = e.offset(tasks, e.value(f"mul i64 {number}, {TASK_BYTES}"))
        e.store("ptr", "@list_task", task, 8)
        e.store("ptr", record, e.offset(task, 8), 8)
    e.do(f"call void @{FORK}(ptr %ctx, i64 %count, ptr %scratch)")
    header = f"void @{FORK_LISTS}(ptr %ctx, ptr %table, i64 %count, ptr %bases, ptr %scratch)"
    return f"define {header} #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"
