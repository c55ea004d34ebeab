"""Host threads around native code: helpers of a run's forks, and a runner that can be interrupted.

Native code runs without the GIL and does not see Python's signals.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Semaphore, Thread

from tpu_sim.jit.context import ExecutionContext, Word


class WorkerPool:
    """`count` threads that help with forks (`tpu_sim.jit.fork_join`); one run at a time.

    Between runs they sleep; during a run they spin. They end with the process.
    """

    def __init__(self, worker_address: int, count: int) -> None:
        self._worker = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(worker_address)
        self._work: tuple[int, list[int]] = (0, [])
        self._start = [Semaphore(0) for _ in range(count)]
        self._left = Semaphore(0)
        for number in range(count):
            Thread(target=self._loop, args=(number,), daemon=True, name="tpuc-worker").start()

    def _loop(self, number: int) -> None:
        while True:
            self._start[number].acquire()
            context_address, scratches = self._work
            self._worker(context_address, scratches[number])
            self._left.release()

    @contextmanager
    def helping(self, context: ExecutionContext) -> Iterator[None]:
        """The threads work on the forks of `context` while the body runs."""
        context.words[Word.WORKERS_STOP] = 0
        scratches = [context.scratch_address(1 + n) for n in range(len(self._start))]
        self._work = (context.address, scratches)
        for semaphore in self._start:
            semaphore.release()
        try:
            yield
        finally:
            context.words[Word.WORKERS_STOP] = 1
            for _ in self._start:
                self._left.acquire()


class InterruptibleRunner:
    """Runs native code on a thread of its own, so that Ctrl-C reaches the thread that waits."""

    def __init__(self) -> None:
        self._start, self._done = Semaphore(0), Semaphore(0)
        self._work: Callable[[], int] = int
        self._status = 0
        Thread(target=self._loop, daemon=True, name="tpuc-run").start()

    def _loop(self) -> None:
        while True:
            self._start.acquire()
            self._status = self._work()
            self._done.release()

    def run(self, entry: Callable[[int], int], context: ExecutionContext) -> int:
        """The status of ``entry(context.address)``; an exception here first ends the run."""
        self._work = lambda: entry(context.address)
        self._start.release()
        try:
            self._done.acquire()
        except BaseException:
            context.words[Word.CYCLE_LIMIT] = -1  # every loop iteration and call looks at it
            self._done.acquire()
            raise
        return self._status
