"""``x[key]`` of a traced array: static slices, newaxis, and integer indices that may be traced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.ops import (
    as_tracer,
    binary,
    broadcast,
    compare,
    concatenate,
    constant_like,
    convert,
    expand,
    reshape,
    select,
    wrap,
)
from compiler.frontends.numpy.reductions import normal_axis
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer


def index(trace: Trace, x: Tracer, key: object) -> Tracer:
    """NumPy's indexing; an index past the end is clamped (there is nobody to raise an error)."""
    entries = full_key(x, known_masks(key))
    arrays = {i for i, entry in enumerate(entries) if is_array_index(entry)}
    if not arrays:
        return _basic(x, entries)
    for entry in (entries[i] for i in arrays):
        if np.dtype(getattr(entry, "dtype", int)).kind == "b":
            raise UnsupportedError(
                "x[mask]: the number of elements is unknown; use np.where, or tpuc.numpy.extract(.., size=)"
            )
    # NumPy counts plain integers beside arrays among the array indices.
    joined = [i for i, e in enumerate(entries) if i in arrays or isinstance(e, int | np.integer)]
    sliced = _basic(x, [slice(None) if i in joined else e for i, e in enumerate(entries)])
    # Each entry has become one axis, so entry i is axis i.
    picks = [Pick(i, as_tracer(trace, entries[i])) for i in joined]
    is_adjacent = joined == list(range(joined[0], joined[-1] + 1))
    return gather(sliced, picks, picks[0].axis if is_adjacent else 0)


def known_masks(key: object) -> tuple[Any, ...]:
    """The entries of a key, masks whose values are known while tracing as the positions where they hold."""
    entries: list[Any] = []
    for entry in key if isinstance(key, tuple) else (key,):
        is_list = isinstance(entry, list) and bool(entry) and isinstance(entry[0], bool)
        given = np.asarray(entry) if is_list else entry
        if isinstance(given, np.ndarray) and given.dtype == np.bool_ and given.ndim:
            entries += [places.astype(np.int32) for places in np.nonzero(given)]
        else:
            entries.append(entry)
    return tuple(entries)


def is_array_index(entry: object) -> bool:
    """Whether an entry of a key is an array of positions."""
    return isinstance(entry, Tracer | list | np.ndarray)


def full_key(x: Tracer, key: tuple[Any, ...]) -> list[Any]:
    """One entry per axis (and per newaxis): the ellipsis filled in."""
    used = sum(entry is not None and entry is not Ellipsis for entry in key)
    if used > x.ndim:
        raise CompileError(f"{x!r}: found {used} indices, want at most {x.ndim}")
    fill = [slice(None)] * (x.ndim - used)
    dots = [i for i, entry in enumerate(key) if entry is Ellipsis]
    if len(dots) > 1:
        raise CompileError("an index can only have one ellipsis")
    place = dots[0] if dots else len(key)
    return [*key[:place], *fill, *key[place + len(dots) :]]


def _basic(x: Tracer, entries: list[Any]) -> Tracer:
    starts, limits, strides, shape, flipped = [], [], [], [], []
    axis = 0
    for entry in entries:
        if entry is None:
            shape.append(1)
            continue
        extent = x.shape[axis]
        if isinstance(entry, slice):
            start, limit, stride, count = _forward(entry, extent)
            shape.append(count)
            if stride < 0:
                flipped.append(axis)
        elif isinstance(entry, int | np.integer) and not isinstance(entry, bool):
            start = normal_index(int(entry), extent)
            limit, stride = start + 1, 1
        else:
            raise UnsupportedError(f"index {entry!r}: want an integer, a slice, None or an array")
        starts.append(start)
        limits.append(limit)
        strides.append(abs(stride))
        axis += 1
    instr = x.instr
    if starts != [0] * x.ndim or limits != list(x.shape) or strides != [1] * x.ndim:
        instr = x.owner.builder.slice(instr, starts, limits, strides)
    if flipped:
        instr = x.owner.builder.reverse(instr, flipped)
    return reshape(wrap(x, instr), shape)


def _forward(entry: slice, extent: int) -> tuple[int, int, int, int]:
    """(start, limit, stride, count) of ascending positions; a negative stride is to be reversed."""
    positions = range(*entry.indices(extent))
    if not positions:
        return 0, 0, 1, 0
    low, high = min(positions[0], positions[-1]), max(positions[0], positions[-1])
    return low, high + 1, positions.step, len(positions)


def normal_index(position: int, extent: int) -> int:
    """A static index, negative ones from the end; CompileError when out of range."""
    if not -extent <= position < extent:
        raise CompileError(f"index {position} is out of range for an axis of size {extent}")
    return position % extent


@dataclass(frozen=True)
class Pick:
    """An axis and the integer array that indexes it."""

    axis: int
    positions: Tracer


def gather(x: Tracer, picks: list[Pick], place: int) -> Tracer:
    """Index axes with broadcast integer arrays; their dimensions appear at axis `place`."""
    positions = broadcast([wrapped(pick.positions, x.shape[pick.axis]) for pick in picks])
    shape = positions[0].shape
    columns = [expand(p, p.ndim) for p in positions]
    indices = concatenate(x.owner, columns, len(shape))
    axes = [pick.axis for pick in picks]
    sizes = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    window_rank = x.ndim - len(axes)
    offset_dims = [i if i < place else i + len(shape) for i in range(window_rank)]
    return wrap(
        x,
        x.owner.builder.gather(
            x.instr,
            indices.instr,
            offset_dims=tuple(offset_dims),
            collapsed_slice_dims=tuple(axes),
            start_index_map=tuple(axes),
            index_vector_dim=len(shape),
            slice_sizes=sizes,
        ),
    )


def wrapped(positions: Tracer, extent: int) -> Tracer:
    """Negative positions count from the end."""
    signed = convert(positions, np.int32)
    negative = compare(signed, constant_like(signed, 0), "LT")
    return select(negative, binary("add", signed, constant_like(signed, extent)), signed)


def _take(
    trace: Trace, a: object, indices: object, axis: int | None = None, mode: str = "raise"
) -> Tracer:
    x = as_tracer(trace, a)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = normal_axis(axis, x.ndim)
    return gather(x, [Pick(axis, as_tracer(trace, indices))], axis)


def _take_along_axis(trace: Trace, arr: object, indices: object, axis: int = -1) -> Tracer:
    x, positions = as_tracer(trace, arr), as_tracer(trace, indices)
    axis = normal_axis(axis, x.ndim)
    if positions.ndim != x.ndim:
        raise CompileError("np.take_along_axis: indices need the rank of the array")
    picks = []
    for i in range(x.ndim):
        if i == axis:
            picks.append(Pick(i, positions))
        else:
            shape = [n if j == i else 1 for j, n in enumerate(positions.shape)]
            line = np.arange(positions.shape[i], dtype=np.int32).reshape(shape)
            picks.append(Pick(i, as_tracer(trace, line)))
    return gather(x, picks, 0)


INDEXING_FUNCTIONS: dict[object, Rule] = {
    np.take: _take,
    np.take_along_axis: _take_along_axis,
}
