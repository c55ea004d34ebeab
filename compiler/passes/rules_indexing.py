"""Laws of dynamic slices, gathers and scatters that need less than a kernel of their own.

A gather of one box is a dynamic slice; a dynamic slice at constant starts is a slice; a gather
(scatter) of one element per row along one dimension is a masked reduction (a select), which
fuses with what makes or uses it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from compiler.analysis.index_columns import index_columns
from compiler.analysis.reducers import reducer_kind
from compiler.hlo.dtypes import PRED, S32
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.rewrite import make
from compiler.rewrite.dims import is_refinement, reshape_groups
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op, clamped_starts, splat_value
from compiler.rewrite.rewriter import Freedom, rule

Dims = tuple[int, ...]


# dynamic-slice(x, constants) == x[clamped starts]
@rule("dynamic-slice-at-constant", Op("dynamic-slice"))
def dynamic_slice_at_constant(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """A slice, when all starts are known or the whole dimension is taken."""
    operand, sizes = instr.operands[0], instr.array.dims
    starts = clamped_starts(instr.operands[1:], operand.array.dims, sizes)
    if starts is None:
        return None
    bounds = tuple((a, a + n, 1) for a, n in zip(starts, sizes, strict=True))
    return make.slice_(operand, bounds)


# dynamic-update-slice(x, y without elements, ..) == x
@rule("dynamic-update-slice-of-nothing", Op("dynamic-update-slice"))
def dynamic_update_slice_of_nothing(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """An update of nothing is the operand."""
    return instr.operands[0] if instr.operands[1].array.element_count == 0 else None


# dynamic-update-slice(x, y of x's dimensions, ..) == y
@rule("dynamic-update-slice-of-all", Op("dynamic-update-slice"))
def dynamic_update_slice_of_all(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """An update of everything is the update."""
    update = instr.operands[1]
    return update if update.array.dims == instr.array.dims else None


def _scalar_starts(
    indices: HloInstruction, vector_dim: int, operand_dims: Dims, rank: int
) -> list[HloInstruction] | None:
    """One start for each of `rank` dimensions from an index array that holds one vector."""
    dims = indices.array.dims
    count = len(operand_dims)
    vectors = math.prod(n for d, n in enumerate(dims) if d != vector_dim)
    if vectors != 1 or indices.array.element_count != count:
        return None
    flat = make.reshape(indices, (count,))
    zero = make.constant(indices, indices.array.dtype, 0)
    starts = [zero] * rank
    for position, dim in enumerate(operand_dims):
        one = make.slice_(flat, ((position, position + 1, 1),))
        starts[dim] = make.reshape(one, ())
    return starts


# gather(x, one index vector) == reshape(dynamic-slice(x, starts)): both clamp
@rule("gather-of-one-box", Op("gather"))
def gather_of_one_box(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """A gather with a single index vector is a dynamic slice."""
    operand, indices = instr.operands
    sizes = instr.slice_sizes
    if instr.operand_batching_dims:
        return None
    start_map = instr.start_index_map
    starts = _scalar_starts(indices, instr.index_vector_dim, start_map, operand.array.rank)
    if starts is None:
        return None
    shape = operand.array.with_dims(sizes)
    attrs: dict[str, object] = {"dynamic_slice_sizes": sizes}
    box = emit(instr, "dynamic-slice", shape, (operand, *starts), attrs)
    return make.reshape(box, instr.array.dims)


# scatter(x, one index vector, u) == dynamic-update-slice(x, inside ? f(x[box], u) : x[box], starts)
@rule("scatter-of-one-box", Op("scatter"), freedom=Freedom.ROUNDING)
def scatter_of_one_box(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """A scatter of one window updates a slice; one that reaches outside is dropped."""
    if len(instr.operands) != 3 or instr.input_batching_dims:
        return None
    operand, indices, update = instr.operands
    target_dims = instr.scatter_dims_to_operand_dims
    dims = operand.array.dims
    inserted = instr.inserted_window_dims
    window = iter(update.array.dims[d] for d in instr.update_window_dims)
    sizes = tuple(1 if d in inserted else next(window) for d in range(len(dims)))
    if not target_dims or 0 in sizes or not combines(instr):
        return None
    starts = _scalar_starts(indices, instr.index_vector_dim, target_dims, len(dims))
    if starts is None:
        return None
    most = tuple(n - size for n, size in zip(dims, sizes, strict=True))
    values = _constant_vector(indices)
    if min(most, default=0) < 0 or (
        values is not None
        and any(not 0 <= v <= most[d] for d, v in zip(target_dims, values, strict=True))
    ):
        return operand
    new = make.reshape(update, sizes)
    if values is not None:
        lows = [0] * len(dims)
        for dim, value in zip(target_dims, values, strict=True):
            lows[dim] = value
        bounds = tuple((low, low + n, 1) for low, n in zip(lows, sizes, strict=True))
        combined = combine(instr, make.slice_(operand, bounds), new)
        starts = [make.constant(instr, S32, low) for low in lows]
    else:
        attrs: dict[str, object] = {"dynamic_slice_sizes": sizes}
        starts = [wide_index(start, n + 1) for start, n in zip(starts, most, strict=True)]
        shape = operand.array.with_dims(sizes)
        box = emit(instr, "dynamic-slice", shape, (operand, *starts), attrs)
        changed = combine(instr, box, new)
        assert changed is not None
        inside = make.broadcast(_is_inside(starts, most, target_dims), sizes, ())
        combined = emit(instr, "select", shape, (inside, changed, box))
    assert combined is not None
    return emit(instr, "dynamic-update-slice", instr.array, (operand, combined, *starts))


def _is_inside(starts: list[HloInstruction], most: Dims, dims: Dims) -> HloInstruction:
    """Whether every start along `dims` is one of 0 to the most there, as one predicate."""
    scalar = ArrayShape(PRED, ())
    found: HloInstruction | None = None
    for dim in dims:
        start = starts[dim]
        for direction, limit in (("GE", 0), ("LE", most[dim])):
            bound = make.constant(start, S32, limit)
            one = emit(start, "compare", scalar, (start, bound), {"direction": direction})
            found = one if found is None else emit(start, "and", scalar, (found, one))
    assert found is not None
    return found


def _constant_vector(indices: HloInstruction) -> list[int] | None:
    """The elements of a small constant (or splat) index vector."""
    if indices.array.element_count > 16:
        return None
    value = splat_value(indices)
    if value is not None:
        return [int(value)] * indices.array.element_count
    literal = indices.attrs.get("literal")
    if indices.opcode != "constant" or not isinstance(literal, np.ndarray):
        return None
    return [int(v) for v in literal.reshape(-1)]


def combines(scatter: HloInstruction) -> bool:
    """Whether a scatter's computation is one that `combine` knows."""
    computation = scatter.to_apply
    is_new = computation.root is computation.parameters[1]
    return is_new or reducer_kind(computation) is not None


