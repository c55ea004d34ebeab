"""Lists of named values, in which PJRT asks for attributes and statistics."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from runtime.pjrt.layouts import structure
from runtime.pjrt.native import Words, row_of

Value = bool | int | float | str | Sequence[int]
_STRING, _INT64, _INT64_LIST, _FLOAT, _BOOL = range(5)


def read_named_values(address: int | None, count: int) -> dict[str, object]:
    """What a C array of named values says: integers and texts as such, lists of integers as tuples."""
    if not address or not count:
        return {}
    row = (structure("NamedValue") * count).from_address(address)
    return {ctypes.string_at(e.name, e.name_size).decode(): _decoded(e) for e in row}


def _decoded(entry: Any) -> object:
    if entry.type == _STRING:
        return ctypes.string_at(entry.value, entry.value_size).decode()
    if entry.type == _INT64_LIST:
        return tuple((ctypes.c_int64 * entry.value_size).from_address(entry.value))
    if entry.type == _FLOAT:
        return float(struct.unpack("<f", struct.pack("<I", entry.value & 0xFFFFFFFF))[0])
    return bool(entry.value & 1) if entry.type == _BOOL else int(entry.value)


class NamedValues:
    """A C array of named values; `address` and `count` hold as long as this is alive."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._kept: list[object] = []
        self._row = (structure("NamedValue") * max(1, len(values)))()
        for entry, (name, value) in zip(self._row, values.items(), strict=False):
            words = Words(name)
            self._kept.append(words)
            entry.struct_size = ctypes.sizeof(structure("NamedValue"))
            entry.name, entry.name_size = words.address, words.size
            entry.type, entry.value, entry.value_size = self._encoded(value)
        self.address = ctypes.addressof(self._row)
        self.count = len(values)

    def _encoded(self, value: Value) -> tuple[int, int, int]:
        """The number of its type, the 64 bits of the union, the size."""
        if isinstance(value, bool):
            return _BOOL, int(value), 1
        if isinstance(value, int):
            return _INT64, value, 1
        if isinstance(value, float):
            return _FLOAT, struct.unpack("<I", struct.pack("<f", value))[0], 1
        if isinstance(value, str):
            words = Words(value)
            self._kept.append(words)
            return _STRING, words.address, words.size
        row = row_of(ctypes.c_int64, value)
        self._kept.append(row)
        return _INT64_LIST, ctypes.addressof(row), len(value)
