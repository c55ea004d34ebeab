"""Gather canonicalizer: large gathers number their slices by one first dimension.

    result [4,7,w] by indices [4,7,2]   ->   result [28,w] by indices [2,28], reshaped

Kernels stream such indices in blocks; and an index vector of one or two components is no row of
lanes by itself, most of which would be padding. Slices that are columns of a large operand are rows of a
transposed one. A slice that is whole in dimensions before those that are indexed is as many slices, each in
one piece:

    rows idx of [layers, rows, 8, 128]   ->   of each layer, rows idx of [rows, 8, 128]

Dimensions of one element in slices of one go (`unit_windows`); elements along a short dimension are chosen
from all of it (`few_places`). What is small is left as it is: its
kernel writes any result directly.
"""

from __future__ import annotations

import math

from compiler.analysis.gather_dims import (
    GatherDims,
    Memories,
    gather_dims,
    is_flat,
    is_large,
    is_padded,
)
from compiler.hlo.call_graph import reachable
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.few_places import chosen_of_few
from compiler.passes.index_vectors import batch_place, flat_indices, numbering
from compiler.passes.rules_scatter import pays_to_turn
from compiler.passes.unit_windows import without_unit_windows
from compiler.rewrite import make
from compiler.rewrite.graph import emit, replace
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES

Dims = tuple[int, ...]


def canonicalize_gathers(module: HloModule, context: PassContext) -> bool:
    """Bring large gathers into flat form."""
    chip = context.chip
    for computation in reachable(module):
        units = without_unit_windows(computation, "gather")
        chosen = 0
        for gather in [i for i in computation if i.opcode == "gather"]:
            choice = chosen_of_few(gather_dims(gather), chip)
            if choice is not None:
                replace(gather, choice)
                chosen += 1
        gathers = [i for i in computation if i.opcode == "gather"]
        # what one reads may be another, which is replaced before it: dimensions are asked for anew
        columns = [i for i in gathers if _has_columns(gather_dims(i), chip)]
        for gather in columns:
            d = gather_dims(gather)
            replace(gather, _of_rows(d, _column(d, chip)))
        apart = [i for i in computation if i.opcode == "gather" and _majors(gather_dims(i))]
        for gather in apart:
            replace(gather, _of_each_major(gather_dims(gather)))
        found = [i for i in computation if i.opcode == "gather"]
        changed = [i for i in found if _becomes_flat(gather_dims(i), chip)]
        for gather in changed:
            replace(gather, flat_gather(gather_dims(gather)))
        count = units + chosen + len(columns) + len(apart) + len(changed)
        if count:
            computation.sort()
        context.counts["gathers"] += count
    return bool(context.counts["gathers"])


def _has_columns(d: GatherDims, chip: Chip) -> bool:
    return is_large(d, chip) and _column(d, chip) >= 0


def _majors(d: GatherDims) -> Dims:
    """The dimensions of a slice before an indexed one, if it is whole there and in all that follow; those
    are pieces that one transfer moves."""
    dims, indexed = d.operand.array.dims, {*d.start_map, *d.operand_batch}
    last = max(indexed, default=0)
    majors = tuple(w for w in d.window_dims if w < last)
    follows = dims[last + 1 :]
    is_whole = all(d.slice_sizes[w] == n for w, n in enumerate(dims) if w in d.window_dims)
    if not is_whole or not majors or set(d.collapsed) != set(d.start_map):
        return ()
    is_piece = len(follows) > 1 or (len(follows) == 1 and follows[0] >= LANES)
    return majors if is_piece else ()


def _of_each_major(d: GatherDims) -> HloInstruction:
    """The same gather with `_majors` among the dimensions that number slices."""
    result, majors = d.gather.array, _majors(d)
    offsets = dict(zip(d.window_dims, d.offset_dims, strict=True))
    inner = tuple(offsets[w] for w in d.window_dims if w not in majors)
    numbers = tuple(i for i in range(result.rank) if i not in inner)
    old = d.batch_dims
    index, components = d.indices, d.indices.array.dims[d.vector_dim : d.vector_dim + 1]
    others = tuple(i for i in range(d.indices.array.rank) if i != d.vector_dim)
    index = make.transpose(index, (*others, d.vector_dim) if components else others)
    mapping = tuple(numbers.index(i) for i in old)
    shape = (*(result.dims[i] for i in numbers), *components)
    index = make.broadcast(index, shape, (*mapping, len(numbers)) if components else mapping)
    batches = [
        (dim, mapping[batch_place(d.vector_dim, place)])
        for dim, place in zip(d.operand_batch, d.indices_batch, strict=True)
    ]
    batches = sorted([*batches, *((w, numbers.index(offsets[w])) for w in majors)])
    attrs = dict(d.gather.attrs)
    attrs["offset_dims"] = tuple(range(len(numbers), result.rank))
    attrs["index_vector_dim"] = len(numbers)
    attrs["operand_batching_dims"] = tuple(dim for dim, _ in batches)
    attrs["start_indices_batching_dims"] = tuple(place for _, place in batches)
    attrs["slice_sizes"] = tuple(1 if w in majors else n for w, n in enumerate(d.slice_sizes))
    order = (*numbers, *inner)
    made_shape = result.with_dims(tuple(result.dims[i] for i in order))
    made = emit(d.gather, "gather", made_shape, (d.operand, index), attrs)
    return make.transpose(made, tuple(order.index(i) for i in range(result.rank)))


