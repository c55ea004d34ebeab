"""Fork and join over independent calls, as native code: how one core uses several host threads.

The calls of a stage that do not depend on each other (components; runs of different MXUs) are put
into a task table. `FORK` publishes the table and works through it; threads inside `WORKER` help.
A word holds generation, number of tasks and next task; a task is taken by a compare-and-swap of
that word, so that a thread that comes late, or never, changes nothing but the time. Results do not
depend on the number of threads, because tasks write different memory.

A task is a function ``(arguments, scratch)`` and the address of its arguments.
"""

from __future__ import annotations

from tpu_sim.jit.context import Word
from tpu_sim.jit.emitter import Emitter

FORK = "tpuc_kernel_v1_fork"
WORKER = "tpuc_kernel_v1_worker"
RUN_COMMANDS = "tpuc_kernel_v1_run_commands"
MAX_TASKS = 1024
TASK_BYTES = 16
COMMAND_WORDS = 5
_COUNT_SHIFT = 16
_GENERATION_SHIFT = 32
_STANDARD_MXCSR = 0x1F80

FORK_DECLARATIONS = f"""
declare void @{FORK}(ptr, i64, ptr)
declare void @{RUN_COMMANDS}(ptr, ptr)
"""


def fork_join_text() -> str:
    """The functions of this module."""
    return "\n".join((_take_function(), _fork_function(), _worker_function(), _run_commands()))


def _word(e: Emitter, word: Word) -> str:
    return e.offset("%ctx", int(word) * 8)


def _take_function() -> str:
    """Take and run one task: true if there was one to take."""
    e = Emitter("f")
    state_at = _word(e, Word.TASK_STATE)
    state = e.value(f"load atomic i64, ptr {state_at} acquire, align 8")
    following = e.value(f"and i64 {state}, {(1 << _COUNT_SHIFT) - 1}")
    shifted = e.value(f"lshr i64 {state}, {_COUNT_SHIFT}")
    count = e.value(f"and i64 {shifted}, {(1 << _COUNT_SHIFT) - 1}")
    some, none, won = e.new_label(), e.new_label(), e.new_label()
    e.branch(e.value(f"icmp ult i64 {following}, {count}"), some, none)
    e.place(some)
    taken = e.value(f"add i64 {state}, 1")
    swap = e.value(f"cmpxchg ptr {state_at}, i64 {state}, i64 {taken} acq_rel acquire, align 8")
    e.branch(e.value(f"extractvalue {{ i64, i1 }} {swap}, 1"), won, none)
    e.place(won)
    table = e.load("ptr", _word(e, Word.TASKS), 8)
    task = e.offset(table, e.value(f"mul i64 {following}, {TASK_BYTES}"))
    function, arguments = e.load("ptr", task, 8), e.load("ptr", e.offset(task, 8), 8)
    e.do(f"call void {function}(ptr {arguments}, ptr %scratch)")
    e.do(f"%done = atomicrmw add ptr {_word(e, Word.TASKS_DONE)}, i64 1 release, align 8")
    e.do("ret i1 true")
    e.place(none)
    return (
        f"define internal i1 @take_task(ptr %ctx, ptr %scratch) #0 {{\nentry:\n{e.text()}\n"
        " ret i1 false\n}\n"
    )


def _fork_function() -> str:
    """Publish `count` tasks, help with them, and return when all are done."""
    e = Emitter("f")
    done_at, state_at = _word(e, Word.TASKS_DONE), _word(e, Word.TASK_STATE)
    e.do(f"store atomic i64 0, ptr {done_at} monotonic, align 8")
    generation = e.value(f"lshr i64 {e.load('i64', state_at, 8)}, {_GENERATION_SHIFT}")
    generation = e.value(f"add i64 {generation}, 1")
    high = e.value(f"shl i64 {generation}, {_GENERATION_SHIFT}")
    state = e.value(f"or i64 {high}, {e.value(f'shl i64 %count, {_COUNT_SHIFT}')}")
    e.do(f"store atomic i64 {state}, ptr {state_at} release, align 8")
    work, idle, finished = e.new_label(), e.new_label(), e.new_label()
    e.jump(work)
    e.place(work)
    ran = e.value("call i1 @take_task(ptr %ctx, ptr %scratch)")
    e.branch(ran, work, idle)
    e.place(idle)
    # a lost race leaves tasks to take, so the table is looked at again while waiting
    e.do("call void @llvm.x86.sse2.pause()")
    done = e.value(f"load atomic i64, ptr {done_at} acquire, align 8")
    e.branch(e.value(f"icmp eq i64 {done}, %count"), finished, work)
    e.place(finished)
    return (
        f"define void @{FORK}(ptr %ctx, i64 %count, ptr %scratch) #0 {{\nentry:\n{e.text()}\n"
        " ret void\n}\n"
    )


def _worker_function() -> str:
    """Take tasks until the run is over."""
    e = Emitter("f")
    e.do("%saved = alloca i32")
    e.do("%standard = alloca i32")
    e.do("call void @llvm.x86.sse.stmxcsr(ptr %saved)")
    e.store("i32", str(_STANDARD_MXCSR), "%standard", 4)
    e.do("call void @llvm.x86.sse.ldmxcsr(ptr %standard)")
    work, idle, over = e.new_label(), e.new_label(), e.new_label()
    e.jump(work)
    e.place(work)
    ran = e.value("call i1 @take_task(ptr %ctx, ptr %scratch)")
    e.branch(ran, work, idle)
    e.place(idle)
    e.do("call void @llvm.x86.sse2.pause()")
    stopped = e.value(f"load atomic i64, ptr {_word(e, Word.WORKERS_STOP)} acquire, align 8")
    e.branch(e.value(f"icmp eq i64 {stopped}, 0"), work, over)
    e.place(over)
    e.do("call void @llvm.x86.sse.ldmxcsr(ptr %saved)")
    return (
        f"define void @{WORKER}(ptr %ctx, ptr %scratch) #0 {{\nentry:\n{e.text()}\n ret void\n}}\n"
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
