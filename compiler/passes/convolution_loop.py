"""A convolution of many taps and many output positions, as a loop over its taps.

Cut into slices such a convolution would be a program of thousands of instructions. Here one step
takes what one tap meets, multiplies it with the tap's kernel and adds the product to the total.
"""

from __future__ import annotations

import math

from compiler.hlo.attributes import WindowDim
from compiler.hlo.dtypes import F32, S32
from compiler.hlo.ir import HloInstruction
from compiler.rewrite import make
from compiler.rewrite.emitter import Emitter

Dims = tuple[int, ...]


def add_taps_in_a_loop(
    padded: HloInstruction,
    kernel: HloInstruction,
    window: tuple[WindowDim, ...],
    result: HloInstruction,
    dims: Dims,
    attrs: dict[str, object],
) -> HloInstruction:
    """The convolution `result` with its dimensions in the order of the image's.

    `padded` is the image with padding and dilation, its features last. `window` has an entry per
    dimension of it, of size 1 where there are no taps. `kernel` is ``[taps, features of a group,
    out]``, taps in the window's row-major order. `dims` are those of what is returned. `attrs` are
    the precision and the like of its products. Sums are kept in f32, or in a wider or an integer
    type of the result.
    """
    e = Emitter.at(result)
    dtype = result.array.dtype
    wide = F32 if dtype.is_float and dtype.bits < 32 else dtype
    taps, features, out = kernel.array.dims
    image_dims = (*dims[:-1], padded.array.dims[-1])
    met_dims = tuple((n - 1) * d.stride + 1 for n, d in zip(image_dims, window, strict=True))
    bounds = tuple((0, n, d.stride) for n, d in zip(met_dims, window, strict=True))

    def step(b: Emitter, tap: HloInstruction, state: list[HloInstruction]) -> list[HloInstruction]:
        image, weights, total = state
        starts = _starts(b, tap, window)
        met = make.slice_(b.dynamic_slice(image, starts, met_dims), bounds)
        zero = b.constant(S32, 0)
        part = b.dynamic_slice(weights, (tap, zero, zero), (1, features, out))
        factors = met, b.reshape(part, (features, out))
        if not wide.is_float:  # bytes would wrap before they are added
            factors = b.cast(factors[0], wide), b.cast(factors[1], wide)
        product = _product(b, *factors, attrs)
        return [image, weights, b.add(total, b.cast(b.reshape(product, dims), wide))]

    total = e.loop(taps, [padded, kernel, e.full(wide, dims, 0)], step)[2]
    return e.cast(total, dtype)


def _starts(b: Emitter, tap: HloInstruction, window: tuple[WindowDim, ...]) -> list[HloInstruction]:
    """Where in each dimension the tap begins to read."""
    starts: list[HloInstruction] = []
    for number, dim in enumerate(window):
        if dim.size == 1:
            starts.append(b.constant(S32, 0))
            continue
        inner = math.prod(d.size for d in window[number + 1 :])
        place = b.binary(
            "remainder", b.divide(tap, b.constant(S32, inner)), b.constant(S32, dim.size)
        )
        starts.append(b.multiply(place, b.constant(S32, dim.window_dilation)))
    return starts


def _product(
    b: Emitter, met: HloInstruction, weights: HloInstruction, attrs: dict[str, object]
) -> HloInstruction:
    """``[.., groups * features] x [features, out]``, each group's outputs with its features."""
    *lead, all_features = met.array.dims
    features, out = weights.array.dims
    groups, rows = all_features // features, math.prod(lead)
    if features == 1 and out == groups:
        spread = b.broadcast(b.reshape(weights, (out,)), met.array.dims, (len(lead),))
        return b.multiply(met, spread)
    left = b.reshape(met, (rows, groups, features))
    right = b.reshape(weights, (features, groups, out // groups))
    numbers: dict[str, object] = {
        "lhs_batch_dims": (1,),
        "rhs_batch_dims": (1,),
        "lhs_contracting_dims": (2,),
        "rhs_contracting_dims": (0,),
    }
    shape = met.array.with_dims((groups, rows, out // groups))
    shape = shape.with_dtype(F32) if shape.dtype.is_float else shape
    dot = b.instruction("dot", (left, right), {**numbers, **attrs}, shape)
    return b.transpose(dot, (1, 0, 2))
