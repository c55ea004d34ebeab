"""A convolution of taps far apart as one of neighbouring rows, for each remainder of a row's number.

Taps that lie `d` rows apart meet rows of one remainder by `d` alone. Where rows are listed by quotient and
remainder, the taps are neighbours along the quotients:

    c = bf16[64,64,8,256] convolution(x, k), window={size=3x3 pad=18_18x18_18 rhs_dilate=18x18}

    y = bf16[6,18,100,8,2048] reshape(bf16[108,100,8,2048] pad(x, 0))
    c = bf16[4,18,64,8,256] convolution(y, k), window={size=3x1x3 rhs_dilate=1x1x18}
    ..  bf16[64,64,8,256] slice(bf16[72,64,8,256] reshape(c))

What is multiplied is the same. A step of the kernel that computes some rows holds all from the first tap's to
the last tap's: 37 for one row above, more than VMEM has room for where a row is 3 MB, and 3 below.
"""

from __future__ import annotations

import math
from dataclasses import replace

from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.ir import HloInstruction
from compiler.passes.convolution_estimate import (
    memory_cycles,
    moved_bytes,
    product_cycles,
    sizes_of,
)
from compiler.passes.expanders.window_taps import padded_operand, stated_attributes
from compiler.passes.image_order import image_order
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from tpu_sim.isa.chips import Chip

_WORTH = 0.8
"""Of the estimate with taps far apart: beyond, the rows that are computed in vain do not pay."""
_HELD_SHARE = 0.25
"""Of VMEM that the image's rows of one step take: they are there twice, and others need room (assumed)."""


def by_remainders(instr: HloInstruction, precision: str, chip: Chip) -> HloInstruction | None:
    """The convolution `instr` with its outermost spatial dimension by quotient and remainder of the distance
    of its taps, if it is estimated to take less."""
    window = instr.window.dims
    labels = instr.dim_labels
    if not window or not _is_far_apart(window[0]) or any(d.base_dilation > 1 for d in window):
        return None
    if min(labels.input_spatial) != labels.input_spatial[0] or not _pays(instr, precision, chip):
        return None
    distance = window[0].window_dilation
    positions = instr.array.dims[labels.output_spatial[0]]
    blocks = -(-positions // distance)
    image = _split(_padded(instr, blocks), labels.input_spatial[0], distance)
    kernel = _split(instr.operands[1], labels.kernel_spatial[0], 1)
    place = labels.output_spatial[0]
    dims = instr.array.dims
    split = (*dims[:place], blocks, distance, *dims[place + 1 :])
    first = replace(window[0], window_dilation=1)
    unpadded = [replace(d, pad_low=0, pad_high=0) for d in (first, WindowDim(1), *window[1:])]
    attrs = stated_attributes(instr) | {
        "window": Window(tuple(unpadded)),
        "dim_labels": _split_labels(labels),
    }
    if instr.feature_group_count > 1:
        attrs["feature_group_count"] = instr.feature_group_count
    shape = instr.array.with_dims(split)
    made = emit(instr, "convolution", shape, (image, kernel), attrs)
    merged = make.reshape(made, (*dims[:place], blocks * distance, *dims[place + 1 :]))
    return make.slice_(merged, tuple((0, n, 1) for n in dims))


def _is_far_apart(dim: WindowDim) -> bool:
    return dim.window_dilation > 1 and dim.size > 1 and dim.stride == 1


def _pays(instr: HloInstruction, precision: str, chip: Chip) -> bool:
    """Whether rows far apart are read so often that the other order takes less."""
    sizes = sizes_of(instr, precision)
    first = sizes.window[0]
    rows = sizes.image[0] + first.pad_low + first.pad_high
    others = zip(sizes.image[1:], sizes.window[1:], strict=True)
    wide = math.prod(n + d.pad_low + d.pad_high for n, d in others)
    images = sizes.batch if image_order(instr).batch_inside else 1
    row_bytes = moved_bytes(images * wide, sizes.features, sizes.item_bytes)
    held = int(_HELD_SHARE * chip.vmem_bytes) // max(row_bytes, 1)
    reach = (first.size - 1) * first.window_dilation
    if held >= rows or held < first.size or not sizes.rows:
        return False
    depth = sizes.taps * sizes.features // instr.feature_group_count
    product = sizes.passes * product_cycles(sizes.rows, depth, sizes.out, chip)
    once = memory_cycles(rows * row_bytes * sizes.batch // images, chip)
    far = math.inf if held <= reach else max(product, once * held / (held - reach))
    blocks = -(-sizes.positions[0] // first.window_dilation)
    step = min(blocks, held - first.size + 1)
    vain = blocks * first.window_dilation / sizes.positions[0]
    near = max(product * vain, once * (step + first.size - 1) / step)
    return near < _WORTH * far


def _padded(instr: HloInstruction, blocks: int) -> HloInstruction:
    """The image with all of its padding, and as many rows behind as fill the last block."""
    labels, (first, *others) = instr.dim_labels, instr.window.dims
    image = instr.operands[0]
    size = image.array.dims[labels.input_spatial[0]]
    rows = (blocks + first.size - 1) * first.window_dilation
    padding = [WindowDim(1)] * image.array.rank
    filled = replace(first, pad_high=rows - size - first.pad_low)
    for place, dim in zip(labels.input_spatial, (filled, *others), strict=True):
        padding[place] = dim
    return padded_operand(image, make.constant(image, image.array.dtype, 0), tuple(padding))


def _split(array: HloInstruction, place: int, size: int) -> HloInstruction:
    """Dimension `place` by quotient and remainder of `size`."""
    dims = array.array.dims
    split = (*dims[:place], dims[place] // size, size, *dims[place + 1 :])
    return make.reshape(array, split)


def _split_labels(labels: ConvDims) -> ConvDims:
    """Labels where the first spatial dimension of all three arrays is two, one behind the other."""

    def spatial(places: tuple[int, ...]) -> tuple[int, ...]:
        first = places[0]
        return (first, first + 1, *(p + (p > first) for p in places[1:]))

    def other(place: int, first: int) -> int:
        return place + (place > first)

    image, kernel, result = labels.input_spatial, labels.kernel_spatial, labels.output_spatial
    return ConvDims(
        other(labels.input_batch, image[0]),
        other(labels.input_feature, image[0]),
        spatial(image),
        other(labels.kernel_input_feature, kernel[0]),
        other(labels.kernel_output_feature, kernel[0]),
        spatial(kernel),
        other(labels.output_batch, result[0]),
        other(labels.output_feature, result[0]),
        spatial(result),
    )
