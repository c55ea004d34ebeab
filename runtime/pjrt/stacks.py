"""Stacks of buffers of one kind that nobody holds, ready to be results: made once, used again and again.

To make a buffer takes Python longer than a small program runs. So the results of small programs are taken
from a stack, and when PJRT destroys one it goes back there (`runtime.pjrt.recycling`), with its place in
HBM. One that Python has looked into (`PjrtBuffer.value`) goes the ordinary way: somebody may hold its array
for longer.

Native code takes and returns buffers with the interpreter's lock held, as Python does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from runtime.pjrt.blocks import HOME
from runtime.pjrt.native import SlotBlock, forget
from runtime.pjrt.recycling import CAPACITY, COUNT, FIRST

_CAPACITY = 64
"""Buffers of a kind that wait to be handed out."""
_REFILL = 8


class BufferStack:
    """Buffers that `make` makes, by their blocks. Raises what `make` raises."""

    def __init__(self, make: Callable[[], SlotBlock]) -> None:
        self._words = (ctypes.c_int64 * (FIRST + _CAPACITY))()
        self._words[CAPACITY] = _CAPACITY
        self._make = make
        self._made: list[SlotBlock] = []
        self.address = ctypes.addressof(self._words)

    def refill(self) -> None:
        """Make some more, if none is there."""
        self._made = [block for block in self._made if block.words[HOME] == self.address]
        while self._words[COUNT] < _REFILL:
            block = self._make()
            self._made.append(block)  # nothing is called from here on: no signal comes in between
            block.words[HOME] = self.address
            self._words[FIRST + self._words[COUNT]] = block.address
            self._words[COUNT] += 1

    def close(self) -> None:
        """Let go of those that nobody holds, and take none back any more.

        Whoever is interrupted here may do it again: `_made` holds the blocks, so no other has their handles.
        """
        for block in self._made:
            block.words[HOME] = 0
        for handle in self._words[FIRST : FIRST + self._words[COUNT]]:
            forget(handle)
        self._words[COUNT], self._made = 0, []
