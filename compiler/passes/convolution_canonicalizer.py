"""Convolution canonicalizer: a convolution whose windows do not overlap is a dot.

When the stride is at least the kernel's size and nothing is padded or dilated, each output
position reads its own patch of the input: 1x1 convolutions (of any stride) and the patch
embeddings of vision transformers. The input is cut into patches by slices and a reshape, and
the kernel becomes a matrix.

The gradient of such a kernel is one too: there taps are as far apart as there are positions, or further.
It sums over the patches, which are those of the convolution itself.

Convolutions that read holes or padding for the most part let the other side slide (`convolution_sides`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.analysis.window_request import carried_request
from compiler.hlo.attributes import ConvDims, WindowDim
from compiler.hlo.call_graph import reachable, sort_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.convolution_sides import exchanged_sides
from compiler.passes.expanders.float_products import of_floats
from compiler.passes.image_order import ImageOrder, image_order
from compiler.rewrite import make
from compiler.rewrite.dims import inverse
from compiler.rewrite.graph import emit, replace

Dims = tuple[int, ...]


@dataclass(frozen=True)
class _Conv:
    """A convolution's attributes, and the number of output positions per spatial dimension."""

    labels: ConvDims
    window: tuple[WindowDim, ...]
    positions: Dims


def canonicalize_convolutions(module: HloModule, context: PassContext) -> bool:
    """Replace the convolutions that are dots."""
    for computation in reachable(module):
        for instr in list(computation):
            if instr.opcode == "convolution" and not instr.array.dtype.is_float:
                summed = of_floats(instr)  # its sums are cut into parts that must not be integers
                if summed is not None:
                    replace(instr, summed)
                    context.counts["integer results of floats"] += 1
        computation.sort()
        for instr in list(computation):
            conv = _as_patches(instr)
            gradient = _as_patch_gradient(instr) if conv is None else None
            if conv is not None:
                replace(instr, _as_dot(instr, conv))
            if gradient is not None:
                replace(instr, _as_sum(instr, gradient))
            found = conv is not None or gradient is not None
            context.counts["convolutions"] += found
            exchanged = None
            if not found:
                exchanged = exchanged_sides(instr, context.planner.precision, context.planner.chip)
            if exchanged is not None:
                replace(*exchanged)
                context.counts["exchanged"] += 1
        computation.sort()
    sort_computations(module)
    return sum(context.counts.values()) > 0


def _as_patches(instr: HloInstruction) -> _Conv | None:
    """The convolution if its windows are disjoint patches, else None."""
    if instr.opcode != "convolution":
        return None
    labels, window = instr.dim_labels, instr.window
    groups = (instr.feature_group_count, instr.batch_group_count)
    if groups != (1, 1) or not all(_is_patch(d) for d in window.dims):
        return None
    positions = tuple(instr.array.dims[d] for d in labels.output_spatial)
    if 0 in instr.array.dims:
        return None
    return _Conv(labels, window.dims, positions)


def _is_patch(dim: WindowDim) -> bool:
    is_plain = dim.base_dilation == dim.window_dilation == 1 and not dim.reversal
    return is_plain and dim.pad_low == dim.pad_high == 0 and dim.stride >= dim.size


def _as_patch_gradient(instr: HloInstruction) -> _Conv | None:
    """The convolution if what each tap meets over all positions is a patch of its own, else None."""
    if instr.opcode != "convolution" or 0 in instr.array.dims:
        return None
    labels, window = instr.dim_labels, instr.window
    positions = tuple(instr.array.dims[d] for d in labels.output_spatial)
    groups = (instr.feature_group_count, instr.batch_group_count)
    pairs = list(zip(window.dims, positions, strict=True))
    if groups != (1, 1) or not all(_is_apart(d, n) for d, n in pairs):
        return None
    is_patch = math.prod(positions) > 1 and any(d.size > 1 for d in window.dims)
    return _Conv(labels, window.dims, positions) if is_patch else None


def _is_apart(dim: WindowDim, positions: int) -> bool:
    is_plain = dim.base_dilation == dim.stride == 1 and not dim.reversal
    is_apart = dim.size == 1 or dim.window_dilation >= positions
    return is_plain and dim.pad_low == 0 and dim.pad_high <= 0 and is_apart


def _as_sum(instr: HloInstruction, conv: _Conv) -> HloInstruction:
    """``[features, taps.., positions.., batch] x [features, taps.., out]``, summed over the first."""
    image, kernel = instr.operands
    labels = conv.labels
    image = make.transpose(image, (labels.input_feature, *labels.input_spatial, labels.input_batch))
    taps = tuple(d.size for d in conv.window)
    turned = tuple(
        WindowDim(n, max(d.window_dilation, n))
        for n, d in zip(conv.positions, conv.window, strict=True)
    )
    patches = _patches(image, _Conv(labels, turned, taps))
    depth = image.array.dims[0] * math.prod(taps)
    batch = image.array.dims[-1]
    rows = make.reshape(patches, (depth, math.prod(conv.positions) * batch))
    order = (labels.kernel_input_feature, *labels.kernel_spatial, labels.kernel_output_feature)
    sides = make.transpose(kernel, order)
    matrix = make.reshape(sides, (depth, sides.array.dims[-1]))
    attrs = _dot_attrs(instr, 0)
    attrs |= {"lhs_contracting_dims": (0,), "rhs_contracting_dims": (0,)}
    dims = (*conv.positions, batch, matrix.array.dims[-1])
    shape = instr.array.with_dims((rows.array.dims[-1], dims[-1]))
    dot = make.reshape(emit(instr, "dot", shape, (rows, matrix), attrs), dims)
    result = (*labels.output_spatial, labels.output_batch, labels.output_feature)
    return make.transpose(dot, inverse(result))


