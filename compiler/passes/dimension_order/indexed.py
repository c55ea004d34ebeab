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
from dataclasses import replace

from compiler.analysis.code_costs import IndexedCosts, OrderCosts
from compiler.analysis.gather_dims import HELD_SHARE, GatherDims, gather_dims
from compiler.analysis.kernel_vmem import VREG_TILE_BYTES
from compiler.analysis.scatter_dims import ScatterDims, combines_elements, scatter_dims
from compiler.backend.element_cut import fits_by_elements
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.dimension_order.orders import (
    Order,
    descending,
    physical,
    reorder_cycles,
    transfer_cycles,
    vregs,
)
from compiler.rewrite.pattern import splat_value
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES

Instr = HloInstruction
Forms = tuple[tuple[Order, ...], Order]
Attrs = dict[str, object]
_LEAST_LANES = 64
"""Of the minor dimension in a window that is cut from it, at any lane."""
_COPIES_ROOM = 0.75
"""The same for a large result, which leaves little room for tables: times VMEM over the result."""


def is_indexed(instr: Instr) -> bool:
    """Whether an operation reads or changes slices of one array at the places of an array of indices."""
    if instr.opcode == "scatter":
        return isinstance(instr.shape, ArrayShape)
    return instr.opcode == "gather"


def is_of_slices(instr: Instr) -> bool:
    """Whether an array is a gather's result or what a scatter or a gather reads."""
    return any(is_indexed(i) for i in (instr, *instr.users))


def indexed_orders(
    instr: Instr, orders: tuple[Order, ...], wanted: Order, costs: OrderCosts
) -> Forms | None:
    """The orders of the operands and of the result: slices have the minor dimension whole, those of a
    gather perhaps only much of it, or their numbers are the minor dimension and elements go by address
    in VMEM.

    A gather of whole slices takes its operand as it lies, such a scatter gives the order that is wanted.
    """
    if instr.opcode == "gather":
        return _gather_orders(instr, orders[0], wanted, costs)
    return _scatter_orders(instr, orders, wanted, costs)


def _gather_orders(instr: Instr, order: Order, wanted: Order, costs: OrderCosts) -> Forms | None:
    d = gather_dims(instr)
    if not order or d.operand_batch:
        return None
    batch, indices = tuple(d.batch_dims), descending(d.indices.array.rank)
    if wanted and wanted[-1] in batch:
        window = tuple(i for i in wanted if i not in batch)
        places = [d.window_dims[d.offset_dims.index(i)] for i in window]
        apart = (*places, *(i for i in order if i not in places))
        for taken in (order, apart):
            is_alike = [i for i in taken if i in places] == places
            if is_alike and table_bytes(d.operand, taken) <= HELD_SHARE * costs.chip.vmem_bytes:
                return (taken, indices), (*window, *batch)
    best: tuple[float, Forms] | None = None
    for taken in dict.fromkeys((order, _as_wanted(d, order, wanted))):
        if not _cuts_lanes_well(d, taken):
            continue
        along = (d.offset_dims[d.window_dims.index(i)] for i in taken if i in d.window_dims)
        forms = ((taken, indices), (*batch, *along))
        cycles = indexed_cycles(instr, *forms, costs)
        cycles += reorder_cycles(d.operand.array, order, taken, costs)
        cycles += reorder_cycles(instr.array, forms[1], wanted or forms[1], costs)
        if best is None or cycles < best[0]:
            best = cycles, forms
    return best and best[1]


def _as_wanted(d: GatherDims, order: Order, wanted: Order) -> Order:
    """The operand with the windows' dimensions last, as the result shall have them."""
    window = [d.window_dims[d.offset_dims.index(i)] for i in wanted if i in d.offset_dims]
    return (*(i for i in order if i not in window), *window)


def _cuts_lanes_well(d: GatherDims, order: Order) -> bool:
    """Whether windows have the minor dimension whole, or much of it."""
    minor = order[-1]
    is_wide = minor in d.window_dims and d.slice_sizes[minor] >= _LEAST_LANES
    return is_wide or _keeps_lanes(order, d.slice_sizes, d.operand)


