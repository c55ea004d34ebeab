"""Convolutions between very few features: sums of shifted images, each times one weight.

    f32[1,1,512,640] by f32[1,1,3,3]   ->   nine slices of the padded image, times nine scalars, added

As a product such a convolution has rows of a few lanes. Positions stay along the lanes here, in planes
of one feature, and products are added in f32 (s32 for integers).
"""

from __future__ import annotations

import math

from compiler.hlo.attributes import ConvDims, WindowDim
from compiler.hlo.ir import HloInstruction
from compiler.passes.expanders.window_taps import padded_operand, sum_type, tap_slice, window_taps
from compiler.rewrite import make
from compiler.rewrite.dims import inverse
from compiler.rewrite.graph import emit

Dims = tuple[int, ...]
_MOST_PAIRS = 4  # of a feature in and one out
_MOST_PRODUCTS = 64
"""Of taps and pairs of features, each a product of whole images in one kernel (assumed)."""
_LEAST_LANES = 32  # of the last position dimension


def has_few_features(conv: HloInstruction) -> bool:
    """Whether a convolution is computed so."""
    labels, dtype = conv.dim_labels, conv.array.dtype
    if (
        (conv.feature_group_count, conv.batch_group_count) != (1, 1)
        or dtype.bits > 32
        or dtype.is_complex
    ):
        return False
    kernel = conv.operands[1].array.dims
    pairs = kernel[labels.kernel_input_feature] * kernel[labels.kernel_output_feature]
    count = math.prod(d.size for d in conv.window.dims)
    places = [conv.array.dims[d] for d in labels.output_spatial]
    if not places or places[-1] < _LEAST_LANES or math.prod(places) < count:
        return False
    return pairs <= _MOST_PAIRS and pairs * count <= _MOST_PRODUCTS


def weighted_taps(conv: HloInstruction) -> HloInstruction:
    """The convolution as sums of weighted slices."""
    labels = conv.dim_labels
    dtype = sum_type(conv.array.dtype)
    weights = _weights(conv, labels)
    positions = tuple(conv.array.dims[d] for d in labels.output_spatial)
    dims = (conv.array.dims[labels.output_batch], *positions)
    planes = [make.convert(part, dtype) for part in _taps_of_features(conv, labels, dims)]
    found: list[HloInstruction] = []
    for out in range(conv.array.dims[labels.output_feature]):
        total: HloInstruction | None = None
        for number, plane in enumerate(planes):
            bounds = ((number, number + 1, 1), (out, out + 1, 1))
            weight = make.convert(make.reshape(make.slice_(weights, bounds), ()), dtype)
            product = emit(conv, "multiply", plane.array, (plane, make.broadcast(weight, dims, ())))
            total = product if total is None else emit(conv, "add", plane.array, (total, product))
        assert total is not None
        found.append(make.reshape(make.convert(total, conv.array.dtype), (1, *dims)))
    whole = found[0]
    if len(found) > 1:
        shape = conv.array.with_dims((len(found), *dims))
        whole = emit(conv, "concatenate", shape, found, {"dimensions": (0,)})
    order = (labels.output_feature, labels.output_batch, *labels.output_spatial)
    return make.transpose(whole, inverse(order))


def _weights(conv: HloInstruction, labels: ConvDims) -> HloInstruction:
    """The kernel as ``[features * taps, out]``, turned round where the window says so."""
    kernel, window = conv.operands[1], conv.window.dims
    turned = tuple(d for d, w in zip(labels.kernel_spatial, window, strict=True) if w.reversal)
    if turned:
        kernel = emit(kernel, "reverse", kernel.array, (kernel,), {"dimensions": turned})
    order = (labels.kernel_input_feature, *labels.kernel_spatial, labels.kernel_output_feature)
    kernel = make.transpose(kernel, order)
    *rows, out = kernel.array.dims
    return make.reshape(kernel, (math.prod(rows), out))


def _taps_of_features(conv: HloInstruction, labels: ConvDims, dims: Dims) -> list[HloInstruction]:
    """What each tap meets of each feature's plane, the taps of a feature one after another."""
    window = (WindowDim(1), *conv.window.dims)
    order = (labels.input_feature, labels.input_batch, *labels.input_spatial)
    image = make.transpose(conv.operands[0], order)
    features, *plane = image.array.dims
    zero = make.constant(image, image.array.dtype, 0)
    whole = tuple((0, size, 1) for size in plane)
    parts: list[HloInstruction] = []
    for feature in range(features):
        part = make.reshape(make.slice_(image, ((feature, feature + 1, 1), *whole)), tuple(plane))
        padded = padded_operand(part, zero, window)
        parts += [tap_slice(padded, window, offsets, dims) for offsets in window_taps(window)]
    return parts
