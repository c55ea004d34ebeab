"""Sides of a convolution: which of the two arrays slides over the other.

The gradient of a transposed convolution's kernel lets the other array move.

The window is as large as the image there, and one of the two slides over the other, which is summed:

    out[t] = sum over w of x[(t + w) / 2] * g[w]      x spread out with holes
           = sum over j of g[2 * j - t] * x[j]        g by strides: a quarter of the products in a plane

Taps come out in the other direction. Where a window is much larger than the image it slides over (a
gradient of a kernel's gradient: 14x14 taps over a padded image of 3x3), the image is the window, and what was
the kernel is read in the other direction. Zeros of holes and padding meet other elements
then: where either array is not finite the convolution is computed as it was (`convolution_guards`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.passes.convolution_guards import guarded
from compiler.passes.expanders.convolution_groups import moved_groups
from compiler.passes.image_order import has_few_positions
from compiler.rewrite.emitter import Emitter

Replacement = tuple[HloInstruction, HloInstruction]
"""What is replaced, and by what."""
_MUCH_LARGER = 4
"""Times the image's positions that a window has taps."""


def exchanged_sides(instr: HloInstruction) -> Replacement | None:
    """A convolution that reads mostly holes or padding, with the other array sliding; else None."""
    if instr.opcode != "convolution" or not _may_exchange(instr):
        return None
    if not (_reads_holes(instr) or _reads_padding(instr)):
        return None
    image, kernel = instr.operands
    return guarded(
        instr,
        (image, kernel),
        tuple(range(image.array.rank)),
        [image, kernel],
        lambda x, k: _exchanged(instr, x, k),
        lambda x, k: clone(instr, _home(x), [x, k]),
    )


def _reads_holes(instr: HloInstruction) -> bool:
    """Whether this is the gradient of a kernel that slides an image with holes."""
    window = instr.window.dims
    positions = [instr.array.dims[d] for d in instr.dim_labels.output_spatial]
    has_holes = any(n > d.base_dilation > 1 for d, n in zip(window, positions, strict=True))
    return has_holes and has_few_positions(instr) and instr.feature_group_count == 1


def _reads_padding(instr: HloInstruction) -> bool:
    """Whether a window has many times more taps than there are positions in the image."""
    image = instr.operands[0].array
    taps = math.prod(d.size for d in instr.window.dims)
    met = math.prod(image.dims[d] for d in instr.dim_labels.input_spatial)
    return met * _MUCH_LARGER <= taps and not has_few_positions(instr)


def _home(near: HloInstruction) -> HloComputation:
    assert near.computation is not None
    return near.computation


def _may_exchange(instr: HloInstruction) -> bool:
    """Whether the other form has no holes of its own, and no groups but those of features."""
    window = instr.window.dims
    if any(0 in i.array.dims for i in (instr, *instr.operands)):
        return False
    is_plain = all(d.window_dilation == 1 and not d.reversal for d in window)
    return is_plain and instr.batch_group_count == 1


def _exchanged(
    instr: HloInstruction, image: HloInstruction, kernel: HloInstruction
) -> HloInstruction:
    e = Emitter(instr, _home(image))
    labels, groups = instr.dim_labels, instr.feature_group_count
    positions = tuple(instr.array.dims[d] for d in labels.output_spatial)
    sizes = tuple(image.array.dims[d] for d in labels.input_spatial)
    is_turned = has_few_positions(instr)
    window = tuple(map(_other_window, instr.window.dims, positions, sizes))
    if not is_turned:
        kernel = e.reverse(kernel, labels.kernel_spatial)
        image = e.reverse(image, labels.input_spatial)
        window = tuple(replace(d, pad_low=d.pad_high, pad_high=d.pad_low) for d in window)
    result = instr.array
    if groups > 1:
        # parts of the features in, which are summed, go along with those of the features out
        kernel = moved_groups(
            e, kernel, labels.kernel_output_feature, labels.kernel_input_feature, groups
        )
        image = moved_groups(e, image, labels.input_feature, labels.input_batch, groups)
        dims = list(result.dims)
        dims[labels.output_feature] //= groups
        dims[labels.output_batch] *= groups
        result = result.with_dims(tuple(dims))
    attrs = {k: v for k, v in instr.attrs.items() if k != "metadata"}
    attrs |= {"window": Window(window), "dim_labels": _other_labels(labels)}
    stated = attrs.get("operand_precision")
    if isinstance(stated, tuple):
        attrs["operand_precision"] = stated[::-1]
    made = e.instruction("convolution", (kernel, image), attrs, result)
    if groups > 1:
        made = moved_groups(e, made, labels.output_batch, labels.output_feature, groups)
    return e.reverse(made, labels.output_spatial) if is_turned else made


def _other_window(dim: WindowDim, positions: int, size: int) -> WindowDim:
    """`positions` taps of a side of `size` elements, which is spread out no longer."""
    low = (positions - 1) * dim.stride - dim.pad_low
    met = (size - 1) * dim.base_dilation + 1
    high = (positions - 1) * dim.stride + met - dim.size - low
    return WindowDim(size, dim.stride, low, high, window_dilation=dim.base_dilation)


def _other_labels(labels: ConvDims) -> ConvDims:
    return replace(
        labels,
        input_batch=labels.kernel_output_feature,
        input_feature=labels.kernel_input_feature,
        input_spatial=labels.kernel_spatial,
        kernel_output_feature=labels.input_batch,
        kernel_input_feature=labels.input_feature,
        kernel_spatial=labels.input_spatial,
        output_batch=labels.output_feature,
        output_feature=labels.output_batch,
    )
