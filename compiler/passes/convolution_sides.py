"""Sides of a convolution: which of the two arrays slides over the other.

The gradient of a transposed convolution's kernel lets the other array move.

The window is as large as the image there, and one of the two slides over the other, which is summed:

    out[t] = sum over w of x[(t + w) / 2] * g[w]      x spread out with holes
           = sum over j of g[2 * j - t] * x[j]        g by strides: a quarter of the products in a plane

Taps come out in the other direction. So it is where the image has many features and the other array few
(the kernel that makes colours of 64 features): 9 taps of 3 features are put side by side instead of 9 of 64.

Where a window is much larger than the image it slides over (a gradient of a kernel's gradient: 14x14 taps
over a padded image of 3x3), the image is the window, and what was the kernel is read in the other direction.

Zeros of holes and padding meet other elements then: where either array is not finite the convolution is
computed as it was (`convolution_guards`).
"""

from __future__ import annotations

import math
from dataclasses import replace

from compiler.analysis.code_costs import ConvolutionCosts, KernelCosts
from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloInstruction
from compiler.passes.convolution_estimate import (
    ConvSizes,
    memory_cycles,
    moved_bytes,
    sizes_of,
)
from compiler.passes.convolution_folding import least_gradient_cycles
from compiler.passes.convolution_guards import guarded
from compiler.passes.expanders.convolution_groups import moved_groups
from compiler.passes.image_order import has_few_positions, minor_dim
from compiler.rewrite import make
from compiler.rewrite.dims import inverse
from compiler.rewrite.emitter import Emitter
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

Replacement = tuple[HloInstruction, HloInstruction]
"""What is replaced, and by what."""
_WORTH = 0.75
"""Of the estimate as it is: beyond, a guard and a way out in code do not pay."""
_KEPT_SHARE = 4
"""Of VMEM is what an image takes that may stay there between the kernels that read it."""
_MUCH_LARGER = 4
"""Times the image's positions that a window has taps."""


def exchanged_sides(instr: HloInstruction, precision: str, chip: Chip) -> Replacement | None:
    """A convolution that costs less with the other array sliding, so; else None.

    `precision` is that of f32 if the convolution states none.
    """
    if instr.opcode != "convolution" or not _may_exchange(instr):
        return None
    image, kernel = instr.operands
    if _reads_holes(instr) or _reads_padding(instr):
        minor, checked = minor_dim(kernel), [image, kernel]
    else:
        columns = _columns_of_few(instr, precision, chip)
        if columns is None:
            return None
        minor, checked = columns, _met_by_padding(instr)
    image_order, order = _with_last(image, minor_dim(image)), _with_last(kernel, minor)
    back = inverse(order)
    return guarded(
        instr,
        (image, make.transpose(kernel, order)),
        image_order,
        checked,
        lambda x, k: _exchanged(instr, x, make.transpose(k, back)),
        lambda x, k: clone(instr, x.home, [x, make.transpose(k, back)]),
    )


def _with_last(array: HloInstruction, dim: int) -> tuple[int, ...]:
    """All dimensions, `dim` last: branches see along which one an array lies."""
    return (*(d for d in range(array.array.rank) if d != dim), dim)


def _reads_holes(instr: HloInstruction) -> bool:
    """Whether this is the gradient of a kernel that slides an image with holes."""
    window = instr.window.dims
    pairs = zip(window, _places(instr), strict=True)
    has_holes = any(n > d.base_dilation > 1 for d, n in pairs)
    return has_holes and has_few_positions(instr) and instr.feature_group_count == 1


def _reads_padding(instr: HloInstruction) -> bool:
    """Whether a window has many times more taps than there are positions in the image."""
    image = instr.operands[0].array
    taps = math.prod(d.size for d in instr.window.dims)
    met = math.prod(image.dims[d] for d in instr.dim_labels.input_spatial)
    return met * _MUCH_LARGER <= taps and not has_few_positions(instr)


