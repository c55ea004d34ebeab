"""What ``--checked`` watches: DMAs in flight, and VMEM that nothing has written.

A transfer is in flight from its start until a wait on its flag. Meanwhile its target must not be
read or written and its source not written. One shadow bit per VMEM row of 512 bytes says whether a
store or DMA has written it since the kernel began, in a window that is kept since the program did;
spill slots have one bit each.

A load may reach past the rows an array fills, into the padding of its last tile; so a load faults
when nothing in its tiles of 16 rows has been written, a DMA when any row has not. What is not
written holds `POISON`, NaN as f32 and as either bf16 half, so that padding which leaks into results
shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import VMEM, Window
from tpu_sim.machine.dma import SPACE_NAMES, Side, Transfer
from tpu_sim.machine.faults import DmaRaceFault, UninitializedReadFault

POISON = 0xFFBAFFBA
_TILE_ROWS = 16

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _InFlight:
    flag: int
    source: Side
    target: Side


class RaceDetector:
    """Follows one core; every method raises the fault it finds."""

    def __init__(self, vmem_rows: int) -> None:
        self._written = np.zeros(vmem_rows, np.bool_)
        self._spills: set[int] = set()
        self._in_flight: list[_InFlight] = []

    def enter_kernel(self, windows: Sequence[Window]) -> None:
        """Nothing of what the kernel uses is initialised at its start, but for what is kept."""
        for window in windows:
            if not window.kept:
                self._written[window.base_row : window.base_row + window.rows] = False
        self._spills.clear()

    def leave_kernel(self) -> None:
        """Every transfer must have been waited for."""
        if self._in_flight:
            flag = self._in_flight[0].flag
            raise DmaRaceFault(f"the kernel ends while a DMA on sync flag {flag} is in flight")

    def read_rows(self, rows: I64, window: Window) -> None:
        """VMEM rows of a window are read by one instruction."""
        if not self._written[rows].any() and not self._is_padding(rows, window):
            raise UninitializedReadFault(
                f"VMEM rows {rows.min()}..{rows.max()} are read before any is written"
            )
        side = Side(VMEM, rows * GRANULE_BYTES, GRANULE_BYTES)
        self._no_overlap(side, sources=False, what="read")

    def _is_padding(self, rows: I64, window: Window) -> bool:
        """Whether one of the rows shares a tile of the window with a written row."""
        end = window.base_row + window.rows
        tiles = np.unique((rows - window.base_row) // _TILE_ROWS)
        starts = (tiles * _TILE_ROWS + window.base_row).tolist()
        return any(self._written[s : min(s + _TILE_ROWS, end)].any() for s in starts)

    def write_rows(self, rows: I64) -> None:
        """VMEM rows are written, wholly or in part."""
        side = Side(VMEM, rows * GRANULE_BYTES, GRANULE_BYTES)
        self._no_overlap(side, sources=True, what="written")
        self._written[rows] = True

    def read_words(self, side: Side) -> None:
        """SMEM is read."""
        self._no_overlap(side, sources=False, what="read")

    def write_words(self, side: Side) -> None:
        """SMEM is written."""
        self._no_overlap(side, sources=True, what="written")

    def read_spill(self, slot: int) -> None:
        """A spill slot is read."""
        if slot not in self._spills:
            raise UninitializedReadFault(f"spill slot {slot} is read before it is written")

    def write_spill(self, slot: int) -> None:
        """A spill slot is written."""
        self._spills.add(slot)

    def start(self, transfer: Transfer, flag: int) -> None:
        """A transfer starts."""
        source, target = transfer.source, transfer.target
        if not len(source.offsets):
            return
        self._no_overlap(source, sources=False, what="the source of a DMA")
        self._no_overlap(target, sources=True, what="the target of a DMA")
        if source.space == VMEM:
            rows = _rows(source)
            missing = rows[~self._written[rows]]
            if len(missing):
                raise UninitializedReadFault(f"a DMA reads VMEM row {missing[0]}, never written")
        if target.space == VMEM:
            self._written[_rows(target)] = True
        self._in_flight.append(_InFlight(flag, source, target))

    def wait(self, flag: int) -> None:
        """Transfers on `flag` are done."""
        self._in_flight = [transfer for transfer in self._in_flight if transfer.flag != flag]

    def _no_overlap(self, side: Side, *, sources: bool, what: str) -> None:
        """No transfer in flight writes these bytes; with `sources`, none reads them either."""
        for transfer in self._in_flight:
            sides = [(transfer.target, "target")]
            if sources:
                sides.append((transfer.source, "source"))
            for other, role in sides:
                if _overlap(side, other):
                    space = SPACE_NAMES[side.space]
                    raise DmaRaceFault(
                        f"{space} bytes {side.first}..{side.end} are {what} while they are the "
                        f"{role} of a DMA on sync flag {transfer.flag} in flight"
                    )


def _rows(side: Side) -> I64:
    first = side.offsets // GRANULE_BYTES
    span = np.arange(-(-side.chunk_bytes // GRANULE_BYTES), dtype=np.int64)
    return (first[:, None] + span[None, :]).reshape(-1)


def _overlap(a: Side, b: Side) -> bool:
    if not len(a.offsets) or not len(b.offsets):  # a store under an empty mask
        return False
    if a.space != b.space or a.end <= b.first or b.end <= a.first:
        return False
    starts = np.sort(b.offsets)
    # the last chunk of b that starts before a's chunk ends is the one that can reach into it
    index = np.searchsorted(starts, a.offsets + a.chunk_bytes, side="left") - 1
    near = starts[np.maximum(index, 0)]
    return bool(((index >= 0) & (near + b.chunk_bytes > a.offsets)).any())
