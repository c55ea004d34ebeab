"""Snapshots of arrays in memory: pages that are as they were in the snapshot before are shared.

Unlike a saved run (`tpu_sim.machine.checkpoint`) a snapshot is of this process and never checked: it
is taken often, while somebody looks at a run and may want to go back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.program import Program
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.state import CoreState

_PAGE_WORDS = 8192
"""64 KiB."""

Words = npt.NDArray[np.uint64]
Page = Words | None
"""What a page holds; None for zeros."""
Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class MemorySnapshot:
    """What arrays held, by name: pages, and the bytes behind the last whole word."""

    parts: Mapping[str, tuple[list[Page], bytes]]

    @classmethod
    def take(cls, arrays: Arrays, before: MemorySnapshot | None = None) -> MemorySnapshot:
        """What `arrays` hold now; `before` is an earlier snapshot of the same."""
        known = {} if before is None else before.parts
        return cls({name: _pages(a, known.get(name)) for name, a in arrays.items()})

    def restore(self, arrays: Arrays) -> None:
        """Make `arrays` hold it again."""
        for name, array in arrays.items():
            pages, rest = self.parts[name]
            flat = array.reshape(-1).view(np.uint8)
            words = flat[: len(flat) // 8 * 8].view(np.uint64)
            for number, page in enumerate(pages):
                here = words[number * _PAGE_WORDS : (number + 1) * _PAGE_WORDS]
                if page is not None:
                    here[:] = page
                elif here.any():  # what was never touched costs the host nothing
                    here[:] = 0
            flat[len(flat) // 8 * 8 :] = np.frombuffer(rest, np.uint8)


def core_arrays(program: Program, state: CoreState, hbm: HbmMemory) -> Arrays:
    """All there is of a core at a border, with its part of HBM."""
    return {
        "words": state.words,
        "sregs": state.sregs,
        "vmem": state.vmem,
        "smem": state.smem,
        "weights": state.weights,
        "transposes": state.transposes,
        "results": state.results,
        "records": state.records,
        "totals": state.totals,
        "hbm": hbm.view(0, program.hbm_bytes),
    }


def _pages(
    array: npt.NDArray[np.generic], before: tuple[list[Page], bytes] | None
) -> tuple[list[Page], bytes]:
    flat = array.reshape(-1).view(np.uint8)
    whole = len(flat) // 8 * 8
    words = flat[:whole].view(np.uint64)
    known: list[Page] = [] if before is None else before[0]
    pages: list[Page] = []
    for number, at in enumerate(range(0, len(words), _PAGE_WORDS)):
        here = words[at : at + _PAGE_WORDS]
        old = known[number] if known else None
        if old is not None and np.array_equal(old, here):
            pages.append(old)
        else:
            pages.append(here.copy() if here.any() else None)
    return pages, flat[whole:].tobytes()
