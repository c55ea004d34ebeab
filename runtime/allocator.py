"""A first-fit allocator for HBM.

Blocks are multiples of 512 bytes, HBM's granule. Arrays are allocated from the top down, programs
from the bottom up, so that what is free is mostly one piece between them.

Any thread may call. Blocks are given back by finalizers too, which Python may run in the middle of
anything, an allocation of the same thread included: a release never waits, it queues.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from threading import Lock

from compiler.diagnostics import ResourceExhaustedError
from tpu_sim.isa.geometry import GRANULE_BYTES


def in_granules(size_bytes: int) -> int:
    """`size_bytes` rounded up to what a block of them takes."""
    return -(-max(size_bytes, 1) // GRANULE_BYTES) * GRANULE_BYTES


class HbmAllocator:
    """Hands out [offset, offset + size) ranges below `capacity_bytes`."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._blocks: list[tuple[int, int, bool]] = []  # offset, size, is a program's; ascending
        self._array_bytes = self._program_bytes = self._peak_bytes = 0
        self._lock = Lock()
        self._released: deque[int] = deque()  # offsets given back and still in `_blocks`

    @property
    def used_bytes(self) -> int:
        """Bytes handed out."""
        return sum(self._bytes_by_owner())

    @property
    def array_bytes(self) -> int:
        """Bytes handed out to arrays."""
        return self._bytes_by_owner()[0]

    @property
    def program_bytes(self) -> int:
        """Bytes handed out to programs."""
        return self._bytes_by_owner()[1]

    @property
    def peak_bytes(self) -> int:
        """The most bytes that were handed out at once."""
        return self._peak_bytes

    @property
    def block_count(self) -> int:
        """How many blocks are handed out."""
        with self._lock:
            self._free_released()
            return len(self._blocks)

    @property
    def largest_free_bytes(self) -> int:
        """The size of the largest block that could be handed out."""
        with self._lock:
            self._free_released()
            return max((size for _, size in self._holes()), default=0)

    def allocate(self, size_bytes: int, *, for_program: bool = False) -> int:
        """Return the offset of a new block; raise ResourceExhaustedError when none fits."""
        size = in_granules(size_bytes)
        with self._lock:
            self._free_released()
            start = self._lowest_fit(size) if for_program else self._highest_fit(size)
            if start is not None:
                insort(self._blocks, (start, size, for_program))
                self._count(size, is_program=for_program)
                return start
            arrays, programs = self._array_bytes, self._program_bytes
        raise ResourceExhaustedError(
            f"RESOURCE_EXHAUSTED: no room for {size:,} bytes in HBM"
            f"{' for the program' if for_program else ''}; {arrays:,} of "
            f"{self.capacity_bytes:,} bytes are used by arrays, {programs:,} by programs"
        )

    def release(self, offset: int) -> None:
        """Free the block that starts at `offset`, now or, if the lock is held, with the next use."""
        self._released.append(offset)
        if self._lock.acquire(blocking=False):
            try:
                self._free_released()
            finally:
                self._lock.release()

    def _bytes_by_owner(self) -> tuple[int, int]:
        with self._lock:
            self._free_released()
            return self._array_bytes, self._program_bytes

    def _count(self, size: int, *, is_program: bool) -> None:
        """Statistics alone: what is free is told by the blocks."""
        if is_program:
            self._program_bytes += size
        else:
            self._array_bytes += size
        self._peak_bytes = max(self._peak_bytes, self._array_bytes + self._program_bytes)

    def _holes(self) -> Iterator[tuple[int, int]]:
        """(offset, size) of what is free, from the top down."""
        end = self.capacity_bytes
        for offset, size, _ in reversed(self._blocks):
            if end > offset + size:
                yield offset + size, end - offset - size
            end = offset
        if end:
            yield 0, end

    def _highest_fit(self, size: int) -> int | None:
        return next((at + free - size for at, free in self._holes() if free >= size), None)

    def _lowest_fit(self, size: int) -> int | None:
        end = 0
        for offset, taken, _ in self._blocks:
            if offset - end >= size:
                break
            end = offset + taken
        else:
            return end if self.capacity_bytes - end >= size else None
        return end

    def _free_released(self) -> None:
        """Take in the queue. The lock is held, so no other thread changes `_blocks`."""
        while self._released:
            offset = self._released.popleft()
            index = bisect_left(self._blocks, (offset,))
            if index == len(self._blocks) or self._blocks[index][0] != offset:
                raise ValueError(f"no block starts at {offset}")
            _, size, is_program = self._blocks.pop(index)
            self._count(-size, is_program=is_program)