def _as_dot(instr: HloInstruction, conv: _Conv) -> HloInstruction:
    """``[batch, positions.., taps.., features] x [taps.., features, out] -> result``."""
    image, kernel = instr.operands
    labels = conv.labels
    is_pointwise = all(d.size == 1 for d in conv.window)
    if is_pointwise and image_order(instr).batch_inside:
        return _as_turned_dot(instr, conv)
    image = make.transpose(image, (labels.input_batch, *labels.input_spatial, labels.input_feature))
    kernel = make.transpose(
        kernel,
        (*labels.kernel_spatial, labels.kernel_input_feature, labels.kernel_output_feature),
    )
    patches = _patches(image, conv)
    taps = math.prod(d.size for d in conv.window)
    features, out = kernel.array.dims[-2:]
    matrix = make.reshape(kernel, (taps * features, out))
    batch = image.array.dims[0]
    rows = make.reshape(patches, (batch, *conv.positions, taps * features))
    dims = (batch, *conv.positions, out)
    attrs = _dot_attrs(instr, len(dims) - 1)
    dot = emit(instr, "dot", instr.array.with_dims(dims), (rows, matrix), attrs)
    order = (labels.output_batch, *labels.output_spatial, labels.output_feature)
    return make.transpose(dot, inverse(order))


def _as_turned_dot(instr: HloInstruction, conv: _Conv) -> HloInstruction:
    """``[positions.., batch, features] x [features, out] -> result``, of a kernel of one tap."""
    image, kernel = instr.operands
    labels = conv.labels
    order = ImageOrder(batch_inside=True)
    image = make.transpose(image, order.image(labels))
    batch, features = image.array.dims[-2:]
    bounds = tuple(
        (0, min(n * d.stride, size), d.stride)
        for n, d, size in zip(conv.positions, conv.window, image.array.dims, strict=False)
    )
    rows = make.slice_(image, (*bounds, (0, batch, 1), (0, features, 1)))
    matrix = make.transpose(
        kernel,
        (*labels.kernel_spatial, labels.kernel_input_feature, labels.kernel_output_feature),
    )
    out = matrix.array.dims[-1]
    dims = (*conv.positions, batch, out)
    sides = rows, make.reshape(matrix, (features, out))
    attrs = _dot_attrs(instr, len(dims) - 1)
    dot = emit(instr, "dot", instr.array.with_dims(dims), sides, attrs)
    return make.transpose(dot, inverse(order.result(labels)))


def _patches(image: HloInstruction, conv: _Conv) -> HloInstruction:
    """The image as ``[batch, positions.., taps.., features]``."""
    batch, features = image.array.dims[0], image.array.dims[-1]
    covered = tuple(
        min(n * d.stride, size)
        for n, d, size in zip(conv.positions, conv.window, image.array.dims[1:-1], strict=True)
    )
    if all(d.size == 1 for d in conv.window):
        bounds = tuple((0, c, d.stride) for c, d in zip(covered, conv.window, strict=True))
        return make.slice_(image, ((0, batch, 1), *bounds, (0, features, 1)))
    if any(c != n * d.stride for c, n, d in zip(covered, conv.positions, conv.window, strict=True)):
        padding = tuple(
            (0, n * d.stride - c, 0)
            for c, n, d in zip(covered, conv.positions, conv.window, strict=True)
        )
        image = _padded(image, padding)
        covered = image.array.dims[1:-1]
    bounds = tuple((0, n * d.stride, 1) for n, d in zip(conv.positions, conv.window, strict=True))
    image = make.slice_(image, ((0, batch, 1), *bounds, (0, features, 1)))
    split = [batch]
    for count, dim in zip(conv.positions, conv.window, strict=True):
        split += [count, dim.stride]
    split.append(features)
    cut = make.reshape(image, tuple(split))
    inner = [(0, n, 1) for n in split]
    for number, dim in enumerate(conv.window):
        inner[2 + 2 * number] = (0, dim.size, 1)
    cut = make.slice_(cut, tuple(inner))
    rank = len(conv.window)
    order = (0, *(1 + 2 * i for i in range(rank)), *(2 + 2 * i for i in range(rank)), 2 * rank + 1)
    return make.transpose(cut, order)


def _padded(image: HloInstruction, padding: tuple[tuple[int, int, int], ...]) -> HloInstruction:
    """The image with zeros behind each spatial dimension (they are cut away again)."""
    whole = ((0, 0, 0), *padding, (0, 0, 0))
    dims = tuple(n + p[1] for n, p in zip(image.array.dims, whole, strict=True))
    zero = make.constant(image, image.array.dtype, 0)
    shape = image.array.with_dims(dims)
    return emit(image, "pad", shape, (image, zero), {"padding": whole})


def _dot_attrs(instr: HloInstruction, contracted: int) -> dict[str, object]:
    """The dot's attributes; precision and algorithm are the convolution's."""
    attrs: dict[str, object] = {
        "lhs_contracting_dims": (contracted,),
        "rhs_contracting_dims": (0,),
    }
    for name in ("operand_precision", "algorithm", "metadata", "frontend_attributes"):
        if name in instr.attrs:
            attrs[name] = instr.attrs[name]
    return attrs | carried_request(instr)
