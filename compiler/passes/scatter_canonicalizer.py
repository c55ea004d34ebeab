"""Scatter canonicalizer: index vectors flat and first, so that kernels can stream them.

    updates [4,7,w] at indices [4,7,2]   ->   updates [28,w] at indices [2,28]

Indices of one component are a vector, of several one row each: both lie in memory without padding
and go to the scalar unit as they are. Dimensions of the updates that number index vectors become
one, before the window's. Batch dimensions become components of the index (an iota), but for one
that leads all arrays: a kernel then goes through each batch's own updates only.

Transposes and reshapes bring the arrays into that form; they fuse with what makes the indices.

Single elements of 8 and 16 bits are scattered as 32 bits, where that makes no other number of them:
kernels combine a register of words at a time, and parts of words one after another.

    pred[n] scatter-or(x, i, u)     ->   convert(s32[n] scatter-or(convert(x), i, convert(u)))
"""

from __future__ import annotations

import math

from compiler.analysis.reducers import reducer_kind, widened_kind
from compiler.analysis.scatter_dims import (
    ScatterDims,
    can_stay_batched,
    is_canonical,
    replaces,
    scatter_dims,
)
from compiler.hlo.call_graph import reachable
from compiler.hlo.dtypes import F32, S32, U32
from compiler.hlo.identities import MONOIDS
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.context import PassContext
from compiler.passes.index_vectors import batch_place, flat_indices, numbering
from compiler.passes.unit_windows import without_unit_windows
from compiler.rewrite import make
from compiler.rewrite.graph import emit, replace

Dims = tuple[int, ...]
_NARROW = frozenset({"pred", "bf16", "f16"})
_FEWEST_WIDENED = 128
"""Updates of a scatter whose elements are widened: fewer take less than the conversions."""


def canonicalize_scatters(module: HloModule, context: PassContext) -> bool:
    """Bring all scatters into canonical form."""
    for computation in reachable(module):
        units = without_unit_windows(computation, "scatter")
        found = [i for i in computation if i.opcode == "scatter"]
        changed = [i for i in found if not is_canonical(scatter_dims(i))]
        for scatter in changed:
            replace(scatter, canonical(scatter_dims(scatter)))
        narrow = [i for i in computation if i.opcode == "scatter" and _is_widened(scatter_dims(i))]
        for scatter in narrow:
            replace(scatter, _widened(scatter))
        if units or changed or narrow:
            computation.sort()
        context.counts["scatters"] += units + len(changed)
        context.counts["widened"] += len(narrow)
    return bool(context.counts["scatters"] or context.counts["widened"])


def _is_widened(d: ScatterDims) -> bool:
    """Whether single elements that share words are combined as exactly in words of their own.

    Integers are: what is cut off afterwards would have wrapped around. Floats where nothing is rounded.
    """
    dtype = d.operand.array.dtype
    if len(d.operands) != 1 or d.operand_batch or d.window_dims or d.vectors < _FEWEST_WIDENED:
        return False
    if dtype.packing == 1 or not (dtype.is_integer or dtype.name in _NARROW):
        return False
    kinds = MONOIDS & with_trait(Trait.EXACT) if dtype.is_float else MONOIDS
    return replaces(d.scatter) or reducer_kind(d.scatter.to_apply) in kinds


def _widened(scatter: HloInstruction) -> HloInstruction:
    """The same scatter of 32 bits."""
    operand, indices, updates = scatter.operands
    narrow = operand.array.dtype
    wide = F32 if narrow.is_float else U32 if narrow.is_integer and not narrow.is_signed else S32
    attrs = dict(scatter.attrs)
    if replaces(scatter):
        attrs["to_apply"] = make.replacement(scatter, wide)
    else:
        attrs["to_apply"] = make.reducer(scatter, str(reducer_kind(scatter.to_apply)), wide)
    operands = (make.convert(operand, wide), indices, make.convert(updates, wide))
    shape = ArrayShape(wide, operand.array.dims)
    return make.convert(emit(scatter, "scatter", shape, operands, attrs), narrow)


