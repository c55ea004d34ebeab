"""Convolution folding: positions become features where features are too few for the lanes.

A *block* is some neighbouring output positions of a dimension (`convolution_folds`).

    fold      a block is one output position, and its positions are output features; the kernel
              becomes a band: the taps of one position next to those of the other, zeros beside
    gather    what a block reads is put side by side along the features by a kernel of its own
    cut       an image of one feature is rows of its elements, of which a block reads a few whole ones

A 7x7 convolution of 3 features with stride 2, folded and gathered by 8 rows, has 63 features in,
512 out and 7 taps. A transposed convolution (dilated base) is folded by its dilation, so that no
holes are read. The gradient of a kernel (few output positions, a window over the whole image) is
folded along its window: a block's product is ``[length, features] x [count, out]``, and what lies
along its diagonals is added up.

Taps far apart become neighbours (`convolution_remainders`).

A convolution is folded when that is estimated to take much less than its taps side by side, and its
batch does not fill the lanes (`dimension_order`). One with holes may be made of its phases instead
(`convolution_phases`), whatever fills the lanes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from compiler.analysis.window_config import REQUEST, read_config
from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.call_graph import reachable, sort_computations
from compiler.hlo.dtypes import BF16, F32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.convolution_bands import (
    band_in_rows,
    banded,
    gathered,
    image_in_rows,
    in_blocks,
    summed_diagonals,
    unfolded,
)
from compiler.passes.convolution_estimate import (
    ConvSizes,
    convolution_cycles,
    gradient_cycles,
    moved_bytes,
    sizes_of,
)
from compiler.passes.convolution_folds import Fold, gradient_fold
from compiler.passes.convolution_group_merging import merge_groups
from compiler.passes.convolution_guards import (
    guarded,
    needs_finite_image,
    needs_finite_kernel,
    ungathered,
)
from compiler.passes.convolution_parts import convolution_in_parts
from compiler.passes.convolution_phases import in_phases, phased_cycles
from compiler.passes.convolution_plans import (
    COUNTS,
    MOST_PIECES,
    Plan,
    gathering_cycles,
    phase_folds,
    plan_cycles,
    plans,
    windows,
)
from compiler.passes.convolution_remainders import by_remainders
from compiler.passes.dot_canonicalizer import dimension_fills_lanes
from compiler.passes.expanders.weighted_taps import has_few_features
from compiler.passes.expanders.window_taps import ordered_kernel, stated_attributes
from compiler.passes.image_order import minor_dim
from compiler.rewrite import make
from compiler.rewrite.dims import inverse
from compiler.rewrite.graph import emit
from compiler.rewrite.graph import replace as replace_instr
from tpu_sim.isa.chips import Chip

_WORTH = 0.5
"""Of the estimate without folding: beyond, a convolution is left alone."""
_WORTH_PHASES = 0.7
"""Of the best estimate without phases: beyond, a guard and a way out in code do not pay."""
_UNFOLDED_SHARE = 8
"""Of HBM is what the way out of a folded convolution may take for an image with holes."""


Replacement = tuple[HloInstruction, HloInstruction]
"""What is replaced (a convolution, or the last of what is computed of it alone), and by what."""


def fold_convolutions(module: HloModule, context: PassContext) -> bool:
    """Fold the convolutions that gain by it."""
    planner = context.planner
    for computation in reachable(module):
        for instr in list(computation):
            if not _may_change(instr):
                continue
            made: Replacement | None
            near = by_remainders(instr, planner.precision, planner.chip)
            if near is not None:
                made, kind = (instr, near), "by remainders"
            elif instr.feature_group_count > 1:
                made, kind = merge_groups(instr, planner.chip), "merged"
            else:
                sizes = sizes_of(instr, planner.precision)
                made, kind = _folded(instr, sizes, planner.chip), "folded"
            if made is not None:
                replace_instr(*made)
                context.counts[kind] += 1
        computation.sort()
    sort_computations(module)
    return bool(sum(context.counts.values()))


def _may_change(instr: HloInstruction) -> bool:
    """Floats, no groups of the batch, enough features for a product, and no window asked for by
    name."""
    if instr.opcode != "convolution" or has_few_features(instr):
        return False
    if any(0 in i.array.dims for i in (instr, *instr.operands)):
        return False
    is_float = all(i.array.dtype.is_float for i in (instr, *instr.operands))
    return instr.batch_group_count == 1 and is_float and REQUEST not in read_config(instr)


def _folded(instr: HloInstruction, sizes: ConvSizes, chip: Chip) -> Replacement | None:
    places = math.prod(sizes.positions)
    is_gradient = places < sizes.taps
    batch = sizes.features if is_gradient else sizes.batch
    is_along_lanes = dimension_fills_lanes(batch, (sizes.out,))
    if is_gradient:
        return None if is_along_lanes else _folded_gradient(instr, sizes, chip)
    cycles = convolution_cycles(sizes, chip)
    tried = () if is_along_lanes else plans(sizes)
    costs = ((plan_cycles(sizes, plan, chip), i, plan) for i, plan in enumerate(tried))
    best = min(costs, default=None)
    if best is not None and best[0] > _WORTH * cycles:
        best = None
    phases = phase_folds(sizes)
    least = cycles if best is None else best[0]
    if any(phases) and phased_cycles(sizes, phases, chip) < _WORTH_PHASES * least:
        return _guarded_phases(instr, phases, chip)
    return None if best is None else _fold(instr, sizes, best[2], chip)


def _fold(instr: HloInstruction, sizes: ConvSizes, plan: Plan, chip: Chip) -> Replacement:
    """The convolution in blocks, where what it multiplies is finite."""
    labels, window = _attributes(instr)
    image = _gathered_image(instr, sizes, plan.gathered, labels.input_feature)
    kernel = instr.operands[1]
    checked = [image] if needs_finite_image(plan.folds) else []
    checked += [kernel] if needs_finite_kernel(window.dims, plan.folds) else []
    order = _stored_order(image, plan.gathered, labels.input_feature)
    return guarded(
        instr,
        (image, kernel),
        order,
        checked,
        lambda x, k: _product(instr, x, k, plan),
        lambda x, k: _unfolded(instr, x, k, plan.gathered, labels.input_feature, chip),
    )


def _guarded_phases(
    instr: HloInstruction, phases: tuple[Fold | None, ...], chip: Chip
) -> Replacement:
    """The convolution phase by phase, where its kernel is finite."""
    image, kernel = instr.operands
    none = (None,) * len(phases)
    return guarded(
        instr,
        (image, kernel),
        tuple(range(image.array.rank)),
        [kernel],
        lambda x, k: in_phases(instr, x, k, phases),
        lambda x, k: _unfolded(instr, x, k, none, instr.dim_labels.input_feature, chip),
    )


def _product(
    instr: HloInstruction, image: HloInstruction, kernel: HloInstruction, plan: Plan
) -> HloInstruction:
    """The convolution in blocks, of the gathered image."""
    labels, window = _attributes(instr)
    rank = len(plan.folds)
    image = make.transpose(image, (labels.input_batch, *labels.input_spatial, labels.input_feature))
    sizes = tuple(instr.operands[0].array.dims[d] for d in labels.input_spatial)
    positions = tuple(instr.array.dims[d] for d in labels.output_spatial)
    kernel = ordered_kernel(kernel, labels, window.dims)
    out = kernel.array.dims[-1]
    for dim, fold in enumerate(plan.folds):
        if fold is not None:
            kernel = banded(kernel, dim, fold)
        if fold is not None and dim == plan.cut:
            image = image_in_rows(image, 1 + dim, fold)
            kernel = band_in_rows(kernel, dim, fold, rank)
    kernel = _gathered_kernel(kernel, plan, rank)
    blocks = [n if f is None else f.blocks for n, f in zip(positions, plan.folds, strict=True)]
    dims = (image.array.dims[0], *blocks, kernel.array.dims[-1])
    spatial, last = tuple(range(1, rank + 1)), rank + 1
    attrs = _attrs(
        instr,
        Window(windows(plan, window.dims, sizes)),
        ConvDims(0, last, spatial, rank, last, tuple(range(rank)), 0, last, spatial),
    )
    made = emit(image, "convolution", instr.array.with_dims(dims), (image, kernel), attrs)
    result = unfolded(made, plan.folds, positions, out)
    order = (labels.output_batch, *labels.output_spatial, labels.output_feature)
    return make.transpose(result, inverse(order))


def _unfolded(
    instr: HloInstruction,
    image: HloInstruction,
    kernel: HloInstruction,
    folds: Sequence[Fold | None],
    gathered_along: int,
    chip: Chip,
) -> HloInstruction:
    """The convolution as it was, of the gathered image."""
    labels, window = _attributes(instr)
    dims = window.dims
    for place, fold in enumerate(folds):
        if fold is not None:
            positions = instr.array.dims[labels.output_spatial[place]]
            places = (*labels.input_spatial, gathered_along)
            image, dims = ungathered(image, dims, places, fold, place, positions)
    attrs = _attrs(instr, Window(dims), labels)
    return convolution_in_parts(instr, image, kernel, attrs, chip.hbm_bytes // _UNFOLDED_SHARE)


def _attributes(instr: HloInstruction) -> tuple[ConvDims, Window]:
    labels, window = instr.dim_labels, instr.window
    return labels, window


def _gathered_image(
    instr: HloInstruction, sizes: ConvSizes, folds: Sequence[Fold | None], dim: int
) -> HloInstruction:
    """The image with `folds` of its spatial dimensions gathered along `dim`.

    That is done with `dim` as the last dimension, or as the last but one where the image lies
    with another along the lanes: the gathered image is turned then, not the one of few features. An
    image of converted elements is converted when it is gathered; what the MXU rounds to bf16 in one
    pass is stored so.
    """
    image = instr.operands[0]
    if not any(folds):
        return image
    by_dim: list[Fold | None] = [None] * image.array.rank
    for place, fold in zip(instr.dim_labels.input_spatial, folds, strict=True):
        by_dim[place] = fold
    minor = minor_dim(image)
    is_turned = minor != dim and by_dim[minor] is None
    order = _gathering_order(image, minor, dim) if is_turned else _stored_order(image, folds, dim)
    is_wider = image.opcode == "convert" and len(image.users) == 1
    elements = make.transpose(image.operands[0] if is_wider else image, order)
    joined = gathered(elements, [by_dim[d] for d in order], order.index(dim))
    dtype = BF16 if sizes.passes == 1 and image.array.dtype == F32 else image.array.dtype
    return make.transpose(make.convert(joined, dtype), inverse(order))


def _gathering_order(image: HloInstruction, minor: int, dim: int) -> tuple[int, ...]:
    """The order of dimensions in which an image that lies along `minor` is gathered along `dim`."""
    return (*(d for d in range(image.array.rank) if d not in (minor, dim)), dim, minor)


def _stored_order(image: HloInstruction, folds: Sequence[Fold | None], dim: int) -> tuple[int, ...]:
    """The order of dimensions in which a gathered image is stored: `dim` is the last."""
    places = range(image.array.rank)
    return (*(d for d in places if d != dim), dim) if any(folds) else tuple(places)


def _gathered_kernel(kernel: HloInstruction, plan: Plan, rank: int) -> HloInstruction:
    """``[lengths.., features, counts.., out]`` as ``[taps.., features, out]`` of the folded one."""
    moved = [d for d in range(rank) if plan.gathers[d]]
    kept = [d for d in range(rank) if not plan.gathers[d]]
    dims = kernel.array.dims
    turned = make.transpose(kernel, (*kept, *moved, *range(rank, len(dims))))
    spatial = tuple(1 if plan.gathers[d] else dims[d] for d in range(rank))
    features = math.prod(dims[d] for d in moved) * dims[rank]
    return make.reshape(turned, (*spatial, features, math.prod(dims[rank + 1 :])))


def _folded_gradient(instr: HloInstruction, sizes: ConvSizes, chip: Chip) -> Replacement | None:
    """A kernel's gradient in blocks of its window, if that takes less."""
    found = _gradient_folds(sizes, chip)
    if not found:
        return None
    cycles, dim, _, fold = min(found, key=lambda item: item[:3])
    return (
        _fold_gradient(instr, sizes, dim, fold, chip)
        if cycles <= _WORTH * gradient_cycles(sizes, chip)
        else None
    )


