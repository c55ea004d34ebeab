"""Laws of gathers of one slice a batch, and of scatters of slices that are whole but for one dimension.

`x[i]` of each of several arrays, as `vmap` makes it of a lookup in a loop, is a gather whose slices are
whole but for one dimension. From a small array it is a comparison of positions with the index, like a
gather of one element a row: it fuses, and a loop of it can stay in VMEM, where a gather has a kernel of
its own.

`lax.dynamic_update_slice(x, row, (i, 0))` under `vmap` is a scatter whose second place can be none but 0.
Without that place it is a scatter of rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.analysis.index_columns import Column, index_columns
from compiler.hlo.dtypes import PRED
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.dimension_order.orders import vregs
from compiler.passes.rules_indexing import wide_index
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op
from compiler.rewrite.rewriter import rule

Dims = tuple[int, ...]
_MOST_REGISTERS = 512
"""Of an operand that is read as a whole for its slices. Reading one, comparing and choosing takes about two
cycles, a gather's kernel 4,000 (16 slices of f32[16,4096,3] and 64 of f32[64,30,100], estimated on v5e)."""


@dataclass(frozen=True)
class _SliceAccess:
    """A gather of the slices at one place along `dim` for each element of `batch`, all else whole."""

    dim: int
    batch: Dims
    component: int


