"""Constant data of one native function: lists of steps and commands that kernels go through."""

from __future__ import annotations

from array import array
from collections.abc import Iterable


class ConstantTable:
    """Lists of words, each kept once; `define` is the text of the constant they lie in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._data = bytearray()
        self._offsets: dict[bytes, int] = {}

    def add(self, words: Iterable[int], typecode: str) -> int:
        """The byte offset of a list of words, of `array`'s `typecode` and aligned to 8 bytes."""
        data = array(typecode, words).tobytes()
        offset = self._offsets.get(data)
        if offset is None:
            self._data += bytes(-len(self._data) % 8)
            offset = self._offsets[data] = len(self._data)
            self._data += data
        return offset

    def define(self) -> str:
        """The constant, nothing if it is empty."""
        if not self._data:
            return ""
        text = "\\" + self._data.hex("\\")
        size = len(self._data)
        return f'@{self.name} = internal constant [{size} x i8] c"{text}", align 8\n\n'
