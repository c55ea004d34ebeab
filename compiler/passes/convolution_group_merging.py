"""Group merging: groups of few features become groups that fill the lanes.

    32 groups of 4 features in and 4 out, 3x3        one convolution of 128 features and 128 out
    kernel f32[3,3,4,128]                            f32[3,3,128,128], zeros beside 32 blocks

As a product by itself each group has a few of 128 lanes and as many row tiles as all of them together.
The zeros meet features of other groups, so that one infinity would make NaN in all groups that
lie together: where the image is not finite the convolution is computed as it was
(`convolution_guards`). Gradients of kernels are merged where their groups are those of the batch
(`expanders.convolution_groups`).

Several groups that do not fill whole tiles of lanes get features of zeros beside their own, in image and
kernel: 8 groups of 96 features become 8 of 128. Else every group of every tap is put together from parts of
registers.
"""

from __future__ import annotations

import math

from compiler.analysis.code_costs import ConvolutionCosts, KernelCosts
from compiler.hlo.attributes import ConvDims
from compiler.hlo.cloning import clone
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.passes.convolution_estimate import (
    moved_bytes,
    movement_cycles,
    product_cycles,
)
from compiler.passes.convolution_guards import guarded
from compiler.passes.expanders.convolution_groups import groups_together
from compiler.rewrite.emitter import Emitter
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

_MORE_KERNELS = 3
"""What makes the kernel, checks the image and decides, beside the convolution."""


def merge_groups(instr: HloInstruction, chip: Chip) -> tuple[HloInstruction, HloInstruction] | None:
    """What is replaced by what if the groups of a convolution are to lie together; else None."""
    groups, labels = instr.feature_group_count, instr.dim_labels
    image, kernel = instr.operands
    features = kernel.array.dims[labels.kernel_input_feature]
    out = instr.array.dims[labels.output_feature] // groups
    together = groups_together(groups, features, out)
    if together == 1 or not _is_worthwhile(instr, features, out, together, chip):
        widened = _widened(instr, chip)
        return None if widened is instr else (instr, widened)
    identity = tuple(range(image.array.rank))
    return guarded(
        instr,
        (image, kernel),
        identity,
        [image],
        lambda x, k: _widened(_merged(instr, x, k, together), chip),
        lambda x, k: clone(instr, x.home, [x, k]),
    )


def _is_worthwhile(
    instr: HloInstruction, features: int, out: int, together: int, chip: Chip
) -> bool:
    """Whether product and moves of lanes take less by more than the kernels that come with it."""
    taps = math.prod(d.size for d in instr.window.dims)
    rows = instr.array.element_count // instr.array.dims[instr.dim_labels.output_feature]
    apart = together * product_cycles(rows, taps * features, out, chip)
    merged = product_cycles(rows, taps * features * together, out * together, chip)
    pieces = -(-rows // SUBLANES) * taps * (together - 1)
    saved = apart - merged + pieces * ConvolutionCosts.of(chip).gathered_piece
    count = instr.feature_group_count // together
    return saved * count > _MORE_KERNELS * KernelCosts.of(chip).alone


def _widened(instr: HloInstruction, chip: Chip) -> HloInstruction:
    """A convolution in groups with each group's features from a whole tile on, if that is cheaper."""
    groups, labels = instr.feature_group_count, instr.dim_labels
    image, kernel = instr.operands
    features = kernel.array.dims[labels.kernel_input_feature]
    out = instr.array.dims[labels.output_feature] // groups
    more = -features % LANES
    taps = math.prod(d.size for d in instr.window.dims)
    if 1 in (groups, taps, out) or not more:
        return instr
    rows = instr.array.element_count // instr.array.dims[labels.output_feature]
    parts = groups * taps * -(-rows // SUBLANES) * -(-features // LANES)
    now, then = (product_cycles(rows, taps * n, out, chip) for n in (features, features + more))
    positions = image.array.element_count // image.array.dims[labels.input_feature]
    item = max(1, image.array.dtype.bits // 8)
    read, written = (moved_bytes(positions, groups * n, item) for n in (features, features + more))
    moving = movement_cycles(read, written, 0, chip)
    if (then - now) * groups + moving >= parts * ConvolutionCosts.of(chip).part:
        return instr
    e = Emitter(instr, instr.home)
    dim = labels.input_feature
    dims = image.array.dims
    split = e.reshape(image, (*dims[:dim], groups, features, *dims[dim + 1 :]))
    padded = e.pad_dim(split, dim + 1, 0, more)
    whole = (*dims[:dim], groups * (features + more), *dims[dim + 1 :])
    operands = (
        e.reshape(padded, whole),
        e.pad_dim(kernel, labels.kernel_input_feature, 0, more),
    )
    return e.instruction("convolution", operands, dict(instr.attrs), instr.array)


def _merged(
    instr: HloInstruction, image: HloInstruction, kernel: HloInstruction, together: int
) -> HloInstruction:
    """The convolution in fewer groups."""
    e = Emitter(instr, image.home)
    groups = instr.feature_group_count // together
    blocks = _blocks(e, kernel, instr.dim_labels, groups, together)
    attrs = {k: v for k, v in instr.attrs.items() if k not in ("feature_group_count", "metadata")}
    if groups > 1:
        attrs["feature_group_count"] = groups
    return e.instruction("convolution", (image, blocks), attrs, instr.array)


def _blocks(
    e: Emitter, kernel: HloInstruction, labels: ConvDims, groups: int, together: int
) -> HloInstruction:
    """The kernel with the features of `together` groups, zeros where a group meets another's."""
    order = (*labels.kernel_spatial, labels.kernel_input_feature, labels.kernel_output_feature)
    turned = e.transpose(kernel, order)
    *taps, features, all_out = turned.array.dims
    out = all_out // (groups * together)
    dims = (*taps, together, features, groups, together, out)
    rank = len(taps)
    split = e.reshape(turned, (*taps, features, groups, together, out))
    spread = e.broadcast(split, dims, (*range(rank), *range(rank + 1, rank + 5)))
    is_own = e.compare(e.iota(S32, dims, rank), e.iota(S32, dims, rank + 3), "EQ")
    kept = e.select(is_own, spread, e.like(spread, 0))
    whole = e.reshape(kept, (*taps, together * features, all_out))
    return e.transpose(whole, tuple(order.index(d) for d in range(rank + 2)))
