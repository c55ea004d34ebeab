"""Limits that a busy computer does not reach: processor time instead of time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

WAITING = 20.0
"""How many times as long a process may take that uses no processor."""

GIGABYTES = 6
OUT_OF_MEMORY = 77
"""The exit code of a process that took more than `GIGABYTES`."""


class SlowError(BaseException):
    """Not done in time; no `except Exception` swallows it."""


def _late(number: int, frame: FrameType | None) -> None:
    raise SlowError


@contextmanager
def processor_seconds(limit: float) -> Iterator[None]:
    """Raise `SlowError` in the block when this process has worked so long on it."""
    signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def watch_memory(gigabytes: int = GIGABYTES) -> None:
    """End this process when it takes too much. Limits of the system count the chip's HBM, too,
    which is reserved as a whole and hardly touched."""

    def watch() -> None:
        while True:
            with open("/proc/self/statm", encoding="ascii") as file:
                pages = int(file.read().split()[1])
            if pages * os.sysconf("SC_PAGE_SIZE") > gigabytes << 30:
                os._exit(OUT_OF_MEMORY)
            time.sleep(0.2)

    threading.Thread(target=watch, daemon=True).start()


class Stopwatch:
    """Processor time of another process."""

    def __init__(self, pid: int, limit: float) -> None:
        self.pid = pid
        self.limit = limit
        self.restart()

    def restart(self) -> None:
        """Begin anew."""
        self._spent = spent(self.pid)
        self._since = time.monotonic()

    def is_over(self) -> bool:
        """Whether it has worked longer than the limit, or waited many times as long."""
        waited = time.monotonic() - self._since
        return spent(self.pid) - self._spent > self.limit or waited > WAITING * self.limit


def spent(pid: int) -> float:
    """Seconds that a process has had of the processor."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
