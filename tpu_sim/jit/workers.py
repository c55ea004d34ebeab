"""Host threads around native code: helpers of a run's forks, and what lets Ctrl-C end a long run.

Native code runs without the GIL and does not see Python's signals.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Semaphore, Thread, current_thread, get_native_id, main_thread

import numpy as np

from tpu_sim.jit.calls import PAUSED
from tpu_sim.jit.context import ExecutionContext, Word
from tpu_sim.jit.fork_join import POOL_WORDS, PoolWord
from tpu_sim.machine.fork_lock import Once
from tpu_sim.machine.node_table import MAIN

_TICK_SECONDS = 0.05
_QUIET_CYCLES = 1 << 18
"""Most runs are over by then; hosts take a few hundred nanoseconds for the cycles that cost them most."""


class WorkerPool:
    """`count` threads that help with forks (`tpu_sim.jit.fork_join`); one run at a time.

    During a run and shortly after it they spin, then they sleep. Nobody waits for them at the end of
    a run: they touch what belongs to it only inside a task. They end with the process. A run that
    finds them busy with another machine's does its work alone.
    """

    def __init__(self, worker_address: int, count: int) -> None:
        self._worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(worker_address)
        self._words = np.zeros(POOL_WORDS, np.int64)
        self._address = int(self._words.ctypes.data)
        self._start = [Semaphore(0) for _ in range(count)]
        self._is_asleep = [True] * count
        self._busy = Lock()
        self._apart = _KeptApart()
        for number in range(count):
            Thread(target=self._loop, args=(number,), daemon=True, name="tpuc-worker").start()

    def _loop(self, number: int) -> None:
        self._apart.add(get_native_id())
        while True:
            self._is_asleep[number] = True
            if not self._words[PoolWord.ACTIVE]:
                self._start[number].acquire()
            self._is_asleep[number] = False
            self._worker(self._address, 1 + number)

    @contextmanager
    def helping(self, context: ExecutionContext) -> Iterator[None]:
        """The threads work on the forks of `context` while the body runs."""
        if not self._busy.acquire(blocking=False):
            yield
            return
        try:
            self._words[PoolWord.SCRATCH] = context.scratch_address(0)
            self._words[PoolWord.SCRATCH_STEP] = context.scratch_step
            self._words[PoolWord.ACTIVE] = 1
            context.words[Word.POOL] = self._address
            self._wake()
            yield
        finally:
            context.words[Word.POOL] = 0
            self._words[PoolWord.ACTIVE] = 0
            self._busy.release()

    def _wake(self) -> None:
        """Start the threads that sleep; one about to fall asleep may miss a run, no more."""
        self._apart.leave_current_processor()
        for number, semaphore in enumerate(self._start):
            if self._is_asleep[number]:
                semaphore.release()


@Once
def worker_pool(worker_address: int, count: int) -> WorkerPool:
    """The process's pool of `count` threads; all machines share it."""
    return WorkerPool(worker_address, count)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=worker_pool.clear)  # a child has no such threads


class _KeptApart:
    """Keeps helpers off the processor that a run starts on.

    Helpers are woken by the running thread and spin, and Linux may leave both on one processor for
    the whole run, where they take turns.
    """

    def __init__(self) -> None:
        self._threads: list[int] = []
        self._avoided: tuple[int, int] | None = None
        is_linux = sys.platform == "linux"
        self._current = ctypes.CDLL(None).sched_getcpu if is_linux else None

    def add(self, native_id: int) -> None:
        """One more helper."""
        self._threads.append(native_id)

    def leave_current_processor(self) -> None:
        """Move the helpers away from the caller's processor, if there is another one."""
        if self._current is None:
            return
        processor, count = int(self._current()), len(self._threads)
        if self._avoided == (processor, count):
            return
        others = os.sched_getaffinity(0) - {processor}
        for thread in self._threads[:count] if others else ():
            os.sched_setaffinity(thread, others)
        self._avoided = (processor, count)


class Ticker:
    """A thread that makes long runs come back to Python now and then, where signals are handled.

    It sets the cycle at which they pause to one that is past; who runs them goes on afterwards.
    """

    def __init__(self) -> None:
        self._runs: list[ExecutionContext] = []
        self._wanted = Semaphore(0)
        Thread(target=self._loop, daemon=True, name="tpuc-tick").start()

    def _loop(self) -> None:
        while True:
            self._wanted.acquire()
            while self._runs:
                time.sleep(_TICK_SECONDS)
                for context in tuple(self._runs):
                    context.words[Word.UNTIL] = 0

    @contextmanager
    def ticking(self, context: ExecutionContext) -> Iterator[None]:
        """Runs of `context` pause now and then while the body runs."""
        try:
            self._runs.append(context)
            self._wanted.release()
            yield
        finally:
            self._runs.remove(context)


@Once
def ticker() -> Ticker:
    """The process's."""
    return Ticker()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ticker.clear)  # a child has no such thread


def run_interruptibly(
    entry: Callable[[int], int], context: ExecutionContext, until: int, until_call: int
) -> int:
    """Run to a border at or behind cycle `until`, to the begin of call `until_call` or one behind it,
    to the end or a fault; returns the status.

    Python handles signals in the main thread alone, between two of its instructions: there a run that
    is not over soon comes back now and then. What a handler raises ends this, the run being paused.
    """
    words = context.words
    words[Word.GOAL] = until
    words[Word.UNTIL_CALL] = until_call
    if current_thread() is not main_thread():
        words[Word.UNTIL] = until
        return entry(context.address)
    words[Word.UNTIL] = min(until, int(words[Word.NOW]) + _QUIET_CYCLES)
    status = entry(context.address)
    if status != PAUSED or _is_there(context, until):
        return status
    with ticker().ticking(context):
        while status == PAUSED and not _is_there(context, until):
            words[Word.UNTIL] = until
            status = entry(context.address)
    return status


def _is_there(context: ExecutionContext, until: int) -> bool:
    """Whether a run that paused did so because somebody asked for it."""
    words = context.words
    is_begin = words[Word.BODY] != MAIN and words[Word.NODE] == 0
    is_call = is_begin and words[Word.RECORD_COUNT] >= words[Word.UNTIL_CALL]
    return bool(words[Word.NOW] >= until or is_call)
