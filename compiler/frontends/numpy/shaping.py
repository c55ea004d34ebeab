"""NumPy functions about shapes and placement: reshape, transpose, concatenate, where, pad, ..."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.errors import BadTypeError, BadValueError
from compiler.frontends.numpy.ops import (
    as_tracer,
    binary,
    broadcast,
    broadcast_to,
    compare,
    concatenate,
    convert,
    expand,
    full,
    iota,
    promoted,
    reshape,
    select,
    transpose,
    unary,
    wrap,
)
from compiler.frontends.numpy.promotion import is_floating
from compiler.frontends.numpy.reductions import Axis, normal_axes, normal_axis
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer
from compiler.frontends.numpy.ufuncs import round_to_even
from compiler.hlo.dtypes import PRED, from_numpy
from compiler.hlo.host_types import stated_dtype
from compiler.hlo.shape import ArrayShape

Dims = int | Sequence[int]


def _dims(shape: Dims) -> tuple[int, ...]:
    extents = shape if isinstance(shape, Sequence) else (shape,)
    return tuple(operator.index(n) for n in extents)


def reshape_(
    trace: Trace, a: object, shape: Dims = (), order: str = "C", copy: object = None
) -> Tracer:
    """np.reshape; one dimension may be -1. By columns ('F') it is that by rows of what is transposed."""
    if order not in ("C", "F", "A"):
        raise BadValueError(f"np.reshape: order={order!r}, want 'C', 'F' or 'A'")
    x = as_tracer(trace, a)
    target = list(_dims(shape))
    if target.count(-1) == 1:
        known = math.prod(n for n in target if n != -1)
        target[target.index(-1)] = x.size // known if known else 0
    if math.prod(target) != x.size or min(target, default=0) < 0:
        raise BadValueError(f"cannot reshape {x!r} into {list(_dims(shape))}")
    if order == "F":
        return transpose_(trace, reshape(transpose_(trace, x), target[::-1]))
    return reshape(x, target)


def transpose_(trace: Trace, a: object, axes: Sequence[int] | None = None) -> Tracer:
    """np.transpose: reverse the axes unless an order is given."""
    x = as_tracer(trace, a)
    if axes is None:
        return transpose(x, range(x.ndim)[::-1])
    order = [normal_axis(axis, x.ndim) for axis in axes]
    if sorted(order) != list(range(x.ndim)):
        raise CompileError(f"np.transpose: axes {list(axes)} do not name each axis of {x!r} once")
    return transpose(x, order)


def _swapaxes(trace: Trace, a: object, axis1: int, axis2: int) -> Tracer:
    x = as_tracer(trace, a)
    first, second = normal_axis(axis1, x.ndim), normal_axis(axis2, x.ndim)
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return transpose(x, order)


def _moveaxis(trace: Trace, a: object, source: Dims, destination: Dims) -> Tracer:
    x = as_tracer(trace, a)
    sources = [normal_axis(axis, x.ndim) for axis in _dims(source)]
    targets = [normal_axis(axis, x.ndim) for axis in _dims(destination)]
    order = [axis for axis in range(x.ndim) if axis not in sources]
    for target, axis in sorted(zip(targets, sources, strict=True)):
        order.insert(target, axis)
    return transpose(x, order)


def _expand_dims(trace: Trace, a: object, axis: Dims) -> Tracer:
    x = as_tracer(trace, a)
    rank = x.ndim + len(_dims(axis))
    for position in sorted(normal_axis(i, rank) for i in _dims(axis)):
        x = expand(x, position)
    return x


def _squeeze(trace: Trace, a: object, axis: Axis = None) -> Tracer:
    x = as_tracer(trace, a)
    ones = [i for i, n in enumerate(x.shape) if n == 1]
    axes = ones if axis is None else normal_axes(axis, x.ndim)
    if any(x.shape[i] != 1 for i in axes):
        raise CompileError(f"np.squeeze: axis {axis} of {x!r} is not of size 1")
    return reshape(x, [n for i, n in enumerate(x.shape) if i not in axes])


def _broadcast_to(trace: Trace, array: object, shape: Dims, subok: bool = False) -> Tracer:
    return broadcast_to(as_tracer(trace, array), _dims(shape))


def _broadcast_arrays(trace: Trace, *args: object, subok: bool = False) -> tuple[Tracer, ...]:
    return tuple(broadcast([as_tracer(trace, a) for a in args]))


def _concatenate(
    trace: Trace, arrays: Sequence[object], axis: int | None = 0, dtype: object = None
) -> Tracer:
    parts = [as_tracer(trace, a) for a in arrays]
    if axis is None:
        parts, axis = [reshape(p, (p.size,)) for p in parts], 0
    result = concatenate(trace, parts, normal_axis(axis, parts[0].ndim) if parts else 0)
    return result if dtype is None else convert(result, dtype)


def _stack(trace: Trace, arrays: Sequence[object], axis: int = 0, dtype: object = None) -> Tracer:
    parts = [as_tracer(trace, a) for a in arrays]
    if not parts:
        raise CompileError("np.stack: need at least one array")
    position = normal_axis(axis, parts[0].ndim + 1)
    return _concatenate(trace, [expand(p, position) for p in parts], position, dtype)


def _vstack(trace: Trace, arrays: Sequence[object], dtype: object = None) -> Tracer:
    parts = [as_tracer(trace, a) for a in arrays]
    rows = [reshape(p, (1, p.size)) if p.ndim < 2 else p for p in parts]
    return _concatenate(trace, rows, 0, dtype)


def _hstack(trace: Trace, arrays: Sequence[object], dtype: object = None) -> Tracer:
    parts = [as_tracer(trace, a) for a in arrays]
    parts = [reshape(p, (1,)) if p.ndim == 0 else p for p in parts]
    return _concatenate(trace, parts, 0 if parts and parts[0].ndim == 1 else 1, dtype)


def _split(
    trace: Trace, ary: object, indices_or_sections: int | Sequence[int], axis: int = 0
) -> list[Tracer]:
    x = as_tracer(trace, ary)
    axis = normal_axis(axis, x.ndim)
    extent = x.shape[axis]
    if isinstance(indices_or_sections, int):
        if indices_or_sections < 1 or extent % indices_or_sections:
            raise BadValueError(f"np.split: {extent} is not a multiple of {indices_or_sections}")
        step = extent // indices_or_sections
        bounds = list(range(0, extent + 1, step))
    else:
        bounds = [0, *(int(i) for i in indices_or_sections), extent]
    limited = [min(max(bound, 0), extent) for bound in bounds]
    pairs = itertools.pairwise(limited)
    return [slice_axis(x, axis, start, max(start, stop)) for start, stop in pairs]


def slice_axis(x: Tracer, axis: int, start: int, stop: int) -> Tracer:
    """``x[start:stop]`` along one axis."""
    starts, limits = [0] * x.ndim, list(x.shape)
    starts[axis], limits[axis] = start, stop
    return wrap(x, x.owner.builder.slice(x.instr, starts, limits, [1] * x.ndim))


def _where(trace: Trace, condition: object, *choices: object) -> Tracer:
    if len(choices) == 1:
        raise BadValueError("np.where: give both values or neither")
    if not choices:
        raise UnsupportedError("np.where(condition): positions of unknown number; give both values")
    truth = convert(as_tracer(trace, condition), np.bool_)
    on_true, on_false = promoted(trace, choices)
    truth, on_true, on_false = broadcast([truth, on_true, on_false])
    return select(truth, on_true, on_false)


def _clip(
    trace: Trace, a: object, a_min: object = None, a_max: object = None, **bounds: object
) -> Tracer:
    low, high = bounds.get("min", a_min), bounds.get("max", a_max)
    x = as_tracer(trace, a)
    if low is not None:
        x = binary("maximum", *promoted(trace, (x, low)))
    if high is not None:
        x = binary("minimum", *promoted(trace, (x, high)))
    return x


def _like_rule(value: int) -> Rule:
    def rule(
        trace: Trace, a: object, dtype: object = None, shape: Dims | None = None, **_: object
    ) -> Tracer:
        return _full_like(trace, a, value, dtype, shape)

    return rule


def _full_like(
    trace: Trace,
    a: object,
    fill_value: object,
    dtype: object = None,
    shape: Dims | None = None,
    **_: object,
) -> Tracer:
    x = as_tracer(trace, a)
    dims = x.shape if shape is None else _dims(shape)
    return full(trace, dims, fill_value, x.dtype if dtype is None else dtype)


def _astype(trace: Trace, x: object, dtype: object, **_: object) -> Tracer:
    return convert(as_tracer(trace, x), dtype)


def _round(trace: Trace, a: object, decimals: int = 0) -> Tracer:
    x = as_tracer(trace, a)
    decimals = operator.index(decimals)
    if not is_floating(x.dtype):
        if decimals < 0:
            raise UnsupportedError("np.round of integers to tens or hundreds; divide by them first")
        return x
    if decimals == 0:
        return round_to_even(x)
    scale = 10.0 ** abs(decimals)
    if decimals < 0:
        rounded: Tracer = round_to_even(as_tracer(trace, x / scale)) * scale
    else:
        rounded = round_to_even(as_tracer(trace, x * scale)) / scale
    return rounded


def _flip(trace: Trace, m: object, axis: Axis = None) -> Tracer:
    x = as_tracer(trace, m)
    return wrap(x, trace.builder.reverse(x.instr, normal_axes(axis, x.ndim)))


def _roll(trace: Trace, a: object, shift: Dims, axis: Axis = None) -> Tracer:
    x = as_tracer(trace, a)
    if axis is None:
        return reshape(_roll(trace, reshape(x, (x.size,)), shift, 0), x.shape)
    axes = [normal_axis(i, x.ndim) for i in _dims(axis)]
    for position, by in zip(axes, _dims(shift), strict=True):
        extent = x.shape[position]
        cut = -by % extent if extent else 0
        if cut:
            parts = [slice_axis(x, position, cut, extent), slice_axis(x, position, 0, cut)]
            x = concatenate(trace, parts, position)
    return x


def _tile(trace: Trace, A: object, reps: Dims) -> Tracer:
    x = as_tracer(trace, A)
    counts = _dims(reps)
    rank = max(x.ndim, len(counts))
    shape = (1,) * (rank - x.ndim) + x.shape
    counts = (1,) * (rank - len(counts)) + counts
    paired = [n for pair in zip(counts, shape, strict=True) for n in pair]
    spread = [m for n in shape for m in (1, n)]
    tiled = broadcast_to(reshape(x, spread), paired)
    return reshape(tiled, [n * c for n, c in zip(shape, counts, strict=True)])


def _repeat(trace: Trace, a: object, repeats: Any, axis: int | None = None) -> Tracer:
    if isinstance(repeats, Tracer):
        raise UnsupportedError(
            "np.repeat: counts that are not known, so nor is the number of results; write "
            "tpuc.numpy.repeat(.., size=), or give an integer or an array of the host"
        )
    x = as_tracer(trace, a)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = normal_axis(axis, x.ndim)
    if np.size(repeats) != 1:
        places = np.repeat(np.arange(x.shape[axis], dtype=np.int32), repeats)
        if not (places.size and x.size):
            return full(trace, (*x.shape[:axis], places.size, *x.shape[axis + 1 :]), 0, x.dtype)
        taken: Any = np.take(x, places, axis)
        return wrap(taken, taken.instr)
    count = int(np.reshape(repeats, ()))
    spread = broadcast_to(expand(x, axis + 1), (*x.shape[: axis + 1], count, *x.shape[axis + 1 :]))
    return reshape(spread, [n * count if i == axis else n for i, n in enumerate(x.shape)])


def _triangle_rule(direction: str) -> Rule:
    """tril and triu: keep where row + k >= column (or <=)."""

    def rule(trace: Trace, m: object, k: int = 0) -> Tracer:
        x = as_tracer(trace, m)
        if x.ndim < 1:
            raise BadTypeError("np.tril or np.triu of a number, want an array")
        if x.ndim < 2:
            x = broadcast_to(x, (x.size, x.size))
        rows, columns = (iota(trace, x.shape, axis) for axis in (x.ndim - 2, x.ndim - 1))
        shifted, columns = promoted(trace, (rows + int(k), columns))
        return _where(trace, compare(shifted, columns, direction), x, 0)

    return rule


def _diff(
    trace: Trace,
    a: object,
    n: int = 1,
    axis: int = -1,
    prepend: object = None,
    append: object = None,
) -> Tracer:
    """np.diff: of booleans whether they differ. A scalar before or behind is one element."""
    x = as_tracer(trace, a)
    axis = normal_axis(axis, x.ndim)
    if n < 0:
        raise BadValueError(f"np.diff: n={n}, want 0 or more")
    edge = [1 if i == axis else size for i, size in enumerate(x.shape)]
    ends = [None if end is None else as_tracer(trace, end) for end in (prepend, append)]
    before, behind = (
        [] if end is None else [broadcast_to(end, edge) if end.ndim == 0 else end] for end in ends
    )
    if before or behind:
        x = concatenate(trace, [*before, x, *behind], axis)
    for _ in range(n):
        if x.dtype == np.bool_:
            later = slice_axis(x, axis, 1, x.shape[axis])
            x = compare(later, slice_axis(x, axis, 0, x.shape[axis] - 1), "NE")
            continue
        later = slice_axis(x, axis, 1, x.shape[axis])
        x = binary("subtract", later, slice_axis(x, axis, 0, x.shape[axis] - 1))
    return x


def _part_rule(opcode: str) -> Rule:
    """np.real and np.imag."""

    def rule(trace: Trace, value: object) -> Tracer:
        x = as_tracer(trace, value)
        if x.dtype.kind == "c":
            return unary(opcode, x)
        return x if opcode == "real" else full(trace, x.shape, 0, x.dtype)

    return rule


def _isclose(trace: Trace, a: object, b: object, rtol: float = 1e-5, atol: float = 1e-8) -> Tracer:
    x, y = promoted(trace, (a, b))
    near: Tracer = abs(x - y) <= atol + rtol * abs(y)
    return binary("or", near, compare(x, y, "EQ"))


def _atleast_rule(rank: int) -> Rule:
    def rule(trace: Trace, value: object) -> Tracer:
        x = as_tracer(trace, value)
        return x if x.ndim >= rank else reshape(x, (1,) * (rank - x.ndim) + x.shape)

    return rule


def _view(trace: Trace, a: object, dtype: object) -> Tracer:
    """``x.view(dtype)``: the bits as elements of another type, more or fewer of them along the last axis."""
    x, want = as_tracer(trace, a), stated_dtype(dtype)
    old, new = from_numpy(x.dtype), from_numpy(want)
    if old == new:
        return x
    if any(kind.bits < 8 or kind.is_complex or kind == PRED for kind in (old, new)):
        raise UnsupportedError(f"x.view of {x.dtype} as {want}: write x.astype, x.real or x.imag")
    more, fewer = old.bits // new.bits, new.bits // old.bits  # elements for one, or for so many
    if max(more, fewer) > 1 and (not x.ndim or (fewer and x.shape[-1] % fewer)):
        raise CompileError(f"x.view of {x!r} as {want}: its last axis has no multiple of {fewer}")
    if fewer > 1:
        x = reshape(x, (*x.shape[:-1], x.shape[-1] // fewer, fewer))
    dims = x.shape[:-1] if fewer > 1 else x.shape if more == 1 else (*x.shape, more)
    shape = ArrayShape(new, dims)
    made = wrap(x, trace.builder.instruction("bitcast-convert", (x.instr,), None, shape))
    return reshape(made, (*dims[:-2], dims[-2] * more)) if more > 1 else made


SHAPING_FUNCTIONS: dict[object, Rule] = {
    np.ndarray.view: _view,
    np.around: _round,
    np.astype: _astype,
    np.atleast_1d: _atleast_rule(1),
    np.atleast_2d: _atleast_rule(2),
    np.broadcast_arrays: _broadcast_arrays,
    np.broadcast_to: _broadcast_to,
    np.clip: _clip,
    np.concatenate: _concatenate,
    np.copy: lambda trace, a, **_: as_tracer(trace, a),
    np.diff: _diff,
    np.empty_like: _like_rule(0),
    np.expand_dims: _expand_dims,
    np.flip: _flip,
    np.full_like: _full_like,
    np.hstack: _hstack,
    np.imag: _part_rule("imag"),
    np.isclose: _isclose,
    np.moveaxis: _moveaxis,
    np.ndim: lambda trace, a: as_tracer(trace, a).ndim,
    np.ones_like: _like_rule(1),
    np.ravel: lambda trace, a, order="C": reshape_(trace, a, -1, order),
    np.real: _part_rule("real"),
    np.repeat: _repeat,
    np.reshape: reshape_,
    np.roll: _roll,
    np.round: _round,
    np.shape: lambda trace, a: as_tracer(trace, a).shape,
    np.size: lambda trace, a, axis=None: math.prod(
        as_tracer(trace, a).shape if axis is None else [as_tracer(trace, a).shape[axis]]
    ),
    np.split: _split,
    np.squeeze: _squeeze,
    np.stack: _stack,
    np.swapaxes: _swapaxes,
    np.tile: _tile,
    np.transpose: transpose_,
    np.tril: _triangle_rule("GE"),
    np.triu: _triangle_rule("LE"),
    np.vstack: _vstack,
    np.where: _where,
    np.zeros_like: _like_rule(0),
}
