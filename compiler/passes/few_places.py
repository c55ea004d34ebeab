"""Gathers along a short dimension as choices between its positions.

    g[n,m] = x[n, i[n,m]]      of  x = f32[10000000,3]
    g[n,m] = i >= 2 ? x[n,2] : i >= 1 ? x[n,1] : x[n,0]

Each element is a slice of its own, and a transfer of its own where the operand lies in HBM. To read all
positions of the dimension and to keep one takes a comparison and a selection for each, in whole
registers, and fuses with what is around. Comparisons that go up clamp the index as HLO says.
"""

from __future__ import annotations

import math

from compiler.analysis.code_costs import GatherCosts
from compiler.analysis.gather_dims import GatherDims, is_large
from compiler.hlo.dtypes import PRED
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.index_vectors import batch_place
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES
from tpu_sim.isa.instruction import Slot

_MOST_PLACES = 64
_OPERATIONS = 2
"""On each register for each position: a comparison, a selection."""


def chosen_of_few(d: GatherDims, chip: Chip) -> HloInstruction | None:
    """The result of a gather by selections; None where it is no such gather, or that does not pay."""
    if len(d.start_map) != 1 or d.collapsed != d.start_map or not is_large(d, chip):
        return None
    (axis,) = d.start_map
    places = d.operand.array.dims[axis]
    is_whole = all(d.slice_sizes[w] == d.operand.array.dims[w] for w in d.window_dims)
    if not is_whole or not 0 < places <= _MOST_PLACES or not _pays(d, axis, places, chip):
        return None
    return _chosen(d, axis, places)


def _pays(d: GatherDims, axis: int, places: int, chip: Chip) -> bool:
    """Whether selections take less than the transfers of all slices.

    A slice comes in as many pieces as lie before the dimension: a column of a matrix is its elements.
    """
    result = d.gather.array
    slices = math.prod(result.dims[i] for i in d.batch_dims)
    slices *= math.prod(d.slice_sizes[w] for w in d.window_dims if w < axis)
    registers = -(-result.element_count // (SUBLANES * LANES))
    chosen = _OPERATIONS * places * registers / chip.slot_count(Slot.VALU)
    return chosen < slices * GatherCosts.of(chip).transfer


def _chosen(d: GatherDims, axis: int, places: int) -> HloInstruction:
    result = d.gather.array.dims
    numbers = make.reshape(d.indices, tuple(result[i] for i in d.batch_dims))
    index = make.broadcast(numbers, result, d.batch_dims)
    found = _position(d, axis, 0)
    for place in range(1, places):
        bound = make.splat(d.gather, index.array, place)
        attrs: dict[str, object] = {"direction": "GE"}
        is_there = emit(d.gather, "compare", ArrayShape(PRED, result), (index, bound), attrs)
        choice = (is_there, _position(d, axis, place), found)
        found = emit(d.gather, "select", found.shape, choice)
    return found


def _position(d: GatherDims, axis: int, place: int) -> HloInstruction:
    """One position of the dimension that is indexed, for each element of the result."""
    dims = d.operand.array.dims
    bounds = tuple((place, place + 1, 1) if i == axis else (0, n, 1) for i, n in enumerate(dims))
    rest = [i for i in range(len(dims)) if i != axis]
    part = make.reshape(make.slice_(d.operand, bounds), tuple(dims[i] for i in rest))
    there = {w: d.offset_dims[k] for k, w in enumerate(d.window_dims)}
    for dim, number in zip(d.operand_batch, d.indices_batch, strict=True):
        there[dim] = d.batch_dims[batch_place(d.vector_dim, number)]
    mapping = tuple(there[i] for i in rest)
    order = tuple(sorted(range(len(rest)), key=mapping.__getitem__))
    turned = make.transpose(part, order)
    return make.broadcast(turned, d.gather.array.dims, tuple(mapping[i] for i in order))
