"""Host threads that help with the forks of a run (`tpu_sim.jit.fork_join`).

Between runs the threads sleep; during a run they spin inside native code, without the GIL.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Semaphore, Thread

from tpu_sim.jit.context import ExecutionContext, Word


class WorkerPool:
    """`count` helping threads; they end with the process. One run at a time."""

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
