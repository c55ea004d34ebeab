"""Convolutions of few features out: the product first, for all taps side by side, then the taps.

    f32[16,96,96,64] by f32[3,3,64,3]  the product, [16,96,96,27]; sums of its planes moved by taps

With the taps before the product, each row of 64 features is read for nine taps and multiplied for three
columns. What the product gives is turned once, so that the last position dimension lies along the lanes, and
its planes are added in f32: a plane is moved once for 128 positions.
"""

from __future__ import annotations

import math

from compiler.analysis.window_planner import WindowPlanner
from compiler.hlo.attributes import WindowDim
from compiler.hlo.ir import HloInstruction
from compiler.passes.convolution_estimate import adds_planes, sizes_of
from compiler.passes.expanders.window_taps import (
    ordered_kernel,
    padded_operand,
    product_attributes,
    sum_type,
    tap_slice,
    window_taps,
)
from compiler.passes.image_order import image_order
from compiler.rewrite import make
from compiler.rewrite.dims import inverse
from compiler.rewrite.graph import emit

Dims = tuple[int, ...]


def taps_of_planes(conv: HloInstruction, planner: WindowPlanner) -> HloInstruction | None:
    """A convolution with its taps after the product, where that is estimated to take less."""
    is_float = all(i.array.dtype.is_float for i in (conv, *conv.operands))
    if not is_float:
        return None
    is_cheaper = adds_planes(sizes_of(conv, planner.precision), planner.chip)
    return _taps_after(conv) if is_cheaper else None


def _taps_after(conv: HloInstruction) -> HloInstruction:
    """``[.., features] x [features, taps * out]``, and the sum of its planes, each moved by its tap."""
    labels, window = conv.dim_labels, conv.window.dims
    image = make.transpose(conv.operands[0], image_order(conv).image(labels))
    *rows, features = image.array.dims
    kernel = ordered_kernel(conv.operands[1], labels, window)
    *counts, _, out = kernel.array.dims
    rank = len(counts)
    kernel = make.transpose(kernel, (rank, *range(rank), rank + 1))
    kernel = make.reshape(kernel, (features, math.prod(counts) * out))
    dtype = sum_type(conv.array.dtype)
    shape = conv.array.with_dims((*rows, kernel.array.dims[-1])).with_dtype(dtype)
    attrs = product_attributes(conv, (len(rows),), (0,))
    dot = emit(conv, "dot", shape, (image, kernel), attrs)
    apart = make.reshape(dot, (*rows, math.prod(counts), out))
    lies = image_order(conv).image(labels)[:-1]
    batch, places = lies.index(labels.input_batch), [lies.index(d) for d in labels.input_spatial]
    planes = make.transpose(apart, (batch, len(rows), len(rows) + 1, *places))
    total = _sum_of_moved(conv, planes, counts)
    result = (labels.output_batch, labels.output_feature, *labels.output_spatial)
    return make.transpose(make.convert(total, conv.array.dtype), inverse(result))


def _sum_of_moved(
    conv: HloInstruction, planes: HloInstruction, counts: list[int]
) -> HloInstruction:
    """``[batch, taps, out, positions..]`` padded, cut at each tap's place and added up over the taps."""
    labels = conv.dim_labels
    around = (*(WindowDim(1),) * 3, *conv.window.dims)
    zero = make.constant(planes, planes.array.dtype, 0)
    padded = padded_operand(planes, zero, around)
    batch, _, out = planes.array.dims[:3]
    places = tuple(conv.array.dims[d] for d in labels.output_spatial)
    total: HloInstruction | None = None
    for number, offsets in enumerate(window_taps(conv.window.dims)):
        part = make.slice_(padded, _one_tap(padded.array.dims, number))
        moved = tap_slice(part, around, (0, 0, 0, *offsets), (batch, 1, out, *places))
        part = make.reshape(moved, (batch, out, *places))
        total = part if total is None else emit(conv, "add", part.array, (total, part))
    assert total is not None and math.prod(counts) == planes.array.dims[1]
    return total


def _one_tap(dims: Dims, number: int) -> tuple[tuple[int, int, int], ...]:
    whole = [(0, n, 1) for n in dims]
    whole[1] = (number, number + 1, 1)
    return tuple(whole)
