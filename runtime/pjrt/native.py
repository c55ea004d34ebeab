"""The native leaves, compiled and linked, and what Python does with them: blocks, errors, events."""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any

from runtime.pjrt.blocks import LINK, REFERENCES, SLOTS, VALUE_LINK, slot_count
from runtime.pjrt.leaves import NATIVE, caller, leaves_text
from runtime.pjrt.quick_leaf import EXECUTE
from tpu_sim.jit.engine import Engine, NativeModule, detect_host
from tpu_sim.machine.disk_cache import open_cache

_POINTER = ctypes.c_void_p
_PENDING = ctypes.PYFUNCTYPE(ctypes.c_int, _POINTER)

objects: dict[int, Any] = {}
"""What stands behind a handle, by its address."""
_blocks: dict[int, Any] = {}
_draining = Lock()
_SLOT_BYTES = 8


class Leaves:
    """The linked leaf functions."""

    def __init__(self) -> None:
        engine = Engine(detect_host(), open_cache(wanted=True))
        self._module: NativeModule = engine.link(engine.object_code(leaves_text()))
        self.addresses = {name: self._module.address(name) for name in NATIVE}
        self.error_new = self._function(
            "error_new", ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64
        )
        self.event_new = self._function("event_new")
        self.event_set = self._function(
            "event_set", _POINTER, ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64
        )
        self.event_is_done = self._function("event_is_done", _POINTER)
        self.collect = self._locked("collect")
        self.execute_quickly = self._locked(EXECUTE, ctypes.c_void_p, ctypes.c_void_p)
        self.take_values = self._function("take_values")
        self.ready: int = self._function("ready")()
        self._set_callback = self._function("set_callback", ctypes.c_int64, _POINTER)
        self._pending = _PENDING(_drain_pending)
        add = ctypes.cast(ctypes.pythonapi.Py_AddPendingCall, _POINTER).value
        set_drainer = self._function("set_drainer", _POINTER, _POINTER)
        set_drainer(add, ctypes.cast(self._pending, _POINTER).value)
        atexit.register(set_drainer, add, None)

    def caller(self, number: int, callback: int) -> int:
        """The address of a native function that calls a Python one with its argument and a place of 64 bits
        for the error; see `runtime.pjrt.leaves`."""
        self._set_callback(number, callback)
        return self._module.address(caller(number))

    def _function(self, name: str, *parameters: Any) -> Callable[..., Any]:
        found: Callable[..., Any] = ctypes.CFUNCTYPE(_POINTER, *parameters)(
            self._module.address(name)
        )
        return found

    def _locked(self, name: str, *parameters: Any) -> Callable[..., Any]:
        """A function that runs with the interpreter's lock held."""
        found: Callable[..., Any] = ctypes.PYFUNCTYPE(_POINTER, *parameters)(
            self._module.address(name)
        )
        return found


@cache
def leaves() -> Leaves:
    """The leaf functions; compiled, or found in the cache, at the first call."""
    return Leaves()


class Words:
    """Text that native code reads: its address and size, as long as this is alive."""

    __slots__ = ("_bytes", "address", "size")

    def __init__(self, text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        self._bytes = ctypes.create_string_buffer(data, len(data) + 1)
        self.address = ctypes.addressof(self._bytes)
        self.size = len(data)


def row_of(kind: Any, values: Any) -> Any:
    """A C array; ``ctypes.addressof`` it, and keep it alive."""
    values = list(values)
    return (kind * max(1, len(values)))(*values)


class Block:
    """A block of slots of some kind, which `owner` stands behind. It lives until PJRT lets go of it."""

    __slots__ = ("_slots", "address", "kept", "words")

    def __init__(self, kind: str, owner: object, *, is_permanent: bool = False) -> None:
        self._slots = SLOTS[kind]
        self.words = (ctypes.c_int64 * slot_count(kind))()
        self.words[REFERENCES] = 1
        self.address = ctypes.addressof(self.words)
        self.kept: list[object] = []
        objects[self.address] = owner
        _blocks[self.address] = self

    def set(self, **values: int | None) -> None:
        """Fill slots by their names."""
        for name, value in values.items():
            self.words[self._slots[name]] = value or 0

    def get(self, name: str) -> int:
        """What stands in a slot."""
        return self.words[self._slots[name]]

    def set_words(self, name: str, text: str | bytes) -> None:
        """Let the slots `name` and ``<name>_size`` say a text."""
        words = Words(text)
        self.kept.append(words)
        self.set(**{name: words.address, f"{name}_size": words.size})

    def set_row(self, name: str, kind: Any, values: Any, count: str | None = None) -> None:
        """Let slot `name` point at a C array, and slot `count` say how long it is."""
        values = list(values)
        row = row_of(kind, values)
        self.kept.append(row)
        self.set(**{name: ctypes.addressof(row)})
        if count is not None:
            self.set(**{count: len(values)})


def forget(address: int) -> None:
    """Nobody holds the block of a handle any more."""
    objects.pop(address, None)
    _blocks.pop(address, None)


def drain() -> None:
    """Let go of what PJRT has let go of since the last time. Any thread may; one at a time does.

    Buffers that have a stack go back there.

    Buffers that were destroyed are taken off first: one that was deleted before is then still whole
    when its value is given up.
    """
    native = leaves()
    if not _draining.acquire(blocking=False):
        return
    try:
        released, given_up = native.collect(), native.take_values()
        while given_up:
            following = _slot(given_up, VALUE_LINK)
            objects[given_up].give_up()
            given_up = following
        while released:
            following = _slot(released, LINK)
            forget(released)
            released = following
    finally:
        _draining.release()


def _slot(address: int, number: int) -> int:
    return ctypes.c_int64.from_address(address + _SLOT_BYTES * number).value


def _drain_pending(_: object) -> int:
    drain()
    return 0
