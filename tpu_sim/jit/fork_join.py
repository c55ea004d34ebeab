"""Fork and join over independent calls, as native code: how one core uses several host threads.

The calls of a stage that do not depend on each other (components; runs of different MXUs) are put
into a task table. `FORK` publishes the table in the words of a pool (`PoolWord`) and works through
it; threads inside `WORKER` help. Without a pool the forking thread does all.

A word holds generation, number of tasks, and how many were taken from either end; a task is taken
by a compare-and-swap of that word, so that a thread that comes late, or never, changes nothing but
the time. The forking thread takes tasks from the front and helpers from the back: forks over the
same data then find it in the caches of the threads that touched it before. Results do not depend on
the number of threads, because tasks write different memory.

A task is a function ``(arguments, scratch)`` and the address of its arguments.
"""

from __future__ import annotations

from enum import IntEnum

from tpu_sim.jit.context import Word
from tpu_sim.jit.emitter import Emitter
from tpu_sim.jit.host import Host
from tpu_sim.jit.host_state import ENTER, LEAVE, STATE_BYTES, pause_text

FORK = "tpuc_kernel_v1_fork"
WORKER = "tpuc_kernel_v1_worker"
RUN_COMMANDS = "tpuc_kernel_v1_run_commands"
PUT_TASK = "tpuc_kernel_v1_put_task"
PUT_WORDS = "tpuc_kernel_v1_put_words"
WORDS_AT_ONCE = 8
MAX_TASKS = 1024
TASK_BYTES = 16
COMMAND_WORDS = 5
_FIELD_BITS = 12
_FIELD_MASK = (1 << _FIELD_BITS) - 1
_BACK_SHIFT, _COUNT_SHIFT, _GENERATION_SHIFT = _FIELD_BITS, 2 * _FIELD_BITS, 3 * _FIELD_BITS
_PATIENCE = 1 << 12
"""Looks at the task word before a waiting thread offers its processor to others, a power of two."""
_LINGER = 1 << 10
"""Looks at the task word before a helper goes to sleep between runs."""


class PoolWord(IntEnum):
    """Index of each 64-bit word that a pool of helpers shares; those spun on have lines of their own."""

    STATE = 0
    DONE = 16
    ACTIVE = 32  # whether a run may fork
    TASKS = 48  # the table of the current fork
    SCRATCH = 49  # scratch memory of the forking thread
    SCRATCH_STEP = 50  # bytes from each thread's scratch memory to the next one's


POOL_WORDS = 64


PUT_FUNCTIONS = (
    *(f"{PUT_TASK}{count}" for count in range(WORDS_AT_ONCE + 1)),
    *(f"{PUT_WORDS}{count}" for count in range(1, WORDS_AT_ONCE + 1)),
)
"""Functions that fill the task table, by the number of words they write; see `_put_function`."""


def _put_declarations() -> str:
    words = [", i64" * count for count in range(WORDS_AT_ONCE + 1)]
    lines = [f"declare void @{PUT_TASK}{n}(ptr, i64, i64, ptr{w})" for n, w in enumerate(words)]
    lines += [f"declare void @{PUT_WORDS}{n}(ptr, i64{w})" for n, w in enumerate(words) if n]
    return "\n".join(lines)


FORK_DECLARATIONS = f"""
declare void @{FORK}(ptr, i64, ptr)
declare void @{RUN_COMMANDS}(ptr, ptr)
{_put_declarations()}
"""


def fork_join_text(host: Host) -> str:
    """The functions of this module."""
    functions = (_wait_function(host), _take_function(), _fork_function(), _worker_function())
    puts = [_put_function(n, is_task=True) for n in range(WORDS_AT_ONCE + 1)]
    puts += [_put_function(n, is_task=False) for n in range(1, WORDS_AT_ONCE + 1)]
    return "\n".join((*functions, _run_commands(), *puts))


