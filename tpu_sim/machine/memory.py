"""Emulated HBM: a sparse anonymous mapping, so that what is never touched costs nothing."""

from __future__ import annotations

import mmap
import sys

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.machine.faults import OutOfMemoryRangeFault

_PAGE_BYTES = mmap.PAGESIZE
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0  # not in Python's mmap before 3.13


class HbmMemory:
    """`size_bytes` of zeroed HBM. Offsets are bytes from its start.

    `address` is its host address for native code; `bytes` a writable uint8 view of all of it.
    A `part` is what a core sees through a base and a limit register: addresses from 0, the same
    bytes. So a program runs wherever in HBM it was put, and reaches nothing else.
    """

    def __init__(self, size_bytes: int) -> None:
        if size_bytes <= 0 or size_bytes % GRANULE_BYTES:
            raise ValueError(f"HBM size {size_bytes}: want a positive multiple of {GRANULE_BYTES}")
        self.size_bytes = size_bytes
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self._mapping = mmap.mmap(-1, size_bytes, flags=flags)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self._mapping.madvise(mmap.MADV_HUGEPAGE)
        self._start = 0
        self.bytes: npt.NDArray[np.uint8] = np.frombuffer(self._mapping, dtype=np.uint8)
        self.address: int = self.bytes.ctypes.data

    def part(self, offset: int, size_bytes: int) -> HbmMemory:
        """The range as a memory of its own; both are multiples of the granule."""
        if offset % GRANULE_BYTES or size_bytes % GRANULE_BYTES:
            raise ValueError(f"HBM range {offset}, {size_bytes}: want multiples of {GRANULE_BYTES}")
        found = HbmMemory.__new__(HbmMemory)
        found.bytes = self.view(offset, size_bytes)
        found.size_bytes, found.address = size_bytes, self.address + offset
        found._mapping, found._start = self._mapping, self._start + offset
        return found

    def view(self, offset: int, size_bytes: int) -> npt.NDArray[np.uint8]:
        """A writable view of a range; raises `OutOfMemoryRangeFault` if it is not inside HBM."""
        if offset < 0 or size_bytes < 0 or offset + size_bytes > self.size_bytes:
            raise OutOfMemoryRangeFault(
                f"HBM bytes {offset}..{offset + size_bytes} are not within 0..{self.size_bytes}"
            )
        return self.bytes[offset : offset + size_bytes]

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Copy a range out."""
        return self.view(offset, size_bytes).tobytes()

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Copy `data` in at `offset`."""
        self.view(offset, len(data))[:] = np.frombuffer(data, dtype=np.uint8)

    def discard(self, offset: int, size_bytes: int) -> None:
        """Zero a range, giving its whole pages back to the host."""
        view = self.view(offset, size_bytes)
        start = self._start + offset
        first = -(-start // _PAGE_BYTES) * _PAGE_BYTES
        last = (start + size_bytes) // _PAGE_BYTES * _PAGE_BYTES
        if last <= first or not hasattr(mmap, "MADV_DONTNEED"):
            view[:] = 0
            return
        view[: first - start] = 0
        view[last - start :] = 0
        self._mapping.madvise(mmap.MADV_DONTNEED, first, last - first)