def combine(
    scatter: HloInstruction, old: HloInstruction, new: HloInstruction
) -> HloInstruction | None:
    """What a scatter's computation makes of old and new elements, as whole-array operations."""
    computation = scatter.to_apply
    if computation.root is computation.parameters[1]:
        return new
    kind = reducer_kind(computation)
    return None if kind is None else emit(scatter, kind, old.array, (old, new))


@dataclass(frozen=True)
class _RowAccess:
    """One element of every row along `dim`: `index` has the operand's other dimensions."""

    dim: int
    index: HloInstruction
    row_dims: Dims


def _row_access(
    indices: HloInstruction,
    dims: Dims,
    along: Dims,
    batching: tuple[Dims, Dims],
    vector_dim: int,
) -> _RowAccess | None:
    """Recognise an access of one element per row; None when it is anything else.

    Every other dimension is one of the batch, in order, or has one element.
    """
    if len(along) > 1 and not batching[0]:
        return _counted_access(indices, dims, along, vector_dim)
    if len(along) != 1 or batching[1] != tuple(range(len(batching[1]))):
        return None
    others = [d for d, n in enumerate(dims) if d != along[0] and (n != 1 or d in batching[0])]
    if batching[0] != tuple(others):
        return None
    dim = along[0]
    rows = tuple(n for d, n in enumerate(dims) if d != dim)
    if dim in batching[0] or indices.array.element_count != int(np.prod(rows, dtype=np.int64)):
        return None
    if vector_dim < indices.array.rank and indices.array.dims[vector_dim] != 1:
        return None
    return _RowAccess(dim, wide_index(make.reshape(indices, rows), dims[dim]), rows)


