"""Windows at known places as boxes of strided axes: what slices and pads can move.

x[4 i + j], i < 8, j < 2      axes of 8 (step 4) and 2 (step 1): x as [8, 4], its first two columns
x[4 i + j], i < 8, j < 6      j reaches into the next step of i: two boxes, of j < 4 and of the rest
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from compiler.analysis.affine_places import Digit, Dims, Places, Starts
from compiler.analysis.known_values import known_value
from compiler.hlo.ir import HloInstruction


@dataclass(frozen=True)
class StridedAxis:
    """Part of an operand dimension: `size` elements, `step` apart.

    `label` is the digit of the vectors' number that counts along it, or -1 - d for the extent of the
    window along dimension d.
    """

    size: int
    step: int
    label: int


@dataclass(frozen=True)
class AffineBox:
    """What is accessed of each operand dimension: from `firsts`, along axes of decreasing steps that
    do not overlap. A digit without an axis accesses the same elements again; along the axes of
    `reversed_digits` the last element comes first."""

    firsts: Dims
    axes: tuple[tuple[StridedAxis, ...], ...]
    reversed_digits: Dims

    @property
    def spans(self) -> Dims:
        """Elements of each dimension from the first to the last."""
        return tuple(span(one) for one in self.axes)

    @property
    def labels(self) -> Dims:
        """Of all axes, in order."""
        return tuple(axis.label for one in self.axes for axis in one)


@dataclass(frozen=True)
class AxisCut:
    """The elements `begin` to `end` of the axis `label`."""

    label: int
    begin: int
    end: int


@dataclass(frozen=True)
class BoxedWindows:
    """Windows at places whose accesses are a box. `cuts` led to them, each within the one before."""

    places: Places
    windows: Dims
    box: AffineBox
    cuts: tuple[AxisCut, ...] = ()

    @property
    def sizes(self) -> Dims:
        """Of all digits, then of the windows along all dimensions."""
        return (*(digit.size for digit in self.places.digits), *self.windows)

    def place(self, label: int) -> int:
        """Which of `sizes` belongs to an axis."""
        return label if label >= 0 else len(self.places.digits) - 1 - label


def span(axes: Sequence[StridedAxis]) -> int:
    """Elements from the first to the last."""
    return 1 + sum(a.step * (a.size - 1) for a in axes)


def parts_of(places: Places, windows: Dims, most: int) -> list[BoxedWindows] | None:
    """The windows as boxes; None if there are none, or more than `most`.

    `places` and `windows` have a component per dimension of the operand.
    """
    box = _box(places, windows)
    if box is None:
        return None
    overlap = _overlap(box)
    if overlap is None:
        return [BoxedWindows(places, windows, box)]
    label, step = overlap
    size = windows[-1 - label] if label < 0 else places.digits[label].size
    if step < 1 or -(-size // step) > most:
        return None
    found: list[BoxedWindows] = []
    for begin in range(0, size, step):
        cut = AxisCut(label, begin, min(begin + step, size))
        inner = parts_of(*_cut(places, windows, cut), most)
        if inner is None or len(found) + len(inner) > most:
            return None
        found += [replace(part, cuts=(cut, *part.cuts)) for part in inner]
    return found


def _box(places: Places, windows: Dims) -> AffineBox | None:
    """The axes of every dimension; None where one digit moves along two."""
    firsts = list(places.first)
    axes: list[list[StridedAxis]] = [[] for _ in windows]
    turned: list[int] = []
    for number, digit in enumerate(places.digits):
        moved = [d for d, step in enumerate(digit.steps) if step]
        if len(moved) > 1:
            return None
        for dim in moved:
            step = digit.steps[dim]
            if step < 0:
                firsts[dim] += step * (digit.size - 1)
                turned.append(number)
            axes[dim].append(StridedAxis(digit.size, abs(step), number))
    for dim, window in enumerate(windows):
        if window > 1:
            axes[dim].append(StridedAxis(window, 1, -1 - dim))
    ordered = tuple(tuple(sorted(one, key=lambda a: -a.step)) for one in axes)
    return AffineBox(tuple(firsts), ordered, tuple(turned))


def _overlap(box: AffineBox) -> tuple[int, int] | None:
    """An axis that reaches into the next step of another, and how much of it does not."""
    for axes in box.axes:
        for number, lead in enumerate(axes[:-1]):
            rest = axes[number + 1 :]
            if lead.step < span(rest):
                return rest[0].label, (lead.step - span(rest[1:])) // rest[0].step + 1
    return None


def _cut(places: Places, windows: Dims, cut: AxisCut) -> tuple[Places, Dims]:
    first, digits = list(places.first), list(places.digits)
    if cut.label < 0:
        dim = -1 - cut.label
        first[dim] += cut.begin
        windows = (*windows[:dim], cut.end - cut.begin, *windows[dim + 1 :])
    else:
        steps = digits[cut.label].steps
        first = [at + cut.begin * step for at, step in zip(first, steps, strict=True)]
        digits[cut.label] = Digit(cut.end - cut.begin, steps)
    return Places(tuple(first), tuple(digits)), windows


def known_starts(
    indices: HloInstruction,
    vector_dim: int,
    index_map: Dims,
    batches: tuple[Dims, Dims],
    rank: int,
) -> Starts | None:
    """Where every window of a gather or scatter starts in its operand, [vectors, rank]; None if it
    is not known. `batches` are batch dimensions of the operand, and those of the indices."""
    values = known_value(indices)
    if values is None or not values.size or not indices.array.dtype.is_integer:
        return None
    if values.dtype == np.uint64:
        values = np.minimum(values, np.uint64(1 << 62))
    if vector_dim == values.ndim:
        values = values[..., None]
    vectors = np.moveaxis(values, vector_dim, -1).astype(np.int64)
    starts = np.zeros((*vectors.shape[:-1], rank), np.int64)
    for component, dim in enumerate(index_map):
        starts[..., dim] = vectors[..., component]
    for dim, numbered in zip(*batches, strict=True):
        place = numbered - (numbered > vector_dim)
        shape = [-1 if d == place else 1 for d in range(vectors.ndim - 1)]
        starts[..., dim] = np.arange(vectors.shape[place]).reshape(shape)
    return starts.reshape(-1, rank)