def canonical(d: ScatterDims) -> HloInstruction:
    """The same scatter in canonical form."""
    if d.operand.array.rank == 0:
        return _of_scalars(d)
    is_batched = bool(d.operand_batch) and can_stay_batched(d)
    sizes = _numbers(d)
    lead: Dims = sizes
    if not is_batched:
        lead = (math.prod(sizes),) if d.batch_dims else ()
    elif len(d.batch_dims) != 2 or _batch_place(d, 0) != 0:
        lead = (sizes[_batch_place(d, 0)], math.prod(sizes) // sizes[_batch_place(d, 0)])
    index_map, gone = d.index_map, d.inserted
    if not is_batched:
        index_map, gone = (*d.index_map, *d.operand_batch), (*d.inserted, *d.operand_batch)
    order = _order(d, is_batched=is_batched)
    iotas = () if is_batched else tuple(_batch_place(d, n) for n in range(len(d.operand_batch)))
    indices = flat_indices(d.scatter, d.indices, d.vector_dim, order, lead, d.components, iotas)
    index_map = index_map or (0,)  # every update is at the origin
    updates = [_updates(d, u, lead, is_batched=is_batched) for u in d.all_updates]
    attrs = dict(d.scatter.attrs)
    attrs["update_window_dims"] = tuple(range(len(lead), len(lead) + len(d.window_dims)))
    attrs["inserted_window_dims"] = tuple(sorted(gone))
    attrs["scatter_dims_to_operand_dims"] = index_map
    attrs["index_vector_dim"] = 0 if len(index_map) > 1 or not lead else len(lead)
    attrs["input_batching_dims"] = (0,) if is_batched else ()
    has_vector = len(index_map) > 1
    attrs["scatter_indices_batching_dims"] = (int(has_vector),) if is_batched else ()
    operands = (*d.operands, indices, *updates)
    return emit(d.scatter, "scatter", d.scatter.shape, operands, attrs)


def _numbers(d: ScatterDims) -> Dims:
    """Sizes of the dimensions that number index vectors."""
    return tuple(d.updates.array.dims[i] for i in d.batch_dims)


def _batch_place(d: ScatterDims, number: int) -> int:
    """Which of the numbering dimensions batch dimension `number` is."""
    return batch_place(d.vector_dim, d.indices_batch[number])


def _order(d: ScatterDims, *, is_batched: bool) -> Dims:
    """The numbering dimensions, the batch first where it stays one."""
    order = tuple(range(len(d.batch_dims)))
    if not is_batched:
        is_free = _is_commutative(d.scatter) and not d.indices_batch
        return numbering(d.updates, tuple(d.batch_dims), tuple(d.window_dims)) if is_free else order
    first = _batch_place(d, 0)
    return (first, *(i for i in order if i != first))


def _is_commutative(scatter: HloInstruction) -> bool:
    return widened_kind(scatter.to_apply, MONOIDS) is not None


def _updates(
    d: ScatterDims, updates: HloInstruction, lead: Dims, *, is_batched: bool
) -> HloInstruction:
    """Numbers first and flat, then the window."""
    order = tuple(d.batch_dims[i] for i in _order(d, is_batched=is_batched))
    moved = make.transpose(updates, (*order, *d.window_dims))
    window = tuple(updates.array.dims[i] for i in d.window_dims)
    return make.reshape(moved, (*lead, *window))


def _of_scalars(d: ScatterDims) -> HloInstruction:
    """A scatter into scalars is one into vectors of one element."""
    operands = [make.reshape(o, (1,)) for o in d.operands]
    count = math.prod(_numbers(d))
    updates = [make.reshape(u, (count,)) for u in d.all_updates]
    indices = make.splat(d.scatter, ArrayShape(S32, (count,)), 0)
    attrs = dict(d.scatter.attrs)
    attrs["inserted_window_dims"] = attrs["scatter_dims_to_operand_dims"] = (0,)
    attrs["index_vector_dim"] = 1
    attrs["input_batching_dims"] = attrs["scatter_indices_batching_dims"] = ()
    shapes = tuple(o.array for o in operands)
    shape = shapes[0] if len(shapes) == 1 else TupleShape(shapes)
    made = emit(d.scatter, "scatter", shape, (*operands, indices, *updates), attrs)
    if len(shapes) == 1:
        return make.reshape(made, ())
    parts = [
        emit(d.scatter, "get-tuple-element", s, (made,), {"index": i}) for i, s in enumerate(shapes)
    ]
    return emit(d.scatter, "tuple", d.scatter.shape, [make.reshape(p, ()) for p in parts])
