"""DMA: from a descriptor and two addresses to the ranges it touches, and the copy itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.geometry import GRANULE_BYTES, WORD_BYTES
from tpu_sim.isa.program import HBM, MAX_CHUNKS, SMEM, VMEM, DmaDescriptor, Window
from tpu_sim.isa.timing import descriptor_bytes, descriptor_unit_bytes, dimension_count
from tpu_sim.machine.faults import DmaCountFault, OutOfMemoryRangeFault, OutOfWindowFault
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.state import CoreState

I64 = npt.NDArray[np.int64]

_STEP_BYTES = {HBM: GRANULE_BYTES, VMEM: GRANULE_BYTES, SMEM: WORD_BYTES}
SPACE_NAMES = {HBM: "HBM", VMEM: "VMEM", SMEM: "SMEM"}


@dataclass(frozen=True)
class Side:
    """One side of a transfer: its space and the byte offset of each chunk, in order."""

    space: int
    offsets: I64
    chunk_bytes: int

    @property
    def first(self) -> int:
        """Lowest byte touched."""
        return int(self.offsets.min())

    @property
    def end(self) -> int:
        """One past the highest byte touched."""
        return int(self.offsets.max()) + self.chunk_bytes


@dataclass(frozen=True)
class Transfer:
    """A resolved DMA: `source` and `target` have the same chunks in the same order."""

    source: Side
    target: Side
    total_bytes: int

    @property
    def hbm_bytes(self) -> int:
        """Bytes read from plus bytes written to HBM."""
        return self.total_bytes * ((self.source.space == HBM) + (self.target.space == HBM))


def resolve(
    descriptor: DmaDescriptor,
    window: Window | None,
    addresses: tuple[int, int],
    counts: tuple[int, int],
    sizes: Mapping[int, int],
) -> Transfer:
    """The transfer of `descriptor` between `addresses` with dynamic `counts`.

    Checks the counts, then the source, then the target: against `window`, or the bytes of the
    memory in `sizes`. One that moves nothing touches nothing.
    """
    steps = [dimension_count(dim.count, *counts) for dim in descriptor.dims]
    total_chunks = 1
    for count in steps:
        if count < 0 or count > MAX_CHUNKS:
            raise DmaCountFault(f"DMA count {count} is out of range")
        total_chunks *= count
    if total_chunks > MAX_CHUNKS:
        raise DmaCountFault(f"DMA of {total_chunks} chunks, at most {MAX_CHUNKS}")
    chunk_bytes = descriptor.chunk * descriptor_unit_bytes(descriptor)
    sides = []
    for space, address, is_source in (
        (descriptor.src_space, addresses[0], True),
        (descriptor.dst_space, addresses[1], False),
    ):
        strides = [dim.src_stride if is_source else dim.dst_stride for dim in descriptor.dims]
        offsets = _chunk_addresses(steps, strides) + address
        offsets *= _STEP_BYTES[space]
        side = Side(space, offsets, chunk_bytes)
        if total_chunks:
            side = _in_window(side, window) if space == VMEM else _in_memory(side, sizes[space])
        sides.append(side)
    return Transfer(sides[0], sides[1], descriptor_bytes(descriptor, *counts))


def _chunk_addresses(steps: list[int], strides: list[int]) -> I64:
    addresses = np.zeros(1, np.int64)
    for count, stride in zip(steps, strides, strict=True):
        inner = np.arange(count, dtype=np.int64) * stride
        addresses = (addresses[:, None] + inner[None, :]).reshape(-1)
    return addresses


def _in_window(side: Side, window: Window | None) -> Side:
    assert window is not None, "checked at load: a VMEM side has a window"
    size_bytes = window.rows * GRANULE_BYTES
    if side.first < 0 or side.end > size_bytes:
        raise OutOfWindowFault(
            f"DMA touches rows {side.first // GRANULE_BYTES}..{-(-side.end // GRANULE_BYTES)} of "
            f"window {window.name}, which has {window.rows}"
        )
    return Side(VMEM, side.offsets + window.base_row * GRANULE_BYTES, side.chunk_bytes)


def _in_memory(side: Side, size_bytes: int) -> Side:
    if side.first < 0 or side.end > size_bytes:
        raise OutOfMemoryRangeFault(
            f"DMA touches {SPACE_NAMES[side.space]} bytes {side.first}..{side.end}, "
            f"there are {size_bytes}"
        )
    return side


def copy(
    transfer: Transfer, state: CoreState, hbm: HbmMemory, target_hbm: HbmMemory | None = None
) -> None:
    """Move the bytes, chunk by chunk in order; to another core's HBM where one is given."""
    if not len(transfer.source.offsets):
        return
    source = _space_bytes(transfer.source, state, hbm)
    target = _space_bytes(transfer.target, state, target_hbm or hbm)
    size = transfer.source.chunk_bytes
    pairs = zip(transfer.source.offsets.tolist(), transfer.target.offsets.tolist(), strict=True)
    for start, to in pairs:
        target[to : to + size] = source[start : start + size].copy()


def _space_bytes(side: Side, state: CoreState, hbm: HbmMemory) -> npt.NDArray[np.uint8]:
    if side.space == HBM:
        memory = hbm.bytes
    elif side.space == VMEM:
        memory = state.vmem.reshape(-1).view(np.uint8)
    else:
        memory = state.smem.view(np.uint8)
    return memory
