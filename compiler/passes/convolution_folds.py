"""Which elements a block of neighbouring output positions of a convolution reads: arithmetic.

Along one dimension, output position p meets with tap k the image's element q where

    q * base_dilation = p * stride + k * window_dilation - pad_low

With ``p = count * b + f`` and a count that makes ``count * stride`` a multiple of the base dilation,
block b reads elements ``step * b + first + r``, and which tap position f meets at r is the same in
every block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.hlo.attributes import WindowDim


@dataclass(frozen=True)
class Run:
    """`size` taps from `tap` on, `tap_step` apart, at elements from `element` on, `element_step`
    apart."""

    tap: int
    tap_step: int
    element: int
    element_step: int
    size: int


@dataclass(frozen=True)
class Band:
    """How taps become a band: `spacing` apart from `low` on, repeated after `period` elements; of
    rows of `row` elements, every `step`-th from `start` on.

    Row f, element e then holds what lies `period - row` elements before it in the row above.
    """

    low: int
    spacing: int
    taps_span: int
    period: int
    row: int
    start: int
    step: int


@dataclass(frozen=True)
class Fold:
    """Blocks of `count` positions along a dimension: `length` elements each, from `first` on."""

    count: int
    step: int
    first: int
    length: int
    blocks: int
    runs: tuple[Run | None, ...]
    """What each position of a block meets; None if nothing."""
    band: Band

    @property
    def following(self) -> int:
        """Blocks of a step behind a block's own that it reads elements of."""
        return 0 if self.blocks == 1 else -(-self.length // self.step) - 1

    def window(self, size: int) -> WindowDim:
        """The window that has one position a block, over an image of `size` elements."""
        high = self.step * (self.blocks - 1) + self.length - 1 + self.first - (size - 1)
        return WindowDim(self.length, self.step, -self.first, high)


def fold_of(dim: WindowDim, positions: int, count: int) -> Fold | None:
    """`positions` output positions in blocks of `count`; None if blocks would differ."""
    if count * dim.stride % dim.base_dilation or not dim.size:
        return None
    last = (count - 1) * dim.stride + (dim.size - 1) * dim.window_dilation - dim.pad_low
    first = -(dim.pad_low // dim.base_dilation)
    length = max(1, last // dim.base_dilation - first + 1)
    runs = tuple(_run(dim, f, first) for f in range(count))
    step = count * dim.stride // dim.base_dilation
    band = _band(dim, first, length)
    return Fold(count, step, first, length, -(-positions // count), runs, band)


def gradient_fold(dim: WindowDim, positions: int, count: int) -> Fold | None:
    """The taps of a window in blocks of `count`, all output positions for each; None if dilated.

    Taps and output positions change places: ``q = tap * window_dilation + p * stride - pad_low``.
    """
    if dim.base_dilation != 1:
        return None
    turned = WindowDim(positions, dim.window_dilation, dim.pad_low, 0, 1, dim.stride)
    return fold_of(turned, dim.size, count)


def _band(dim: WindowDim, first: int, length: int) -> Band:
    """Element e of a row is one of the dilated image, counted from `first`; the first row begins an
    element of the image earlier where that has to come before the first tap."""
    step = dim.base_dilation
    early = step * first + dim.pad_low  # the tap that the first element meets, in elements
    start = step if early > 0 else 0
    row = step * length + start
    span = (dim.size - 1) * dim.window_dilation + 1
    return Band(start - early, dim.window_dilation, span, row + dim.stride, row, start, step)


def _run(dim: WindowDim, position: int, first: int) -> Run | None:
    """The taps that a position of a block meets elements with, counted from `first`."""
    base = position * dim.stride - dim.pad_low
    met = [
        (tap, (base + tap * dim.window_dilation) // dim.base_dilation - first)
        for tap in range(dim.size)
        if (base + tap * dim.window_dilation) % dim.base_dilation == 0
    ]
    if not met:
        return None
    common = math.gcd(dim.base_dilation, dim.window_dilation)
    tap_step, element_step = dim.base_dilation // common, dim.window_dilation // common
    return Run(met[0][0], tap_step, met[0][1], element_step, len(met))
