"""`jax.profiler.trace` on the emulated chip: the profiler extension of PJRT's interface.

While a trace is taken, the runs of programs are kept; at its end they are the plane of each device, on the
chips' own clock, beside the planes of the host that JAX makes. The structures are those of the published
``profiler_c_api.h``; its errors are laid out as PJRT's, so that the same native functions serve.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from runtime.pjrt.failures import error_handle
from runtime.pjrt.native import leaves
from runtime.pjrt.profile import profile
from runtime.xspace import xspace_of

_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_FUNCTION = ctypes.CFUNCTYPE(_POINTER, _POINTER)
_PROFILER = 1
"""The extension's number among PJRT's."""


class _Create(ctypes.Structure):
    _fields_ = [
        ("struct_size", _SIZE),
        ("options", _POINTER),
        ("options_size", _SIZE),
        ("profiler", _POINTER),
    ]


class _Session(ctypes.Structure):
    _fields_ = [("struct_size", _SIZE), ("profiler", _POINTER)]


class _Collect(ctypes.Structure):
    _fields_ = [*_Session._fields_, ("buffer", _POINTER), ("size", _SIZE)]


class _Functions(ctypes.Structure):
    """What an extension of the kind leads to."""

    _fields_ = [("struct_size", _SIZE), ("private", _POINTER), ("functions", _POINTER * 8)]


class _Extension(ctypes.Structure):
    _fields_ = [
        ("struct_size", _SIZE),
        ("type", ctypes.c_int),
        ("next", _POINTER),
        ("functions", _POINTER),
        ("context", ctypes.c_int64),
    ]


class _Trace:
    """The one trace that may be under way in a process, and the bytes of the last one, which stay until the
    next one ends."""

    def __init__(self) -> None:
        self._bytes, self._size = ctypes.create_string_buffer(1), 0

    def create(self, a: Any) -> None:
        a.profiler = 1  # there is one, and nobody looks into it

    def destroy(self, a: Any) -> None:
        profile.stop_trace()
        self._bytes, self._size = ctypes.create_string_buffer(1), 0

    def start(self, a: Any) -> None:
        profile.start_trace()

    def stop(self, a: Any) -> None:
        found = xspace_of(profile.stop_trace())
        self._bytes, self._size = ctypes.create_string_buffer(found, len(found)), len(found)

    def collect(self, a: Any) -> None:
        """Without a place for the bytes, say where they are: jaxlib reads them there."""
        if a.buffer:
            ctypes.memmove(a.buffer, self._bytes, self._size)
        else:
            a.buffer = ctypes.cast(self._bytes, _POINTER).value
        a.size = self._size


def _wrapped(view: type[ctypes.Structure], function: Callable[[Any], None]) -> Any:
    def call(address: int) -> int:
        try:
            function(view.from_address(address))
        except BaseException as raised:
            return error_handle(raised)
        return 0

    return _FUNCTION(call)


class ProfilerExtension:
    """The extension, at `address` for as long as this lives."""

    def __init__(self) -> None:
        trace, native = _Trace(), leaves().addresses
        self._callbacks = [
            _wrapped(_Create, trace.create),
            _wrapped(_Session, trace.destroy),
            _wrapped(_Session, trace.start),
            _wrapped(_Session, trace.stop),
            _wrapped(_Collect, trace.collect),
        ]
        self._functions = _Functions(ctypes.sizeof(_Functions))
        self._functions.functions[:] = [
            *(native[name] for name in ("Error_Destroy", "Error_Message", "Error_GetCode")),
            *(ctypes.cast(callback, _POINTER).value for callback in self._callbacks),
        ]
        place = ctypes.addressof(self._functions)
        self._extension = _Extension(ctypes.sizeof(_Extension), _PROFILER, None, place)
        self.address = ctypes.addressof(self._extension)
