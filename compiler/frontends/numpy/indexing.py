"""``x[key]`` of a traced array: static slices, newaxis, and integer indices that may be traced."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.errors import BadIndexError, BadValueError
from compiler.frontends.numpy.ops import (
    as_tracer,
    binary,
    broadcast,
    compare,
    concatenate,
    constant_like,
    convert,
    expand,
    full,
    reshape,
    select,
    wrap,
)
from compiler.frontends.numpy.reductions import normal_axis
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer
from compiler.hlo.dtypes import BY_NUMPY, from_numpy
from compiler.hlo.host_types import NumpyDType


def index(trace: Trace, x: Tracer, key: object) -> Tracer:
    """NumPy's indexing; an index past the end is clamped (there is nobody to raise an error)."""
    entries = full_key(x, known_masks(x, key))
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
    picks = [Pick(i, _positions(trace, entries[i], sliced.shape[i])) for i in joined]
    is_adjacent = joined == list(range(joined[0], joined[-1] + 1))
    return gather(sliced, picks, picks[0].axis if is_adjacent else 0)


def known_masks(x: Tracer, key: object) -> tuple[Any, ...]:
    """The entries of a key, masks whose values are known while tracing as the positions where they hold."""
    entries: list[Any] = []
    given = [_as_mask(entry) for entry in (key if isinstance(key, tuple) else (key,))]
    axis = 0
    for place, entry in enumerate(given):
        if entry is Ellipsis:
            axis = max(0, x.ndim - sum(map(_axes_taken, given[place + 1 :])))
        if not _is_known_mask(entry):
            entries.append(entry)
        elif entry.shape != x.shape[axis : axis + entry.ndim]:
            raise BadIndexError(f"{x!r}: a mask of {list(entry.shape)} from axis {axis} on")
        else:
            entries += [places.astype(np.int32) for places in np.nonzero(entry)]
        axis += _axes_taken(entry)
    return tuple(entries)


def _as_mask(entry: Any) -> Any:
    """A list of truth values as an array; other entries as they are."""
    is_list = isinstance(entry, list) and bool(entry) and isinstance(entry[0], bool)
    return np.asarray(entry) if is_list else entry


def _is_known_mask(entry: Any) -> bool:
    return isinstance(entry, np.ndarray) and entry.dtype == np.bool_ and entry.ndim > 0


def _axes_taken(entry: Any) -> int:
    """How many axes of the array an entry of a key is for."""
    if entry is None or entry is Ellipsis:
        return 0
    is_mask = np.dtype(getattr(entry, "dtype", int)).kind == "b"
    return int(entry.ndim) if is_mask else 1


def is_array_index(entry: object) -> bool:
    """Whether an entry of a key is an array of positions."""
    return isinstance(entry, Tracer | list | np.ndarray)


def _positions(trace: Trace, given: Any, extent: int) -> Tracer:
    """Positions along an axis of so many elements; those that are known are looked at."""
    if isinstance(given, Tracer):
        return given
    known = np.asarray(given)
    if not _is_integral(known.dtype):
        if known.size or isinstance(given, np.ndarray):
            raise BadIndexError(f"index {given!r}: want integers")
        known = known.astype(np.int32)  # an empty list
    wrong = known[(known < -extent) | (known >= extent)]
    if wrong.size:
        normal_index(int(wrong.flat[0]), extent)
    return as_tracer(trace, known)


def _is_integral(dtype: NumpyDType) -> bool:
    """Whether elements are integers, those of fewer than 8 bits included."""
    return dtype in BY_NUMPY and from_numpy(dtype).is_integer


def full_key(x: Tracer, key: tuple[Any, ...]) -> list[Any]:
    """One entry per axis (and per newaxis): the ellipsis filled in."""
    used = sum(entry is not None and entry is not Ellipsis for entry in key)
    if used > x.ndim:
        raise BadIndexError(f"{x!r}: found {used} indices, want at most {x.ndim}")
    fill = [slice(None)] * (x.ndim - used)
    dots = [i for i, entry in enumerate(key) if entry is Ellipsis]
    if len(dots) > 1:
        raise BadIndexError("an index can only have one ellipsis")
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
            raise BadIndexError(f"index {entry!r}: want an integer, a slice, None or an array")
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
        raise BadIndexError(f"index {position} is out of range for an axis of size {extent}")
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
    kept = [n for axis, n in enumerate(x.shape) if axis not in {pick.axis for pick in picks}]
    if not math.prod(shape):
        return full(x.owner, (*kept[:place], *shape, *kept[place:]), 0, x.dtype)
    if not all(x.shape[pick.axis] for pick in picks):
        raise BadIndexError(f"{x!r}: positions along an axis without elements")
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
    if not _is_integral(positions.dtype):
        raise BadIndexError(f"{positions!r} is no index: want integers")
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
    return gather(x, [Pick(axis, _positions(trace, indices, x.shape[axis]))], axis)


def _take_along_axis(trace: Trace, arr: object, indices: object, axis: int = -1) -> Tracer:
    x, positions = as_tracer(trace, arr), as_tracer(trace, indices)
    axis = normal_axis(axis, x.ndim)
    if positions.ndim != x.ndim:
        raise BadValueError("np.take_along_axis: indices need the rank of the array")
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