def _becomes_flat(d: GatherDims, chip: Memories) -> bool:
    return not is_flat(d) and (is_large(d, chip) or is_padded(d))


def _column(d: GatherDims, chip: Chip) -> int:
    """The dimension along which slices are whole columns, and had better be rows; -1 if there is none."""
    dims = d.operand.array.dims
    last = len(dims) - 1
    if not dims or (last in d.window_dims and d.slice_sizes[last] > 1):
        return -1
    whole = [w for w in d.window_dims if d.slice_sizes[w] == dims[w] and w not in d.start_map]
    column = max(whole, key=lambda w: dims[w], default=-1)
    if column < 0 or not pays_to_turn(dims, d.gather.array.dims, dims[column], chip):
        return -1
    return column


def _of_rows(d: GatherDims, column: int) -> HloInstruction:
    """The same gather from an operand that has `column` last."""
    order = (*(i for i in range(d.operand.array.rank) if i != column), column)
    operand = make.transpose(d.operand, order)
    windows = [w for w in order if w in d.window_dims]
    sizes = list(d.gather.array.dims)
    for place, window in zip(d.offset_dims, windows, strict=True):
        sizes[place] = d.slice_sizes[window]
    attrs = dict(d.gather.attrs)
    attrs["collapsed_slice_dims"] = tuple(sorted(order.index(i) for i in d.collapsed))
    attrs["start_index_map"] = tuple(order.index(i) for i in d.start_map)
    attrs["operand_batching_dims"] = tuple(order.index(i) for i in d.operand_batch)
    attrs["slice_sizes"] = tuple(d.slice_sizes[i] for i in order)
    shape = d.gather.array.with_dims(tuple(sizes))
    made = emit(d.gather, "gather", shape, (operand, d.indices), attrs)
    back = list(range(len(sizes)))
    for place, window in zip(d.offset_dims, d.window_dims, strict=True):
        back[place] = d.offset_dims[windows.index(window)]
    return make.transpose(made, tuple(back))


def flat_gather(d: GatherDims) -> HloInstruction:
    """The same result by a gather in flat form, beside this one."""
    result = d.gather.array
    order = tuple(range(len(d.batch_dims)))
    if not d.indices_batch:
        order = numbering(d.gather, tuple(d.batch_dims), tuple(d.offset_dims))
    batch_dims = tuple(d.batch_dims[i] for i in order)
    counts = tuple(result.dims[i] for i in batch_dims)
    lead = (math.prod(counts),)
    iotas = tuple(batch_place(d.vector_dim, i) for i in d.indices_batch)
    start_map = (*d.start_map, *d.operand_batch) or (0,)
    indices = flat_indices(d.gather, d.indices, d.vector_dim, order, lead, len(d.start_map), iotas)
    collapsed = {*d.collapsed, *d.operand_batch}
    collapsed |= {i for i in d.start_map if d.slice_sizes[i] == 1}
    window = tuple(n for i, n in enumerate(d.slice_sizes) if i not in collapsed)
    attrs = dict(d.gather.attrs)
    attrs["offset_dims"] = tuple(range(1, 1 + len(window)))
    attrs["collapsed_slice_dims"] = tuple(sorted(collapsed))
    attrs["start_index_map"] = start_map
    attrs["index_vector_dim"] = 0 if len(start_map) > 1 else 1
    attrs["operand_batching_dims"] = attrs["start_indices_batching_dims"] = ()
    shape = result.with_dims((*lead, *window))
    made = emit(d.gather, "gather", shape, (d.operand, indices), attrs)
    apart = make.reshape(made, (*counts, *(result.dims[i] for i in d.offset_dims)))
    places = (*batch_dims, *d.offset_dims)  # where each dimension goes
    return make.transpose(apart, tuple(places.index(i) for i in range(result.rank)))
