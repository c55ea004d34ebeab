"""Calls that go on while the caller does: order, errors, interrupts, forks, reports."""

from __future__ import annotations

import gc
import multiprocessing
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

from runtime.api import compile, device_put
from runtime.buffer import Array
from runtime.client import Device
from runtime.executable import Executable, Run
from runtime.loaded import LoadedProgram
from runtime.machines import MachineOptions
from runtime.queue import _MOST_PENDING, RunInterruptedError
from tpu_sim.isa.chips import load_chip
from tpu_sim.machine.faults import CycleLimitFault

ADD = """HloModule m
ENTRY e {
  a = f32[8,128]{1,0} parameter(0)
  b = f32[8,128]{1,0} parameter(1)
  ROOT r = f32[8,128]{1,0} add(a, b)
}
"""
STEP = ADD.replace("HloModule m", "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }")
ENDLESS = """HloModule endless
c {
  s = (s32[], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(-1)
  ROOT r = pred[] compare(i, n), direction=GT
}
b {
  s = (s32[], f32[8,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[8,128] get-tuple-element(s), index=1
  o = s32[] constant(1)
  m = s32[] constant(1048575)
  j = s32[] add(i, o)
  k = s32[] and(j, m)
  y = f32[8,128] add(x, x)
  ROOT t = (s32[], f32[8,128]) tuple(k, y)
}
ENTRY e {
  x = f32[8,128]{1,0} parameter(0)
  z = s32[] constant(0)
  t = (s32[], f32[8,128]) tuple(z, x)
  w = (s32[], f32[8,128]) while(t), condition=c, body=b
  ROOT r = f32[8,128]{1,0} get-tuple-element(w), index=1
}
"""


def tile(value: float) -> np.ndarray:
    return np.full((8, 128), value, np.float32)


@pytest.fixture
def device() -> Iterator[Device]:
    yield Device(load_chip("v5e"))


class Held:
    """A program whose runs on a device wait for `go`."""

    def __init__(self, executable: Executable, device: Device) -> None:
        self.executable, self.device = executable, device
        self.began, self.go = threading.Event(), threading.Event()
        executable.call([tile(0)] * len(executable.inputs), device=device)
        self.loaded: LoadedProgram = executable._loaded[device]
        self.loaded.busy_seconds = 1.0
        run = self.loaded.runnable.run

        def held(*arguments: Any) -> object:
            self.began.set()
            assert self.go.wait(60)
            return run(*arguments)

        setattr(self.loaded.runnable, "run", held)  # noqa: B010

    def put(self, value: float) -> Array:
        return device_put(tile(value), self.device)


@pytest.fixture
def held(device: Device) -> Iterator[Held]:
    made = Held(compile(ADD), device)
    yield made
    made.go.set()


def run_of(held: Held, a: Array, b: Array) -> tuple[Run, Array]:
    run = held.executable.call([a, b])
    (result,) = run.results
    assert isinstance(result, Array)
    return run, result


def test_a_long_call_goes_on_while_the_caller_does(held: Held) -> None:
    a, b = held.put(1), held.put(2)
    run, result = run_of(held, a, b)
    assert held.began.wait(60)
    assert not result.is_ready() and not run.is_done()
    assert (result.shape, result.dtype) == ((8, 128), np.float32)
    np.testing.assert_array_equal(a.numpy(), tile(1))  # what is there needs no waiting
    held.go.set()
    np.testing.assert_array_equal(result.block_until_ready().numpy(), tile(3))
    assert result.is_ready() and run.wait().is_done()
    assert run.report().cycles > 0 and run.report() is run.report()


def test_calls_are_done_in_the_order_they_were_made(held: Held) -> None:
    a, one = held.put(0), held.put(1)
    states = [a]
    for _ in range(5):
        states.append(run_of(held, states[-1], one)[1])
    other = compile(ADD.replace("add(", "multiply("))
    (product,) = other(states[-1], states[-2])
    assert isinstance(product, Array) and not product.is_ready()
    held.go.set()
    host = np.asarray(other(states[2], tile(10))[0])  # after all of them, on the host
    assert product.is_ready()
    np.testing.assert_array_equal(host, tile(20))
    np.testing.assert_array_equal(product.numpy(), tile(20))
    for number, state in enumerate(states):
        np.testing.assert_array_equal(state.numpy(), tile(number))


def test_what_the_caller_changes_afterwards_is_not_seen(held: Held) -> None:
    host, a = tile(1), held.put(2)
    (result,) = held.executable.call([host, a], on_device=True).results
    host[:] = 9
    a.delete()
    held.go.set()
    np.testing.assert_array_equal(np.asarray(result), tile(3))


def test_del_waits_for_nobody(held: Held) -> None:
    a, b = held.put(1), held.put(2)
    used = held.device.memory.allocator.array_bytes
    run, result = run_of(held, a, b)
    assert held.began.wait(60)
    start = time.perf_counter()
    del a, b, result
    c = held.put(5)
    c.delete()
    other = compile(ADD.replace("add(", "subtract("))
    other.prepare()
    del other
    gc.collect()
    assert time.perf_counter() - start < 30 and not run.is_done()
    held.go.set()
    run.wait()
    assert held.device.memory.allocator.array_bytes <= used


def test_a_donated_array_is_gone_at_once_and_its_value_is_not(device: Device) -> None:
    held = Held(compile(STEP), device)
    a, b = held.put(1), held.put(2)
    _, first = run_of(held, a, b)
    assert a.is_deleted()
    with pytest.raises(RuntimeError, match=r"was deleted when a program took it .* input 0 \(a\)"):
        a.numpy()
    _, second = run_of(held, first, b)
    assert first.is_deleted() and not b.is_deleted()
    held.go.set()
    np.testing.assert_array_equal(second.numpy(), tile(5))


