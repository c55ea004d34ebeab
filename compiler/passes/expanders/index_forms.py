"""Indices of gathers, scatters and dynamic slices in the one form that later passes know.

That form: s32 (or a pair of words), scalars for dynamic slices, and at least one component in the
index vector of a gather or scatter.
"""

from __future__ import annotations

from compiler.hlo.dtypes import S32, U32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.ops.indexing import index_operands
from compiler.rewrite.emitter import Emitter, result_of
from compiler.rewrite.graph import emit

Instr = HloInstruction
_COMPONENTS = {"gather": "start_index_map", "scatter": "scatter_dims_to_operand_dims"}


def plain_indices(instr: Instr) -> Instr | None:
    """The instruction with indices of that form, or None if it has them already."""
    if not instr.attrs.get(_COMPONENTS.get(instr.opcode, ""), True):
        return _with_a_component(instr)
    numbers = index_operands(instr)
    start, end = numbers.start, numbers.stop
    indices = instr.operands[start:end]
    if instr.opcode.startswith("dynamic") and len(indices) == 1 and indices[0].array.rank == 1:
        return _with_scalar_starts(instr, start)
    if all(i.array.dtype == S32 or i.array.dtype.bits > 32 for i in indices):
        return None
    e = Emitter.at(instr)
    changed = [_as_signed(e, i) for i in indices]
    operands = (*instr.operands[:start], *changed, *instr.operands[end:])
    return emit(instr, instr.opcode, instr.shape, operands, dict(instr.attrs))


def _with_scalar_starts(instr: Instr, start: int) -> Instr:
    """The older form, whose start indices are one vector."""
    e = Emitter.at(instr)
    vector = instr.operands[start]
    count = vector.array.dims[0]
    scalars = [_as_signed(e, e.reshape(e.part(vector, 0, i, i + 1), ())) for i in range(count)]
    operands = (*instr.operands[:start], *scalars)
    return emit(instr, instr.opcode, instr.shape, operands, dict(instr.attrs))


def _with_a_component(instr: Instr) -> Instr:
    """Windows that no index places (all of a scalar's are such) all start at 0: the operands get
    one more dimension of size 1, the first, and every index is 0 along it."""
    e = Emitter.at(instr)
    count = len(instr.operands) // 2 if instr.opcode == "scatter" else 1
    at = instr.index_vector_dim
    dims = instr.operands[count].array.dims
    zeros = e.full(S32, (*dims[:at], 1, *dims[at + 1 :]), 0)
    arrays = [e.reshape(o, (1, *o.array.dims)) for o in instr.operands[:count]]
    attrs = {**instr.attrs, _COMPONENTS[instr.opcode]: (0,)}
    is_gather = instr.opcode == "gather"
    batch = "operand_batching_dims" if is_gather else "input_batching_dims"
    dropped = "collapsed_slice_dims" if is_gather else "inserted_window_dims"
    attrs[batch] = tuple(d + 1 for d in instr.ints(batch))
    attrs[dropped] = (0, *(d + 1 for d in instr.ints(dropped)))
    if is_gather:
        sizes = (1, *instr.slice_sizes)
        return e.instruction("gather", (*arrays, zeros), {**attrs, "slice_sizes": sizes})
    made = e.instruction("scatter", (*arrays, zeros, *instr.operands[count + 1 :]), attrs)
    parts = [made] if count == 1 else [e.get_tuple_element(made, i) for i in range(count)]
    whole = [e.reshape(p, o.array.dims) for p, o in zip(parts, instr.operands, strict=False)]
    return result_of(e, instr, whole)


def _as_signed(e: Emitter, index: Instr) -> Instr:
    """As s32; what is beyond it is beyond every dimension."""
    if index.array.dtype == U32:
        index = e.minimum(index, e.like(index, 2**31 - 1))
    return index if index.array.dtype.bits > 32 else e.cast(index, S32)
