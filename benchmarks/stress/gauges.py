"""What a process holds: memory by who holds it, handles, files, bytes of the emulated HBM."""

from __future__ import annotations

import ctypes
import gc
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from runtime.pjrt import native

_MB = 1 << 20
_FIELDS = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip


class _MallocCounts(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


@dataclass(frozen=True)
class Gauges:
    """What is held at a moment."""

    resident_mb: float
    """Of the process."""
    used_mb: float
    """By blocks of malloc that somebody holds; 0 where the C library does not say."""
    free_mb: float
    """By blocks of malloc that nobody holds and the C library keeps."""
    objects: int
    """Python's containers."""
    handles: int
    """What jaxlib holds of the plug-in."""
    files: int
    hbm_bytes: int

    def line(self) -> str:
        """The values with their names."""
        return (
            f"resident {self.resident_mb:,.1f} MB, malloc {self.used_mb:,.1f} used {self.free_mb:,.1f} free, "
            f"{self.objects:,} objects, {self.handles} handles, {self.files} files, "
            f"HBM {self.hbm_bytes:,} bytes"
        )


def _c_function(name: str) -> Any:
    """A function of the C library; None where it has no such one."""
    return getattr(ctypes.CDLL(None), name, None)


def _malloc_counts() -> tuple[float, float]:
    counts = _c_function("mallinfo2")
    if counts is None:
        return 0.0, 0.0
    counts.restype = _MallocCounts
    found = counts()
    return (found.uordblks + found.hblkhd) / _MB, found.fordblks / _MB


def trim() -> None:
    """Give back to the system what malloc keeps free, where the C library can."""
    found = _c_function("malloc_trim")
    if found is not None:
        found(0)


def read() -> Gauges:
    """The gauges, when JAX has forgotten its programs, and Python's garbage and jaxlib's handles are gone."""
    jax.clear_caches()  # type: ignore[no-untyped-call]
    for _ in range(2):  # what one lets go of is the other's
        native.drain()
        gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    used, free = _malloc_counts()
    return Gauges(
        resident_mb=pages * os.sysconf("SC_PAGE_SIZE") / _MB,
        used_mb=used,
        free_mb=free,
        objects=len(gc.get_objects()),
        handles=len(native.objects),
        files=len(os.listdir("/proc/self/fd")),
        hbm_bytes=sum(d.memory_stats()["bytes_in_use"] for d in jax.devices()),
    )
