"""reduce, reduce-window, select-and-scatter, map and batch normalisation.

A reducer that is one commutative operation of its two parameters (a monoid) runs as the NumPy
ufunc; any other reducer is itself evaluated on whole arrays, in a tree over the reduced axis.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from compiler.hlo.attributes import Window
from compiler.hlo.evaluator.context import (
    Array,
    Context,
    Handler,
    Operands,
    Value,
    storage_dtype,
)
from compiler.hlo.evaluator.monoid import monoid_of, running_total
from compiler.hlo.evaluator.movement import pad_array
from compiler.hlo.evaluator.numerics import cast_exactly_once, widen
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import leaves

Combine: TypeAlias = Callable[[Sequence[Array], Sequence[Array]], tuple[Array, ...]]


def _split(operands: Operands) -> tuple[list[Array], list[Array]]:
    half = len(operands) // 2
    return list(operands[:half]), list(operands[half:])


def _packed(ctx: Context, instr: HloInstruction, results: Sequence[Array]) -> Value:
    """One array, or a tuple when the instruction's shape is one; rounded to the result types."""
    shapes = leaves(instr.shape)
    rounded = tuple(
        cast_exactly_once(np.asarray(result), storage_dtype(ctx, shape.dtype))
        for result, shape in zip(results, shapes, strict=True)
    )
    return rounded[0] if shapes == [instr.shape] else rounded


def _combiner(ctx: Context, body: HloComputation) -> Combine:
    return lambda a, b: ctx.call_batched(body, [*a, *b])


