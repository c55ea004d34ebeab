"""How a convolution may be folded, and what that takes: blocks along its dimensions, and how what a
block reads comes to lie along the features.

    gather    side by side, by a kernel of its own: elements of several blocks are written for each
    cut       an image of one feature is cut into rows, as long as one block is beyond another; a block
              reads a few rows one after another, and no element is written twice
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from compiler.hlo.attributes import WindowDim
from compiler.passes.convolution_estimate import (
    ConvSizes,
    band_cycles,
    convolution_cycles,
    moved_bytes,
    movement_cycles,
    turned_movement_cycles,
)
from compiler.passes.convolution_folds import Fold, fold_of
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

COUNTS = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 42)
"""Positions of a block that are tried: small ones, and about doubling up to 42, of which three features
(colours) fill 126 of 128 lanes. A finer list finds hardly cheaper plans and costs compile time (assumed)."""
MOST_PIECES = 40
"""Slices that a gathered image is made of."""
_MOST_ROWS = 16
"""Positions of a block of the last dimension, which become rows again."""
_CUT_COUNTS = (1, *COUNTS, 64, 128)
"""Positions of a block where an image is cut into rows of its steps: blocks may be whole registers."""


@dataclass(frozen=True)
class Plan:
    """Folds by spatial dimension, those that are gathered, and the one that is cut into rows."""

    folds: tuple[Fold | None, ...]
    gathers: tuple[bool, ...]
    cut: int | None = None

    @property
    def gathered(self) -> tuple[Fold | None, ...]:
        """The folds that are gathered, None elsewhere."""
        return tuple(f if g else None for f, g in zip(self.folds, self.gathers, strict=True))


def phase_folds(sizes: ConvSizes) -> tuple[Fold | None, ...]:
    """Dilated dimensions in blocks that have each phase once."""
    return tuple(
        fold_of(d, n, d.base_dilation // math.gcd(d.base_dilation, d.stride))
        if d.base_dilation > 1
        else None
        for d, n in zip(sizes.window, sizes.positions, strict=True)
    )


def plans(sizes: ConvSizes) -> Iterator[Plan]:
    """Phases of dilated dimensions, alone and with one dimension in larger blocks."""
    phases = phase_folds(sizes)
    rank = len(phases)
    if any(phases):
        yield Plan(phases, (False,) * rank)
    for dim, (window, positions) in enumerate(zip(sizes.window, sizes.positions, strict=True)):
        if window.size == 1 and window.base_dilation == 1:
            continue
        most = min(positions, _MOST_ROWS if dim == rank - 1 else positions)
        for count in COUNTS:
            fold = fold_of(window, positions, count) if count <= most else None
            if fold is None:
                continue
            folds = (*phases[:dim], fold, *phases[dim + 1 :])
            yield Plan(folds, (False,) * rank)
            if fold.length <= MOST_PIECES:
                yield Plan(folds, tuple(d == dim for d in range(rank)))
        if sizes.features == 1:
            yield from _cut_plans(window, positions, dim, phases)


def _cut_plans(
    window: WindowDim, positions: int, dim: int, phases: tuple[Fold | None, ...]
) -> Iterator[Plan]:
    """Blocks of one dimension that are rows of the image, of a register's lanes at least."""
    for count in _CUT_COUNTS:
        fold = fold_of(window, positions, count) if count <= positions else None
        if fold is not None and fold.blocks > 1 and fold.step >= LANES:
            folds = (*phases[:dim], fold, *phases[dim + 1 :])
            yield Plan(folds, (False,) * len(phases), dim)


