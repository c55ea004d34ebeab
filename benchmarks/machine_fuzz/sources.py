"""Windows that are filled and read, and never written out: what native code may read where it lies in HBM.

A machine that keeps a large transfer as a reference does so for windows that some block reads while it
neither writes HBM nor fills them. Some blocks of a program keep to that, the others leave such windows
alone, but for transfers into them, and transfers to HBM that may write what lies under a reference.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tpu_sim.isa.program import HBM, VMEM, DmaDescriptor, DmaDim, Window

ROWS = (32, 40, 64, 96, 128)
"""Sizes of such windows: 16 KB and more."""
_STRIDES = (1, 1, 1, 1, 0, 2, 4)


@dataclass(frozen=True)
class BlockUse:
    """What one block may do to windows; `sources` are the numbers of those that are never written out.

    `reads`: it reads them. `in_loop`: it may run again, so that a store may come before a fill.
    """

    random: random.Random
    count: int
    sources: frozenset[int]
    reads: bool
    in_loop: bool

    def to_read(self, indexed: bool = False) -> int:
        """A window to load from."""
        if self.reads and self.sources and not indexed and self.random.random() < 0.6:
            return self.random.choice(sorted(self.sources))
        return self.random.choice([n for n in range(self.count) if n not in self.sources])

    def to_write(self) -> int:
        """A window to store to."""
        if self.reads and self.sources and not self.in_loop and self.random.random() < 0.1:
            return self.random.choice(sorted(self.sources))
        return self.to_read(indexed=True)

    def stride(self, window: int, strides: Sequence[int]) -> int:
        """A stride of a load; those of sources go forwards."""
        return self.random.choice(_STRIDES if window in self.sources else strides)

    def allows(self, descriptor: DmaDescriptor) -> bool:
        """Whether the block may start a transfer."""
        is_source = descriptor.window in self.sources
        if is_source and descriptor.src_space == VMEM:
            return False
        return not self.reads or not (descriptor.dst_space == HBM or is_source)


def source_windows(source: random.Random, row: int) -> list[Window]:
    """Windows that are never written out, behind `row`; mostly none."""
    found = []
    for number in range(source.choice([0, 0, 1, 2])):
        found.append(Window(f"s{number}", row, source.choice(ROWS)))
        row += found[-1].rows
    return found


def whole_fill(source: random.Random, window: int, rows: int) -> DmaDescriptor:
    """A transfer into all of such a window, of one piece or of equal ones."""
    piece = source.choice([rows, 8, 16] if rows % 16 == 0 else [rows, 8])
    return _dense(source, window, piece, rows // piece)


def fills(source: random.Random, window: int, rows: int) -> list[DmaDescriptor]:
    """Transfers into parts of such a window that are large and dense."""
    found = []
    for _ in range(source.choice([1, 2])):
        found.append(
            _dense(source, window, source.choice([n for n in (32, 33, 48, 64, 96) if n <= rows]), 1)
        )
    piece = source.choice([8, 16])
    found.append(
        _dense(source, window, piece, source.choice([n for n in (2, 4, 8) if n * piece <= rows]))
    )
    return found


def _dense(source: random.Random, window: int, piece: int, count: int) -> DmaDescriptor:
    gap = source.choice([0, 8, 16])
    dims = (DmaDim(count, piece + gap, piece),) if count > 1 else ()
    return DmaDescriptor(HBM, VMEM, piece, dims, window)