def _reduce(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    arrays, starts = _split(operands)
    axes = instr.dimensions
    monoid = monoid_of(instr.to_apply)
    has_elements = all(arrays[0].shape[axis] for axis in axes)
    if monoid is not None and len(arrays) == 1 and has_elements:
        total = monoid.reduce(arrays[0], axes)
        return _packed(ctx, instr, [monoid.combine(widen(starts[0]), total)])
    kept = [axis for axis in range(arrays[0].ndim) if axis not in axes]
    shape = [arrays[0].shape[axis] for axis in kept]
    count = math.prod(arrays[0].shape[axis] for axis in axes)
    stacked = [array.transpose(*axes, *kept).reshape(count, *shape) for array in arrays]
    return _packed(ctx, instr, _fold(stacked, starts, _combiner(ctx, instr.to_apply)))


def _fold(stacked: Sequence[Array], starts: Sequence[Array], combine: Combine) -> Sequence[Array]:
    """Combine along axis 0 in a tree of neighbours, then with the initial values in front."""
    shape = stacked[0].shape[1:]
    initial = [np.broadcast_to(start, shape) for start in starts]
    if stacked[0].shape[0] == 0:
        return initial
    level = list(stacked)
    while level[0].shape[0] > 1:
        even = level[0].shape[0] // 2 * 2
        pairs = combine([x[0:even:2] for x in level], [x[1:even:2] for x in level])
        tails = [x[even:] for x in level]
        level = [np.concatenate([p, t]) if len(t) else p for p, t in zip(pairs, tails, strict=True)]
    return combine(initial, [x[0] for x in level])


def _reduce_window(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """Padding and dilation holes contribute nothing; the initial value counts once per window."""
    arrays, starts = _split(operands)
    window = instr.window
    edges = tuple((d.pad_low, d.pad_high, d.base_dilation - 1) for d in window.dims)
    extents = [d.output_size(n) for d, n in zip(window.dims, arrays[0].shape, strict=True)]
    monoid = monoid_of(instr.to_apply)
    if monoid is not None and len(arrays) == 1:
        wide = widen(arrays[0])
        padded = pad_array(wide, monoid.identity(wide.dtype), edges)
        result = monoid.combine(widen(starts[0]), monoid.slide(padded, window, extents))
        return _packed(ctx, instr, [result])
    padded_arrays = [pad_array(x, start, edges) for x, start in zip(arrays, starts, strict=True)]
    inside = pad_array(np.ones(arrays[0].shape, np.bool_), np.zeros((), np.bool_), edges)
    combine = _combiner(ctx, instr.to_apply)
    total: Sequence[Array] = [np.broadcast_to(start, extents) for start in starts]
    for place in _window_places(window, extents):
        combined = combine(total, [x[place.index] for x in padded_arrays])
        taken = inside[place.index]
        total = [np.where(taken, new, old) for new, old in zip(combined, total, strict=True)]
    return _packed(ctx, instr, total)


@dataclass(frozen=True)
class _Place:
    """One position inside the window: what it selects of the (padded) base, for all windows."""

    index: tuple[slice, ...]


def _window_places(window: Window, extents: Sequence[int]) -> Iterator[_Place]:
    for offsets in itertools.product(*(range(d.size) for d in window.dims)):
        starts = [o * d.window_dilation for o, d in zip(offsets, window.dims, strict=True)]
        yield _Place(
            tuple(
                slice(start, start + (extent - 1) * d.stride + 1 if extent else start, d.stride)
                for start, extent, d in zip(starts, extents, window.dims, strict=True)
            )
        )


def _select_and_scatter(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """Each window selects one element of the operand; the source is scattered to those.

    One position inside the window is handled at a time, for all windows: windows never share an
    element at the same position, so a strided slice can be updated at once.
    """
    array, source, start = operands
    window = instr.window
    select = instr.select
    scatter = instr.scatter
    edges = tuple((d.pad_low, d.pad_high, 0) for d in window.dims)
    padded = pad_array(array, np.zeros((), array.dtype), edges)
    inside = pad_array(np.ones(array.shape, np.bool_), np.zeros((), np.bool_), edges)
    places = list(_window_places(window, source.shape))
    chosen = np.full(source.shape, -1)
    best = np.zeros(source.shape, array.dtype)
    for number, place in enumerate(places):
        value = padded[place.index]
        keeps = (chosen >= 0) & ctx.call_batched(select, [best, value])[0]
        takes = inside[place.index] & ~keeps
        best = np.where(takes, value, best)
        chosen = np.where(takes, number, chosen)
    result = np.full(padded.shape, start, array.dtype)
    for number, place in enumerate(places):
        here = result[place.index]
        (updated,) = ctx.call_batched(scatter, [here, source])
        result[place.index] = np.where(chosen == number, updated, here)
    crop = tuple((-d.pad_low, -d.pad_high, 0) for d in window.dims)
    return _packed(ctx, instr, [pad_array(result, start, crop)])


def _map(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    return _packed(ctx, instr, ctx.call_batched(instr.to_apply, list(operands)))


def _per_feature(vector: Array, rank: int, feature: int) -> Array:
    return widen(vector).reshape([-1 if axis == feature else 1 for axis in range(rank)])


def _normalisation(instr: HloInstruction, array: Array) -> tuple[float, int, tuple[int, ...]]:
    feature = instr.feature_index
    axes = tuple(axis for axis in range(array.ndim) if axis != feature)
    return float(instr.epsilon), feature, axes


def _batch_norm_training(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    array, scale, offset = operands
    epsilon, feature, axes = _normalisation(instr, array)
    x = array.astype(np.float64)
    count = np.float64(math.prod(x.shape[d] for d in axes))
    with np.errstate(invalid="ignore"):  # a mean of nothing is NaN
        mean = x.sum(axes, keepdims=True) / count
        variance = np.square(x - mean).sum(axes, keepdims=True) / count
    normal = (x - mean) / np.sqrt(variance + epsilon)
    result = normal * _per_feature(scale, x.ndim, feature) + _per_feature(offset, x.ndim, feature)
    return _packed(ctx, instr, [result, mean.reshape(-1), variance.reshape(-1)])


def _batch_norm_inference(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    array = operands[0]
    epsilon, feature, _ = _normalisation(instr, array)
    scale, offset, mean, variance = (
        _per_feature(vector, array.ndim, feature) for vector in operands[1:]
    )
    x = array.astype(np.float64)
    result = (x - mean) / np.sqrt(variance + epsilon) * scale + offset
    return _packed(ctx, instr, [result])


def _batch_norm_grad(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    array, grad = operands[0], operands[4].astype(np.float64)
    epsilon, feature, axes = _normalisation(instr, array)
    scale, mean, variance = (
        _per_feature(vector, array.ndim, feature).astype(np.float64) for vector in operands[1:4]
    )
    inverse = 1 / np.sqrt(variance + epsilon)
    centred = array.astype(np.float64) - mean
    grad_offset = grad.sum(axes, keepdims=True)
    grad_scale = (grad * centred * inverse).sum(axes, keepdims=True)
    count = max(1, grad.size // max(1, grad_offset.size))
    correction = grad_offset / count + centred * inverse * grad_scale / count
    grad_operand = scale * inverse * (grad - correction)
    return _packed(ctx, instr, [grad_operand, grad_scale.reshape(-1), grad_offset.reshape(-1)])


def _running_total(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    (axis,) = instr.dimensions
    total = running_total(instr.kind, operands[0], axis, is_reverse=instr.is_reverse)
    return _packed(ctx, instr, [total])


REDUCTION_HANDLERS: dict[str, Handler] = {
    "batch-norm-grad": _batch_norm_grad,
    "batch-norm-inference": _batch_norm_inference,
    "batch-norm-training": _batch_norm_training,
    "map": _map,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "running-total": _running_total,
    "select-and-scatter": _select_and_scatter,
}

KEEPS_WIDE = frozenset({"map", "reduce", "reduce-window"})
