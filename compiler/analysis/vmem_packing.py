"""Rows of VMEM for arrays that stay there from one kernel to another.

Kernels have the rows from 0 up to their scope for themselves; what stays lies above, as high as it
goes. Large arrays are placed first, each in the highest gap that is free as long as it is live; what
kernels carry to VMEM for later ones comes after all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.analysis.buffer_packing import Request
from tpu_sim.isa.geometry import GRANULE_BYTES

_ALIGNMENT = 8


@dataclass
class VmemRows:
    """What is free: `floors` are the rows that kernels have for themselves, by position."""

    rows: int
    floors: Sequence[int]

    def pack(self, requests: Sequence[Request]) -> dict[int, int]:
        """The first row of each request, by its key; those that fit nowhere are left out."""
        floors = np.asarray(self.floors)
        starts, ends = np.zeros((2, len(requests)), np.int64)
        taken: list[tuple[int, int]] = []
        found: dict[int, int] = {}
        for request in sorted(requests, key=_order):
            size, count = aligned_rows(request.size_bytes), len(taken)
            floor = int(floors[request.start : request.end + 1].max(initial=0))
            is_beside = (starts[:count] <= request.end) & (ends[:count] >= request.start)
            beside = sorted((taken[i] for i in is_beside.nonzero()[0]), reverse=True)
            row = _highest_gap(beside, size, self.rows)
            if row >= floor:
                starts[count], ends[count] = request.start, request.end
                taken.append((row + size, row))
                found[request.key] = row
        return found

    def lowest(self, requests: Sequence[Request], rows: dict[int, int]) -> list[int]:
        """By position the first row that something placed lies at; all rows where nothing does."""
        lowest = np.full(len(self.floors), self.rows)
        for request in requests:
            if request.key in rows:
                part = lowest[request.start : request.end + 1]
                np.minimum(part, rows[request.key], out=part)
        return [int(row) for row in lowest]


def _order(request: Request) -> tuple[bool, int, int, int]:
    return request.comes_last, -request.size_bytes, request.start, request.key


def aligned_rows(size_bytes: int) -> int:
    """Rows that so many bytes take, whole tiles of them."""
    rows = -(-size_bytes // GRANULE_BYTES)
    return -(-rows // _ALIGNMENT) * _ALIGNMENT


def _highest_gap(beside: Sequence[tuple[int, int]], size: int, limit: int) -> int:
    """The first row of the highest free `size` rows; negative without any.

    `beside` are ends and first rows of taken ranges, the highest end first; they may overlap.
    """
    for end, row in beside:
        if limit - end >= size:
            break
        limit = min(limit, row)
    return limit - size
