"""Host threads around native code: helpers of a run's forks, and a runner that can be interrupted.

Native code runs without the GIL and does not see Python's signals.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from queue import SimpleQueue
from threading import Lock, Semaphore, Thread, get_native_id

import numpy as np

from tpu_sim.jit.context import ExecutionContext, Word
from tpu_sim.jit.fork_join import POOL_WORDS, PoolWord

_LOOK_SECONDS = 0.1
"""A signal that comes when a thread is about to wait, but does not yet, ends no wait."""


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


@lru_cache(maxsize=8)
def worker_pool(worker_address: int, count: int) -> WorkerPool:
    """The process's pool of `count` threads; all machines share it."""
    return WorkerPool(worker_address, count)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=worker_pool.cache_clear)  # a child has no such threads


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


class _Job:
    """One entry of native code. `ended` is unlocked when `status` is there."""

    def __init__(self, work: Callable[[], int]) -> None:
        self.work = work
        self.is_begun = False
        self.status: int | None = None
        self.ended = Lock()
        self.ended.acquire()


class InterruptibleRunner:
    """Runs native code on a thread of its own, so that Ctrl-C reaches the thread that waits."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        Thread(target=self._loop, daemon=True, name="tpuc-run").start()

    def _loop(self) -> None:
        while True:
            job = self._jobs.get()
            if not job.is_begun:
                job.is_begun = True
                job.status = job.work()
                job.ended.release()
            del job  # and with it what its run needs

    def run(self, entry: Callable[[int], int], context: ExecutionContext) -> int:
        """The status of ``entry(context.address)``; an exception here first ends the run."""
        job = _Job(lambda: entry(context.address))
        try:
            self._jobs.put(job)
            while not job.ended.acquire(timeout=_LOOK_SECONDS):
                pass
        except BaseException:
            self._end(job, context)
            raise
        assert job.status is not None
        return job.status

    def _end(self, job: _Job, context: ExecutionContext) -> None:
        """Return when the job's code runs no more, however often this is interrupted."""
        while job.status is None:
            try:
                while job.status is None:
                    try:
                        context.words[Word.CYCLE_LIMIT] = -1  # every loop iteration and call looks
                        self._jobs.put(job)  # if the exception came before it; once is enough
                        job.ended.acquire(timeout=_LOOK_SECONDS)
                    except BaseException:  # one exception is on its way out already
                        continue
            except BaseException:  # a signal can also arrive at the jump of the inner loop
                continue


_idle: list[InterruptibleRunner] = []
"""Runners between two runs: as many as runs were ever nested, by a signal's handler that runs too."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a child has no such threads


def run_interruptibly(entry: Callable[[int], int], context: ExecutionContext) -> int:
    """`InterruptibleRunner.run` of a runner that all machines of the process share."""
    runner = _idle.pop() if _idle else InterruptibleRunner()
    try:
        return runner.run(entry, context)
    finally:
        _idle.append(runner)
