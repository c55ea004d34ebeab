"""Reduce-windows with any computation, several operands, dilations and large windows.

The operand is padded first, with a value that changes nothing. Where no such value is known (any
computation but a plain sum, maximum and the like), a mask goes along that says which elements are
of the operand, or have taken any in: what padding holds must not count, whatever the start value.
Then each dimension is reduced in turn, which the computation's associativity allows:

    few taps          their strided slices one after another
    all before        running totals, by distances that double, without a mask
    many taps         runs of 2, 4, 8 .. elements by doubling, and a window of runs
    disjoint taps     a reshape and a reduce

The start value itself takes part once at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.analysis.reducers import reducer_kind
from compiler.hlo.attributes import WindowDim
from compiler.hlo.dtypes import PRED
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.passes.expanders.running_dims import running_dim
from compiler.rewrite.emitter import Emitter, result_of

Instr = HloInstruction
Combine = Callable[[list[Instr], list[Instr]], list[Instr]]
MAX_TAPS = 9
"""Windows of a dimension that are taken tap by tap; longer ones are doubled, in fewer operations."""


def expand_reduce_windows(module: HloModule, context: PassContext) -> bool:
    """Expand every reduce-window."""
    return expand(module, context, {"reduce-window": expand_reduce_window})


def expand_reduce_window(instr: Instr) -> Instr | None:
    """The reduced windows, as one array or a tuple of them."""
    e = Emitter.at(instr)
    count = len(instr.operands) // 2
    window = instr.window.dims
    computation = instr.to_apply
    dims = tuple(
        d.output_size(n) for d, n in zip(window, instr.operands[0].array.dims, strict=True)
    )
    inits = [e.broadcast(init, dims) for init in instr.operands[count:]]
    if 0 in dims or any(d.size == 0 for d in window):
        return result_of(e, instr, inits)
    kind = reducer_kind(computation)
    neutral = None if kind is None else identity(kind, instr.operands[0].array.dtype)
    if neutral is None:
        kind = None
    running = running_dim(instr.operands[0], window) if kind is None else None
    if running is not None and dims[running[0]] > MAX_TAPS:
        values = _running(e, _plain(e, computation), list(instr.operands[:count]), *running)
        return result_of(e, instr, e.apply(computation, [*inits, *values]))
    values = [
        padded(e, operand, _fill(e, neutral, init), window)
        for operand, init in zip(instr.operands[:count], instr.operands[count:], strict=True)
    ]
    combine = _plain(e, computation)
    if kind is None and _padding(window):
        combine = _masked(e, combine)
        values.append(_mask(e, instr.operands[0].array.dims, window))
    order = sorted(range(len(window)), key=lambda d: -window[d].stride)
    for dim in order:
        values = _along(e, kind, combine, values, dim, window[dim], dims[dim])
    total = e.apply(computation, [*inits, *values[:count]])
    if len(values) > count:  # a window of nothing but padding is the start value
        total = [e.select(values[count], *pair) for pair in zip(total, inits, strict=True)]
    return result_of(e, instr, total)


def _running(
    e: Emitter, combine: Combine, values: list[Instr], dim: int, is_backward: bool
) -> list[Instr]:
    """Each element with all before it, or behind it, by distances that double.

    What has nothing so far away stays as it is, so that no padding is combined.
    """
    dims = values[0].array.dims
    size, shift = dims[dim], 1
    while shift < size:
        moved = [_moved(e, value, dim, -shift if is_backward else shift) for value in values]
        made = combine(values, moved) if is_backward else combine(moved, values)
        place = e.positions(dims, dim)
        limit, direction = (size - shift, "LT") if is_backward else (shift, "GE")
        has_one = e.compare_to(place, limit, direction)
        values = [e.select(has_one, m, v) for m, v in zip(made, values, strict=True)]
        shift *= 2
    return values


def _moved(e: Emitter, value: Instr, dim: int, by: int) -> Instr:
    """Elements that lie `by` places further on, or back; zeros come in."""
    size = value.array.dims[dim]
    kept = e.part(value, dim, max(-by, 0), size - max(by, 0))
    return e.pad_dim(kept, dim, max(by, 0), max(-by, 0))


def _fill(e: Emitter, neutral: float | None, init: Instr) -> Instr:
    """What padding holds: what does not count, or anything where a mask says so."""
    return init if neutral is None else e.constant(init.array.dtype, neutral)


def _plain(e: Emitter, computation: HloComputation) -> Combine:
    return lambda left, right: e.apply(computation, [*left, *right])


def _masked(e: Emitter, combine: Combine) -> Combine:
    """Of two sides of which one has taken in padding alone, the other; their masks come last."""

    def combined(left: list[Instr], right: list[Instr]) -> list[Instr]:
        has_left, has_right = left[-1], right[-1]
        has_both = e.binary("and", has_left, has_right)
        made = combine(left[:-1], right[:-1])
        sides = [e.select(has_left, a, b) for a, b in zip(left[:-1], right[:-1], strict=True)]
        chosen = [e.select(has_both, m, s) for m, s in zip(made, sides, strict=True)]
        return [*chosen, e.binary("or", has_left, has_right)]

    return combined


def _mask(e: Emitter, dims: tuple[int, ...], window: Sequence[WindowDim]) -> Instr:
    """Which elements of the padded operand are its own."""
    inside = e.full(PRED, dims, value=True)
    return padded(e, inside, e.constant(PRED, value=False), window)


def _padding(window: Sequence[WindowDim]) -> list[tuple[int, int, int]]:
    """Elements before, after and between per dimension; empty where there are none at all."""
    padding = [(d.pad_low, d.pad_high, d.base_dilation - 1) for d in window]
    return padding if any(p != (0, 0, 0) for p in padding) else []


def padded(e: Emitter, operand: Instr, fill: Instr, window: Sequence[WindowDim]) -> Instr:
    """The operand with the window's padding and base dilation applied."""
    padding = _padding(window)
    return e.pad(operand, fill, padding) if padding else operand


