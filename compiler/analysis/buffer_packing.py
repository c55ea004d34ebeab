"""Packs buffers with live ranges into one memory: best fit in a sorted list of free blocks.

Buffers are taken in order of their start; what ended before is freed first and joins its free
neighbours. Among the free blocks the smallest that is large enough is used, at the block's low
end; without one the memory grows. O(n log n) with list operations of C speed.
"""

from __future__ import annotations

import bisect
import heapq
from dataclasses import dataclass


@dataclass(frozen=True)
class Request:
    """One buffer: identity `key`, size, and the positions [start, end] it is live at.

    One that `comes_last` has what the others leave.
    """

    key: int
    size_bytes: int
    start: int
    end: int
    comes_last: bool = False


class FreeList:
    """Free blocks of a growing memory, by offset and by size."""

    def __init__(self, base: int) -> None:
        self._offsets: list[int] = []
        self._sizes: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []
        self.limit = base

    def take(self, size: int) -> int:
        """Allocate `size` bytes; return the offset."""
        position = bisect.bisect_left(self._by_size, (size, -1))
        if position < len(self._by_size):
            block_size, offset = self._by_size[position]
            self._remove(offset)
            if block_size > size:
                self._insert(offset + size, block_size - size)
            return offset
        return self._grow(size)

    def _grow(self, size: int) -> int:
        if self._offsets:
            last = self._offsets[-1]
            if last + self._sizes[last] == self.limit:
                self._remove(last)
                self.limit = last + size
                return last
        offset = self.limit
        self.limit += size
        return offset

    def give(self, offset: int, size: int) -> None:
        """Return a block, joining it with free neighbours."""
        position = bisect.bisect_left(self._offsets, offset)
        if position < len(self._offsets) and self._offsets[position] == offset + size:
            size += self._sizes[offset + size]
            self._remove(self._offsets[position])
        if position > 0:
            before = self._offsets[position - 1]
            if before + self._sizes[before] == offset:
                size += self._sizes[before]
                self._remove(before)
                offset = before
        self._insert(offset, size)

    def _insert(self, offset: int, size: int) -> None:
        bisect.insort(self._offsets, offset)
        self._sizes[offset] = size
        bisect.insort(self._by_size, (size, offset))

    def _remove(self, offset: int) -> None:
        size = self._sizes.pop(offset)
        del self._offsets[bisect.bisect_left(self._offsets, offset)]
        del self._by_size[bisect.bisect_left(self._by_size, (size, offset))]


def pack(requests: list[Request], base: int, alignment: int) -> tuple[dict[int, int], int]:
    """Give every request an offset at or above `base`; return offsets by key, and the end."""
    free = FreeList(base)
    offsets: dict[int, int] = {}
    live: list[tuple[int, int, int]] = []
    for request in sorted(requests, key=lambda r: (r.start, -r.size_bytes, r.key)):
        while live and live[0][0] < request.start:
            _, offset, size = heapq.heappop(live)
            free.give(offset, size)
        size = max(alignment, -(-request.size_bytes // alignment) * alignment)
        offset = free.take(size)
        offsets[request.key] = offset
        heapq.heappush(live, (request.end, offset, size))
    return offsets, free.limit