def least_gradient_cycles(sizes: ConvSizes, chip: Chip) -> float:
    """Cycles of a kernel's gradient in the form that is made of it, in blocks or not."""
    plain = gradient_cycles(sizes, chip)
    if dimension_fills_lanes(sizes.features, (sizes.out,)):
        return plain
    folded = min((cycles for cycles, *_ in _gradient_folds(sizes, chip)), default=plain)
    return folded if folded <= _WORTH * plain else plain


def _gradient_folds(sizes: ConvSizes, chip: Chip) -> list[tuple[float, int, int, Fold]]:
    """Blocks of a kernel's gradient: estimated cycles, dimension, positions of a block, fold."""
    found: list[tuple[float, int, int, Fold]] = []
    for dim, (window, positions) in enumerate(zip(sizes.window, sizes.positions, strict=True)):
        for count in COUNTS:
            fold = gradient_fold(window, positions, count) if count <= window.size else None
            if fold is not None and positions > 1 and fold.length <= MOST_PIECES:
                found.append((_gradient_fold_cycles(sizes, dim, fold, chip), dim, count, fold))
    return found


def _gradient_fold_cycles(sizes: ConvSizes, dim: int, fold: Fold, chip: Chip) -> float:
    """Cycles of gathering and of the folded gradient."""
    image = (*sizes.image[:dim], fold.blocks, *sizes.image[dim + 1 :])
    window = (*sizes.window[:dim], WindowDim(fold.blocks), *sizes.window[dim + 1 :])
    positions = (*sizes.positions[:dim], 1, *sizes.positions[dim + 1 :])
    folded = replace(
        sizes, image=image, window=window, positions=positions,
        batch=sizes.batch * fold.length, out=sizes.out * fold.count, along=None,
    )  # fmt: skip
    rows = math.prod(image) * sizes.features
    written = moved_bytes(rows, folded.batch, sizes.item_bytes)
    folds = tuple(fold if d == dim else None for d in range(len(image)))
    turned = replace(sizes, batch=sizes.features, features=sizes.batch)
    gathering = gathering_cycles(turned, folds, rows, fold.length, written, chip)
    return gathering + gradient_cycles(folded, chip)


