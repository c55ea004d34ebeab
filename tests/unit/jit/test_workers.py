"""The runner: every way out of a run leaves it ready for the next one."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from types import FrameType

import numpy as np
import pytest

from runtime.api import compile
from tpu_sim.isa.chips import load_chip
from tpu_sim.jit.context import ContextSizes, ExecutionContext, Memories, Word
from tpu_sim.jit.workers import InterruptibleRunner

ADD = """HloModule m
ENTRY e {
  a = f32[8,128]{1,0} parameter(0)
  ROOT r = f32[8,128]{1,0} add(a, a)
}
"""


class Stop(Exception):
    """What the signal handler raises."""


def test_a_second_interrupt_waits_for_the_code_too() -> None:
    chip = load_chip("v5e")
    context = ExecutionContext(chip, Memories(chip), ContextSizes(0, 0, 0, 1, 0))
    began, ended = threading.Event(), threading.Event()
    handled = threading.Semaphore(0)
    signals = 0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1
        handled.release()
        raise Stop

    def slow(address: int) -> int:
        began.set()
        thread.join(30)  # the code goes on until every signal has been handled
        ended.set()
        return 7

    def interrupt() -> None:
        began.wait()
        for _ in range(3):  # one at a time: signals that are pending together count once
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            handled.acquire(timeout=10)
            time.sleep(0.05)

    before = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=interrupt)
    runner = InterruptibleRunner()
    try:
        thread.start()
        with pytest.raises(Stop):
            runner.run(slow, context)
        assert ended.is_set() and signals == 3
        assert context.words[Word.CYCLE_LIMIT] == -1
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert [runner.run(lambda address, k=k: k, context) for k in (1, 2)] == [1, 2]


def test_a_fork_after_a_run_runs_too() -> None:
    executable, x = compile(ADD), np.ones((8, 128), np.float32)
    executable(x)
    executable._machine.machine._short.clear()  # as if it had been a long one
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=lambda: results.put(executable(x)[0].sum()))
    child.start()
    child.join(60)
    alive = child.is_alive()
    child.kill()
    assert not alive and results.get() == 2048
