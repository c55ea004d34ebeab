"""The kinds of rounds. Each gets a generator of random numbers, checks its values, leaves nothing behind."""

from __future__ import annotations

import faulthandler
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import tpuc
from benchmarks.stress import hung
from runtime.queue import RunInterruptedError

Round = Callable[[random.Random], None]
_FORK_SECONDS = 120.0
_STANDARD_ERROR = 2


def is_interruption(error: BaseException) -> bool:
    """Whether a run ended because somebody waited for it, or for one after it, and was interrupted."""
    return isinstance(error, RunInterruptedError) or "CANCELLED" in str(error)


def _values(pick: random.Random, *dims: int) -> np.ndarray:
    return np.random.default_rng(pick.getrandbits(32)).standard_normal(dims).astype(np.float32)


def _same(got: Any, want: np.ndarray, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(np.asarray(got), want, rtol=tolerance, atol=tolerance)


def compile_anew(pick: random.Random) -> None:
    """A program that nobody compiled before."""
    x, scale = _values(pick, pick.randint(1, 40), pick.randint(1, 300)), pick.random()
    _same(jax.jit(lambda x: (x * scale + 1).sum(1))(x), (x * np.float32(scale) + 1).sum(1), 1e-4)


@jax.jit
def _kept(x: jax.Array) -> jax.Array:
    return jnp.maximum(x * 2 - 1, 0)


def run_again(pick: random.Random) -> None:
    """A program that was compiled before, on any device."""
    x = _values(pick, 8, 128)
    _same(_kept(jax.device_put(x, pick.choice(jax.devices()))), np.maximum(x * 2 - 1, 0))


def exhaust(_: random.Random) -> None:
    """An array that has no room."""
    try:
        jax.jit(lambda: jnp.ones((8 << 30,), jnp.float32))()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
    else:
        raise AssertionError("32 GB had room")


def refuse(_: random.Random) -> None:
    """A shape that does not fit."""
    with suppress(TypeError):
        _kept(jnp.ones((3, 4))) @ jnp.ones((5, 6))
        raise AssertionError("3x4 by 5x6 was multiplied")


def raise_while_arrays_die(pick: random.Random) -> None:
    """Exceptions go through frames that hold the last references to arrays."""

    def deeper(depth: int) -> None:
        held = [jnp.full(pick.randint(1, 400), depth, jnp.float32) for _ in range(2)]
        if not depth:
            raise LookupError(len(held))
        deeper(depth - 1)

    with suppress(LookupError):
        deeper(4)


def call_back(pick: random.Random) -> None:
    """A callback in a loop."""
    bias, trips = pick.randint(1, 9), pick.randint(1, 4)
    shape = jax.ShapeDtypeStruct((8,), jnp.float32)  # type: ignore[no-untyped-call]

    def body(_: Any, x: jax.Array) -> jax.Array:
        return jax.pure_callback(lambda v: np.asarray(v) + bias, shape, x)  # type: ignore[no-any-return]

    found = jax.jit(lambda x: jax.lax.fori_loop(0, trips, body, x))(np.zeros(8, np.float32))
    _same(found, np.full(8, np.float32(bias * trips)))


def raise_in_a_callback(_: random.Random) -> None:
    """A callback whose exception is the caller's."""

    def bad(_: Any) -> Any:
        raise LookupError("on purpose")

    shape = jax.ShapeDtypeStruct((), jnp.float32)  # type: ignore[no-untyped-call]
    try:
        float(jax.jit(lambda x: jax.pure_callback(bad, shape, x))(1.0))
    except jax.errors.JaxRuntimeError as error:
        if "on purpose" not in str(error):
            raise
    else:
        raise AssertionError("the callback's exception was lost")


_step = jax.jit(lambda state, x: state + x, donate_argnums=0)


def donate(pick: random.Random) -> None:
    """A state that is given up from step to step."""
    x = jnp.asarray(_values(pick, 64, 128))
    first = state = jnp.zeros_like(x)
    for _ in range(4):
        state = _step(state, x)
    if not first.is_deleted():
        raise AssertionError("a donated array is still there")
    _same(state, 4 * np.asarray(x), 1e-4)


def use_all_devices(pick: random.Random) -> None:
    """A program of the whole slice, its devices in any order."""
    devices = jax.devices()[:]
    pick.shuffle(devices)
    rows = PartitionSpec("d")  # type: ignore[no-untyped-call]
    sharding = NamedSharding(Mesh(np.array(devices), ("d",)), rows)
    x = _values(pick, 4 * len(devices), 16)
    total = jax.jit(lambda x: (x * 2).sum(0))(jax.device_put(x, sharding))
    _same(total, (x * 2).sum(0), 1e-4)


def collect(pick: random.Random) -> None:
    """Arrays that only the garbage collector finds."""
    for _ in range(3):
        ring: list[Any] = [jnp.full(pick.randint(1, 99), 1.0)]
        ring.append(ring)
    gc.collect()


def run_numpy(pick: random.Random) -> None:
    """NumPy code under `tpuc.jit`, with a gradient, and arrays of its own on the device."""
    scale, x = pick.random(), _values(pick, pick.randint(1, 20), 64)
    slope = tpuc.jit(tpuc.grad(lambda x: (np.tanh(x) * scale).sum()))(x)
    _same(slope, scale * (1 - np.tanh(x) ** 2), 1e-4)
    held = tpuc.device_put(x)
    _same((held + 1)[0], x[0] + 1)
    held.delete()


ROUNDS: tuple[Round, ...] = (
    compile_anew, run_again, exhaust, refuse, raise_while_arrays_die, call_back, raise_in_a_callback, donate,
    use_all_devices, collect, run_numpy,
)  # fmt: skip
"""What any thread may do."""


_count = jax.jit(lambda x: jax.lax.fori_loop(0, 200_000, lambda i, x: x * 0.5 + 1, x))
_armed = [False]
"""Whether the handler is to raise. Not an event: that has a lock, which the handler would wait for."""


def _raise_if_armed(*_: object) -> None:
    if _armed[0]:
        _armed[0] = False
        raise KeyboardInterrupt


def interrupt(pick: random.Random) -> None:
    """Ctrl-C at some moment of a long run, or not before it has ended."""
    signal.signal(signal.SIGINT, _raise_if_armed)
    delay = pick.random() * 0.3
    sender = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    sender.start()
    try:
        _armed[0] = True
        np.asarray(_count(np.float32(1)))
    except KeyboardInterrupt:
        pass
    finally:
        _armed[0] = False
        sender.join()


def fork(pick: random.Random) -> None:
    """A child process computes, whatever the other threads were at."""
    x = _values(pick, 8, 128)
    child = os.fork()
    if not child:
        # Hangs: where, and status 1. To the file itself: Python's stream has a lock that a thread may hold.
        faulthandler.dump_traceback_later(_FORK_SECONDS / 2, exit=True, file=_STANDARD_ERROR)
        code = 1
        try:
            _same(tpuc.jit(lambda x: x * 2 + 1)(x), x * 2 + 1)
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + _FORK_SECONDS
    while time.monotonic() < end:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            if status:
                raise AssertionError(f"a forked child ended with status {status}")
            return
        time.sleep(0.02)
    stands = hung.where(child)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError(f"a forked child hung for {_FORK_SECONDS:g} s at\n{stands}")


MAIN_ROUNDS: tuple[Round, ...] = (interrupt, fork)
"""What the main thread does: it alone hears signals."""
