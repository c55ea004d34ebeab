"""Data-dependent addressing: dynamic-slice, dynamic-update-slice, gather, scatter."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.hlo.dtypes import from_numpy
from compiler.hlo.evaluator.context import Array, Context, Handler, Operands, Value
from compiler.hlo.evaluator.monoid import Monoid, monoid_of
from compiler.hlo.evaluator.numerics import cast_exactly_once, widen
from compiler.hlo.ir import HloComputation, HloInstruction


def _starts(indices: Sequence[Array], shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Scalar starts (or one vector of them, the old form), clamped so that the slice fits."""
    values = [int(v) for v in (indices[0] if indices and indices[0].ndim else indices)]
    limits = [extent - size for extent, size in zip(shape, sizes, strict=True)]
    return [max(0, min(v, limit)) for v, limit in zip(values, limits, strict=True)]


def _dynamic_slice(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    array, *indices = operands
    sizes = instr.dynamic_slice_sizes
    starts = _starts(indices, array.shape, sizes)
    index = tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))
    return np.asarray(array[index])


def _dynamic_update_slice(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    array, update, *indices = operands
    starts = _starts(indices, array.shape, update.shape)
    result = np.array(array)  # of rank 0 it may be a scalar
    result[tuple(slice(s, s + n) for s, n in zip(starts, update.shape, strict=True))] = update
    return np.asarray(result)


def _gather(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    array, indices = operands
    offset_dims = instr.offset_dims
    collapsed = instr.collapsed_slice_dims
    batching = instr.operand_batching_dims
    sizes = instr.slice_sizes
    starts = _index_columns(
        indices,
        instr.index_vector_dim,
        instr.start_index_map,
        (batching, instr.start_indices_batching_dims),
    )
    batch_shape = _batch_shape(indices, instr.index_vector_dim)
    # Window dimensions: those taken whole stay basic slices, behind the advanced indices.
    window = [d for d in range(array.ndim) if d not in collapsed and d not in batching]
    whole = [d for d in window if sizes[d] == array.shape[d]]
    partial = [d for d in window if d not in whole]
    rank = len(batch_shape)
    index: list[Array] = []
    order = [d for d in range(array.ndim) if d not in whole]
    for d in order:
        limit = array.shape[d] - sizes[d]
        start = np.clip(starts.get(d, np.zeros((), np.int64)), 0, limit)
        start = start.reshape(start.shape + (1,) * len(partial)) if start.ndim else start
        if d in partial:
            shape = [1] * len(partial)
            shape[partial.index(d)] = sizes[d]
            start = start + np.arange(sizes[d]).reshape(shape)
        index.append(start)
    full = (*batch_shape, *(sizes[d] for d in partial))
    moved = array.transpose(*order, *whole)
    wide_index = tuple(np.broadcast_to(i, full) for i in index)
    result = moved[wide_index] if index else np.broadcast_to(moved, (*full, *moved.shape))
    # result: batch, partial window dims, whole window dims; put the window in operand order.
    place = {d: rank + i for i, d in enumerate([*partial, *whole])}
    batch_dims = [d for d in range(rank + len(window)) if d not in offset_dims]
    axes = [0] * result.ndim
    for source, target in enumerate(batch_dims):
        axes[target] = source
    for d, target in zip(window, offset_dims, strict=True):
        axes[target] = place[d]
    return np.asarray(result.transpose(axes))


def _batch_shape(indices: Array, vector_dim: int) -> tuple[int, ...]:
    return tuple(n for d, n in enumerate(indices.shape) if d != vector_dim)


def _index_columns(
    indices: Array,
    vector_dim: int,
    index_map: Sequence[int],
    batching: tuple[Sequence[int], Sequence[int]],
) -> dict[int, Array]:
    """For each operand dimension that is indexed: its start for every batch position."""
    vectors = indices if vector_dim < indices.ndim else indices[..., np.newaxis]
    if from_numpy(vectors.dtype).bits < 8:
        vectors = widen(vectors)
    if vectors.dtype == np.uint64:
        vectors = np.minimum(vectors, np.uint64(np.iinfo(np.int64).max))
    columns = np.moveaxis(vectors, vector_dim, -1).astype(np.int64)
    found = {d: columns[..., i] for i, d in enumerate(index_map)}
    for d, index_dim in zip(batching[0], batching[1], strict=True):
        axis = index_dim - (index_dim > vector_dim)
        shape = [1] * (columns.ndim - 1)
        shape[axis] = columns.shape[axis]
        line = np.arange(columns.shape[axis]).reshape(shape)
        found[d] = np.broadcast_to(line, columns.shape[:-1])
    return found


@dataclass(frozen=True)
class _Targets:
    """Where updates land: flat operand positions, in update order, and which updates are kept."""

    flat: Array  # int64 [updates]
    kept: Array  # bool [update elements]


def _scatter(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    count = (len(operands) - 1) // 2
    arrays, indices, updates = operands[:count], operands[count], operands[count + 1 :]
    body = instr.to_apply
    targets, order = _scatter_targets(instr, arrays[0].shape, indices, updates[0])
    lines = [update.transpose(order).reshape(-1)[targets.kept] for update in updates]
    flats = [np.array(array).reshape(-1) for array in arrays]
    monoid = monoid_of(body) if count == 1 else None
    if monoid is not None and not _rounds_each_update(monoid, flats[0]):
        flats = [_scatter_monoid(flats[0], targets.flat, lines[0], monoid)]
    elif _is_assignment(body):
        for flat, line in zip(flats, lines, strict=True):
            flat[targets.flat] = line
    else:
        _scatter_rounds(ctx, body, flats, targets.flat, lines)
    results = tuple(f.reshape(a.shape) for f, a in zip(flats, arrays, strict=True))
    return results[0] if count == 1 else results


def _scatter_targets(
    instr: HloInstruction, shape: tuple[int, ...], indices: Array, update: Array
) -> tuple[_Targets, list[int]]:
    """Flat targets, and the transposition that puts updates in (batch, window) order.

    A window that leaves the operand anywhere is dropped as a whole.
    """
    window_dims = instr.update_window_dims
    inserted = instr.inserted_window_dims
    batching = instr.input_batching_dims
    vector_dim = instr.index_vector_dim
    starts = _index_columns(
        indices,
        vector_dim,
        instr.scatter_dims_to_operand_dims,
        (batching, instr.scatter_indices_batching_dims),
    )
    batch_shape = _batch_shape(indices, vector_dim)
    scatter_dims = [d for d in range(update.ndim) if d not in window_dims]
    order = [*scatter_dims, *window_dims]
    windowed = [d for d in range(len(shape)) if d not in inserted and d not in batching]
    sizes = {d: update.shape[w] for d, w in zip(windowed, window_dims, strict=True)}
    inside = np.ones(batch_shape, np.bool_)
    flat = np.zeros((*batch_shape, *(1 for _ in windowed)), np.int64)
    for d, extent in enumerate(shape):
        stride = math.prod(shape[d + 1 :])
        size = sizes.get(d, 1)
        start = starts.get(d, np.zeros((), np.int64))
        inside &= (start >= 0) & (start <= extent - size)
        if d in starts:
            clipped = np.clip(start, 0, max(0, extent - size))
            flat = flat + clipped.reshape([*batch_shape, *(1 for _ in windowed)]) * stride
        if d in sizes:
            line_shape = [1] * flat.ndim
            line_shape[len(batch_shape) + windowed.index(d)] = size
            flat = flat + np.arange(size).reshape(line_shape) * stride
    full = (*batch_shape, *(sizes[d] for d in windowed))
    mask = inside.reshape([*batch_shape, *(1 for _ in windowed)])
    kept = np.broadcast_to(mask, full).reshape(-1)
    return _Targets(np.broadcast_to(flat, full).reshape(-1)[kept], kept), order


def _is_assignment(body: HloComputation) -> bool:
    """Whether the body returns its update parameters as they are."""
    half = len(body.parameters) // 2
    return body.results == body.parameters[half:]


def _rounds_each_update(monoid: Monoid, flat: Array) -> bool:
    """Whether updates are taken in one by one as the operation itself does it.

    Sums of narrow floats are rounded after each; NumPy multiplies complex numbers in place without the
    multiply-add that it has for arrays.
    """
    is_narrow = widen(flat) is not flat and monoid.opcode in ("add", "multiply")
    return is_narrow or (flat.dtype.kind == "c" and monoid.opcode == "multiply")


def _scatter_monoid(flat: Array, targets: Array, line: Array, monoid: Monoid) -> Array:
    """Combine in place."""
    wide, updates = widen(flat), widen(line)
    result = wide.copy()
    monoid.combine_at(result, targets, updates)
    return cast_exactly_once(result, flat.dtype)


def _scatter_rounds(
    ctx: Context,
    body: HloComputation,
    flats: Sequence[Array],
    targets: Array,
    lines: Sequence[Array],
) -> None:
    """Apply any update computation: the n-th updates of all targets together, n = 0, 1, ..."""
    order = np.argsort(targets, kind="stable")
    ordered = targets[order]
    is_first = np.ones(len(ordered), np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    group_start = np.maximum.accumulate(np.where(is_first, np.arange(len(ordered)), 0))
    rank = np.arange(len(ordered)) - group_start
    by_rank = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[by_rank], np.arange(rank.max(initial=-1) + 2))
    for start, stop in itertools.pairwise(bounds):
        chosen = order[by_rank[start:stop]]
        where = targets[chosen]
        updated = ctx.call_batched(
            body, [*(flat[where] for flat in flats), *(line[chosen] for line in lines)]
        )
        for flat, value in zip(flats, updated, strict=True):
            flat[where] = value


INDEXING_HANDLERS: dict[str, Handler] = {
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
}

KEEPS_WIDE = frozenset(INDEXING_HANDLERS) - {"scatter"}