def _scatter_orders(
    instr: Instr, orders: tuple[Order, ...], wanted: Order, costs: OrderCosts
) -> Forms | None:
    d = scatter_dims(instr)
    sizes = tuple(d.window_size(i) for i in range(d.operand.array.rank))
    is_batched = d.operand_batch and wanted[: len(d.operand_batch)] != d.operand_batch
    if not wanted or is_batched:
        return None
    last_of_updates = orders[-1][-1:]  # none of an update that is one element
    numbered = wanted[-1] in d.index_map or not set(d.batch_dims).isdisjoint(last_of_updates)
    if numbered and goes_by_elements(d, costs.chip):
        wanted = (*(i for i in wanted if i not in d.index_map), *sorted(d.index_map))
        updates = (*_window_of(d, wanted), *d.batch_dims)
        return (wanted, descending(d.indices.array.rank), updates), wanted
    if not _keeps_lanes(wanted, sizes, d.operand):
        return None
    updates = (*d.batch_dims, *_window_of(d, wanted))
    return (wanted, descending(d.indices.array.rank), updates), wanted


def _window_of(d: ScatterDims, order: Order) -> Order:
    """The window dimensions of the updates, as the operand's order has them."""
    places = d.operand_window_dims
    return tuple(d.window_dims[places.index(i)] for i in order if i in places)


def goes_by_elements(d: ScatterDims, chip: Chip) -> bool:
    """Whether a kernel can combine elements at computed addresses, its arrays in the orders it takes."""
    if not d.window_dims or d.vectors < LANES:
        return False
    if len(set(d.scatter.operands)) < len(d.scatter.operands):
        return False
    return combines_elements(d) and fits_by_elements(_with_numbers_last(d), chip)


def _with_numbers_last(d: ScatterDims) -> ScatterDims:
    """A scatter of one array whose windows lie before what indices find, in operand and updates."""
    places = d.operand_window_dims
    order = (*places, *(i for i in range(d.operand.array.rank) if i not in places))
    is_made = splat_value(d.operand) is not None
    operand = _in_order(d.operand, order, "constant" if is_made else "parameter")
    return replace(
        d,
        operands=(operand,),
        indices=_in_order(d.indices, descending(d.indices.array.rank), "parameter"),
        all_updates=(_in_order(d.updates, (*d.window_dims, *d.batch_dims), "parameter"),),
        window_dims=tuple(range(len(places))),
        inserted=_places(order, d.inserted),
        index_map=_places(order, d.index_map),
    )


def _in_order(array: Instr, order: Order, opcode: str) -> Instr:
    shape = ArrayShape(array.array.dtype, physical(array.array.dims, order))
    return Instr(opcode, array.name, shape)


def table_bytes(operand: Instr, order: Order) -> int:
    """Bytes of VMEM that an operand takes in an order."""
    return VREG_TILE_BYTES * vregs(physical(operand.array.dims, order))


def indexed_cycles(
    instr: Instr,
    operands: tuple[Order, ...],
    result: Order,
    costs: OrderCosts,
) -> float:
    """Cycles to read or change the tiles of all slices, arrays lying in these orders.

    Of an operand that fits in VMEM a gather may load its elements by address instead, a register at a time;
    so does a scatter whose updates lie along their numbers.
    """
    held = table_bytes(instr.operands[0], operands[0])
    indexed, vmem_bytes = IndexedCosts.of(costs.chip), costs.chip.vmem_bytes
    if instr.opcode == "gather":
        g = gather_dims(instr)
        sizes: tuple[int, ...] = g.slice_sizes
        numbers = [instr.array.dims[i] for i in g.batch_dims]
        one = indexed.copy
        loaded = indexed.load * vregs(physical(instr.array.dims, result))
        loaded += transfer_cycles(g.operand.array, operands[0], costs)
        if result and result[-1] in g.batch_dims:
            return loaded
    else:
        s = scatter_dims(instr)
        updates = s.updates.array
        if s.window_dims and operands[-1][-1] in s.batch_dims:
            changed = vregs(physical(updates.dims, operands[-1]))
            tables = min(indexed.table, _COPIES_ROOM * vmem_bytes / held)
            tables *= held / VREG_TILE_BYTES
            return indexed.change * changed + tables
        sizes = tuple(s.window_size(i) for i in range(s.operand.array.rank))
        numbers = [updates.dims[i] for i in s.batch_dims]
        one = indexed.update
    fits = held <= HELD_SHARE * vmem_bytes
    tiles = vregs(physical(sizes, operands[0]))
    is_row = fits and math.prod(sizes) == sizes[operands[0][-1]]
    one = one + indexed.column * tiles if is_row else indexed.tile * tiles
    cycles = one * math.prod(numbers)
    return min(cycles, loaded) if instr.opcode == "gather" and fits else cycles


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
