"""A signal's handler that raises at a place of one's choice, of all where the interpreter looks for signals.

The handler is native code: one in Python has such places of its own. It asks for the signal again until the
place has come, so that the interpreter calls it wherever it could call a handler.
"""

from __future__ import annotations

import ctypes
import signal
from collections.abc import Callable
from functools import cache
from typing import Any

from tpu_sim.jit.engine import Engine, detect_host

_SIGNAL = signal.SIGUSR1


class Interruption(BaseException):
    """What the handler raises: nobody catches it by name."""


_left = ctypes.c_int64(-1)
"""How many places are still to come; below 0 there is nothing to do."""


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


@cache
def _handler() -> tuple[Callable[..., Any], object]:
    """The handler, and what its code lies in."""
    api = ctypes.pythonapi
    module = Engine(detect_host(), None)
    text = f"""
define i32 @handler(i32 %signal, ptr %frame) {{
  %place = inttoptr i64 {ctypes.addressof(_left)} to ptr
  %left = load i64, ptr %place
  %is_off = icmp slt i64 %left, 0
  br i1 %is_off, label %out, label %on
on:
  %less = sub i64 %left, 1
  store i64 %less, ptr %place
  %is_here = icmp slt i64 %less, 0
  br i1 %is_here, label %fail, label %again
fail:
  %set_none = inttoptr i64 {_address(api.PyErr_SetNone)} to ptr
  %error = inttoptr i64 {id(Interruption)} to ptr
  call void %set_none(ptr %error)
  ret i32 0
again:
  %interrupt = inttoptr i64 {_address(api.PyErr_SetInterruptEx)} to ptr
  %ignored = call i32 %interrupt(i32 %signal)
  ret i32 0
out:
  ret i32 0
}}"""
    linked = module.link(module.object_code(text))
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.py_object)
    return kind(linked.address("handler")), linked


def interrupted_at(number: int, work: Callable[[], Any]) -> bool:
    """Call `work` in the main thread, and raise `Interruption` at the place of that number, from 0 on.

    False if it was over before. What `work` raises then does not come out of here.
    """
    before = signal.signal(_SIGNAL, _handler()[0])
    try:
        _left.value = number
        signal.raise_signal(_SIGNAL)
        work()
    except BaseException:
        if _left.value >= 0:
            raise
    finally:
        fired, _left.value = _left.value < 0, -1
        signal.signal(_SIGNAL, before)
    return fired