def _counted_access(
    indices: HloInstruction, dims: Dims, along: Dims, vector_dim: int
) -> _RowAccess | None:
    """The same where components of the index count the rows, as in ``x[arange(n), labels]``."""
    columns = dict(zip(along, index_columns(indices, vector_dim), strict=True))
    for dim in reversed(along):
        others = [d for d, n in enumerate(dims) if d != dim and (n != 1 or d in columns)]
        rows = [columns[d] for d in others if d in columns]
        if len(rows) < len(others) or any(column.first != 0 for column in rows):
            continue
        numbers = columns[dim].numbers
        counted = [column.along for column in rows if column.along is not None]
        sizes = [numbers[k] for k in counted]
        if len(counted) < len(rows) or sizes != [dims[d] for d in others]:
            continue
        if counted != sorted(set(counted)) or math.prod(sizes) != math.prod(numbers):
            continue
        row_dims = tuple(n for d, n in enumerate(dims) if d != dim)
        index = wide_index(make.reshape(columns[dim].node(), row_dims), dims[dim])
        return _RowAccess(dim, index, row_dims)
    return None


def wide_index(index: HloInstruction, size: int) -> HloInstruction:
    """Indices as s32, which counts every dimension; those outside of 0..size-1 stay outside."""
    dtype = index.array.dtype
    if dtype.bits >= 32 and dtype != S32:
        low = make.constant(index, dtype, -1 if dtype.is_signed else 0)
        high = make.constant(index, dtype, size)
        index = emit(index, "clamp", index.array, (low, index, high))
    return make.convert(index, S32)


def _gather_row_access(instr: HloInstruction) -> _RowAccess | None:
    operand, indices = instr.operands
    if any(n != 1 for n in instr.slice_sizes):
        return None
    batching = (
        instr.operand_batching_dims,
        instr.start_indices_batching_dims,
    )
    vector_dim = instr.index_vector_dim
    return _row_access(indices, operand.array.dims, instr.start_index_map, batching, vector_dim)


