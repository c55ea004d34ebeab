"""Orders of dimensions, and what an array costs in one: estimated cycles.

An order lists an array's dimensions from major to minor. The last one lies along lanes, the one
before it along sublanes; tiles round both up. An array is its own order when the list counts up.

    f32[1000,8,3] in order (0,1,2)    1000 vregs, of which 24 of 1024 numbers count
    f32[1000,8,3] in order (2,1,0)    24 vregs
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import lru_cache

from compiler.analysis.tiled_layout import LANES, SUBLANES, byte_size, is_bitcast
from compiler.hlo.shape import ArrayShape

Dims = tuple[int, ...]
Order = tuple[int, ...]

_TILE_BYTES = 4 * LANES * SUBLANES
TILE_TRANSFER_CYCLES = 7.5
"""To move a tile between HBM and VMEM."""
_TURN_CYCLES = 8.0
"""To bring another dimension into the lanes, for a vreg of the wider side."""
_SHUFFLE_CYCLES = 2.0
"""To bring another dimension into the sublanes."""


def descending(rank: int) -> Order:
    """The order in which HLO lists the dimensions."""
    return tuple(range(rank))


def physical(dims: Dims, order: Order) -> Dims:
    """The sizes in an order."""
    return tuple(dims[d] for d in order)


def restricted(order: Order, kept: Collection[int]) -> Order:
    """The order of some of the dimensions, numbered as they are without the others."""
    number = {d: i for i, d in enumerate(sorted(kept))}
    return tuple(number[d] for d in order if d in number)


def vregs(dims: Dims) -> int:
    """Registers that an array of these sizes, major to minor, takes in 32-bit elements."""
    if len(dims) < 2:
        return -(-math.prod(dims) // (SUBLANES * LANES))
    return math.prod(dims[:-2]) * -(-dims[-2] // SUBLANES) * -(-dims[-1] // LANES)


@lru_cache(1 << 14)
def transfer_cycles(shape: ArrayShape, order: Order) -> float:
    """Cycles to write or read an array in HBM."""
    stored = shape.with_dims(physical(shape.dims, order))
    return byte_size(stored) / _TILE_BYTES * TILE_TRANSFER_CYCLES


@lru_cache(1 << 14)
def reorder_cycles(shape: ArrayShape, source: Order, target: Order) -> float:
    """Cycles to bring an array from one order into another, inside a kernel."""
    if source == target or 0 in shape.dims:
        return 0.0
    before, after = physical(shape.dims, source), physical(shape.dims, target)
    return regroup_cycles(shape.with_dims(before), after, _minor(shape.dims, source, target))


def _minor(dims: Dims, source: Order, target: Order) -> int:
    """How many minor dimensions two orders share, 2 at most; those of size 1 move none."""
    a, b = ([d for d in order if dims[d] != 1] for order in (source, target))
    if a == b:
        return -1
    shared = 0
    while shared < min(2, len(a)) and a[-1 - shared] == b[-1 - shared]:
        shared += 1
    return shared


def regroup_cycles(shape: ArrayShape, dims: Dims, shared: int = -1) -> float:
    """Cycles to give an array other dimensions; `shared` minor ones stay, -1 where none moves."""
    if shared == -1 and (0 in shape.dims or is_bitcast(shape, shape.with_dims(dims))):
        return 0.0
    wider = max(vregs(shape.dims), vregs(dims))
    is_same_lane = shape.dims[-1:] == dims[-1:] if shared == -1 else shared > 0
    is_same_tile = shape.dims[-2:] == dims[-2:] if shared == -1 else shared > 1
    if is_same_tile:
        return 0.0
    return wider * (_SHUFFLE_CYCLES if is_same_lane else _TURN_CYCLES)