def _columns_of_few(instr: HloInstruction, precision: str, chip: Chip) -> int | None:
    """Where a kernel's gradient slides an image of many features over an array of few: the dimension of
    these along which they lie best to slide themselves. None: that costs hardly less.

    What each position meets is put side by side: 9 times 64 features, or 9 times 3 of the other.
    """
    window = instr.window.dims
    is_plain = all(d.base_dilation == 1 for d in window) and instr.feature_group_count == 1
    if not is_plain or not has_few_positions(instr) or math.prod(_places(instr)) == 1:
        return None
    if any(not i.array.dtype.is_float for i in (instr, *instr.operands)):
        return None
    sizes = sizes_of(instr, precision)
    other = replace(
        sizes,
        batch=sizes.out,
        image=tuple(d.size for d in window),
        window=tuple(map(_other_window, window, sizes.positions, sizes.image)),
        out=sizes.batch,
        along=None,
    )
    if other.batch >= sizes.batch:
        return None
    few, spatial = instr.operands[1], instr.dim_labels.kernel_spatial
    checks = _checks_cycles(sizes, chip)
    best = _WORTH * least_gradient_cycles(sizes, chip)
    found = None
    for dim in dict.fromkeys((minor_dim(few), spatial[-1])):
        along = spatial.index(dim) if dim in spatial else None
        cycles = least_gradient_cycles(replace(other, along=along), chip) + checks
        if dim != minor_dim(few):
            cycles += _turning_cycles(other, chip)
        if cycles < best:
            found, best = dim, cycles
    return found


def _checks_cycles(sizes: ConvSizes, chip: Chip) -> float:
    """Cycles of looking at the borders of the image: a kernel for each, whole tiles of the last dimension.

    An image that may stay in VMEM is stored and read once more: it is kept for two branches and what
    they are chosen by (a diffusion model's step: 3.54 M cycles and 628 MB, else 3.57 and 695).
    """
    count = math.prod(sizes.image) * sizes.features
    whole = moved_bytes(count, sizes.batch, sizes.item_bytes)
    parts = sum(2 / n for n in sizes.image[:-1]) + 2 * SUBLANES / sizes.image[-1]
    kept = 2 if whole <= chip.vmem_bytes // _KEPT_SHARE else 0
    read = memory_cycles(int(whole * (min(1.0, parts) + kept)), chip)
    return 2 * len(sizes.image) * KernelCosts.of(chip).alone + read


def _turning_cycles(few: ConvSizes, chip: Chip) -> float:
    """Cycles of turning the array of few features so that a dimension of positions lies along the lanes."""
    count = math.prod(few.image) * few.features
    blocks = -(-count // LANES) * -(-few.batch // LANES)
    return KernelCosts.of(chip).alone + blocks * ConvolutionCosts.of(chip).transposed_block


def _met_by_padding(instr: HloInstruction) -> list[HloInstruction]:
    """The borders of both arrays that meet zeros of the other's padding, in one form or the other.

    What lies further inside meets the same elements in both.
    """
    image, kernel = instr.operands
    labels, window = instr.dim_labels, instr.window.dims
    sizes = tuple(image.array.dims[d] for d in labels.input_spatial)
    other = tuple(map(_other_window, window, _places(instr), sizes))
    borders = _borders(image, labels.input_spatial, other)
    return borders + _borders(kernel, labels.kernel_spatial, window)


def _borders(
    array: HloInstruction, spatial: tuple[int, ...], window: tuple[WindowDim, ...]
) -> list[HloInstruction]:
    """The first and last elements of each dimension, as many as the window of the other side is padded by."""
    found = []
    whole = tuple((0, n, 1) for n in array.array.dims)
    for place, dim in zip(spatial, window, strict=True):
        size = array.array.dims[place]
        low, high = (min(size, max(0, n)) for n in (dim.pad_low, dim.pad_high))
        for bounds in ((0, low, 1), (size - high, size, 1)):
            if bounds[0] < bounds[1]:
                found.append(make.slice_(array, (*whole[:place], bounds, *whole[place + 1 :])))
    return found


def _places(instr: HloInstruction) -> tuple[int, ...]:
    """Output positions by spatial dimension."""
    return tuple(instr.array.dims[d] for d in instr.dim_labels.output_spatial)


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
    e = Emitter(instr, image.home)
    labels, groups = instr.dim_labels, instr.feature_group_count
    positions = _places(instr)
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