# gather(x, one place along d for each batch) == max over d of (position == place ? x : least)
@rule("gather-slice-per-batch", Op("gather"))
def gather_slice_per_batch(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """A masked maximum: exact, since every other element is the identity."""
    operand, indices = instr.operands
    access = _access(instr)
    dtype = operand.array.dtype
    kind = "or" if dtype == PRED else "maximum"
    least = identity(kind, dtype)
    if access is None or least is None or dtype.bits < 8:
        return None
    order = _order(operand.array.dims, access)
    dims = tuple(operand.array.dims[d] for d in order)
    if vregs(dims) > _MOST_REGISTERS:
        return None
    turned = make.transpose(operand, order)
    along = order.index(access.dim)
    index = _places(instr, indices, access)
    shape = ArrayShape(index.array.dtype, dims)
    position = emit(instr, "iota", shape, (), {"iota_dimension": along})
    wanted = make.broadcast(index, dims, tuple(order.index(d) for d in access.batch))
    mask = emit(instr, "compare", ArrayShape(PRED, dims), (position, wanted), {"direction": "EQ"})
    fill = make.splat(instr, turned.array, least)
    chosen = emit(instr, "select", turned.array, (mask, turned, fill))
    init = make.constant(instr, dtype, least)
    attrs = {"dimensions": (along,), "to_apply": make.reducer(instr, kind, dtype)}
    left = tuple(n for d, n in enumerate(dims) if d != along)
    found = emit(instr, "reduce", operand.array.with_dims(left), (chosen, init), attrs)
    kept = [d for d in order if d != access.dim]
    back = tuple(kept.index(d) for d in _result_order(instr, access))
    return make.reshape(make.transpose(found, back), instr.array.dims)


def _access(instr: HloInstruction) -> _SliceAccess | None:
    """Recognise one slice a batch, at a place along one dimension; none if it is anything else."""
    operand, indices = instr.operands
    dims, sizes, batch = operand.array.dims, instr.slice_sizes, instr.operand_batching_dims
    numbered = instr.start_indices_batching_dims
    if not batch or batch != tuple(sorted(batch)) or numbered != tuple(sorted(numbered)):
        return None
    cut = [d for d, n in enumerate(dims) if d not in batch and sizes[d] != n]
    if len(cut) != 1 or sizes[cut[0]] != 1 or cut[0] not in instr.start_index_map:
        return None
    vectors = math.prod(n for d, n in enumerate(indices.array.dims) if d != instr.index_vector_dim)
    if vectors != math.prod(dims[d] for d in batch) or vectors < 2:
        return None
    if math.prod(dims[d] for d in range(len(dims)) if d not in (*batch, cut[0])) == 1:
        return None  # one element a row: `gather-one-per-row`
    return _SliceAccess(cut[0], batch, instr.start_index_map.index(cut[0]))


def _places(instr: HloInstruction, indices: HloInstruction, access: _SliceAccess) -> HloInstruction:
    """The place of each batch, within the operand."""
    dims, size = indices.array.dims, instr.operands[0].array.dims[access.dim]
    if instr.index_vector_dim < len(dims):
        ranges = [(0, n, 1) for n in dims]
        ranges[instr.index_vector_dim] = (access.component, access.component + 1, 1)
        indices = make.slice_(indices, tuple(ranges))
    rows = tuple(instr.operands[0].array.dims[d] for d in access.batch)
    index = wide_index(make.reshape(indices, rows), size)
    low = make.constant(instr, index.array.dtype, 0)
    high = make.constant(instr, index.array.dtype, size - 1)
    return emit(instr, "clamp", index.array, (low, index, high))


def _order(dims: Dims, access: _SliceAccess) -> Dims:
    """The operand's dimensions as they take the fewest registers: as they are, or the cut one last."""
    as_they_are = tuple(range(len(dims)))
    turned = (*(d for d in as_they_are if d != access.dim), access.dim)
    sizes = [vregs(tuple(dims[d] for d in order)) for order in (as_they_are, turned)]
    return turned if sizes[1] < sizes[0] else as_they_are


def _result_order(instr: HloInstruction, access: _SliceAccess) -> list[int]:
    """The operand's dimension that each of the result's is, but for the cut one."""
    batch = iter(access.batch)
    gone = (*instr.collapsed_slice_dims, *access.batch)
    inside = iter(d for d in range(instr.operands[0].array.rank) if d not in gone)
    ones = [n for n in range(instr.array.rank) if n not in instr.offset_dims]
    found = []
    for n in range(instr.array.rank):
        if n not in ones:
            found.append(next(inside))
        elif instr.array.dims[n] != 1 or len(ones) == len(access.batch):
            found.append(next(batch))
    return [d for d in found if d != access.dim]


# scatter(x, (i, 0), updates that are whole along the second dimension) == scatter(x, i, updates)
@rule("scatter-of-whole-windows", Op("scatter"))
def scatter_of_whole_windows(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Drop the components of the index that are 0 where an update has all of a dimension."""
    count = len(instr.operands) // 2
    indices, along = instr.operands[count], instr.scatter_dims_to_operand_dims
    if instr.index_vector_dim >= indices.array.rank:
        return None
    columns = index_columns(indices, instr.index_vector_dim)
    sizes = _window_sizes(instr, count)
    kept = [
        (column, dim)
        for column, dim in zip(columns, along, strict=True)
        if sizes.get(dim) != instr.operands[0].array.dims[dim]
        or (column.first, column.along) != (0, None)
    ]
    if not kept or len(kept) == len(along):
        return None
    vector_dim = instr.index_vector_dim
    numbered = tuple(d - (d > vector_dim) for d in instr.scatter_indices_batching_dims)
    attrs: dict[str, object] = {
        **instr.attrs,
        "scatter_dims_to_operand_dims": tuple(dim for _, dim in kept),
        "index_vector_dim": len(columns[0].numbers),
    }
    if numbered:
        attrs["scatter_indices_batching_dims"] = numbered
    operands = (*instr.operands[:count], _joined([column for column, _ in kept]))
    return emit(instr, "scatter", instr.shape, (*operands, *instr.operands[count + 1 :]), attrs)


def _window_sizes(scatter: HloInstruction, count: int) -> dict[int, int]:
    """Elements of an update along each dimension of the operand that its windows have."""
    gone = {*scatter.inserted_window_dims, *scatter.input_batching_dims}
    inside = [d for d in range(scatter.operands[0].array.rank) if d not in gone]
    update = scatter.operands[count + 1].array.dims
    return {d: update[u] for d, u in zip(inside, scatter.update_window_dims, strict=True)}


def _joined(columns: list[Column]) -> HloInstruction:
    """Components of index vectors side by side, last."""
    parts = [make.reshape(column.node(), (*column.numbers, 1)) for column in columns]
    if len(parts) == 1:
        return parts[0]
    shape = parts[0].array.with_dims((*columns[0].numbers, len(parts)))
    return emit(parts[0], "concatenate", shape, parts, {"dimensions": (len(columns[0].numbers),)})
