"""A first-fit allocator for buffers at the top of HBM.

Blocks are multiples of 512 bytes, HBM's granule. Allocation goes from the top down, so that the
space below `low_water_bytes` is one piece for a program's arena.
"""

from __future__ import annotations

from bisect import insort

from compiler.diagnostics import ResourceExhaustedError

GRANULE_BYTES = 512


class HbmAllocator:
    """Hands out [offset, offset + size) ranges below `capacity_bytes`."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self.floor_bytes = 0  # the running program's arena ends here
        self._used: list[tuple[int, int]] = []  # (offset, size), ascending

    @property
    def low_water_bytes(self) -> int:
        """The lowest used offset: everything below is free for a program."""
        return self._used[0][0] if self._used else self.capacity_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes handed out."""
        return sum(size for _, size in self._used)

    def allocate(self, size_bytes: int) -> int:
        """Return the offset of a new block; raise ResourceExhaustedError when none fits."""
        size = -(-max(size_bytes, 1) // GRANULE_BYTES) * GRANULE_BYTES
        end = self.capacity_bytes
        for offset, used in reversed(self._used):
            if end - (offset + used) >= size:
                break
            end = offset
        start = end - size
        if start < self.floor_bytes:
            raise ResourceExhaustedError(
                f"RESOURCE_EXHAUSTED: no room for {size:,} bytes in HBM; {self.used_bytes:,} of "
                f"{self.capacity_bytes:,} bytes are used by arrays, "
                f"{self.floor_bytes:,} by the program"
            )
        insort(self._used, (start, size))
        return start

    def release(self, offset: int) -> None:
        """Free the block that starts at `offset`."""
        index = next(i for i, (start, _) in enumerate(self._used) if start == offset)
        del self._used[index]
