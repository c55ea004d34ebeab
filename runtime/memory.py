"""`Memory`: a device's HBM, and who has which part of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Protocol
from weakref import ReferenceType, ref

from compiler.diagnostics import ResourceExhaustedError
from runtime.allocator import Block, HbmAllocator
from runtime.transfer import Bytes
from tpu_sim.isa.cached_property import cached_property
from tpu_sim.machine.fork_lock import ForkLock
from tpu_sim.machine.memory import HbmMemory

_MOST_IDLE_BYTES = 1 << 30
"""Programs that do not run keep their constants and arguments in HBM, so that the next call finds
them there. What they keep altogether, beside the program that was called last, costs the host this
much memory at most."""


class Evictable(Protocol):
    """A program's place in HBM, which it can do without between two calls."""

    size_bytes: int
    last_use: int

    @property
    def is_idle(self) -> bool:
        """Whether it takes room, and no call is using it."""

    def evict(self) -> None:
        """Give the room back. Raises `ResourceExhaustedError` if arrays in it find no other."""


class Memory:
    """`size_bytes` of HBM; host memory is taken for what is touched.

    `lock` is held while data move or are read, and never while a program runs: nobody waits for a
    run to read what is there already. `copied_bytes` counts what moved from place to place in HBM
    for arrays' sake. `finish_work` waits for the device's calls, and says whether there were any.
    """

    kind = "device"

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.allocator = HbmAllocator(size_bytes)
        self.lock = ForkLock(RLock)
        self.copied_bytes = 0
        self.uses = 0  # calls so far: the clock of `Evictable.last_use`
        self._programs: set[ReferenceType[Evictable]] = set()
        self.finish_work: Callable[[], bool] = lambda: False

    @cached_property
    def hbm(self) -> HbmMemory:
        """The bytes."""
        return HbmMemory(self.size_bytes)

    def stats(self) -> dict[str, int]:
        """Bytes in use, their peak and limit, and more; the names are those of JAX."""
        allocator = self.allocator
        return {
            "bytes_in_use": allocator.used_bytes,
            "peak_bytes_in_use": allocator.peak_bytes,
            "bytes_limit": self.size_bytes,
            "num_allocs": allocator.block_count,
            "largest_free_block_bytes": allocator.largest_free_bytes,
        }

    def allocate(self, size_bytes: int, *, for_program: bool = False, waits: bool = True) -> Block:
        """A new block; what idle programs hold is given up for it, longest idle first.

        A program that is about to run is not idle yet: where nothing else makes room, this `waits`
        for what the device has to do. Who holds `lock` must not.
        """
        try:
            return self._allocate_now(size_bytes, for_program)
        except ResourceExhaustedError:
            if not waits or not self.finish_work():
                raise
            return self._allocate_now(size_bytes, for_program)

    def _allocate_now(self, size_bytes: int, for_program: bool) -> Block:
        try:
            return self.allocator.allocate(size_bytes, for_program=for_program)
        except ResourceExhaustedError:
            with self.lock.here:
                for program in self._idle_programs():
                    try:
                        program.evict()
                        return self.allocator.allocate(size_bytes, for_program=for_program)
                    except ResourceExhaustedError:
                        continue
            raise

    def keep(self, program: Evictable) -> None:
        """A program holds memory here, which it gives up when it is idle and others need it."""
        self._programs.add(ref(program, self._programs.discard))

    def limit_idle(self) -> None:
        """Evict programs, longest idle first, until the others keep little enough."""
        idle = self._idle_programs()
        kept = sum(program.size_bytes for program in idle)
        for program in idle:
            if kept <= _MOST_IDLE_BYTES:
                return
            try:
                program.evict()
            except ResourceExhaustedError:
                continue  # an array that lies there has nowhere else to go
            kept -= program.size_bytes

    def copy(self, sources: Sequence[Bytes], targets: Sequence[Bytes]) -> None:
        """Copy the planes of an array to places that are at least as large."""
        for source, target in zip(sources, targets, strict=True):
            target[: source.size] = source
            self.copied_bytes += source.size

    def _idle_programs(self) -> list[Evictable]:
        # Copied in one step: other threads add programs meanwhile, and a WeakSet would notice.
        found = [reference() for reference in list(self._programs)]
        idle = [program for program in found if program is not None and program.is_idle]
        return sorted(idle, key=lambda program: program.last_use)
