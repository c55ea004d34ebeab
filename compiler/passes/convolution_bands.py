"""The parts a folded convolution is made of: kernels as bands, gathered images, results unfolded.

Kernels are ``[spatial.., features, out]`` here; what is made for spatial dimension d lies at its
place.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from compiler.hlo.ir import HloInstruction
from compiler.passes.convolution_folds import Fold
from compiler.rewrite import make
from compiler.rewrite.graph import emit

Dims = tuple[int, ...]
Padding = tuple[tuple[int, int, int], ...]


def banded(kernel: HloInstruction, dim: int, fold: Fold) -> HloInstruction:
    """``[.., taps, .., features, (counts,) out]`` with ``length`` for taps and a further count.

    The taps, zeros behind, follow each other with a period that is longer than a row of the band by
    what one position is further than the one before: cut into rows, they lie along its diagonals.
    """
    band = fold.band
    edges = (band.low, band.period - band.low - band.taps_span, band.spacing - 1)
    dims = kernel.array.dims
    period = padded(kernel, _bounds(((0, 0, 0),) * len(dims), dim, edges))
    around = (*dims[:dim], fold.count, band.period, *dims[dim + 1 :])
    mapping = (*range(dim), *range(dim + 1, len(around)))
    many = make.broadcast(period, around, mapping)
    line = make.reshape(many, _with(dims, dim, fold.count * band.period))
    cut = make.slice_(line, _bounds(line.array.dims, dim, (0, fold.count * band.row, 1)))
    rows = make.reshape(cut, (*around[: dim + 1], band.row, *dims[dim + 1 :]))
    last = band.start + (fold.length - 1) * band.step
    kept = make.slice_(rows, _bounds(rows.array.dims, dim + 1, (band.start, last + 1, band.step)))
    order = (*(d for d in range(len(dims)) if d != dim), dim, len(dims))
    return make.transpose(kept, order)


def gathered(image: HloInstruction, folds: Sequence[Fold | None], dim: int) -> HloInstruction:
    """What each block reads of the dimensions with a fold, side by side along dimension `dim`.

    ``[.., size, .., features]`` becomes ``[.., blocks, .., length * features]``; `folds` has one
    entry for each dimension, None for `dim`.
    """
    starts = [0 if fold is None else fold.first for fold in folds]
    is_there = all(s < n for s, n in zip(starts, image.array.dims, strict=True))
    if is_there and dim < image.array.rank - 1:
        return _gathered_rows(image, folds, dim)
    edges = [_edges(n, fold) for n, fold in zip(image.array.dims, folds, strict=True)]
    whole = padded(image, tuple(edges))
    parts = []
    lengths = [fold.length if fold is not None else 1 for fold in folds]
    for place in itertools.product(*(range(n) for n in lengths)):
        bounds = tuple(
            (0, n, 1) if fold is None else _strided(r + max(0, fold.first), fold)
            for n, fold, r in zip(whole.array.dims, folds, place, strict=True)
        )
        parts.append(make.slice_(whole, bounds))
    return _joined(parts, dim)


def _gathered_rows(image: HloInstruction, folds: Sequence[Fold | None], dim: int) -> HloInstruction:
    """The same where `dim` is no lane: what a block reads is whole blocks of elements one behind
    another, which move as rows, not an element of each block after the other."""
    for place, fold in reversed(list(enumerate(folds))):
        if fold is not None:
            image = _overlapping_blocks(image, place, fold)
    axes: list[int] = []
    inner: list[int] = []
    for fold in folds:
        axes.append(len(axes) + len(inner))
        if fold is not None:
            inner.append(len(axes) + len(inner))
    at = axes[dim]
    order = [axis for axis in axes if axis != at]
    order[dim:dim] = [*inner, at]
    turned = make.transpose(image, tuple(order))
    sizes = turned.array.dims
    count = len(inner) + 1
    return make.reshape(
        turned, (*sizes[:dim], math.prod(sizes[dim : dim + count]), *sizes[dim + count :])
    )


def _overlapping_blocks(image: HloInstruction, place: int, fold: Fold) -> HloInstruction:
    """``[.., size, ..]`` as ``[.., blocks, length, ..]``: blocks of a step, and the first of the next."""
    cut = _steps_apart(image, place, fold)
    step = cut.array.dims[place + 1]
    parts = []
    for number in range(fold.following + 1):
        taken = [(0, n, 1) for n in cut.array.dims]
        taken[place] = (number, number + fold.blocks, 1)
        taken[place + 1] = (0, min(step, fold.length - number * step), 1)
        parts.append(make.slice_(cut, tuple(taken)))
    return _joined(parts, place + 1)


def _steps_apart(image: HloInstruction, place: int, fold: Fold) -> HloInstruction:
    """``[.., size, ..]`` as ``[.., blocks + those that follow, step, ..]``, from the first element read."""
    count = fold.blocks + fold.following
    step = fold.length if fold.blocks == 1 else fold.step
    total = step * count
    size = image.array.dims[place]
    rank = image.array.rank
    edges = [(0, 0, 0)] * rank
    edges[place] = (max(0, -fold.first), max(0, fold.first + total - size), 0)
    bounds = [(0, n, 1) for n in image.array.dims]
    bounds[place] = (max(0, fold.first), min(size, fold.first + total), 1)
    whole = padded(make.slice_(image, tuple(bounds)), tuple(edges))
    dims = whole.array.dims
    return make.reshape(whole, (*dims[:place], count, step, *dims[place + 1 :]))


def image_in_rows(image: HloInstruction, place: int, fold: Fold) -> HloInstruction:
    """``[.., size, .., features]`` as ``[.., blocks + those that follow, .., step * features]``."""
    return _beside_last(_steps_apart(image, place, fold), place + 1)


def band_in_rows(band: HloInstruction, dim: int, fold: Fold, features: int) -> HloInstruction:
    """A band ``[.., length, .., features, ..]`` as the taps of rows of a step, zeros behind:
    ``[.., taps, .., step * features, ..]``; `features` says which dimension these are."""
    taps = fold.following + 1
    edges = _bounds(((0, 0, 0),) * band.array.rank, dim, (0, taps * fold.step - fold.length, 0))
    whole = padded(band, edges)
    dims = whole.array.dims
    cut = make.reshape(whole, (*dims[:dim], taps, fold.step, *dims[dim + 1 :]))
    lead = features + 2
    order = (
        *(d for d in range(lead - 1) if d != dim + 1),
        dim + 1,
        *range(lead - 1, cut.array.rank),
    )
    turned = make.transpose(cut, order).array.dims
    merged = (*turned[: lead - 2], turned[lead - 2] * turned[lead - 1], *turned[lead:])
    return make.reshape(make.transpose(cut, order), merged)


def _beside_last(array: HloInstruction, dim: int) -> HloInstruction:
    """Dimension `dim` moved beside the last and merged with it."""
    rank = array.array.rank
    order = (*(d for d in range(rank - 1) if d != dim), dim, rank - 1)
    turned = make.transpose(array, order)
    dims = turned.array.dims
    return make.reshape(turned, (*dims[:-2], dims[-2] * dims[-1]))


def _edges(size: int, fold: Fold | None) -> tuple[int, int, int]:
    if fold is None:
        return 0, 0, 0
    end = fold.first + fold.step * (fold.blocks - 1) + fold.length
    return max(0, -fold.first), max(0, end - size), 0


def _strided(start: int, fold: Fold) -> tuple[int, int, int]:
    return start, start + (fold.blocks - 1) * fold.step + 1, fold.step


def unfolded(
    result: HloInstruction, folds: Sequence[Fold | None], positions: Dims, out: int
) -> HloInstruction:
    """``[batch, blocks.., counts.. * out]`` as ``[batch, positions.., out]``."""
    batch, *blocks, _ = result.array.dims
    counts = [fold.count if fold is not None else 1 for fold in folds]
    rank = len(counts)
    split = make.reshape(result, (batch, *blocks, *counts, out))
    pairs = [d for i in range(rank) for d in (1 + i, 1 + rank + i)]
    turned = make.transpose(split, (0, *pairs, 1 + 2 * rank))
    covered = tuple(b * c for b, c in zip(blocks, counts, strict=True))
    merged = make.reshape(turned, (batch, *covered, out))
    return make.slice_(merged, ((0, batch, 1), *((0, n, 1) for n in positions), (0, out, 1)))


def in_blocks(kernel: HloInstruction, dim: int, fold: Fold) -> HloInstruction:
    """``[.., taps, .., features, out]`` as ``[.., blocks, .., features, count * out]``."""
    dims = kernel.array.dims
    edges = _bounds(((0, 0, 0),) * len(dims), dim, (0, fold.blocks * fold.count - dims[dim], 0))
    whole = padded(kernel, edges)
    split = make.reshape(whole, (*dims[:dim], fold.blocks, fold.count, *dims[dim + 1 :]))
    last = len(dims)
    order = (*(d for d in range(last) if d != dim + 1), dim + 1, last)
    turned = make.transpose(split, order)
    return make.reshape(turned, (*turned.array.dims[:-2], fold.count * dims[-1]))


def summed_diagonals(product: HloInstruction, dim: int, fold: Fold, out: int) -> HloInstruction:
    """``[.., 1, .., length * batch, count * out]``, summed over what the same position meets.

    Gives ``[.., positions, .., batch, out]`` for dimension `dim`.
    """
    *spatial, rows, _ = product.array.dims
    batch, rank = rows // fold.length, len(spatial)
    split = make.reshape(product, (*spatial, fold.length, batch, fold.count, out))
    total: HloInstruction | None = None
    for number, run in enumerate(fold.runs):
        assert run is not None, "a window without base dilation meets something everywhere"
        last = run.element + (run.size - 1) * run.element_step
        bounds = [(0, n, 1) for n in split.array.dims]
        bounds[rank] = (run.element, last + 1, run.element_step)
        bounds[rank + 2] = (number, number + 1, 1)
        part = make.slice_(split, tuple(bounds))
        total = part if total is None else emit(product, "add", part.array, (total, part))
    assert total is not None
    flat = make.reshape(total, (*spatial, total.array.dims[rank], batch, out))
    order = [*range(rank), rank + 1, rank + 2]
    order[dim] = rank  # in the place of the dimension of size 1
    kept = make.transpose(flat, (*order[:rank], dim, rank + 1, rank + 2))
    return make.reshape(kept, (*kept.array.dims[:rank], batch, out))


def padded(operand: HloInstruction, padding: Padding) -> HloInstruction:
    """The operand with zeros around and between its elements."""
    if all(p == (0, 0, 0) for p in padding):
        return operand
    dims = tuple(
        low + high + n + (n - 1) * inner
        for n, (low, high, inner) in zip(operand.array.dims, padding, strict=True)
    )
    zero = make.constant(operand, operand.array.dtype, 0)
    shape = operand.array.with_dims(dims)
    return emit(operand, "pad", shape, (operand, zero), {"padding": padding})


def _joined(parts: list[HloInstruction], dim: int) -> HloInstruction:
    if len(parts) == 1:
        return parts[0]
    dims = parts[0].array.dims
    shape = parts[0].array.with_dims(_with(dims, dim, sum(p.array.dims[dim] for p in parts)))
    return emit(parts[0], "concatenate", shape, parts, {"dimensions": (dim,)})


def _with(dims: Dims, dim: int, size: int) -> Dims:
    return (*dims[:dim], size, *dims[dim + 1 :])


def _bounds(
    dims: tuple[int, ...] | Padding, dim: int, chosen: tuple[int, int, int]
) -> tuple[tuple[int, int, int], ...]:
    """Whole dimensions (sizes, or paddings as they are), and `chosen` for one of them."""
    whole = [(0, n, 1) if isinstance(n, int) else n for n in dims]
    whole[dim] = chosen
    return tuple(whole)
