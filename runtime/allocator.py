"""A first-fit allocator for HBM.

Blocks are multiples of 512 bytes, HBM's granule. Arrays are allocated from the top down, programs
from the bottom up, so that what is free is mostly one piece between them.

Any thread may call. A `Block` is held by who holds the object, and free when nobody does any more: what
notes that is a weak reference that appends itself to a list, and no step of Python. A finalizer written in
Python would not do: a signal's handler may raise where it begins, and the block would stay taken.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator
from weakref import ReferenceType

from compiler.diagnostics import ResourceExhaustedError
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.machine.fork_lock import ForkLock


def in_granules(size_bytes: int) -> int:
    """`size_bytes` rounded up to what a block of them takes."""
    return -(-max(size_bytes, 1) // GRANULE_BYTES) * GRANULE_BYTES


class Block:
    """A range of HBM from `offset` on, taken for as long as somebody holds this."""

    __slots__ = ("__weakref__", "offset")

    offset: int


class _Holder(ReferenceType[Block]):
    """Whoever holds a block, as the allocator knows them; `offset` is that of the block."""

    __slots__ = ("offset",)

    offset: int


_Entry = tuple[int, int, bool, _Holder]
"""Offset, size, whether it is a program's, who holds it."""


class HbmAllocator:
    """Hands out blocks [offset, offset + size) below `capacity_bytes`.

    An exception may come between any two steps, as a signal's handler raises one: each step leaves the table
    of blocks whole, and what is counted of it is counted anew where the count was not finished.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._blocks: list[_Entry] = []  # ascending
        self._counted: tuple[int, int] | None = (0, 0)  # bytes of arrays, of programs
        self._peak_bytes = 0
        self._lock = ForkLock()
        self._released: deque[_Holder] = deque()  # of free blocks that are still in `_blocks`

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
        with self._lock.here:
            self._free_released()
            return len(self._blocks)

    @property
    def largest_free_bytes(self) -> int:
        """The size of the largest block that could be handed out."""
        with self._lock.here:
            self._free_released()
            return max((size for _, size in self._holes()), default=0)

    def allocate(self, size_bytes: int, *, for_program: bool = False) -> Block:
        """Return a new block; raise ResourceExhaustedError when none fits."""
        size = in_granules(size_bytes)
        with self._lock.here:
            if self._released:
                self._free_released()
            arrays, programs = self._counted or self._totals()
            start = self._lowest_fit(size) if for_program else self._highest_fit(size)
            if start is not None:
                block = Block()
                holder = _Holder(block, self._released.append)
                block.offset = holder.offset = start
                self._counted = None
                insort(self._blocks, (start, size, for_program, holder))
                used = arrays + programs + size
                if used > self._peak_bytes:
                    self._peak_bytes = used
                self._counted = (
                    (arrays, used - arrays) if for_program else (used - programs, programs)
                )
                return block
        raise ResourceExhaustedError(
            f"RESOURCE_EXHAUSTED: no room for {size:,} bytes in HBM"
            f"{' for the program' if for_program else ''}; {arrays:,} of "
            f"{self.capacity_bytes:,} bytes are used by arrays, {programs:,} by programs"
        )

    def _bytes_by_owner(self) -> tuple[int, int]:
        with self._lock.here:
            self._free_released()
            return self._totals()

    def _totals(self) -> tuple[int, int]:
        """Bytes of arrays and of programs."""
        if self._counted is None:
            programs = sum(size for _, size, is_program, _ in self._blocks if is_program)
            self._counted = sum(size for _, size, *_ in self._blocks) - programs, programs
        return self._counted

    def _holes(self) -> Iterator[tuple[int, int]]:
        """(offset, size) of what is free, from the top down."""
        end = self.capacity_bytes
        for offset, size, _, _ in reversed(self._blocks):
            if end > offset + size:
                yield offset + size, end - offset - size
            end = offset
        if end:
            yield 0, end

    def _highest_fit(self, size: int) -> int | None:
        return next((at + free - size for at, free in self._holes() if free >= size), None)

    def _lowest_fit(self, size: int) -> int | None:
        end = 0
        for offset, taken, _, _ in self._blocks:
            if offset - end >= size:
                break
            end = offset + taken
        else:
            return end if self.capacity_bytes - end >= size else None
        return end

    def _free_released(self) -> None:
        """Take what is free off the table. The lock is held, so no other thread changes `_blocks`.

        Each leaves the queue after the table: whoever is interrupted in between is followed by one who
        finds the table without it, or its place taken by another.
        """
        while self._released:
            holder = self._released[0]
            index = bisect_left(self._blocks, (holder.offset,))
            if index < len(self._blocks) and self._blocks[index][-1] is holder:
                arrays, programs = self._counted or self._totals()
                self._counted = None
                _, size, is_program, _ = self._blocks.pop(index)
                self._counted = (
                    (arrays, programs - size) if is_program else (arrays - size, programs)
                )
            self._released.popleft()
