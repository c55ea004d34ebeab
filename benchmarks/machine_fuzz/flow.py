"""What a generator knows at a point of the control flow, as the checker does, and ranges of sregs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from benchmarks.machine_fuzz.sources import ROWS, fills, source_windows, whole_fill
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import HBM, SMEM, VMEM, DmaDescriptor, DmaDim, Window

Range = tuple[int, int] | None
"""Lowest and highest value of an sreg as a signed number; None: any."""

HBM_BYTES = 1 << 18
SMEM_WORDS = 1024
SPILL_SLOTS = 6
FLAGS = 6
_FIRST_KEPT_ROW = 1024
SPACE_UNITS = {HBM: HBM_BYTES // 512, SMEM: SMEM_WORDS}


def spill_is_mask(slot: int) -> bool:
    """What a spill slot of every generated kernel is used for."""
    return slot % 3 == 2


@dataclass
class Flow:
    """Registers that hold a value, cycles until they may be read, results that wait in queues."""

    sregs: dict[int, Range] = field(default_factory=lambda: {0: (0, 0)})
    residues: dict[tuple[str, int], int] = field(default_factory=dict)
    units: dict[str, int] = field(default_factory=dict)
    levels: dict[int, int] = field(default_factory=dict)
    spills: set[int] = field(default_factory=set)

    def copy(self) -> Flow:
        """A flow that can go its own way."""
        return Flow(
            dict(self.sregs), dict(self.residues), dict(self.units), dict(self.levels),
            set(self.spills),
        )  # fmt: skip

    def become(self, other: Flow) -> None:
        """Take over what another flow knows."""
        self.sregs, self.residues, self.units = other.sregs, other.residues, other.units
        self.levels, self.spills = other.levels, other.spills


def join(a: Flow, b: Flow) -> Flow:
    """What holds on both of two ways; the levels of queues are equal."""
    sregs: dict[int, Range] = {}
    for number in a.sregs.keys() & b.sregs.keys():
        one, other = a.sregs[number], b.sregs[number]
        both = one is not None and other is not None
        sregs[number] = (min(one[0], other[0]), max(one[1], other[1])) if both else None
    residues = {
        key: max(a.residues.get(key, 0), b.residues.get(key, 0))
        for key in a.residues.keys() | b.residues.keys()
    }
    units = {
        key: max(a.units.get(key, 0), b.units.get(key, 0))
        for key in a.units.keys() | b.units.keys()
    }
    return Flow(sregs, residues, units, dict(a.levels), a.spills & b.spills)


@dataclass
class Tables:
    """Windows and descriptors of a kernel; `sources`: windows that are never written out."""

    windows: list[Window]
    descriptors: list[DmaDescriptor]
    spill_base_row: int
    sources: frozenset[int]


def random_kept_windows(source: random.Random) -> list[Window]:
    """Windows that kernels of a program may share, behind the rows of all others."""
    kept: list[Window] = []
    row = _FIRST_KEPT_ROW
    for number in range(source.choice([0, 0, 1, 2])):
        rows = source.choice([8, 16, 33, 40, 64, 96])
        kept.append(Window(f"kept{number}", row, rows, kept=True))
        row += rows + source.choice([0, 0, 8])
    return kept


def random_tables(chip: Chip, source: random.Random, kept: list[Window]) -> Tables:
    """Windows with and without gaps between them, spill slots, and transfers of every shape.

    Most of `kept` are among them; seldom one is a window of this kernel alone.
    """
    windows = [
        replace(window, kept=source.random() < 0.92) for window in kept if source.random() < 0.8
    ]
    row = source.choice([0, 0, 7, 256])
    spill_at = source.randrange(3)
    spill_base = 0
    count = source.randrange(2, 5)
    for number in range(count):
        if number == spill_at:
            spill_base, row = row, row + 8 * SPILL_SLOTS
        rows = source.choice([8, 9, 16, 33, 48, 64])
        windows.append(Window(f"w{number}", row, rows))
        row += rows + source.choice([0, 0, 0, 3, 16])
    if spill_at >= count:
        spill_base, row = row, row + 8 * SPILL_SLOTS
    large = [w for w in windows if w.kept and w.rows >= min(ROWS) and source.random() < 0.4]
    apart = source_windows(source, row)
    large, windows = large + apart, windows + apart
    source.shuffle(windows)
    sources = frozenset(windows.index(window) for window in large)
    descriptors = [
        whole_fill(source, n, w.rows) if n in sources else DmaDescriptor(HBM, VMEM, w.rows, (), n)
        for n, w in enumerate(windows)
    ]
    descriptors += [DmaDescriptor(VMEM, HBM, w.rows, (), n) for n, w in enumerate(windows)]
    descriptors.append(DmaDescriptor(SMEM, HBM, SMEM_WORDS))
    descriptors += [_descriptor(windows, source) for _ in range(source.randrange(4, 9))]
    for number in sorted(sources):
        descriptors += fills(source, number, windows[number].rows)
    return Tables(windows, descriptors, spill_base, sources)


def _descriptor(windows: list[Window], source: random.Random) -> DmaDescriptor:
    spaces = [source.choice([HBM, VMEM, VMEM, SMEM, HBM]) for _ in range(2)]
    window = source.randrange(len(windows)) if VMEM in spaces else -1
    dims = []
    for _ in range(source.choice([0, 0, 1, 1, 2, 3])):
        count = source.choice([0, 1, 2, 2, 3, 4, -1, -2])
        strides = [source.choice([0, 1, 1, 2, 3, 5, 8, -1, -2, 16]) for _ in range(2)]
        dims.append(DmaDim(count, *strides))
    if source.random() < 0.2 and dims:  # a dense target: what may be read in place
        chunk = source.choice([8, 16])
        gap = source.choice([0, 0, 8, 16])
        dims = [DmaDim(source.choice([2, 4]), chunk + gap, chunk)]
        return DmaDescriptor(HBM, VMEM, chunk, tuple(dims), source.randrange(len(windows)))
    chunk = source.choice([1, 1, 2, 3, 8, 32] if SMEM not in spaces else [1, 4, 5, 128, 129, 200])
    return DmaDescriptor(spaces[0], spaces[1], chunk, tuple(dims), window)


def side_reach(
    descriptor: DmaDescriptor, is_source: bool, counts: tuple[int, int]
) -> tuple[int, int] | None:
    """Lowest unit and one past the highest that a side touches, counted from its address.

    Units are those of the side's addresses. None: nothing moves.
    """
    space = descriptor.src_space if is_source else descriptor.dst_space
    in_words = SMEM in (descriptor.src_space, descriptor.dst_space)
    chunk = descriptor.chunk if space == SMEM or not in_words else -(-descriptor.chunk * 4 // 512)
    low, high = 0, chunk
    for dim in descriptor.dims:
        count = counts[-1 - dim.count] if dim.count < 0 else dim.count
        if count == 0:
            return None
        reach = (count - 1) * (dim.src_stride if is_source else dim.dst_stride)
        low, high = low + min(0, reach), high + max(0, reach)
    return low, high