def _put_function(count: int, *, is_task: bool) -> str:
    """Write `count` words at byte `at` of the table; for a task, its entry at byte `task` too."""
    e = Emitter("f")
    first = e.offset("%tasks", "%at")
    names = [f"%w{n}" for n in range(count)]
    parameters = ["ptr %tasks", "i64 %at"]
    name = f"{PUT_WORDS}{count}"
    if is_task:
        entry = e.offset("%tasks", "%task")
        e.store("ptr", "%function", entry, 8)
        e.store("ptr", first, e.offset(entry, 8), 8)
        parameters = ["ptr %tasks", "i64 %task", "i64 %at", "ptr %function"]
        name = f"{PUT_TASK}{count}"
    for number, word in enumerate(names):
        e.store("i64", word, e.offset(first, 8 * number), 8)
    header = ", ".join([*parameters, *(f"i64 {word}" for word in names)])
    return f"define void @{name}({header}) #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"


def _word(e: Emitter, word: PoolWord) -> str:
    return e.offset("%pool", int(word) * 8)


def _wait_function(host: Host) -> str:
    """A moment's pause; after long waiting another thread may have the processor (and the task)."""
    e = Emitter("f")
    e.do(pause_text(host))
    rounds = e.value(f"add i64 {e.load('i64', '%rounds', 8)}, 1")
    e.store("i64", rounds, "%rounds", 8)
    phase = e.value(f"and i64 {rounds}, {_PATIENCE - 1}")
    with e.when(e.value(f"icmp eq i64 {phase}, 0")):
        e.do("%ignored = call i32 @sched_yield()")
    return (
        "declare i32 @sched_yield()\n"
        f"define internal void @wait_a_moment(ptr %rounds) #0 {{\nentry:\n{e.text()}\n"
        " ret void\n}\n"
    )


def _take_function() -> str:
    """Take and run one task, from the back for helpers: true if there was one to take."""
    e = Emitter("f")
    is_helper = e.value("icmp ne i64 %thread, 0")
    state_at = _word(e, PoolWord.STATE)
    state = e.value(f"load atomic i64, ptr {state_at} acquire, align 8")
    front, back, count = (
        e.value(f"and i64 {e.value(f'lshr i64 {state}, {shift}')}, {_FIELD_MASK}")
        for shift in (0, _BACK_SHIFT, _COUNT_SHIFT)
    )
    taken = e.value(f"add i64 {front}, {back}")
    some, none, won = e.new_label(), e.new_label(), e.new_label()
    e.branch(e.value(f"icmp ult i64 {taken}, {count}"), some, none)
    e.place(some)
    step = e.value(f"select i1 {is_helper}, i64 {1 << _BACK_SHIFT}, i64 1")
    following = e.value(f"add i64 {state}, {step}")
    swap = e.value(f"cmpxchg ptr {state_at}, i64 {state}, i64 {following} acq_rel acquire, align 8")
    e.branch(e.value(f"extractvalue {{ i64, i1 }} {swap}, 1"), won, none)
    e.place(won)
    last = e.value(f"sub i64 {e.value(f'sub i64 {count}, {back}')}, 1")
    number = e.value(f"select i1 {is_helper}, i64 {last}, i64 {front}")
    table = e.load("ptr", _word(e, PoolWord.TASKS), 8)
    task = e.offset(table, e.value(f"mul i64 {number}, {TASK_BYTES}"))
    function, arguments = e.load("ptr", task, 8), e.load("ptr", e.offset(task, 8), 8)
    # pool words are read after the task is won: until it is done its run stays as it is
    scratch = e.load("ptr", _word(e, PoolWord.SCRATCH), 8)
    step = e.load("i64", _word(e, PoolWord.SCRATCH_STEP), 8)
    own = e.offset(scratch, e.value(f"mul i64 {step}, %thread"))
    e.do(f"call void {function}(ptr {arguments}, ptr {own})")
    e.do(f"%done = atomicrmw add ptr {_word(e, PoolWord.DONE)}, i64 1 release, align 8")
    e.do("ret i1 true")
    e.place(none)
    return (
        "define internal i1 @take_task(ptr %pool, i64 %thread) #0 {\nentry:\n"
        f"{e.text()}\n ret i1 false\n}}\n"
    )


def _start_waiting(e: Emitter) -> None:
    """Make the count of rounds that `wait_a_moment` keeps."""
    e.do("%rounds = alloca i64")
    e.store("i64", "0", "%rounds", 8)


