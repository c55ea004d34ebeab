"""sort with any comparator, and topk.

Sorting is a merge network (Batcher's odd-even): every stage evaluates the comparator on whole
arrays. Ties are broken by position, so the result is stable whether or not it has to be.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.hlo.evaluator.context import Array, Context, Handler, Operands, Value
from compiler.hlo.evaluator.numerics import total_order_key, widen
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import TupleShape, leaves
from compiler.hlo.topk_calls import comparator_of, reduced_dimension


def _sort(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    (axis,) = instr.dimensions
    results = _ordered(ctx, instr.to_apply, operands, axis)
    return results[0] if len(results) == 1 else results


def approximate_top_k(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """The first elements in the comparator's order, all of them found."""
    axis, count = reduced_dimension(instr), leaves(instr.shape)[0].dims
    arrays = [np.asarray(operand) for operand in operands[: len(operands) // 2]]
    ordered = _ordered(ctx, comparator_of(instr), arrays, axis)
    results = tuple(np.take(array, np.arange(count[axis]), axis) for array in ordered)
    return results if isinstance(instr.shape, TupleShape) else results[0]


def _ordered(
    ctx: Context, body: HloComputation, operands: Operands, axis: int
) -> tuple[Array, ...]:
    moved = [np.moveaxis(array, axis, 0) for array in operands]
    order = _simple_order(body, moved)
    if order is None:
        order = _network_order(ctx, body, moved)
    return tuple(np.moveaxis(np.take_along_axis(array, order, 0), 0, axis) for array in moved)


def _simple_order(body: HloComputation, arrays: Sequence[Array]) -> Array | None:
    """The order when the comparator is ``compare(key a, key b), direction=LT`` (or GT) alone.

    Only for keys where that is a total order: integers, or floats without NaN.
    """
    root = body.root_instruction
    if root.opcode != "compare" or root.attrs.get("direction") not in ("LT", "GT"):
        return None
    sides = [body.parameters.index(o) if o in body.parameters else -1 for o in root.operands]
    if sides[0] < 0 or sides[0] % 2 or sides[1] != sides[0] + 1:
        return None
    key = widen(arrays[sides[0] // 2])
    if root.is_total_order:
        key = total_order_key(arrays[sides[0] // 2])
    elif key.dtype.kind not in "biu" and (key.dtype.kind != "f" or np.isnan(key).any()):
        return None
    if root.direction == "LT":
        return np.argsort(key, axis=0, kind="stable")
    # Descending and stable: sort the reversed array ascending, then reverse.
    reversed_order = np.argsort(key[::-1], axis=0, kind="stable")
    return len(key) - 1 - reversed_order[::-1]


def _network_order(ctx: Context, body: HloComputation, arrays: Sequence[Array]) -> Array:
    length = arrays[0].shape[0]
    order = np.broadcast_to(
        np.arange(length).reshape([-1] + [1] * (arrays[0].ndim - 1)), arrays[0].shape
    ).copy()
    values = [np.array(array) for array in arrays]
    for low, high in _odd_even_merge_pairs(length):
        a, b = [v[low] for v in values], [v[high] for v in values]
        (less,) = ctx.call_batched(body, [x for pair in zip(a, b, strict=True) for x in pair])
        (more,) = ctx.call_batched(body, [x for pair in zip(b, a, strict=True) for x in pair])
        swap = (more & ~less) | ((more == less) & (order[low] > order[high]))
        for array in (*values, order):
            first, second = array[low], array[high]
            array[low] = np.where(swap, second, first)
            array[high] = np.where(swap, first, second)
    return order


def _odd_even_merge_pairs(length: int) -> list[tuple[Array, Array]]:
    """Stages of Batcher's odd-even merge sort for any length: index arrays (low, high)."""
    stages = []
    p = 1
    while p < length:
        k = p
        while k >= 1:
            starts = np.arange(k % p, length - k, 2 * k)
            low = (starts[:, np.newaxis] + np.arange(k)).reshape(-1)
            high = low + k
            same_block = (low // (2 * p)) == (high // (2 * p))
            keep = same_block & (high < length)
            if keep.any():
                stages.append((low[keep], high[keep]))
            k //= 2
        p *= 2
    return stages


def top_k(array: Array, count: int, *, largest: bool = True) -> tuple[Array, Array]:
    """The `count` largest (or smallest) along the last axis, in order, and their positions.

    Equal values come lower position first; floats are in their total order.
    """
    key = total_order_key(array)
    if largest:
        key = np.invert(key)
    order = np.argsort(key, axis=-1, kind="stable")[..., :count]
    return np.take_along_axis(array, order, -1), order.astype(np.int32)


def _topk(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    return top_k(operands[0], instr.k, largest=instr.largest)


def _network_sort(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    arrays = [np.asarray(operand) for operand in operands]
    major, rows, columns = arrays[0].shape
    lanes = instr.line_lanes
    cut = (major, rows, columns // lanes, lanes)
    order = (0, 2, 3, 1)
    lines = [array.reshape(cut).transpose(order).reshape(-1, lanes * rows) for array in arrays]
    if instr.is_stable:
        lines.append(np.broadcast_to(np.arange(lanes * rows, dtype=np.int32), lines[0].shape))
    found = np.lexsort(lines[: instr.num_keys][::-1], axis=-1)
    apart = (major, columns // lanes, lanes, rows)
    results = tuple(
        np.take_along_axis(lines[i], found, -1)
        .reshape(apart)
        .transpose(0, 3, 1, 2)
        .reshape(major, rows, columns)
        for i in instr.results
    )
    return results if isinstance(instr.shape, TupleShape) else results[0]


SORTING_HANDLERS: dict[str, Handler] = {
    "network-sort": _network_sort,
    "sort": _sort,
    "topk": _topk,
}
