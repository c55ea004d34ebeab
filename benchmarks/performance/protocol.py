"""What the two sides have in common, and the JSON lines spoken with their processes."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.performance.inputs import Array
from compiler.hlo.shape import ArrayShape

Place = Callable[[ArrayShape, int], Array]
"""Makes input number n of that shape."""


@dataclass(frozen=True)
class Compiled:
    """Seconds from text to ready to run, by stage where they are known.

    `needed_bytes` is the memory that its inputs and an execution will take; `is_loaded` says that
    nothing was compiled, since an earlier process had left the program on disk.
    """

    seconds: float
    stages: dict[str, float]
    needed_bytes: int
    is_loaded: bool = False


class Side(Protocol):
    """One of the two compilers in a process of its own."""

    def warm_up(self) -> None:
        """Load everything that is loaded once for a process."""

    def compile(self, text: str) -> Compiled:
        """Compile and keep the program."""

    def place(self, make: Place) -> None:
        """Make the inputs and leave them on the device."""

    def replace_donated(self) -> None:
        """Make those inputs anew that the last call took for its results."""

    def execute(self) -> None:
        """One call, until its outputs are there; they stay on the device."""

    def outputs(self) -> Sequence[object]:
        """The results of the last call, for np.asarray."""

    def facts(self) -> dict[str, object]:
        """What the side knows of its program and last call."""


def cpu_seconds() -> float:
    """Processor time of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_resident_bytes() -> int:
    """The most memory that this process has had resident."""
    with open("/proc/self/status") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def timed_calls(side: Side, budget: float, most: int) -> list[tuple[float, float]]:
    """(wall, processor) seconds of calls, until `budget` seconds are used or `most` are made."""
    times: list[tuple[float, float]] = []
    started = time.perf_counter()
    while not times or (len(times) < most and time.perf_counter() - started < budget):
        side.replace_donated()
        before, cpu = time.perf_counter(), cpu_seconds()
        side.execute()
        times.append((time.perf_counter() - before, cpu_seconds() - cpu))
    return times