def _fork_function() -> str:
    """Publish `count` tasks, help with them, and return when all are done."""
    e = Emitter("f")
    _start_waiting(e)
    tasks = e.load("ptr", e.offset("%ctx", int(Word.TASKS) * 8), 8)
    e.do(f"%pool = load ptr, ptr {e.offset('%ctx', int(Word.POOL) * 8)}, align 8")
    with e.when(e.value("icmp eq ptr %pool, null")):
        with e.loop("%count") as number:
            task = e.offset(tasks, e.value(f"mul i64 {number}, {TASK_BYTES}"))
            function, arguments = e.load("ptr", task, 8), e.load("ptr", e.offset(task, 8), 8)
            e.do(f"call void {function}(ptr {arguments}, ptr %scratch)")
        e.do("ret void")
        e.place(e.new_label())
    done_at, state_at = _word(e, PoolWord.DONE), _word(e, PoolWord.STATE)
    e.store("ptr", tasks, _word(e, PoolWord.TASKS), 8)
    e.do(f"store atomic i64 0, ptr {done_at} monotonic, align 8")
    generation = e.value(f"lshr i64 {e.load('i64', state_at, 8)}, {_GENERATION_SHIFT}")
    generation = e.value(f"add i64 {generation}, 1")
    high = e.value(f"shl i64 {generation}, {_GENERATION_SHIFT}")
    state = e.value(f"or i64 {high}, {e.value(f'shl i64 %count, {_COUNT_SHIFT}')}")
    e.do(f"store atomic i64 {state}, ptr {state_at} release, align 8")
    work, idle, finished = e.new_label(), e.new_label(), e.new_label()
    e.jump(work)
    e.place(work)
    ran = e.value("call i1 @take_task(ptr %pool, i64 0)")
    e.branch(ran, work, idle)
    e.place(idle)
    # a lost race leaves tasks to take, so the table is looked at again while waiting
    e.do("call void @wait_a_moment(ptr %rounds)")
    done = e.value(f"load atomic i64, ptr {done_at} acquire, align 8")
    e.branch(e.value(f"icmp eq i64 {done}, %count"), finished, work)
    e.place(finished)
    return (
        f"define void @{FORK}(ptr %ctx, i64 %count, ptr %scratch) #0 {{\nentry:\n{e.text()}\n"
        " ret void\n}\n"
    )


def _worker_function() -> str:
    """``worker(pool, thread)``: take tasks until there were none for a while and no run is active."""
    e = Emitter("f")
    _start_waiting(e)
    e.do(f"%state = alloca [{STATE_BYTES} x i8], align 64")
    e.do(f"call void @{ENTER}(ptr %state)")
    work, busy, idle, over = (e.new_label() for _ in range(4))
    e.jump(work)
    e.place(work)
    e.branch(e.value("call i1 @take_task(ptr %pool, i64 %thread)"), busy, idle)
    e.place(busy)
    e.store("i64", "0", "%rounds", 8)
    e.jump(work)
    e.place(idle)
    e.do("call void @wait_a_moment(ptr %rounds)")
    active = e.value(f"load atomic i64, ptr {_word(e, PoolWord.ACTIVE)} acquire, align 8")
    has_waited = e.value(f"icmp ugt i64 {e.load('i64', '%rounds', 8)}, {_LINGER}")
    is_over = e.value(f"and i1 {e.value(f'icmp eq i64 {active}, 0')}, {has_waited}")
    e.branch(is_over, over, work)
    e.place(over)
    e.do(f"call void @{LEAVE}(ptr %state)")
    return (
        f"define void @{WORKER}(ptr %pool, i64 %thread) #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"
    )


def _run_commands() -> str:
    """A task that is a list: a count, then commands of a function and four arguments each."""
    e = Emitter("f")
    count = e.load("i64", "%arguments", 8)
    with e.loop(count) as i:
        at = e.offset("%arguments", e.value(f"mul i64 {i}, {8 * COMMAND_WORDS}"))
        words = [e.load("ptr", e.offset(at, 8 + 8 * k), 8) for k in range(COMMAND_WORDS)]
        arguments = ", ".join(f"ptr {word}" for word in words[1:])
        e.do(f"call void {words[0]}({arguments})")
    return (
        f"define void @{RUN_COMMANDS}(ptr %arguments, ptr %scratch) #0 {{\nentry:\n{e.text()}\n"
        " ret void\n}\n"
    )
