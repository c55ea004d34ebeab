"""Gather canonicalizer: large gathers number their slices by one first dimension.

    result [4,7,w] by indices [4,7,2]   ->   result [28,w] by indices [2,28], reshaped

Kernels stream such indices in blocks; and an index vector of one or two components is no row of
lanes by itself, most of which would be padding. What is small is left as it is: its kernel writes any
result directly.
"""

from __future__ import annotations

import math

from compiler.analysis.gather_dims import GatherDims, gather_dims, is_flat, is_large, is_padded
from compiler.hlo.call_graph import reachable
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.index_vectors import batch_place, flat_indices
from compiler.rewrite import make
from compiler.rewrite.graph import emit, replace


def canonicalize_gathers(module: HloModule, context: PassContext) -> bool:
    """Bring large gathers into flat form."""
    vmem_bytes = context.chip.vmem_bytes
    for computation in reachable(module):
        found = [gather_dims(i) for i in computation if i.opcode == "gather"]
        changed = [d for d in found if not is_flat(d) and (is_large(d, vmem_bytes) or is_padded(d))]
        for d in changed:
            replace(d.gather, _flat(d))
        if changed:
            computation.sort()
        context.counts["gathers"] += len(changed)
    return bool(context.counts["gathers"])


def _flat(d: GatherDims) -> HloInstruction:
    result = d.gather.array
    counts = tuple(result.dims[i] for i in d.batch_dims)
    lead = (math.prod(counts),)
    order = tuple(range(len(counts)))
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
    places = (*d.batch_dims, *d.offset_dims)  # where each dimension goes
    return make.transpose(apart, tuple(places.index(i) for i in range(result.rank)))
