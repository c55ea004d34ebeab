"""Kernels give up VMEM of their own where what stays beside them then saves more than they lose.

A kernel of windows has the part of VMEM in which it costs what it costs in all of it. Arrays that
stay from before it until after it may be worth more than that: each array offers the cycles that its
bytes take, in equal shares, to the kernels in its life that have more than the least part.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from compiler.analysis.resident_arrays import ResidentArray, ResidentArrays
from compiler.analysis.vmem_packing import aligned_rows
from compiler.passes.kernel_scopes import KernelScopes
from tpu_sim.isa.geometry import GRANULE_BYTES


def lower_scopes(scopes: KernelScopes, found: ResidentArrays) -> None:
    """Give kernels smaller scopes where that pays."""
    arrays, times = found.arrays, found.times
    kernels = [k for k in scopes.planned if scopes.facts(k).smaller]
    positions = {k: found.liveness.positions[k].start for k in kernels}
    by_worth = sorted(arrays, key=lambda a: -a.worth)
    live = {k: [a for a in by_worth if _lives_at(a, positions[k])] for k in kernels}
    payers: dict[int, int] = {}
    for alive in live.values():
        for array in alive:
            payers[array.request.key] = payers.get(array.request.key, 0) + 1
    rate = scopes.planner.chip.hbm_bytes_per_cycle
    offers = {a.request.key: a.saved_bytes / rate / payers.get(a.request.key, 1) for a in arrays}
    held = _held_rows(found)
    for kernel in kernels:
        facts = scopes.facts(kernel)
        taken = held[positions[kernel]] + facts.scope_bytes // GRANULE_BYTES
        now = _offered(live[kernel], offers, scopes.rows - taken)
        best, gain = None, 0.0
        for scope, extra in facts.smaller:
            room = scopes.rows - held[positions[kernel]] - scope // GRANULE_BYTES
            gained = _offered(live[kernel], offers, room) - now - extra * times[kernel]
            if gained > gain:
                best, gain = scope, gained
        if best is not None:
            scopes.lower(kernel, best)


def _held_rows(found: ResidentArrays) -> NDArray[np.int64]:
    """Rows that are taken already, by position."""
    rows = np.zeros(found.liveness.length + 1, np.int64)
    for request in (array.request for array in found.held):
        rows[request.start : request.end + 1] += aligned_rows(request.size_bytes)
    return rows


def _lives_at(array: ResidentArray, position: int) -> bool:
    return array.request.start <= position <= array.request.end


def _offered(arrays: Sequence[ResidentArray], offers: dict[int, float], rows: int) -> float:
    """What the arrays of most use that fit so many rows offer."""
    total = 0.0
    for array in arrays:
        needed = aligned_rows(array.request.size_bytes)
        if needed <= rows:
            rows -= needed
            total += offers[array.request.key]
    return total
