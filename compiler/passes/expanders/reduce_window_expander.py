"""Reduce-windows with any computation, several operands, dilations and large windows.

The operand is padded first, with a value that changes nothing (the start value, where it is not
known what the computation does); then each dimension is reduced in turn, which the computation's
associativity and commutativity allow:

    few taps          their strided slices one after another
    many taps         runs of 2, 4, 8 .. elements by doubling, and a window of runs
    disjoint taps     a reshape and a reduce

The start value itself takes part once at the end.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.hlo.attributes import Window, WindowDim
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.passes.expanders.emitter import Emitter, identity, result_of
from compiler.passes.reducers import reducer_kind

Instr = HloInstruction
MAX_TAPS = 9


def expand_reduce_windows(module: HloModule, context: PassContext) -> bool:
    """Expand every reduce-window."""
    return expand(module, context, {"reduce-window": expand_reduce_window})


def window_dims(instr: Instr) -> tuple[WindowDim, ...]:
    """The window's dimensions; a scalar's window has none."""
    window = instr.attrs.get("window", Window())
    assert isinstance(window, Window)
    return window.dims


def expand_reduce_window(instr: Instr) -> Instr | None:
    """The reduced windows, as one array or a tuple of them."""
    e = Emitter.at(instr)
    count = len(instr.operands) // 2
    window = window_dims(instr)
    computation = instr.attrs["to_apply"]
    assert isinstance(computation, HloComputation)
    dims = tuple(
        d.output_size(n) for d, n in zip(window, instr.operands[0].array.dims, strict=True)
    )
    inits = [e.broadcast(init, dims) for init in instr.operands[count:]]
    if 0 in dims or any(d.size == 0 for d in window):
        return result_of(e, instr, inits)
    values = [
        padded(e, operand, _fill(e, computation, init), window)
        for operand, init in zip(instr.operands[:count], instr.operands[count:], strict=True)
    ]
    order = sorted(range(len(window)), key=lambda d: -window[d].stride)
    for dim in order:
        values = _along(e, computation, values, dim, window[dim], dims[dim])
    return result_of(e, instr, e.apply(computation, [*inits, *values]))


def _fill(e: Emitter, computation: HloComputation, init: Instr) -> Instr:
    """What padding holds, so that it does not count: the start value, unless another is known."""
    kind = reducer_kind(computation)
    if kind is None:
        return init
    return e.constant(init.array.dtype, identity(kind, init.array.dtype))


def padded(e: Emitter, operand: Instr, fill: Instr, window: Sequence[WindowDim]) -> Instr:
    """The operand with the window's padding and base dilation applied."""
    padding = [(d.pad_low, d.pad_high, d.base_dilation - 1) for d in window]
    if all(p == (0, 0, 0) for p in padding):
        return operand
    return e.pad(operand, fill, padding)


def _along(
    e: Emitter,
    computation: HloComputation,
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
            total = e.apply(computation, [*total, *other])
        return total
    kind = reducer_kind(computation)
    if window.stride >= size and step == 1 and kind is not None and len(values) == 1:
        return [_disjoint(e, values[0], dim, window, count, kind)]
    # runs[i] holds the combination of `length` elements from i on
    runs, length = values, 1
    total, done = [], 0
    while True:
        if size & length:
            part = tap(runs, done * step, window.stride, count)
            total = e.apply(computation, [*total, *part]) if total else part
            done += length
        if done == size:
            return total
        extent = runs[0].array.dims[dim] - length * step
        halves = (tap(runs, 0, 1, extent), tap(runs, length * step, 1, extent))
        runs, length = e.apply(computation, [*halves[0], *halves[1]]), 2 * length


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
