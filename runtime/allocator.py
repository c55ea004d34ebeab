"""A first-fit allocator for buffers at the top of HBM.

Blocks are multiples of 512 bytes, HBM's granule. Allocation goes from the top down, so that the
space below `low_water_bytes` is one piece for a program's arena.

Any thread may call. Blocks are given back by finalizers too, which Python may run in the middle of
anything, an allocation of the same thread included: a release never waits, it queues.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from threading import Lock

from compiler.diagnostics import ResourceExhaustedError

GRANULE_BYTES = 512


class HbmAllocator:
    """Hands out [offset, offset + size) ranges below `capacity_bytes`."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.floor_bytes = 0  # the running program's arena ends here
        self._used: list[tuple[int, int]] = []  # (offset, size), ascending
        self._lock = Lock()
        self._released: deque[int] = deque()  # offsets given back and still in `_used`

    @property
    def low_water_bytes(self) -> int:
        """The lowest used offset: everything below is free for a program."""
        with self._lock:
            self._free_released()
            return self._lowest()

    @property
    def used_bytes(self) -> int:
        """Bytes handed out."""
        with self._lock:
            self._free_released()
            return self._handed_out()

    def claim_floor(self, size_bytes: int) -> bool:
        """Keep [0, size_bytes) free of blocks from now on; False if some block lies there."""
        with self._lock:
            self._free_released()
            if size_bytes > self._lowest():
                return False
            self.floor_bytes = size_bytes
            return True

    def allocate(self, size_bytes: int) -> int:
        """Return the offset of a new block; raise ResourceExhaustedError when none fits."""
        size = -(-max(size_bytes, 1) // GRANULE_BYTES) * GRANULE_BYTES
        with self._lock:
            self._free_released()
            start = self._highest_hole(size)
            if start >= self.floor_bytes:
                insort(self._used, (start, size))
                return start
            used = self._handed_out()
        raise ResourceExhaustedError(
            f"RESOURCE_EXHAUSTED: no room for {size:,} bytes in HBM; {used:,} of "
            f"{self.capacity_bytes:,} bytes are used by arrays, "
            f"{self.floor_bytes:,} by the program"
        )

    def release(self, offset: int) -> None:
        """Free the block that starts at `offset`, now or, if the lock is held, with the next use."""
        self._released.append(offset)
        if self._lock.acquire(blocking=False):
            try:
                self._free_released()
            finally:
                self._lock.release()

    def _lowest(self) -> int:
        return self._used[0][0] if self._used else self.capacity_bytes

    def _handed_out(self) -> int:
        return sum(size for _, size in self._used)

    def _highest_hole(self, size: int) -> int:
        """Where a block of `size` ends up; below the floor when nothing fits."""
        end = self.capacity_bytes
        for offset, used in reversed(self._used):
            if end - (offset + used) >= size:
                break
            end = offset
        return end - size

    def _free_released(self) -> None:
        """Take in the queue. The lock is held, so no other thread changes `_used`."""
        while self._released:
            offset = self._released.popleft()
            index = bisect_left(self._used, (offset, 0))
            if index == len(self._used) or self._used[index][0] != offset:
                raise ValueError(f"no block starts at {offset}")
            del self._used[index]
