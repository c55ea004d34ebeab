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
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.host_state import ENTER, LEAVE, PAUSE, STATE_BYTES
from tpu_sim.jit.kernel_builtins import (
    Native,
    Words,
    atomic_add,
    call_at,
    compare_and_swap,
    load_acquire,
    local_words,
    store_release,
    words_at,
)
from tpu_sim.jit.kernel_language import kernel

FORK = "tpuc_kernel_v1_fork"
WORKER = "tpuc_kernel_v1_worker"
_TAKE = "tpuc_kernel_v1_take_task"
RUN_COMMANDS = "tpuc_kernel_v1_run_commands"
PUT_TASK = "tpuc_kernel_v1_put_task"
PUT_WORDS = "tpuc_kernel_v1_put_words"
WORDS_AT_ONCE = 8
MAX_TASKS = 1024
TASK_BYTES = 16
TASK_WORDS = TASK_BYTES // 8
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
SCHED_YIELD = Native("sched_yield")


PUT_FUNCTIONS = (
    *(f"{PUT_TASK}{count}" for count in range(WORDS_AT_ONCE + 1)),
    *(f"{PUT_WORDS}{count}" for count in range(1, WORDS_AT_ONCE + 1)),
)
"""Functions that fill the task table, by the number of words they write; see `_put_function`."""


def put_declarations() -> str:
    """What a module that fills task tables declares."""
    words = [", i64" * count for count in range(WORDS_AT_ONCE + 1)]
    lines = [f"declare void @{PUT_TASK}{n}(ptr, i64, i64, ptr{w})\n" for n, w in enumerate(words)]
    lines += [f"declare void @{PUT_WORDS}{n}(ptr, i64{w})\n" for n, w in enumerate(words) if n]
    return "".join(lines)


def put_text() -> str:
    """The functions that fill the task table."""
    puts = [_put_function(n, is_task=True) for n in range(WORDS_AT_ONCE + 1)]
    puts += [_put_function(n, is_task=False) for n in range(1, WORDS_AT_ONCE + 1)]
    return "\n".join(puts)


def _put_function(count: int, *, is_task: bool) -> str:
    """Write `count` words at byte `at` of the table; for a task, its entry at byte `task` too."""
    e = FunctionEmitter("f")
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


def _wait_a_moment(rounds: int) -> int:
    """A pause, the `rounds`-th; after long waiting another thread may have the processor (and the
    task). Gives the number of the next one.
    """
    PAUSE()
    if (rounds + 1) & _PATIENCE - 1 == 0:
        SCHED_YIELD()
    return rounds + 1


@kernel(_TAKE)
def take_task(pool: Words, thread: int) -> bool:
    """Take and run one task, from the back for helpers: true if there was one to take."""
    state = load_acquire(pool, PoolWord.STATE)
    front = state & _FIELD_MASK
    back = state >> _BACK_SHIFT & _FIELD_MASK
    count = state >> _COUNT_SHIFT & _FIELD_MASK
    if front + back >= count:
        return False
    step = 1 if thread == 0 else 1 << _BACK_SHIFT
    if not compare_and_swap(pool, PoolWord.STATE, state, state + step):
        return False
    # pool words are read after the task is won: until it is done its run stays as it is
    task = TASK_WORDS * (front if thread == 0 else count - back - 1)
    table = words_at(pool[PoolWord.TASKS])
    scratch = pool[PoolWord.SCRATCH] + thread * pool[PoolWord.SCRATCH_STEP]
    call_at(table[task], table[task + 1], scratch)
    atomic_add(pool, PoolWord.DONE, 1)
    return True


@kernel(FORK)
def fork(ctx: Words, count: int, scratch: Words) -> None:
    """Publish `count` tasks, help with them, and return when all are done."""
    if ctx[Word.POOL] == 0:
        table = words_at(ctx[Word.TASKS])
        for number in range(count):
            call_at(table[TASK_WORDS * number], table[TASK_WORDS * number + 1], scratch)
        return
    pool = words_at(ctx[Word.POOL])
    pool[PoolWord.TASKS] = ctx[Word.TASKS]
    pool[PoolWord.DONE] = 0
    generation = (pool[PoolWord.STATE] >> _GENERATION_SHIFT) + 1
    state = generation << _GENERATION_SHIFT | count << _COUNT_SHIFT
    store_release(pool, PoolWord.STATE, state)
    rounds = 0
    while True:
        # a lost race leaves tasks to take, so the table is looked at again while waiting
        if not take_task(pool, 0):
            rounds = _wait_a_moment(rounds)
            if load_acquire(pool, PoolWord.DONE) == count:
                return


@kernel(WORKER)
def worker(pool: Words, thread: int) -> None:
    """Take tasks until there were none for a while and no run is active."""
    state = local_words(STATE_BYTES // 8)
    ENTER(state)
    rounds = 0
    while rounds <= _LINGER or load_acquire(pool, PoolWord.ACTIVE) != 0:
        if take_task(pool, thread):
            rounds = 0
        else:
            rounds = _wait_a_moment(rounds)
    LEAVE(state)


def _four(words: Words, at: int) -> tuple[int, int, int, int]:
    return words[at], words[at + 1], words[at + 2], words[at + 3]


@kernel(RUN_COMMANDS)
def run_commands(arguments: Words, scratch: Words) -> None:
    """A task that is a list: a count, then commands of a function and four arguments each."""
    at = 1
    for _ in range(arguments[0]):
        first, second, third, fourth = _four(arguments, at + 1)
        call_at(arguments[at], first, second, third, fourth)
        at += COMMAND_WORDS


KERNELS = (take_task, fork, worker, run_commands)
