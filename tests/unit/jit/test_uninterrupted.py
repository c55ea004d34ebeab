"""A signal's handler that raises finds no work of llvmlite's in the main thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import NoReturn

import pytest

from tpu_sim.jit.uninterrupted import uninterrupted

_INTERRUPTED = """
import signal, threading, time
from llvmlite.binding import ffi
from tpu_sim.jit.engine import Engine, detect_host

class Interrupt(Exception): pass

is_armed, count, number = False, 0, 0

def handler(*_):
    global is_armed, count
    if is_armed:
        is_armed, count = False, count + 1
        raise Interrupt

signal.signal(signal.SIGALRM, handler)
engine = Engine(detect_host(), None)
signal.setitimer(signal.ITIMER_REAL, 1e-3, 1.7e-3)
end = time.monotonic() + 60
while count <= 1000 and time.monotonic() < end:
    try:
        is_armed = True
        number += 1
        module = engine.link(engine.object_code(f"define i32 @f() {{\\n ret i32 {number}\\n}}\\n"))
        assert module.address("f")
    except Interrupt:
        pass
is_armed = False
signal.setitimer(signal.ITIMER_REAL, 0)
lock, found = ffi.lib._lock._lock, []

def take():
    found.append(lock.acquire(timeout=20))
    lock.release()

other = threading.Thread(target=take)
other.start()
other.join()
assert found == [True], "llvmlite's lock stayed taken"
assert count > 50, (count, number)
"""


def test_interrupts_leave_no_lock_taken_and_free_nothing_twice() -> None:
    command = [sys.executable, "-c", _INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_results_and_errors_are_those_of_the_call() -> None:
    idents: list[int] = []

    @uninterrupted
    def fail(message: str) -> NoReturn:
        idents.append(threading.get_ident())
        raise LookupError(message)

    @uninterrupted
    def add(x: int, y: int = 1) -> int:
        idents.append(threading.get_ident())
        return x + y

    assert add(1, y=2) == 3
    with pytest.raises(LookupError, match="a reason"):
        fail("a reason")
    assert idents[0] == idents[1] != threading.get_ident()
    other = threading.Thread(target=add, args=(1,))
    other.start()
    other.join()
    assert idents[2] == other.ident


def test_a_forked_process_has_a_thread_of_its_own() -> None:
    double = uninterrupted(lambda x: 2 * x)
    assert double(2) == 4
    child = os.fork()
    if not child:
        os._exit(double(21))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
