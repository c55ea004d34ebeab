"""Sorted scatters: many rows that are added to a table larger than VMEM are sorted by place first.

    scatter-add(table, i, u)   ->   scatter-add(table, sort(i), rows of u in that order)

A kernel keeps a block of such a table in VMEM while updates pass by. As they come, each block looks at all
of them, or each update fetches its rows and writes them back; sorted, a block combines its own and skips
the others a chunk at a time. The sort is stable: what is added to one row is added in the same order.
Places outside of the table come first and last, and are none of any block's.

The updates' rows are moved once more for it, so a table must be many blocks.
"""

from __future__ import annotations

import math

from compiler.analysis.code_costs import ScatterCosts
from compiler.analysis.scatter_dims import (
    SORTED,
    ScatterDims,
    can_stay_batched,
    combines_rows,
    is_canonical,
    scatter_dims,
)
from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.call_graph import reachable
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.scalar_computations import key_order
from compiler.hlo.shape import TupleShape
from compiler.passes.context import PassContext
from compiler.passes.dimension_order.indexed import goes_by_elements
from compiler.passes.scatter_canonicalizer import canonical
from compiler.rewrite.graph import emit, replace
from compiler.rewrite.pattern import splat_value
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES

_BLOCK_SHARE = 0.25  # of VMEM that a block of the table takes
_COPIED_SHARE = 0.1  # where it comes from HBM, and lies there beside the result
_GAIN = 0.75  # of its cycles that a scatter must come down to
_MOSTLY_PADDING = 16
"""Lanes of a row that goes by elements, unsorted, where VMEM holds the table with rows along lanes."""
_MOST_LANES = 1024
"""Eight registers a row: wider rows are added at full speed one by one (assumed)."""
_FEWEST = 4096  # updates


def sort_scatters(module: HloModule, context: PassContext) -> bool:
    """Sort the updates of scatters where that pays."""
    for computation in reachable(module):
        found = [i for i in computation if i.opcode == "scatter"]
        paying = [i for i in found if _pays(scatter_dims(i), context.chip)]
        for scatter in paying:
            dims = scatter_dims(scatter)
            if not is_canonical(dims):
                dims = scatter_dims(canonical(dims))
            made = _sorted(dims) if combines_rows(dims) else dims.scatter
            if made is not scatter:
                replace(scatter, made)
                context.counts["scatters"] += 1
        if paying:
            computation.sort()
    return bool(context.counts["scatters"])


def _pays(d: ScatterDims, chip: Chip) -> bool:
    """Whether many single rows of words are combined, and the estimate is well below that of today."""
    if not _are_rows(d) or SORTED in d.scatter.attrs:
        return False
    dims, count = d.operand.array.dims, math.prod(d.updates.array.dims[i] for i in d.batch_dims)
    if not 1 < dims[-1] <= _MOST_LANES or count < _FEWEST:
        return False
    if dims[-1] <= _MOSTLY_PADDING and goes_by_elements(d, chip):
        return False
    batches = dims[0] if d.operand_batch else 1
    tiles = -(-dims[-1] // LANES)
    table = byte_size(d.operand.array.with_layout(None))
    has_table = splat_value(d.operand) is None
    share = _COPIED_SHARE if has_table else _BLOCK_SHARE
    passes = -(-table // batches // int(share * chip.vmem_bytes))
    costs = ScatterCosts.of(chip)
    one = costs.looked_at + costs.looked_at_tile * tiles
    copy = table * (2 if has_table else 1) / chip.hbm_bytes_per_cycle
    streamed = count * costs.streamed + (0 if has_table else copy)
    now = min(copy + passes * count * one, streamed)
    digits = math.log2(count // batches)
    order = costs.compared * digits * (digits + 1) + costs.moved + costs.moved_tile * tiles
    row_bytes = tiles * LANES * S32.bits // 8
    again = passes * row_bytes / chip.hbm_bytes_per_cycle  # each block has the updates brought
    return copy + count * (order + one + again) < _GAIN * now


def _are_rows(d: ScatterDims) -> bool:
    """Whether updates are rows of words that an index of one word finds, of their own batch at most."""
    if len(d.operands) != 1 or d.components != 1 or d.indices.array.dtype != S32:
        return False
    if d.operand_batch and not can_stay_batched(d):
        return False
    rank = d.operand.array.rank
    is_row = d.operand_window_dims == (rank - 1,) and len(d.window_dims) == 1
    return is_row and d.operand.array.dtype.packing == 1


def _sorted(d: ScatterDims) -> HloInstruction:
    """The same scatter, canonical, with its updates sorted by the row that they go to."""
    scatter, indices, updates = d.scatter, d.indices, d.updates
    shape = indices.array
    dim = shape.rank - 1
    number = emit(scatter, "iota", shape, (), {"iota_dimension": dim})
    both = TupleShape((shape, shape))
    by_place = key_order(scatter.home.owner, "by_place", (S32, S32), "LT")
    attrs = {"dimensions": (dim,), "is_stable": True, "to_apply": by_place}
    order = emit(scatter, "sort", both, (indices, number), attrs)
    keys, places = (
        emit(scatter, "get-tuple-element", shape, (order,), {"index": i}) for i in (0, 1)
    )
    lead = len(d.batch_dims)
    gather_attrs = {
        "offset_dims": tuple(range(lead, updates.array.rank)),
        "collapsed_slice_dims": (lead - 1,),
        "start_index_map": (lead - 1,),
        "operand_batching_dims": tuple(range(lead - 1)),
        "start_indices_batching_dims": tuple(range(lead - 1)),
        "index_vector_dim": lead,
        "slice_sizes": (*(1,) * lead, *updates.array.dims[lead:]),
    }
    rows = emit(scatter, "gather", updates.array, (updates, places), gather_attrs)
    kept = {**scatter.attrs, SORTED: True}
    return emit(scatter, "scatter", scatter.array, (d.operand, keys, rows), kept)
