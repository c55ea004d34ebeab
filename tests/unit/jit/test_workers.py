"""The runner: every way out of a run leaves it ready for the next one."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
from multiprocessing.connection import Connection
from types import FrameType

import numpy as np
import pytest

from runtime.api import compile
from tpu_sim.isa.chips import load_chip
from tpu_sim.jit import installation
from tpu_sim.jit.context import ContextSizes, ExecutionContext, Memories, Word
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.jit.workers import InterruptibleRunner, run_interruptibly
from tpu_sim.machine.fork_lock import ForkLock
from tpu_sim.machine.memory import HbmMemory

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
        thread.join(300)  # the code goes on until every signal has been handled
        ended.set()
        return 7

    def interrupt() -> None:
        began.wait()
        for _ in range(3):  # one at a time: signals that are pending together count once
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
            handled.acquire(timeout=60)
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


def test_runs_share_one_thread() -> None:
    chip = load_chip("v5e")
    context = ExecutionContext(chip, Memories(chip), ContextSizes(0, 0, 0, 1, 0))
    run_interruptibly(lambda address: 0, context)
    before = threading.active_count()
    assert [run_interruptibly(lambda address, k=k: k, context) for k in range(5)] == list(range(5))
    assert threading.active_count() == before


def test_a_run_within_a_waiting_run() -> None:
    """A signal's handler may run a program while its thread waits for another."""
    chip = load_chip("v5e")
    context = ExecutionContext(chip, Memories(chip), ContextSizes(0, 0, 0, 1, 0))

    def outer(address: int) -> int:
        return 1 + run_interruptibly(lambda inner: 4, context)

    assert run_interruptibly(outer, context) == 5


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # newer Pythons' remark
def test_a_fork_after_a_run_runs_too() -> None:
    executable, x = compile(ADD), np.ones((8, 128), np.float32)
    executable(x)
    executable._machine.machine._short.clear()  # as if it had been a long one
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=lambda: there.send(executable(x)[0].sum()), daemon=True)
    child.start()
    there.close()  # a child that dies is the end of the pipe, not an endless wait
    try:
        assert here.poll(300), "the child waits for a thread that it does not have"
        assert here.recv() == 2048
    finally:
        child.kill()
        child.join()


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_fork_while_other_threads_hold_locks_runs() -> None:
    executable, x = compile(ADD), np.ones((8, 128), np.float32)
    executable(x)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with executable._machine.machine._lock, installation._lock:
            held.set()
            done.wait(300)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def work(there: Connection) -> None:
        machine = LlvmMachine(executable.device.chip, cache=False)
        hbm = HbmMemory(executable.program.hbm_bytes)
        there.send(machine.run(executable.program, hbm).cycles)
        executable._machine.machine.run(executable.program, hbm)
        there.send(True)

    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=work, args=(there,), daemon=True)
    try:
        child.start()
        there.close()
        for _ in range(2):
            assert here.poll(300), "the child waits for a lock that nobody holds"
            assert here.recv()
    finally:
        done.set()
        thread.join()
        child.kill()
        child.join()


def test_a_lock_taken_before_a_fork_is_released_after_it() -> None:
    lock = ForkLock()
    with lock:
        lock.renew()  # as in the new process
        with lock:
            pass
    with lock:
        pass