def plan_cycles(sizes: ConvSizes, plan: Plan, chip: Chip) -> float:
    """Cycles of gathering, of the folded convolution and of unfolding its result."""
    image, features, along, total = sizes.image, sizes.features, sizes.along, 0.0
    if any(plan.gathers):
        kept = tuple(
            n if fold is None else fold.blocks for n, fold in zip(image, plan.gathered, strict=True)
        )
        length = math.prod(f.length for f in plan.gathered if f is not None)
        rows = sizes.batch * math.prod(kept)
        written = moved_bytes(rows, length * features, sizes.item_bytes)
        total += gathering_cycles(sizes, plan.gathered, rows, length, written, chip)
        image, features, along = kept, length * features, None
    if plan.cut is not None:
        fold = plan.folds[plan.cut]
        assert fold is not None
        image = (*image[: plan.cut], fold.blocks + fold.following, *image[plan.cut + 1 :])
        total += _cutting_cycles(sizes, plan.cut, fold.step, math.prod(image), chip)
        features, along = fold.step * features, None
    window = windows(plan, sizes.window, sizes.image)
    counts = math.prod(fold.count for fold in plan.folds if fold is not None)
    positions = tuple(
        n if fold is None else fold.blocks
        for n, fold in zip(sizes.positions, plan.folds, strict=True)
    )
    folded = replace(
        sizes, image=image, features=features, window=window, positions=positions,
        out=counts * sizes.out, is_result_made=True, along=along,
    )  # fmt: skip
    read = moved_bytes(folded.rows, folded.out, sizes.item_bytes)
    written = moved_bytes(sizes.rows, sizes.out, sizes.item_bytes)
    pieces = sizes.rows / SUBLANES * -(-sizes.out // LANES)
    unfolding = movement_cycles(read, written, pieces, chip)
    band = band_cycles(folded.taps * folded.features, folded.out, sizes.out, chip)
    return total + band + convolution_cycles(folded, chip) + unfolding


def gathering_cycles(
    sizes: ConvSizes, folds: Sequence[Fold | None], rows: int, length: int, written: int, chip: Chip
) -> float:
    """Cycles of a kernel that writes so many rows and bytes of a gathered image.

    One that lies along a dimension without a fold is turned as it is gathered, any other before.
    """
    features = sizes.features
    if sizes.along is not None and folds[sizes.along] is None:
        minor = sizes.image[sizes.along]
        blocks = rows // minor * -(-minor // LANES) * -(-length * features // LANES)
        return turned_movement_cycles(sizes.image_bytes, written, blocks, chip)
    count = sizes.batch * math.prod(sizes.image)
    read = moved_bytes(count, features, sizes.item_bytes)
    pieces = rows / SUBLANES * length * -(-features // LANES)
    turning = 0.0
    if sizes.along is not None:
        turning = movement_cycles(sizes.image_bytes, read, 0, chip)
    return turning + movement_cycles(read, written, pieces, chip)


def _cutting_cycles(sizes: ConvSizes, dim: int, step: int, rows: int, chip: Chip) -> float:
    """Cycles of a kernel that writes an image as so many rows of a step, for each of the batch.

    Where the image lies along that dimension these are its lanes in order; whole registers stay so.
    """
    written = moved_bytes(sizes.batch * rows, step, sizes.item_bytes)
    registers = sizes.batch * rows / SUBLANES * -(-step // LANES)
    if sizes.along == dim:
        pieces = 0.0 if step % LANES == 0 else 2 * registers
    else:
        pieces = registers * min(step, LANES)
    return movement_cycles(sizes.image_bytes, written, pieces, chip)


def windows(
    plan: Plan, window: tuple[WindowDim, ...], image: tuple[int, ...]
) -> tuple[WindowDim, ...]:
    """The window of the folded convolution; kernels are turned round beforehand."""
    found = []
    pairs = zip(window, image, plan.folds, plan.gathers, strict=True)
    for dim, (d, n, fold, is_gathered) in enumerate(pairs):
        if fold is None:
            found.append(replace(d, reversal=False))
        elif dim == plan.cut:
            found.append(WindowDim(fold.following + 1))
        else:
            found.append(WindowDim(1) if is_gathered else fold.window(n))
    return tuple(found)
