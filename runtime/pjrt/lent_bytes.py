"""Bytes that we lend to PJRT: they stay until it calls the deleter that goes with them."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

_lent: dict[int, Any] = {}


class LentBytes(NamedTuple):
    """Where the bytes are, how many, and the function that gives them back, called with the address."""

    address: int
    size: int
    deleter: int | None


def lend(data: bytes) -> LentBytes:
    """A copy of the bytes for PJRT."""
    room = ctypes.create_string_buffer(data, len(data))
    address = ctypes.addressof(room)
    _lent[address] = room
    return LentBytes(address, len(data), ctypes.cast(_DELETER, ctypes.c_void_p).value)


def _forget(address: int, lent: dict[int, Any] = _lent) -> None:
    lent.pop(address, None)


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_forget)
