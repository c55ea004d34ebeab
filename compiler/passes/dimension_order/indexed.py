"""Gathers and scatters of slices in other orders of dimensions.

    scatter f32[1024,7,6], updates f32[n,1024,1]     in order (1,2,0)
    scatter f32[7,6,1024], updates f32[n,1,1024]

What dimensions an index moves along, and how far a slice reaches in each, is said by number: in
another order the numbers are others, and the slices, their numbers first, lie in it too. A slice that is
a narrow column across many tiles becomes whole rows of few. The indices stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from compiler.analysis.gather_dims import HELD_SHARE, gather_dims
from compiler.analysis.kernel_vmem import VREG_TILE_BYTES
from compiler.analysis.scatter_dims import scatter_dims
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.dimension_order.orders import (
    Order,
    descending,
    physical,
    transfer_cycles,
    vregs,
)

Instr = HloInstruction
Forms = tuple[tuple[Order, ...], Order]
Attrs = dict[str, object]
_TILE_CYCLES = 40.0
"""To send for a tile of a slice, or to change it; measured on slices of 3072 tiles and of 9."""
_LOAD_CYCLES = 160.0
"""To load a register whose elements lie anywhere in VMEM, with their addresses; measured on 1536 of them."""


def is_indexed(instr: Instr) -> bool:
    """Whether an operation reads or changes slices of one array at the places of an array of indices."""
    if instr.opcode == "scatter":
        return isinstance(instr.shape, ArrayShape)
    return instr.opcode == "gather"


def indexed_orders(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Forms | None:
    """The orders of the operands and of the result, where slices have the minor dimension whole.

    A gather takes its operand as it lies, a scatter gives the order that is wanted.
    """
    return (
        _gather_orders(instr, orders[0])
        if instr.opcode == "gather"
        else _scatter_orders(instr, wanted)
    )


def _gather_orders(instr: Instr, order: Order) -> Forms | None:
    d = gather_dims(instr)
    if not order or d.operand_batch or not _keeps_lanes(order, d.slice_sizes, d.operand):
        return None
    batch = tuple(d.batch_dims)
    window = (d.offset_dims[d.window_dims.index(i)] for i in order if i in d.window_dims)
    return (order, descending(d.indices.array.rank)), (*batch, *window)


def _scatter_orders(instr: Instr, wanted: Order) -> Forms | None:
    d = scatter_dims(instr)
    sizes = tuple(d.window_size(i) for i in range(d.operand.array.rank))
    is_batched = d.operand_batch and wanted[: len(d.operand_batch)] != d.operand_batch
    if not wanted or is_batched or not _keeps_lanes(wanted, sizes, d.operand):
        return None
    window = (
        d.window_dims[d.operand_window_dims.index(i)] for i in wanted if i in d.operand_window_dims
    )
    updates = (*d.batch_dims, *window)
    return (wanted, descending(d.indices.array.rank), updates), wanted


def indexed_cycles(
    instr: Instr, operands: tuple[Order, ...], result: Order, vmem_bytes: int
) -> float:
    """Cycles to read or change the tiles of all slices, arrays lying in these orders.

    Of an operand that fits in VMEM a gather may load its elements by address instead, a register at a time.
    """
    if instr.opcode == "gather":
        g = gather_dims(instr)
        sizes: tuple[int, ...] = g.slice_sizes
        numbers = [instr.array.dims[i] for i in g.batch_dims]
    else:
        s = scatter_dims(instr)
        sizes = tuple(s.window_size(i) for i in range(s.operand.array.rank))
        numbers = [s.updates.array.dims[i] for i in s.batch_dims]
    tiles = math.prod(numbers) * vregs(physical(sizes, operands[0]))
    cycles = _TILE_CYCLES * tiles
    held = VREG_TILE_BYTES * vregs(physical(instr.operands[0].array.dims, operands[0]))
    if instr.opcode == "gather" and held <= HELD_SHARE * vmem_bytes:
        loaded = vregs(physical(instr.array.dims, result))
        cycles = min(cycles, _LOAD_CYCLES * loaded + transfer_cycles(g.operand.array, operands[0]))
    return cycles


def indexed_ties(instr: Instr) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs of dimensions (of an operand by number, of the result by -1) that slices have whole."""
    if instr.opcode == "gather":
        g = gather_dims(instr)
        for dim, place in zip(g.window_dims, g.offset_dims, strict=True):
            if g.slice_sizes[dim] == g.operand.array.dims[dim]:
                yield (0, dim), (-1, place)
        return
    s = scatter_dims(instr)
    yield from (((0, dim), (-1, dim)) for dim in range(instr.array.rank))
    for dim, place in zip(s.operand_window_dims, s.window_dims, strict=True):
        if s.window_size(dim) == instr.array.dims[dim]:
            yield (2, place), (-1, dim)


def gather_attributes(instr: Instr, operands: tuple[Order, ...], result: Order) -> Attrs:
    """A gather's dimension numbers with its operand and its result in other orders."""
    d, order = gather_dims(instr), operands[0]
    return {
        "collapsed_slice_dims": _places(order, d.collapsed),
        "start_index_map": tuple(order.index(i) for i in d.start_map),
        "slice_sizes": physical(d.slice_sizes, order),
        "offset_dims": _places(result, d.offset_dims),
    }


def scatter_attributes(instr: Instr, operands: tuple[Order, ...]) -> Attrs:
    """A scatter's dimension numbers with operand and updates in other orders, its batch where it was."""
    d, order = scatter_dims(instr), operands[0]
    return {
        "inserted_window_dims": _places(order, d.inserted),
        "scatter_dims_to_operand_dims": tuple(order.index(i) for i in d.index_map),
        "update_window_dims": _places(operands[len(operands) // 2 + 1], d.window_dims),
    }


def _places(order: Order, dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(order.index(i) for i in dims))


def _keeps_lanes(order: Order, sizes: tuple[int, ...], operand: Instr) -> bool:
    """Whether slices have the minor dimension whole."""
    return sizes[order[-1]] == operand.array.dims[order[-1]]
