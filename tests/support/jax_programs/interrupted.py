"""JAX on one emulated chip, with signals whose handlers raise: nothing that was made stays for ever."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from unittest.mock import patch

import jax
import numpy as np

from runtime.loaded import LoadedProgram
from runtime.pjrt import native
from runtime.pjrt.blocks import HOME
from runtime.pjrt.buffers import PjrtBuffer
from runtime.pjrt.devices import PjrtDevice
from runtime.pjrt.programs import PjrtProgram
from runtime.queue import RunInterruptedError
from tests.support.interrupts import interrupted_at
from tests.support.jax_programs.harness import raises, run_checks

TILE = np.ones((8, 128), np.float32)
jax.devices()
(MEMORY,) = (o.device.memory for o in native.objects.values() if isinstance(o, PjrtDevice))
add = jax.jit(lambda x, y: x + y)
step = jax.jit(lambda state, x: state + x, donate_argnums=0)


def held() -> tuple[int, int]:
    """Handles that somebody holds, those that wait in a stack apart, and bytes of HBM that arrays take."""
    native.drain()
    gc.collect()
    native.drain()
    waiting = [
        owner
        for owner in list(native.objects.values())
        if isinstance(owner, PjrtBuffer) and owner.block.words[HOME]
    ]
    used = MEMORY.allocator.array_bytes
    return len(native.objects) - len(waiting), used - sum(b.block.get("bytes") for b in waiting)


def expect_nothing_left(work: Callable[[], object], least: int = 1) -> None:
    """Interrupt `work` at each place; it has at least so many.

    What native code does by itself has few places, and how few depends on what is ready when it begins:
    only what always passes through Python can state more than one.
    """
    for _ in range(4):
        work()
    before, number = held(), 0
    while interrupted_at(number, work):
        number += 1
        if number % 20 == 0:
            assert held() == before, number
    assert number >= least
    assert held() == before
    work()


def check_device_put() -> None:
    expect_nothing_left(lambda: jax.device_put(TILE), 100)


def check_quick_calls() -> None:
    x = jax.device_put(TILE)
    expect_nothing_left(lambda: add(x, x))


def check_reading_a_result() -> None:
    x = jax.device_put(TILE)
    expect_nothing_left(lambda: np.asarray(add(x, x)))
    np.testing.assert_array_equal(np.asarray(add(x, x)), 2 * TILE)


def check_programs_that_go_take_no_step_of_python() -> None:
    """Where a finalizer in Python begins a handler may raise: stacks and places in HBM then stayed."""
    before = held()
    x = jax.device_put(TILE)
    twice = jax.jit(lambda x: x * 2 - 7)
    for _ in range(4):
        np.asarray(twice(x))
    programs = [o for o in native.objects.values() if isinstance(o, PjrtProgram) and o.quick]
    assert programs

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for program in programs:
        sys.settrace(interrupt)
        program.quick = None
        sys.settrace(None)
    del program, programs, twice, x
    jax.clear_caches()  # type: ignore[no-untyped-call]
    handles, used = held()
    assert handles <= before[0], (handles, before)
    assert used <= before[1], (used, before)


def check_a_run_that_failed_holds_nothing() -> None:
    """Its error is kept by the program. With the frames it came through it kept the caller's, and so the
    program: a circle through native code, which no collector finds."""
    before = held()

    def interrupted(*_: object) -> None:
        raise RunInterruptedError("on purpose")

    def run_anew() -> None:
        np.asarray(jax.jit(lambda x: x * 2 - 5)(jax.device_put(TILE)))

    with patch.object(LoadedProgram, "_run", interrupted):
        raises(jax.errors.JaxRuntimeError, "on purpose", run_anew)
    jax.clear_caches()  # type: ignore[no-untyped-call]
    assert held() <= before, (held(), before)


if __name__ == "__main__":
    run_checks(globals())
