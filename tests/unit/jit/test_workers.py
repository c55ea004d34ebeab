"""Signals, forks and threads around runs: every way out of a run leaves the machine ready."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import FrameType

import numpy as np
import pytest

from runtime.api import compile
from tests.support.isa_programs import HBM_BYTES, V5E, block, kernel_program
from tpu_sim.isa.program import Program
from tpu_sim.jit import installation
from tpu_sim.jit.llvm_machine import LlvmMachine
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


def endless() -> Program:
    one = block("smovi s1 = 1")
    return kernel_program(f'{one}while "" trips -1 {{\n}} do s1 {{\n{one}}}')


@contextmanager
def signal_after(seconds: float) -> Iterator[list[int]]:
    """A signal comes while the body runs; gives the signals that were handled, which raises `Stop`."""
    seen: list[int] = []

    def handler(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise Stop

    main = threading.main_thread().ident or 0
    timer = threading.Timer(seconds, signal.pthread_kill, [main, signal.SIGUSR1])
    before = signal.signal(signal.SIGUSR1, handler)
    timer.start()
    try:
        yield seen
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_run_that_a_signal_ended_is_paused_and_goes_on() -> None:
    machine, program = LlvmMachine(V5E, cache=False), endless()
    run = machine.start(program, HbmMemory(HBM_BYTES))
    cycles = []
    for _ in range(2):
        with signal_after(0.2) as seen, pytest.raises(Stop):
            run.run_until()
        assert len(seen) == 1
        cycles.append(run.cycle)
    assert 0 < cycles[0] < cycles[1]
    goal = cycles[1] + 1_000_000
    assert not run.run_until(goal) and goal <= run.cycle < goal + 1000


def test_ticks_change_neither_result_nor_border() -> None:
    """A run that comes back to Python all the time pauses where one does that is left alone."""
    alone = LlvmMachine(V5E, cache=False).start(endless(), HbmMemory(HBM_BYTES))
    ticked = LlvmMachine(V5E, cache=False).start(endless(), HbmMemory(HBM_BYTES))
    goal = 30_000_000
    thread = threading.Thread(target=lambda: alone.run_until(goal))  # no main thread, no ticks
    thread.start()
    thread.join()
    ticked.run_until(goal)
    assert ticked.cycle == alone.cycle >= goal
    assert ticked.state.node == alone.state.node


def test_long_runs_share_one_thread() -> None:
    run = LlvmMachine(V5E, cache=False).start(endless(), HbmMemory(HBM_BYTES))
    run.run_until(1_000_000)
    before = threading.active_count()
    for cycle in range(2_000_000, 6_000_000, 1_000_000):
        run.run_until(cycle)
    assert threading.active_count() == before


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # newer Pythons' remark
def test_a_fork_after_a_long_run_runs_too() -> None:
    executable, x = compile(ADD), np.ones((8, 128), np.float32)
    executable(x)
    LlvmMachine(V5E, cache=False).start(endless(), HbmMemory(HBM_BYTES)).run_until(1_000_000)
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
        with executable._runnable.machine._lock.here, installation._lock.here:
            held.set()
            done.wait(300)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()

    def work(there: Connection) -> None:
        machine = LlvmMachine(executable.device.chip, cache=False)
        hbm = HbmMemory(executable.program.hbm_bytes)
        there.send(machine.run(executable.program, hbm).cycles)
        executable._runnable.machine.run(executable.program, hbm)
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
    with lock.here:
        lock.renew()  # as in the new process
        with lock.here:
            pass
    with lock.here:
        pass
