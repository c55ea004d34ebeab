"""Order between accesses of the same window within a block."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from compiler.llo.op_table import Code, OpInfo
from tpu_sim.isa.program import SMEM

SMEM_WINDOW = -SMEM
"""SMEM as an alias class beside the windows."""

_Base = tuple[int, int]
_BUCKET_SHIFT = 3
_MAX_BUCKETS = 64
"""Of eight rows each that an access is filed under; a longer one is compared with all others."""


class EdgeSink(Protocol):
    """What edges are added to."""

    def edge(self, before: int, after: int, distance: int) -> None:
        """`after` issues at least `distance` cycles after `before`."""


@dataclass(slots=True)
class _Access:
    index: int
    low: int
    high: int
    start: int
    stride: int
    is_store: bool
    latency: int


@dataclass(slots=True)
class _Epoch:
    """A run of accesses through one base. A new base starts a new epoch, whose first access (the
    leader) follows all of the old one and precedes the rest of its own."""

    base: _Base | None = None
    leader: _Access | None = None
    members: list[_Access] = field(default_factory=list)
    buckets: dict[int, list[_Access]] = field(default_factory=dict)


class MemoryOrder:
    """Adds the memory edges of a block; only `windows` are tracked."""

    def __init__(self, graph: EdgeSink, windows: set[int]) -> None:
        self.windows = windows
        self._graph = graph
        self._epochs: dict[int, _Epoch] = {window: _Epoch() for window in windows}

    def window_access(
        self, index: int, info: OpInfo, operands: tuple[int, ...], window: int, base: _Base
    ) -> None:
        """A load or store of a window."""
        is_store = info.code is Code.STORE
        if info.offset < 0:  # indexed: may touch any row
            self._unknown(window, _Access(index, 0, 0, 0, 0, is_store, info.latency))
            return
        start, stride = operands[info.offset], operands[info.stride]
        end = start + 7 * stride
        low, high = (start, end) if stride >= 0 else (end, start)
        access = _Access(index, low, high, start, stride, is_store, info.latency)
        if (high - low) >> _BUCKET_SHIFT > _MAX_BUCKETS:
            self._unknown(window, access)
        else:
            self._known(window, access, base)

    def word_access(self, index: int, info: OpInfo, word: int, base: _Base) -> None:
        """A load or store of one SMEM word."""
        is_store = info.code is Code.SMEM_STORE
        access = _Access(index, word, word, word, 0, is_store, info.latency)
        self._known(SMEM_WINDOW, access, base)

    def dma_start(self, index: int, windows: frozenset[int]) -> None:
        """A transfer follows all earlier accesses of its windows."""
        for window in windows:
            epoch = self._epochs[window]
            if epoch.leader is not None:
                self._graph.edge(epoch.leader.index, index, 1)
            for access in epoch.members:
                self._graph.edge(access.index, index, access.latency if access.is_store else 1)

    def _unknown(self, window: int, access: _Access) -> None:
        self._known(window, access, (-1, access.index))

    def _known(self, window: int, access: _Access, base: _Base) -> None:
        epoch = self._epochs[window]
        if epoch.base != base:
            epoch = self._open_epoch(window, epoch, access, base)
        elif epoch.leader is not None:
            leader = epoch.leader
            self._graph.edge(leader.index, access.index, leader.latency if leader.is_store else 0)
        epoch.members.append(access)
        for bucket in range(access.low >> _BUCKET_SHIFT, (access.high >> _BUCKET_SHIFT) + 1):
            self._enter_bucket(epoch.buckets.setdefault(bucket, []), access)

    def _open_epoch(self, window: int, old: _Epoch, access: _Access, base: _Base) -> _Epoch:
        for member in old.members:
            distance = member.latency if member.is_store else 0
            self._graph.edge(member.index, access.index, distance)
        epoch = _Epoch(base, access if old.base is not None else None)
        self._epochs[window] = epoch
        return epoch

    def _enter_bucket(self, bucket: list[_Access], access: _Access) -> None:
        superseded = False
        for other in bucket:
            if not (other.is_store or access.is_store) or not _overlap(other, access):
                continue
            distance = other.latency if other.is_store else 0
            self._graph.edge(other.index, access.index, distance)
            superseded |= access.is_store and _same_rows(other, access)
        if superseded:
            bucket[:] = [other for other in bucket if not _same_rows(other, access)]
        bucket.append(access)


def _same_rows(a: _Access, b: _Access) -> bool:
    return a.start == b.start and a.stride == b.stride


def _overlap(a: _Access, b: _Access) -> bool:
    if a.low > b.high or b.low > a.high:
        return False
    stride = a.stride
    return stride != b.stride or stride == 0 or (a.start - b.start) % stride == 0
