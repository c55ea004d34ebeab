"""Laws that pool before a dimension is split that no window moves along.

    reduce-window of f32[28,28,32,16,32], 2x2     ==   reduce-window of f32[28,28,32,512], split afterwards

Features that a program splits (those of several networks side by side, of groups) lie in few of the lanes;
pools, their gradients and what is computed between them have them whole.
"""

from __future__ import annotations

from compiler.hlo.attributes import Window, WindowDim
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.rewrite import make
from compiler.rewrite.dims import Dims, is_refinement, reshape_groups
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op, X, Y, Z
from compiler.rewrite.rewriter import rule

_STILL = WindowDim(1)


# reduce-window(reshape(a)) == reshape(reduce-window(a)) where windows have one element of what is split
@rule("sink-reshape-through-window", Op("reduce-window", Op("reshape", X), Y), examples=())
def sink_reshape_through_window(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Pool before splitting dimensions."""
    if not isinstance(instr.shape, ArrayShape):
        return None
    split, init = instr.operands
    source = split.operands[0]
    window = _merged_window(source.array.dims, split.array.dims, instr.window)
    if window is None:
        return None
    dims = _pooled(source.array.dims, split.array.dims, instr.array.dims)
    attrs = {**instr.attrs, "window": window}
    shape = instr.array.with_dims(dims)
    return make.reshape(
        emit(instr, "reduce-window", shape, (source, init), attrs), instr.array.dims
    )


# select-and-scatter(reshape(a), b) == reshape(select-and-scatter(a, reshape(b))), likewise
@rule(
    "sink-reshape-through-selection", Op("select-and-scatter", Op("reshape", X), Y, Z), examples=()
)
def sink_reshape_through_selection(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Select before splitting dimensions; what is scattered, a part as large, is merged for it."""
    split, given, init = instr.operands
    source = split.operands[0]
    window = _merged_window(source.array.dims, split.array.dims, instr.window)
    if window is None:
        return None
    dims = _pooled(source.array.dims, split.array.dims, given.array.dims)
    operands = (source, make.reshape(given, dims), init)
    attrs = {**instr.attrs, "window": window}
    shape = instr.array.with_dims(source.array.dims)
    return make.reshape(emit(instr, "select-and-scatter", shape, operands, attrs), instr.array.dims)


def _merged_window(source: Dims, target: Dims, window: Window) -> Window | None:
    """The window over the dimensions before they were split; None where it moves along a part."""
    if not is_refinement(source, target):
        return None
    found: list[WindowDim] = []
    for old, new in reshape_groups(source, target):
        is_plain = len(old) == len(new) == 1
        if not is_plain and any(window.dims[d] != _STILL for d in new):
            return None
        if old:
            found.append(window.dims[new[0]] if is_plain else _STILL)
    return Window(tuple(found))


def _pooled(source: Dims, target: Dims, pooled: Dims) -> Dims:
    """The dimensions of what is pooled before those of `source` become those of `target`."""
    groups = reshape_groups(source, target)
    return tuple(pooled[new[0]] if len(new) == 1 else source[old[0]] for old, new in groups if old)
