"""The table of functions that jaxlib takes: native leaves, Python functions, and refusals of the rest."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from runtime.pjrt import (
    buffers,
    devices,
    execution,
    host_calls,
    programs,
    serialization,
    topologies,
)
from runtime.pjrt.failures import PjrtError, error_handle
from runtime.pjrt.layouts import FUNCTIONS, MAJOR, MINOR, ErrorCode, structure
from runtime.pjrt.native import SlotBlock, give_back, leaves, making
from runtime.pjrt.profiler import ProfilerExtension
from runtime.pjrt.values import NamedValues

Function = Callable[[Any], None]
_POINTER = ctypes.c_void_p
_C_FUNCTION = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)
_XLA_VERSION = (
    2  # of the plug-in attributes: what `xla_version` has been since the attribute exists
)
_CAPSULE = b"pjrt_c_api"


class _Table(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("extensions", _POINTER),
        ("version_size", ctypes.c_size_t),
        ("version_extensions", _POINTER),
        ("major", ctypes.c_int32),
        ("minor", ctypes.c_int32),
        ("functions", _POINTER * len(FUNCTIONS)),
    ]


_VERSION_BYTES = 24


@cache
def _attributes() -> NamedValues:
    return NamedValues(
        {
            "xla_version": _XLA_VERSION,
            "stablehlo_current_version": _numbers(stablehlo.get_current_version()),
            "stablehlo_minimum_version": _numbers(stablehlo.get_minimum_version()),
        }
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _plugin_attributes(a: Any) -> None:
    found = _attributes()
    a.attributes, a.num_attributes = found.address, found.count


_IMPLEMENTED: dict[str, Function] = {
    "Plugin_Attributes": _plugin_attributes,
    **devices.FUNCTIONS,
    **buffers.FUNCTIONS,
    **programs.FUNCTIONS,
    **execution.FUNCTIONS,
    **host_calls.FUNCTIONS,
    **serialization.FUNCTIONS,
    **topologies.FUNCTIONS,
}


def _wrapped(name: str, function: Function) -> Any:
    """A C function that calls the Python one; what that raises is the error it leaves in the place.

    Also a signal's handler may raise, anywhere. So no error is said as the last step, behind which
    nothing is called, and what a failed call has made is given back.
    """
    view = structure(name).from_address

    def call(
        address: int,
        place: int,
        function: Function = function,
        view: Callable[[int], Any] = view,
        at: Callable[[int], Any] = ctypes.c_uint64.from_address,
        is_over: Callable[[], bool] = sys.is_finalizing,
        failed: Callable[[BaseException], int] = error_handle,
        making: Any = making,
        give_back: Callable[[list[SlotBlock]], None] = give_back,
    ) -> None:  # names are bound here: at the end of the process globals go first
        error = at(place)
        if is_over():  # JAX's own functions at exit still wait for effects and ask for events
            error.value = 0
            return
        made: list[SlotBlock] = []
        outer = making.blocks  # a call comes from inside of another in callbacks
        try:
            making.blocks = made
            function(view(address))
            error.value = 0
        except BaseException as raised:
            give_back(made)
            error.value = failed(raised)
        finally:
            making.blocks = outer

    return _C_FUNCTION(call)


def _refusal(name: str) -> Any:
    def call(_: int, place: int) -> None:
        error = PjrtError(f"PJRT_{name}: tpuc does not have it", ErrorCode.UNIMPLEMENTED)
        ctypes.c_uint64.from_address(place).value = error_handle(error)

    return _C_FUNCTION(call)


@cache
def capsule() -> object:
    """The table in the capsule that jaxlib takes; made once, it lives as long as the process."""
    native, profiler = leaves(), ProfilerExtension()
    table = _Table()
    table.extensions = profiler.address
    table.struct_size, table.version_size = ctypes.sizeof(_Table), _VERSION_BYTES
    table.major, table.minor = MAJOR, MINOR
    callbacks = []
    for number, name in enumerate(FUNCTIONS):
        if name in native.addresses:
            table.functions[number] = native.addresses[name]
            continue
        function = _IMPLEMENTED.get(name)
        callback = _refusal(name) if function is None else _wrapped(name, function)
        callbacks.append(callback)
        address = ctypes.cast(callback, _POINTER).value
        assert address is not None
        table.functions[number] = native.caller(number, address)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [_POINTER, ctypes.c_char_p, _POINTER]
    _kept.append((table, callbacks, profiler))
    return new(ctypes.addressof(table), _CAPSULE, None)


_kept: list[object] = []
