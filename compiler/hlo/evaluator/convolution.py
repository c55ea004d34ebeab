"""Convolution in full generality, as matrix products over blocks of kernel taps (im2col).

Canonical form: input [batch, spatial.., group, feature], kernel [taps, group, feature, out],
result [batch, spatial.., group, out]. Dilation and padding are made explicit in the input, batch
groups become feature groups, so one loop serves forward, transposed and gradient convolutions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from compiler.hlo.attributes import Window
from compiler.hlo.dtypes import from_numpy
from compiler.hlo.evaluator.context import Array
from compiler.hlo.evaluator.matmul import contract
from compiler.hlo.evaluator.movement import pad_array
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloInstruction

_COLUMN_ELEMENTS = 1 << 24  # size of the im2col buffer: 64 MB of f32


def evaluate_convolution(instr: HloInstruction, lhs: Array, rhs: Array, precision: str) -> Array:
    """Convolve; the result has the instruction's dimension order and the accumulator's type."""
    dims = instr.dim_labels
    window = instr.window
    groups = instr.feature_group_count
    batch_groups = instr.batch_group_count
    image = lhs.transpose(dims.input_batch, *dims.input_spatial, dims.input_feature)
    kernel = rhs.transpose(
        *dims.kernel_spatial, dims.kernel_input_feature, dims.kernel_output_feature
    )
    if batch_groups > 1:
        image = _batch_groups_to_features(image, batch_groups)
        groups = batch_groups
    image = _padded(image, window)
    kernel = np.flip(kernel, tuple(i for i, d in enumerate(window.dims) if d.reversal))
    result = contract(image, kernel, lambda a, b: _convolve(a, b, window, groups), precision)
    order = [dims.output_batch, *dims.output_spatial, dims.output_feature]
    return result.transpose(np.argsort(order))


def _batch_groups_to_features(image: Array, groups: int) -> Array:
    """[groups * batch, spatial.., feature] -> [batch, spatial.., groups * feature]."""
    split = image.reshape(groups, image.shape[0] // groups, *image.shape[1:])
    moved = np.moveaxis(split, 0, -2)
    return moved.reshape(*moved.shape[:-2], groups * image.shape[-1])


def _padded(image: Array, window: Window) -> Array:
    edges = [(d.pad_low, d.pad_high, d.base_dilation - 1) for d in window.dims]
    if not any(any(edge) for edge in edges):
        return image
    if identity("add", from_numpy(image.dtype)) is None:
        image = image.astype(np.float32)  # The type has no zero to pad with.
    return pad_array(image, np.zeros((), image.dtype), ((0, 0, 0), *edges, (0, 0, 0)))


def _convolve(image: Array, kernel: Array, window: Window, groups: int) -> Array:
    sizes = [d.size for d in window.dims]
    extents = [
        max(0, (image.shape[1 + i] - d.dilated_size) // d.stride + 1) if d.size else 0
        for i, d in enumerate(window.dims)
    ]
    features, outputs = kernel.shape[-2], kernel.shape[-1] // groups
    taps = kernel.reshape(math.prod(sizes), features, groups, outputs).transpose(2, 0, 1, 3)
    grouped = image.reshape(*image.shape[:-1], groups, features)
    batch = image.shape[0]
    rows = batch * math.prod(extents)
    result = np.zeros((groups, rows, outputs), image.dtype)
    if result.size and taps.size:
        _accumulate(result, _tap_views(grouped, window, extents), taps)
    return result.transpose(1, 0, 2).reshape(batch, *extents, groups * outputs)


def _tap_views(image: Array, window: Window, extents: Sequence[int]) -> Iterator[Array]:
    """For each kernel tap, the [batch, positions.., group, feature] it multiplies."""
    for tap in itertools.product(*(range(d.size) for d in window.dims)):
        starts = [t * d.window_dilation for t, d in zip(tap, window.dims, strict=True)]
        index = tuple(
            slice(start, start + (extent - 1) * d.stride + 1, d.stride)
            for start, extent, d in zip(starts, extents, window.dims, strict=True)
        )
        yield image[(slice(None), *index)]


def _accumulate(result: Array, views: Iterator[Array], taps: Array) -> None:
    """result[g, row, o] += sum over taps and features of view[row, g, f] * taps[g, tap, f, o]."""
    groups, rows, outputs = result.shape
    count, features = taps.shape[1:3]
    if features == 1 and groups > 1:
        _accumulate_depthwise(result, views, taps)
        return
    block = max(1, min(count, _COLUMN_ELEMENTS // max(1, groups * rows * features)))
    for start in range(0, count, block):
        width = min(block, count - start)
        columns = np.empty((groups, rows, width, features), result.dtype)
        for i, view in enumerate(itertools.islice(views, width)):
            columns[:, :, i] = view.reshape(rows, groups, features).transpose(1, 0, 2)
        weights = taps[:, start : start + width].reshape(groups, width * features, outputs)
        result += np.matmul(columns.reshape(groups, rows, width * features), weights)


def _accumulate_depthwise(result: Array, views: Iterator[Array], taps: Array) -> None:
    groups, rows, _ = result.shape
    for i, view in enumerate(views):
        column = view.reshape(rows, groups).T
        result += column[:, :, np.newaxis] * taps[:, i, 0, np.newaxis, :]
