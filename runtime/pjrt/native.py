"""The native leaves, compiled and linked, and what Python does with them: blocks, errors, events."""

from __future__ import annotations

import atexit
import ctypes
import os
from collections import deque
from collections.abc import Callable
from functools import cache
from itertools import repeat
from threading import RLock, local
from typing import Any
from weakref import ReferenceType

from runtime.pjrt.blocks import HOME, REFERENCES, SLOTS, slot_count
from runtime.pjrt.leaves import NATIVE, caller, leaves_text
from runtime.pjrt.quick_leaf import EXECUTE
from tpu_sim.jit.engine import Engine, NativeModule, detect_host
from tpu_sim.machine.disk_cache import open_cache

_POINTER = ctypes.c_void_p
_PENDING = ctypes.PYFUNCTYPE(None, _POINTER)

objects: dict[int, Any] = {}
"""What stands behind a handle, by its address; it holds the handle's block."""
_draining = RLock()
_all_of = deque[object](maxlen=0).extend
"""Goes through an iterator without running Python code between its items."""


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
        self.next_released = self._locked("next_released")
        self.next_given_up = self._locked("next_given_up")
        self.ready: int = self._function("ready")()
        self._set_callback = self._function("set_callback", ctypes.c_int64, _POINTER)
        self._pending = _PENDING(_drain_pending)
        api = ctypes.pythonapi
        functions = (api.Py_AddPendingCall, api.PyErr_SetObject, api.Py_DecRef)
        found = [ctypes.cast(function, _POINTER).value for function in functions]
        set_drainer = self._function("set_drainer", *[_POINTER] * (len(found) + 1))
        set_drainer(*found, ctypes.cast(self._pending, _POINTER).value)
        atexit.register(set_drainer, *found, None)

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


class _Making(local):
    """Of each thread."""

    blocks: list[SlotBlock] | None = None


making = _Making()
"""The blocks that the call of PJRT which is under way has made."""


def give_back(blocks: list[SlotBlock]) -> None:
    """PJRT is told that its call failed, so it will not let go of these. Those of a stack are the stack's."""
    for block in blocks:
        if not block.words[HOME]:
            forget(block.address)


class SlotBlock:
    """A block of slots of some kind, which `owner` stands behind. It lives until PJRT lets go of it.

    A permanent one lives on whatever becomes of the call that made it.
    """

    __slots__ = ("_slots", "address", "kept", "words")

    def __init__(self, kind: str, owner: object, *, is_permanent: bool = False) -> None:
        self._slots = SLOTS[kind]
        self.words = (ctypes.c_int64 * slot_count(kind))()
        self.words[REFERENCES] = 1
        self.address = ctypes.addressof(self.words)
        self.kept: list[object] = []
        if not is_permanent and making.blocks is not None:
            making.blocks.append(self)
        objects[self.address] = owner

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


class _Remains(ReferenceType[Any]):
    """What somebody leaves behind: `close` is to be called when he is gone."""

    __slots__ = ("close",)

    close: Callable[[], None]


_remains: set[_Remains] = set()
_gone: deque[_Remains] = deque()


def when_gone(owner: object, close: Callable[[], None]) -> None:
    """Let the next `drain` after `owner` is gone call `close`, once more if it was interrupted.

    A finalizer written in Python would not do: where it begins a signal's handler may raise, and it is not
    called again.
    """
    remains = _Remains(owner, _gone.append)
    remains.close = close
    _remains.add(remains)


def drain() -> None:
    """Let go of what PJRT has let go of since the last time. Any thread may; one at a time does.

    Buffers that have a stack go back there.

    What was destroyed is set apart first: a buffer that was deleted before is then still whole when its
    value is given up. A signal's handler may raise between any two steps of Python, so no handle is ever in
    Python's hands alone: each goes from the native list to the table in one step, and what an interrupted
    drain leaves is the next one's.
    """
    native = leaves()
    draining = _draining
    if not draining.acquire(blocking=False):
        return
    try:
        while _gone:
            remains = _gone[0]
            remains.close()  # may be interrupted, and is then done again
            _remains.discard(remains)
            _gone.popleft()
        native.collect()
        deleted = map(objects.__getitem__, iter(native.next_given_up, None))
        _all_of(map(setattr, deleted, repeat("array"), repeat(None)))
        _all_of(map(objects.pop, iter(native.next_released, None), repeat(None)))
    finally:
        draining.release()


def _renew() -> None:
    """In a forked process nobody drains yet: the thread that did is the other process's."""
    global _draining
    _draining = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def _drain_pending(place: int) -> None:
    """Drain; `place` gets the type of an exception and a reference to it, for the interpreter to raise."""
    try:
        drain()
    except BaseException as raised:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(raised))
        (_POINTER * 2).from_address(place)[:] = [id(type(raised)), id(raised)]
