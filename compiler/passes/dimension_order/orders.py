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

from compiler.analysis.code_costs import OrderCosts
from compiler.analysis.tiled_layout import byte_size, is_bitcast
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.geometry import LANES, SUBLANES

Dims = tuple[int, ...]
Order = tuple[int, ...]

TILE_BYTES = 4 * LANES * SUBLANES


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
def transfer_cycles(shape: ArrayShape, order: Order, costs: OrderCosts) -> float:
    """Cycles to write or read an array in HBM."""
    stored = shape.with_dims(physical(shape.dims, order))
    return byte_size(stored) / TILE_BYTES * costs.tile_transfer


@lru_cache(1 << 14)
def reorder_cycles(
    shape: ArrayShape,
    source: Order,
    target: Order,
    costs: OrderCosts,
    is_regrouped: bool = False,
    is_transposed: bool = False,
) -> float:
    """Cycles to bring an array from one order into another, inside a kernel.

    Beside a reshape that breaks up lanes (`is_regrouped`) small matrices are turned together, beside a
    transpose (`is_transposed`) rows are often picked back.
    """
    if source == target or 0 in shape.dims:
        return 0.0
    before, after = physical(shape.dims, source), physical(shape.dims, target)
    a, b = ([d for d in order if shape.dims[d] != 1] for order in (source, target))
    if a == b:
        return regroup_cycles(shape.with_dims(before), after, costs)
    wider = max(vregs(before), vregs(after))
    if a[-1] == b[-1]:
        if a[-2] == b[-2]:
            return 0.0
        return wider * (costs.shuffle if is_transposed else costs.pick)
    if a[-1] not in b[-2:]:
        is_near = b[-1] in a[-2:] or a[-2] == b[-2]
        lanes = 1.0 if is_near else max(1.0, min(LANES, after[-1]) / SUBLANES)
        return vregs(after) * costs.gather * lanes
    if is_regrouped:
        return wider * costs.turn
    blocks = LANES / min(LANES, max(before[-1], after[-1]))
    return wider * min(costs.turn * blocks, costs.small_turn)


def regroup_cycles(shape: ArrayShape, dims: Dims, costs: OrderCosts) -> float:
    """Cycles to give an array other dimensions, all in descending order."""
    if 0 in shape.dims or shape.dims[-2:] == dims[-2:] or is_bitcast(shape, shape.with_dims(dims)):
        return 0.0
    is_same_lane = shape.dims[-1:] == dims[-1:]
    wider = max(vregs(shape.dims), vregs(dims))
    return wider * (costs.shuffle if is_same_lane else costs.turn)