def _fold_gradient(
    instr: HloInstruction, sizes: ConvSizes, dim: int, fold: Fold, chip: Chip
) -> Replacement:
    """The gradient of a kernel in blocks along one dimension.

    Blocks that have positions beyond the window's meet elements of the image there with zeros.
    """
    labels, window = _attributes(instr)
    folds = [fold if d == dim else None for d in range(len(window.dims))]
    image = _gathered_image(instr, sizes, folds, labels.input_batch)
    is_even = fold.blocks * fold.count == window.dims[dim].size
    return guarded(
        instr,
        (image, instr.operands[1]),
        _stored_order(image, folds, labels.input_batch),
        [] if is_even else [image],
        lambda x, k: _gradient_product(instr, x, k, dim, fold),
        lambda x, k: _unfolded(instr, x, k, folds, labels.input_batch, chip),
    )


def _gradient_product(
    instr: HloInstruction, image: HloInstruction, kernel: HloInstruction, dim: int, fold: Fold
) -> HloInstruction:
    """The gradient of a kernel in blocks, of the gathered image; sums are f32 until the last."""
    labels, window = _attributes(instr)
    rank = len(window.dims)
    image = make.transpose(image, (*labels.input_spatial, labels.input_feature, labels.input_batch))
    kernel = ordered_kernel(kernel, labels, window.dims)
    out = kernel.array.dims[-1]
    kernel = in_blocks(kernel, dim, fold)
    windows = [replace(d, reversal=False) for d in window.dims]
    windows[dim] = WindowDim(fold.blocks)
    positions = [instr.array.dims[d] for d in labels.output_spatial]
    positions[dim] = 1
    dims = (*positions, image.array.dims[-1], kernel.array.dims[-1])
    spatial = tuple(range(rank))
    attrs = _attrs(
        instr,
        Window(tuple(windows)),
        ConvDims(rank + 1, rank, spatial, rank, rank + 1, spatial, rank, rank + 1, spatial),
    )
    shape = instr.array.with_dims(dims).with_dtype(F32)
    made = emit(image, "convolution", shape, (image, kernel), attrs)
    total = make.convert(summed_diagonals(made, dim, fold, out), instr.array.dtype)
    order = (*labels.output_spatial, labels.output_batch, labels.output_feature)
    return make.transpose(total, inverse(order))


def _attrs(instr: HloInstruction, window: Window, labels: ConvDims) -> dict[str, object]:
    """Window and labels, and what the convolution says about precision."""
    return stated_attributes(instr) | {"window": window, "dim_labels": labels}
