"""Cores of a slice that another process emulates: what stands for them here, and what is sent to them.

A transfer over a route does two things to the core that it leads to: it writes into its HBM, and it
raises a flag with the cycle of its arrival. Neither depends on when the emulator gets to it, so both may come
late: a `FarCore` takes them, and what it took is a `Letter` to the process that has the core.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.program import MAX_FLAGS
from tpu_sim.machine.faults import MachineFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.schema import OFFSETS, STATE_WORDS
from tpu_sim.machine.state import CoreWords

I64 = npt.NDArray[np.int64]

POST_LOCK, POST_COUNT, POST_LOST, POST_ROWS = range(4)
"""Words of a list of posts: a lock, the rows in use, whether one found no room; then the rows."""
MOST_POSTS = 1 << 20
"""Ranges of bytes that cores may send to one of another process before they wait for one."""


@dataclass(frozen=True)
class Letter:
    """What a core is sent: ranges of its HBM (`places`: rows of first byte and size) with their bytes one
    behind the other, and of each flag, by row, its number, the latest cycle and how often it was raised."""

    places: I64
    data: npt.NDArray[np.uint8]
    flags: I64

    def open(self, words: CoreWords, hbm: HbmMemory) -> None:
        """Do to the core what was done to what stood for it; it is not running meanwhile."""
        at = 0
        for first, size in self.places.tolist():
            hbm.view(first, size)[:] = self.data[at : at + size]
            at += size
        flags, cycles, raises = self.flags.T
        words.flag_done[flags] = np.maximum(words.flag_done[flags], cycles)
        words.flag_pending[flags] -= raises


class FarCore:
    """Stands for a core of another process: its HBM, its flags, and a list of what was written.

    `words` begin as those of a core (`tpu_sim.machine.schema`); `posts` is the list, which native code
    and `post` append to.
    """

    def __init__(self, hbm_bytes: int, words: int = STATE_WORDS) -> None:
        self.words: I64 = np.zeros(words, np.int64)
        self.hbm = HbmMemory(hbm_bytes)
        self.posts: I64 = np.zeros(POST_ROWS + 2 * MOST_POSTS, np.int64)
        self._done = self._field("flag_done")
        self._pending = self._field("flag_pending")

    def raise_flag(self, flag: int, cycle: int) -> None:
        """See `CoreState.raise_flag`."""
        self._pending[flag] -= 1
        self._done[flag] = max(int(self._done[flag]), cycle)

    def post(self, first: int, size: int) -> None:
        """So many bytes of its HBM were written, from `first` on."""
        count = int(self.posts[POST_COUNT])
        if count == MOST_POSTS:
            self.posts[POST_LOST] = 1
            return
        self.posts[POST_ROWS + 2 * count : POST_ROWS + 2 * count + 2] = first, size
        self.posts[POST_COUNT] = count + 1

    def take(self) -> Letter | None:
        """What came since the last time; None if nothing did. Nobody is sending meanwhile.

        Raises `MachineFault` if there was more than the list holds.
        """
        flags = np.flatnonzero(self._pending)
        count = int(self.posts[POST_COUNT])
        if not count and not len(flags):
            return None
        if self.posts[POST_LOST]:
            message = (
                f"more than {MOST_POSTS} transfers to a core of another worker between two waits"
            )
            raise MachineFault(message)
        places = self.posts[POST_ROWS : POST_ROWS + 2 * count].reshape(count, 2).copy()
        pieces = [self.hbm.view(first, size) for first, size in places.tolist()]
        data = np.concatenate(pieces) if pieces else np.zeros(0, np.uint8)
        raised = np.stack([flags, self._done[flags], -self._pending[flags]], axis=1)
        self.posts[:POST_ROWS] = 0
        self._done[:] = 0
        self._pending[:] = 0
        return Letter(places, data, raised)

    def _field(self, name: str) -> I64:
        return self.words[OFFSETS[name] : OFFSETS[name] + MAX_FLAGS]