def _along(
    e: Emitter,
    kind: str | None,
    combine: Combine,
    values: list[Instr],
    dim: int,
    window: WindowDim,
    count: int,
) -> list[Instr]:
    """Reduce one dimension of padded operands to `count` positions."""

    def tap(arrays: list[Instr], start: int, stride: int, number: int) -> list[Instr]:
        limit = start + (number - 1) * stride + 1
        return [e.part(value, dim, start, limit, stride) for value in arrays]

    step, size = window.window_dilation, window.size
    if size <= MAX_TAPS:
        total = tap(values, 0, window.stride, count)
        for k in range(1, size):
            other = tap(values, k * step, window.stride, count)
            total = combine(total, other)
        return total
    if window.stride >= size and step == 1 and kind is not None and len(values) == 1:
        return [_disjoint(e, values[0], dim, window, count, kind)]
    # runs[i] holds the combination of `length` elements from i on
    runs, length = values, 1
    total, done = [], 0
    while True:
        if size & length:
            part = tap(runs, done * step, window.stride, count)
            total = combine(total, part) if total else part
            done += length
        if done == size:
            return total
        extent = runs[0].array.dims[dim] - length * step
        halves = (tap(runs, 0, 1, extent), tap(runs, length * step, 1, extent))
        runs, length = combine(*halves), 2 * length


def _disjoint(
    e: Emitter, value: Instr, dim: int, window: WindowDim, count: int, kind: str
) -> Instr:
    """Windows side by side: a dimension of positions and one of taps."""
    dims = value.array.dims
    extent = count * window.stride
    if extent > dims[dim]:
        value = e.pad_dim(value, dim, 0, extent - dims[dim])
    cut = e.part(value, dim, 0, extent)
    split = e.reshape(cut, (*dims[:dim], count, window.stride, *dims[dim + 1 :]))
    return e.total(e.part(split, dim + 1, 0, window.size), dim + 1, kind=kind)
