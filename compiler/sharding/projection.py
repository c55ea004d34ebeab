"""Shardings seen by factors: from the dimensions of an operation's arrays to its rule, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from compiler.sharding.mesh import Axes, Axis, merged_axes
from compiler.sharding.rule import DimFactors
from compiler.sharding.values import ShardedValue


def common_prefix(a: Axes, b: Axes) -> Axes:
    """The longest list of axes with which both begin; a part of an axis may be its end."""
    found: list[Axis] = []
    for left, right in zip(a, b, strict=False):
        if left == right:
            found.append(left)
            continue
        small, large = sorted((left, right), key=lambda axis: axis.size)
        is_part = left.name == right.name and left.before == right.before
        if is_part and large.size % small.size == 0:
            found.append(small)
        break
    return tuple(found)


def product(axes: Iterable[Axis]) -> int:
    """Into how many parts the axes cut."""
    return math.prod(axis.size for axis in axes)


def without_conflicts(axes: Axes, taken: Iterable[Axes]) -> Axes:
    """The longest prefix that uses nothing of what is taken."""
    found: list[Axis] = []
    others = [axis for group in taken for axis in group]
    for axis in axes:
        left: Axis | None = axis
        for other in others:
            left = None if left is None else left.without(other)
        if left is not None:
            found.append(left)
        if left != axis:
            break
    return tuple(found)


def fitting(axes: Axes, size: int, *, is_minor: bool) -> Axes:
    """The longest prefix that can cut a factor of `size`.

    A factor with others minor to it in the same dimension must be cut evenly; an axis that is too
    large for that gives a part.
    """
    found: list[Axis] = []
    left = size
    for axis in axes:
        if is_minor:
            if product(found) * axis.size > size:
                break
            found.append(axis)
            continue
        part = math.gcd(left, axis.size)
        if part > 1:
            found.append(Axis(axis.name, axis.before, part))
            left //= part
        if part != axis.size:
            break
    return tuple(found)


@dataclass
class ArrayFactors:
    """One array of an operation: the axes of each factor, and what is left over."""

    value: ShardedValue
    mapping: DimFactors
    axes: dict[int, Axes]
    is_open: dict[int, bool]
    rest: tuple[Axes, ...]

    def taken(self, factor: int) -> Iterable[Axes]:
        """What cuts the array along other factors, or must not cut it."""
        yield from (axes for other, axes in self.axes.items() if other != factor and axes)
        yield from (axes for axes in self.rest if axes)
        yield from self.value.unusable()

    def update(self, factor: int, axes: Axes, size: int) -> bool:
        """Cut a factor by more axes, as far as this array allows; whether that was anything."""
        old = self.axes[factor]
        if not self.is_open[factor] or product(axes) <= product(old):
            return False
        places = [(d, factors) for d, factors in enumerate(self.mapping) if factor in factors]
        is_minor = all(factors[-1] == factor for _, factors in places)
        whole = min(self.value.dims[d] for d, _ in places)  # a slice has less of a factor
        free = without_conflicts(axes, self.taken(factor))
        new = fitting(free, min(size, whole), is_minor=is_minor)
        if product(new) <= product(old) or common_prefix(old, new) != old:
            return False
        self.axes[factor] = new
        return True

    def write_back(self, sizes: tuple[int, ...]) -> bool:
        """Give the dimensions the axes of their factors; whether any dimension gained some."""
        changed = False
        for dim, factors in enumerate(self.mapping):
            found: list[Axis] = []
            for factor in factors:
                found += self.axes[factor]
                if product(self.axes[factor]) != sizes[factor]:
                    break
            else:
                found += self.rest[dim]
            axes = merged_axes(found)
            if product(axes) > product(self.value.axes[dim]):
                self.value.axes[dim] = axes
                changed = True
        return changed


def project(value: ShardedValue, mapping: DimFactors, sizes: tuple[int, ...]) -> ArrayFactors:
    """The axes of each factor in one array; what fits no factor is left over."""
    by_factor: dict[int, Axes] = {}
    is_open: dict[int, bool] = {}
    rest = []
    for dim, factors in enumerate(mapping):
        remaining = value.axes[dim]
        for position, factor in enumerate(factors):
            is_last = position == len(factors) - 1
            taken = remaining if is_last else fitting(remaining, sizes[factor], is_minor=False)
            by_factor[factor] = taken
            is_open[factor] = value.is_open[dim]
            remaining = _after(remaining, taken)
            if remaining and product(taken) != sizes[factor] and not is_last:
                for other in factors[position + 1 :]:
                    by_factor[other], is_open[other] = (), False
                break
        rest.append(remaining)
    return ArrayFactors(value, mapping, by_factor, is_open, tuple(rest))


def _after(axes: Axes, taken: Axes) -> Axes:
    """What remains of a list of axes when its beginning is taken."""
    if not taken:
        return axes
    last = axes[len(taken) - 1]
    part = taken[-1]
    rest = axes[len(taken) :]
    if part.size < last.size:
        return (Axis(last.name, part.end, last.size // part.size), *rest)
    return rest