# gather one per row of f(a, b) == f(gather of a, gather of b)
@rule("gather-of-elementwise", Op("gather"))
def gather_of_elementwise(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Gather before computing: one element of each row instead of all."""
    operand, indices = instr.operands
    if not OPCODES[operand.opcode].has(Trait.ELEMENTWISE) or not operand.operands:
        return None
    if any(o.array.dims != operand.array.dims for o in operand.operands):
        return None
    if _gather_row_access(instr) is None:
        return None
    parts = [
        emit(
            instr, "gather", ArrayShape(o.array.dtype, instr.array.dims), (o, indices), instr.attrs
        )
        for o in operand.operands
    ]
    return make.elementwise(operand, parts, instr.array.dims)


def _gather_broadcast(instr: HloInstruction, inner: HloInstruction) -> HloInstruction | None:
    """One per row of a broadcast along that dimension is the broadcast's operand."""
    access = _gather_row_access(instr)
    mapping = inner.dimensions
    if access is None or access.dim in mapping:
        return None
    kept = tuple(d if d < access.dim else d - 1 for d in mapping)
    rows = make.broadcast(inner.operands[0], access.row_dims, kept)
    return make.reshape(rows, instr.array.dims)


# gather one per row == max over the row of (position == index ? x : least value)
@rule("gather-one-per-row", Op("gather"))
def gather_one_per_row(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """A masked maximum: exact, since every other element is the identity."""
    operand = instr.operands[0]
    if operand.opcode == "broadcast":
        folded = _gather_broadcast(instr, operand)
        if folded is not None:
            return folded
    dtype = operand.array.dtype
    access = _gather_row_access(instr)
    kind = "or" if dtype == PRED else "maximum"
    least = identity(kind, dtype)
    if access is None or least is None or dtype.bits < 8:
        return None
    operand, access = _before_split(operand, access)
    size = operand.array.dims[access.dim]
    index_type = access.index.array.dtype
    low = make.constant(instr, index_type, 0)
    high = make.constant(instr, index_type, size - 1)
    clamped = emit(instr, "clamp", access.index.array, (low, access.index, high))
    mask = _mask(instr, clamped, operand.array.dims, access.dim)
    fill = make.splat(instr, operand.array, least)
    chosen = emit(instr, "select", operand.array, (mask, operand, fill))
    init = make.constant(instr, dtype, least)
    attrs = {"dimensions": (access.dim,), "to_apply": make.reducer(instr, kind, dtype)}
    shape = operand.array.with_dims(access.row_dims)
    return make.reshape(emit(instr, "reduce", shape, (chosen, init), attrs), instr.array.dims)


def _before_split(operand: HloInstruction, access: _RowAccess) -> tuple[HloInstruction, _RowAccess]:
    """The same access to what the operand was before a reshape split its rows."""
    if operand.opcode != "reshape":
        return operand, access
    source, dims = operand.operands[0], operand.array.dims
    if not is_refinement(source.array.dims, dims):
        return operand, access
    for inner, outer in reshape_groups(source.array.dims, dims):
        if access.dim in outer and len(inner) == len(outer) == 1:
            rows = tuple(n for d, n in enumerate(source.array.dims) if d != inner[0])
            return source, _RowAccess(inner[0], make.reshape(access.index, rows), rows)
    return operand, access


def _mask(near: HloInstruction, index: HloInstruction, dims: Dims, dim: int) -> HloInstruction:
    """``position along dim == index of the row``, with dimensions `dims`."""
    shape = ArrayShape(index.array.dtype, dims)
    position = emit(near, "iota", shape, (), {"iota_dimension": dim})
    mapping = tuple(d for d in range(len(dims)) if d != dim)
    wanted = make.broadcast(index, dims, mapping)
    return emit(near, "compare", ArrayShape(PRED, dims), (position, wanted), {"direction": "EQ"})


# scatter one per row == position == index ? f(x, u) : x (an index outside matches no position)
@rule("scatter-one-per-row", Op("scatter"), Freedom.OVERFLOW)
def scatter_one_per_row(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """A select: each row has exactly one update, so nothing is combined twice.

    An update may be a slice along other dimensions where the operand is one value: that is written as a
    whole anyway.
    """
    if len(instr.operands) != 3 or len(instr.scatter_dims_to_operand_dims) != 1:
        return None
    operand, indices = instr.operands[:2]
    dims = operand.array.dims
    slices = _sliced_dims(instr)
    if slices is None or (slices and splat_value(operand) is None):
        return None
    batching = (instr.input_batching_dims, instr.scatter_indices_batching_dims)
    along = instr.scatter_dims_to_operand_dims
    whole = tuple(1 if d in slices else n for d, n in enumerate(dims))
    access = _row_access(indices, whole, along, batching, instr.index_vector_dim)
    if access is None:
        return None
    others = tuple(d for d in range(len(dims)) if d != access.dim)
    inside = tuple(dims[d] for d in others)
    rows = make.reshape(_in_operand_order(instr, slices), inside)
    combined = combine(instr, operand, make.broadcast(rows, dims, others))
    if combined is None:
        return None
    kept = tuple(n for n, d in enumerate(others) if d not in slices)
    index = make.reshape(access.index, tuple(inside[n] for n in kept))
    mask = _mask(instr, make.broadcast(index, inside, kept), dims, access.dim)
    return emit(instr, "select", instr.array, (mask, combined, operand))


def _sliced_dims(scatter: HloInstruction) -> dict[int, int] | None:
    """The operand's dimensions of which an update has all elements, and the update's that they are.

    Dimensions of one element aside; None if an update has some elements of another.
    """
    operand, _, update = scatter.operands
    gone = {*scatter.inserted_window_dims, *scatter.input_batching_dims}
    inside = [d for d in range(operand.array.rank) if d not in gone]
    pairs = zip(inside, scatter.update_window_dims, strict=True)
    found = {d: u for d, u in pairs if update.array.dims[u] != 1}
    is_whole = all(operand.array.dims[d] == update.array.dims[u] for d, u in found.items())
    return (
        found if is_whole and not found.keys() & {*scatter.scatter_dims_to_operand_dims} else None
    )


def _in_operand_order(scatter: HloInstruction, slices: dict[int, int]) -> HloInstruction:
    """The update with its dimensions of several elements as the operand has them, the others last."""
    update = scatter.operands[2]
    single = [d for d, n in enumerate(update.array.dims) if n == 1]
    taken = {*single, *slices.values()}
    numbers = [d for d in range(update.array.rank) if d not in taken]
    rows = [d for d in scatter.input_batching_dims if scatter.operands[0].array.dims[d] != 1]
    places = {**slices, **dict(zip(rows, numbers, strict=True))}
    return make.transpose(update, (*(places[d] for d in sorted(places)), *single))
