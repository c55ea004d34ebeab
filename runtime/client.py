"""Client and device: one emulated chip, its HBM, and the machine that executes on it.

A device's HBM is shared by everything: a program's own arena lies at offset 0 while it runs, and
buffers placed by `device_put` lie at the top, growing downwards.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from threading import RLock
from typing import Protocol
from weakref import WeakSet

from compiler.diagnostics import ResourceExhaustedError
from runtime.allocator import HbmAllocator
from runtime.transfer import Bytes
from tpu_sim.isa.chips import Chip, load_chip
from tpu_sim.machine.fork_lock import ForkLock
from tpu_sim.machine.memory import HbmMemory


class Tenant(Protocol):
    """A value that may lie in the arena after the program that made it has ended."""

    def leave_arena(self) -> None:
        """Move to a block of its own, if it has none."""


@dataclass
class Device:
    """One chip: `hbm` holds its memory, `allocator` the part above the running program.

    `lock` is held while a program's arena is written or read. `lent` are weak references to
    results that lie in the arena; they leave it before any program runs. `settled` are arguments
    that lie there; they leave it before another program runs. `copied_bytes` counts what moved from
    place to place in HBM for arrays' sake.
    """

    chip: Chip
    hbm: HbmMemory
    allocator: HbmAllocator
    resident: object = None  # the executable whose constants are in HBM
    arena_bytes: int = 0
    lock: ForkLock = field(default_factory=lambda: ForkLock(RLock))
    lent: list[Callable[[], Tenant | None]] = field(default_factory=list)
    settled: WeakSet[Tenant] = field(default_factory=WeakSet)
    copied_bytes: int = 0

    def copy(self, sources: Sequence[Bytes], targets: Sequence[Bytes]) -> None:
        """Copy the planes of an array to places that are at least as large."""
        for source, target in zip(sources, targets, strict=True):
            target[: source.size] = source
            self.copied_bytes += source.size

    def clear_arena(self, owner: object, staying: Collection[Tenant] = ()) -> None:
        """Let what `owner` would overwrite, and somebody still holds, leave the arena.

        Of the lent results those `staying` do not: `owner` takes them over where they lie.
        """
        stay = {id(tenant) for tenant in staying}
        remaining: list[Callable[[], Tenant | None]] = []
        for lent in self.lent:
            tenant = lent()
            if tenant is not None and id(tenant) in stay:
                remaining.append(lent)
            elif tenant is not None:
                tenant.leave_arena()  # twice is once, should a later one find no room
        self.lent[:] = remaining
        if self.resident is not owner:
            for settled in list(self.settled):
                settled.leave_arena()
            self.settled.clear()

    def claim_arena(self, owner: object, size_bytes: int) -> bool:
        """Give [0, size_bytes) to `owner`; return whether its constants must be written again."""
        if not self.allocator.claim_floor(size_bytes):
            limit = self.allocator.low_water_bytes
            raise ResourceExhaustedError(
                f"RESOURCE_EXHAUSTED: the program needs {size_bytes:,} bytes of HBM; {limit:,} of "
                f"{self.chip.hbm_bytes:,} are free below the arrays placed by device_put"
            )
        changed = self.resident is not owner
        self.resident = owner
        self.arena_bytes = size_bytes
        return changed


@dataclass
class Client:
    """The devices of one process (a single chip for now)."""

    devices: list[Device]


def client_for(target: str) -> Client:
    """Return the client of a chip name or chip file; one per process and chip.

    Two spellings of a name or path give the same client, and a chip file that was edited another.
    """
    return _client_of(load_chip(target))


@cache
def _client_of(chip: Chip) -> Client:
    """A client is never dropped: arrays on it may be passed to programs made at any later time."""
    hbm = HbmMemory.for_chip(chip)
    return Client([Device(chip, hbm, HbmAllocator(chip.hbm_bytes))])
