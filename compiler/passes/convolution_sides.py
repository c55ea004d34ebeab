"""Sides of a convolution: the gradient of a transposed convolution's kernel lets the other array move.

The window is as large as the image there, and one of the two slides over the other, which is summed:

    out[t] = sum over w of x[(t + w) / 2] * g[w]      x spread out with holes
           = sum over j of g[2 * j - t] * x[j]        g by strides: a quarter of the products in a plane

Taps come out in the other direction. Zeros of holes and padding meet other elements then: where either
array is not finite the convolution is computed as it was (`convolution_guards`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.passes.convolution_guards import guarded
from compiler.rewrite.emitter import Emitter

Replacement = tuple[HloInstruction, HloInstruction]
"""What is replaced, and by what."""


def without_holes(instr: HloInstruction) -> Replacement | None:
    """The gradient of a kernel that slides an image with holes, with the other array sliding; else None."""
    if instr.opcode != "convolution" or 0 in instr.array.dims or not _may_exchange(instr):
        return None
    window = instr.window.dims
    positions = [instr.array.dims[d] for d in instr.dim_labels.output_spatial]
    if math.prod(positions) >= math.prod(d.size for d in window):
        return None
    if not any(n > d.base_dilation > 1 for d, n in zip(window, positions, strict=True)):
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


def _home(near: HloInstruction) -> HloComputation:
    assert near.computation is not None
    return near.computation


def _may_exchange(instr: HloInstruction) -> bool:
    """Whether the other form has no holes of its own, and no groups."""
    window = instr.window.dims
    is_plain = all(d.window_dilation == 1 and not d.reversal for d in window)
    return is_plain and instr.feature_group_count == instr.batch_group_count == 1


def _exchanged(
    instr: HloInstruction, image: HloInstruction, kernel: HloInstruction
) -> HloInstruction:
    labels = instr.dim_labels
    positions = tuple(instr.array.dims[d] for d in labels.output_spatial)
    sizes = tuple(image.array.dims[d] for d in labels.input_spatial)
    window = tuple(map(_other_window, instr.window.dims, positions, sizes))
    attrs = {k: v for k, v in instr.attrs.items() if k != "metadata"}
    attrs |= {"window": Window(window), "dim_labels": _other_labels(labels)}
    stated = attrs.get("operand_precision")
    if isinstance(stated, tuple):
        attrs["operand_precision"] = stated[::-1]
    e = Emitter(instr, _home(image))
    made = e.instruction("convolution", (kernel, image), attrs, instr.array)
    return e.reverse(made, labels.output_spatial)


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
