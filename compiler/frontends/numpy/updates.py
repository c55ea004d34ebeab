"""``x.at[key].set(value)`` of a traced array: a new array with some elements changed, as in JAX.

What `key` names is what ``x[key]`` would give. Slices become one update of a box; integer arrays a
scatter, in which updates outside of the array are dropped and those of one element twice are both made;
a mask of x's own shape a select.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.diagnostics import UnsupportedError
from compiler.frontends.numpy.indexing import (
    Pick,
    full_key,
    index,
    is_array_index,
    known_masks,
    wrapped,
)
from compiler.frontends.numpy.ops import (
    as_tracer,
    broadcast,
    broadcast_to,
    concatenate,
    convert,
    expand,
    reshape,
    select,
    transpose,
    wrap,
)
from compiler.frontends.numpy.tracer import Trace, Tracer
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import S32, from_numpy
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import ArrayShape

_COMBINERS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("add", lambda old, new: old + new),
    "subtract": ("subtract", lambda old, new: old - new),
    "multiply": ("multiply", lambda old, new: old * new),
    "min": ("minimum", np.minimum),
    "max": ("maximum", np.maximum),
}
"""For each method but `set`: the opcode of a scatter's combiner, and the same in NumPy."""


def updated(trace: Trace, method: str, x: Tracer, key: Any, value: Any) -> Tracer:
    """`x` with ``x[key]`` set to `value`, or combined with it."""
    array, new = as_tracer(trace, x), as_tracer(trace, value)
    if isinstance(key, Tracer) and _is_mask(key):
        return _masked(trace, method, array, key, new)
    if _is_mask(key) and key.shape == array.shape and not new.ndim:
        return _masked(trace, method, array, key, new)
    entries = full_key(array, known_masks(array, key))
    is_plain = [entry == slice(None) if isinstance(entry, slice) else False for entry in entries]
    arrays = [i for i, entry in enumerate(entries) if is_array_index(entry)]
    if not arrays:
        return _box(trace, method, array, entries, new)
    joined = [i for i, e in enumerate(entries) if i in arrays or isinstance(e, int | np.integer)]
    if all(plain or i in joined for i, plain in enumerate(is_plain)):
        return _scattered(trace, method, array, entries, joined, new)
    if any(entry is None for entry in entries):
        raise UnsupportedError("x.at[...]: np.newaxis beside an integer array; use np.reshape")
    outer = tuple(slice(None) if i in joined else entry for i, entry in enumerate(entries))
    inner = tuple(entry if i in joined else slice(None) for i, entry in enumerate(entries))
    part = updated(trace, method, index(trace, array, outer), inner, new)
    return updated(trace, "set", array, outer, part)


def _is_mask(key: Any) -> bool:
    return isinstance(key, Tracer | np.ndarray) and np.dtype(key.dtype).kind == "b"


def _combined(method: str, old: Tracer, new: Tracer) -> Tracer:
    if method == "set":
        return new
    result = _COMBINERS[method][1](old, new)
    assert isinstance(result, Tracer)
    return result


def _masked(trace: Trace, method: str, x: Tracer, mask: object, new: Tracer) -> Tracer:
    """A mask of the array's first dimensions; the number of elements that hold is not known."""
    condition = as_tracer(trace, mask)
    row = x.shape[condition.ndim :]
    if condition.shape != x.shape[: condition.ndim] or np.broadcast_shapes(row, new.shape) != row:
        raise UnsupportedError(
            f"x[mask] = values: want a mask of the first dimensions of {list(x.shape)} and a value for "
            "every place where it may hold; use np.where"
        )
    condition = reshape(condition, (*condition.shape, *[1] * len(row)))
    other = convert(broadcast_to(_combined(method, x, new), x.shape), x.dtype)
    return select(broadcast_to(condition, x.shape), other, x)


def _box(trace: Trace, method: str, x: Tracer, entries: list[Any], new: Tracer) -> Tracer:
    """Integers and slices: a box, or with steps the elements between a select."""
    old = index(trace, x, tuple(entries))
    value = convert(broadcast_to(_combined(method, old, new), old.shape), x.dtype)
    entries = [entry for entry in entries if entry is not None]
    starts, sizes, turned, steps = [], [], [], []
    for axis, entry in enumerate(entries):
        if isinstance(entry, slice):
            positions = range(*entry.indices(x.shape[axis]))
        else:
            positions = range(x.shape[axis])[entry : entry + 1 or None]
        if not positions:
            return x
        starts.append(min(positions[0], positions[-1]))
        sizes.append(len(positions))
        steps.append(abs(positions.step))
        turned += [axis] if positions.step < 0 else []
    part = reshape(value, sizes)
    b = trace.builder
    if turned:
        part = wrap(part, b.reverse(part.instr, turned))
    if all(step == 1 or size == 1 for step, size in zip(steps, sizes, strict=True)):
        places = [b.constant(S32, start) for start in starts]
        return wrap(x, b.dynamic_update_slice(x.instr, part.instr, places))
    padding = [
        (start, size - start - (count - 1) * step - 1, step - 1)
        for start, size, count, step in zip(starts, x.shape, sizes, steps, strict=True)
    ]
    zero = b.constant(from_numpy(x.dtype), 0)
    spread = wrap(x, b.pad(part.instr, zero, padding))
    chosen = np.zeros(x.shape, np.bool_)
    chosen[tuple(entries)] = True
    return select(as_tracer(trace, chosen), spread, x)


def _scattered(
    trace: Trace, method: str, x: Tracer, entries: list[Any], axes: list[int], new: Tracer
) -> Tracer:
    """Integer arrays along `axes`, everything along the others."""
    picks = [Pick(axis, as_tracer(trace, entries[axis])) for axis in axes]
    positions = broadcast([wrapped(pick.positions, x.shape[pick.axis]) for pick in picks])
    shape = positions[0].shape
    columns = concatenate(trace, [expand(p, p.ndim) for p in positions], len(shape))
    is_adjacent = axes == list(range(axes[0], axes[-1] + 1))
    place = axes[0] if is_adjacent else 0
    window = [n for axis, n in enumerate(x.shape) if axis not in axes]
    result = (*window[:place], *shape, *window[place:])
    value = convert(broadcast_to(new, result), x.dtype)
    order = [
        *range(place, place + len(shape)),
        *range(place),
        *range(place + len(shape), len(result)),
    ]
    updates = transpose(value, order)
    made = trace.builder.scatter(
        [x.instr],
        columns.instr,
        [updates.instr],
        _combiner(trace, method, x),
        update_window_dims=tuple(range(len(shape), len(result))),
        inserted_window_dims=tuple(axes),
        scatter_dims_to_operand_dims=tuple(axes),
        index_vector_dim=len(shape),
    )
    return wrap(x, made)


def _combiner(trace: Trace, method: str, x: Tracer) -> HloComputation:
    dtype = from_numpy(x.dtype)
    if method != "set":
        return trace.builder.scalar(_COMBINERS[method][0], dtype)
    module = trace.builder.module
    name = f"second_{dtype}"
    if name in module.computations:
        return module.computations[name]
    b = HloBuilder(name, module)
    _, second = (b.parameter(ArrayShape(dtype, ()), n) for n in ("x", "y"))
    return b.build(second)