def test_a_failed_call_fails_what_is_made_of_it(held: Held) -> None:
    limited = Executable(held.executable.program, held.device, MachineOptions(max_cycles=10))
    a, b = held.put(1), held.put(2)
    before = run_of(held, a, b)[1]
    run = limited.call([a, b])
    (lost,) = run.results
    assert isinstance(lost, Array)
    after = run_of(held, lost, b)[1]
    again = run_of(held, a, b)[1]
    held.go.set()
    for use in (lost.numpy, after.numpy, lost.block_until_ready, run.wait, run.report):
        with pytest.raises(CycleLimitFault):
            use()
    np.testing.assert_array_equal(before.numpy(), tile(3))
    np.testing.assert_array_equal(again.numpy(), tile(3))


def test_who_is_far_ahead_waits(held: Held) -> None:
    a, b = held.put(1), held.put(2)
    made: list[Array] = []

    def ahead() -> None:
        for _ in range(_MOST_PENDING + 10):
            made.append(run_of(held, a, b)[1])

    thread = threading.Thread(target=ahead)
    thread.start()
    assert held.began.wait(60)
    time.sleep(0.3)
    assert len(made) <= _MOST_PENDING + 2
    held.go.set()
    thread.join(60)
    assert len(made) == _MOST_PENDING + 10
    np.testing.assert_array_equal(made[-1].numpy(), tile(3))


class Stop(Exception):
    """What the signal handler raises."""


@pytest.mark.parametrize("machine", ["llvm", "numpy"])
def test_an_interrupt_of_a_wait_ends_the_run(device: Device, machine: str) -> None:
    options = MachineOptions(machine=machine, threads=1)
    endless = Executable(compile(ENDLESS).program, device, options)
    add = compile(ADD)

    def handler(number: int, frame: FrameType | None) -> None:
        raise Stop

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        x = device_put(tile(1), device)
        waits = [
            lambda: endless(tile(1)),
            lambda: endless(x)[0].block_until_ready(),  # type: ignore[union-attr]
            lambda: np.asarray(add(endless(x)[0], x)[0]),  # what waits is behind it
        ]
        for wait in waits:
            main = threading.main_thread().ident or 0
            timer = threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGUSR1))
            timer.start()
            with pytest.raises(Stop):
                wait()
            timer.join()
            np.testing.assert_array_equal(np.asarray(add(x, x)[0]), tile(2))
        (result,) = endless(x)
        assert isinstance(result, Array)
        timer = threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGUSR1))
        timer.start()
        with pytest.raises(Stop):
            result.numpy()
        timer.join()
        with pytest.raises(RunInterruptedError, match="the call was interrupted while it ran"):
            result.numpy()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_may_run_programs_while_its_thread_waits(held: Held) -> None:
    add, results = compile(ADD), []

    def handler(number: int, frame: FrameType | None) -> None:
        held.go.set()
        results.append(np.asarray(add.call([tile(1), tile(1)], device=held.device).results[0]))

    before = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(
        0.3, signal.pthread_kill, (threading.main_thread().ident or 0, signal.SIGUSR1)
    )
    try:
        timer.start()
        result = run_of(held, held.put(2), held.put(3))[1].numpy()
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)
    np.testing.assert_array_equal(result, tile(5))
    np.testing.assert_array_equal(results[0], tile(2))


def test_a_call_in_the_middle_of_a_call_is_refused(held: Held) -> None:
    """Else it would wait for itself."""
    loaded, add = held.loaded, compile(ADD)
    loaded.busy_seconds = 0.0
    setattr(loaded.runnable, "run", lambda *_: add.call([tile(0), tile(0)], device=held.device))  # noqa: B010
    with pytest.raises(RuntimeError, match="in the middle of a call on the same device"):
        held.executable.call([tile(0), tile(0)], device=held.device)
    np.testing.assert_array_equal(
        np.asarray(add.call([tile(1), tile(1)], device=held.device).results[0]), tile(2)
    )


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")  # newer Pythons' remark
def test_a_fork_runs_too_and_does_not_wait_for_what_it_left(held: Held) -> None:
    add = compile(ADD)
    _, lost = run_of(held, held.put(1), held.put(2))
    assert held.began.wait(60)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def work() -> None:
        try:
            lost.numpy()
        except RunInterruptedError as error:
            there.send(str(error))
        result = add.call([device_put(tile(1), held.device)] * 2, on_device=True).results[0]
        there.send(np.asarray(result)[0, 0])

    child = context.Process(target=work, daemon=True)
    try:
        child.start()
        there.close()  # a child that dies is the end of the pipe, not an endless wait
        assert here.poll(100), "the child waits for a thread that it does not have"
        assert "in another process" in here.recv()
        assert here.poll(100) and here.recv() == 2
    finally:
        child.kill()
        child.join()
        held.go.set()
    np.testing.assert_array_equal(lost.numpy(), tile(3))


def test_a_device_that_is_gone_has_no_thread() -> None:
    device = Device(load_chip("v5e"))
    add = compile(ADD)
    a = device_put(tile(1), device)
    np.testing.assert_array_equal(np.asarray(add(a, a)[0]), tile(2))
    thread = device.queue._thread
    assert thread is not None and thread.is_alive()
    del a, device, add
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
