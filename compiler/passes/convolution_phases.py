"""A transposed convolution as one convolution for each phase of its result.

With holes between the elements of the image, half of the taps along a dimension meet a hole: at every second
position these, at the others those.

    c = f32[8,56,56,128] convolution(x, k), window={size=3x3 pad=1_2x1_2 lhs_dilate=2x2}

    k01 = f32[1,2,256,128] slice(k), slice={[1:2], [0:3:2], ...}
    c01 = f32[8,28,28,128] convolution(x, k01), window={size=1x2 pad=0_0x0_1}     of c[:, 0::2, 1::2]
    ..  three more, that lie side by side:  reshape(concatenate(..))

They multiply no holes, a quarter of the products here. The gradient of a strided convolution's image is such
a convolution. As a fold does (`convolution_folding`), it leaves out products of zero and a tap that may be
infinite, so the kernel is checked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

from compiler.analysis.code_costs import KernelCosts
from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.ir import HloInstruction
from compiler.passes.convolution_estimate import (
    ConvSizes,
    convolution_cycles,
    moved_bytes,
    movement_cycles,
    rows_work,
)
from compiler.passes.convolution_folds import Fold, Run
from compiler.passes.expanders.window_taps import ordered_kernel, stated_attributes
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

Folds = Sequence[Fold | None]
"""By spatial dimension, a fold whose blocks have each phase once; None where there are no holes."""
_Phase = tuple[Run | None, ...]
_HELD_SHARE = 0.4
"""Of VMEM that the results of all phases may take to be read there (assumed)."""


def phased_cycles(sizes: ConvSizes, folds: Folds, chip: Chip) -> float:
    """Cycles of the convolutions of all phases, and of putting their results side by side.

    The image is brought and turned once for all of them. What they give stays in VMEM where it takes no
    more than a part of that.
    """
    blocks = _blocks(sizes.positions, folds)
    parts = [
        replace(
            sizes,
            window=_window(phase, sizes.window, sizes.image, folds),
            positions=blocks,
            is_result_made=True,
        )
        for phase in _phases(sizes.window, folds)
        if None not in phase
    ]
    parts.sort(key=lambda part: -part.taps)
    total = sum(convolution_cycles(part, chip) for part in parts[:1])
    total += sum(rows_work(part, chip) + KernelCosts.of(chip).alone for part in parts[1:])
    read = sum(moved_bytes(part.rows, sizes.out, sizes.item_bytes) for part in parts)
    written = moved_bytes(sizes.rows, sizes.out, sizes.item_bytes)
    pieces = sizes.rows / SUBLANES * -(-sizes.out // LANES)
    is_held = read <= _HELD_SHARE * chip.vmem_bytes
    return total + movement_cycles(0 if is_held else read, written, pieces, chip)


def in_phases(
    instr: HloInstruction, image: HloInstruction, kernel: HloInstruction, folds: Folds
) -> HloInstruction:
    """The convolution `instr` of an image and a kernel, phase by phase."""
    labels, window = instr.dim_labels, instr.window.dims
    kernel = ordered_kernel(kernel, labels, window)
    parts = [_part(instr, image, kernel, phase, folds) for phase in _phases(window, folds)]
    return _side_by_side(instr, parts, folds)


def _phases(window: Sequence[WindowDim], folds: Folds) -> Iterator[_Phase]:
    """For each phase, the last dimension's fastest, what its positions meet along each dimension."""
    whole = [Run(0, 1, 0, 1, d.size) for d in window]
    runs = [(w,) if fold is None else fold.runs for w, fold in zip(whole, folds, strict=True)]
    return itertools.product(*runs)


def _blocks(positions: Sequence[int], folds: Folds) -> tuple[int, ...]:
    pairs = zip(positions, folds, strict=True)
    return tuple(n if fold is None else fold.blocks for n, fold in pairs)


def _window(
    phase: _Phase, window: Sequence[WindowDim], image: Sequence[int], folds: Folds
) -> tuple[WindowDim, ...]:
    """The window of a phase's convolution; kernels are turned round beforehand."""
    found: list[WindowDim] = []
    for run, dim, size, fold in zip(phase, window, image, folds, strict=True):
        if fold is None or run is None:
            found.append(replace(dim, reversal=False))
            continue
        low = -(fold.first + run.element)
        reach = (fold.blocks - 1) * fold.step + (run.size - 1) * run.element_step + 1
        found.append(WindowDim(run.size, fold.step, low, reach - low - size, 1, run.element_step))
    return tuple(found)


def _part(
    instr: HloInstruction,
    image: HloInstruction,
    kernel: HloInstruction,
    phase: _Phase,
    folds: Folds,
) -> HloInstruction:
    """The positions of one phase; zeros where it meets nothing."""
    labels, rank = instr.dim_labels, len(phase)
    dims = list(instr.array.dims)
    sizes = [image.array.dims[d] for d in labels.input_spatial]
    positions = [dims[d] for d in labels.output_spatial]
    for place, count in zip(labels.output_spatial, _blocks(positions, folds), strict=True):
        dims[place] = count
    shape = instr.array.with_dims(tuple(dims))
    taps: list[tuple[int, int, int]] = []
    for run, fold, size in zip(phase, folds, kernel.array.dims, strict=False):
        if run is None:
            return make.splat(image, shape, 0)
        limit = size if fold is None else run.tap + (run.size - 1) * run.tap_step + 1
        taps.append((run.tap, limit, run.tap_step))
    some = make.slice_(kernel, (*taps, *((0, n, 1) for n in kernel.array.dims[rank:])))
    turned = ConvDims(
        labels.input_batch, labels.input_feature, labels.input_spatial,
        rank, rank + 1, tuple(range(rank)),
        labels.output_batch, labels.output_feature, labels.output_spatial,
    )  # fmt: skip
    window = Window(_window(phase, instr.window.dims, sizes, folds))
    attrs = stated_attributes(instr) | {"window": window, "dim_labels": turned}
    return emit(image, "convolution", shape, (image, some), attrs)


def _side_by_side(
    instr: HloInstruction, parts: list[HloInstruction], folds: Folds
) -> HloInstruction:
    """Phases joined along a new dimension behind each one that has them, and merged with it."""
    counts = {
        place: fold.count
        for place, fold in zip(instr.dim_labels.output_spatial, folds, strict=True)
        if fold is not None
    }
    sizes = parts[0].array.dims
    split = tuple(
        n for d, size in enumerate(sizes) for n in ((size, 1) if d in counts else (size,))
    )
    joined = [make.reshape(part, split) for part in parts]
    spatial = [d for d in instr.dim_labels.output_spatial if d in counts]
    for place in reversed(spatial):  # the last dimension's phases are next to each other
        behind = place + 1 + sum(d < place for d in counts)
        step = counts[place]
        joined = [_joined(instr, joined[k : k + step], behind) for k in range(0, len(joined), step)]
    merged = make.reshape(joined[0], tuple(size * counts.get(d, 1) for d, size in enumerate(sizes)))
    return make.slice_(merged, tuple((0, n, 1) for n in instr.array.dims))


def _joined(near: HloInstruction, parts: list[HloInstruction], dim: int) -> HloInstruction:
    dims = list(parts[0].array.dims)
    dims[dim] = sum(part.array.dims[dim] for part in parts)
    shape = near.array.with_dims(tuple(dims))
    return emit(parts[0], "concatenate", shape, parts, {"dimensions": (dim,)})
