"""The devices as a grid of prime axes, and arrays cut along those axes.

A `Cut` says for each dimension which axes cut it, major to minor; devices that differ only along
other axes hold the same data. Axis numbers count digits of a device's number from major to minor:
8 devices are a grid 2x2x2. A sharding over devices in another order is a cut of another `order`.

>>> grid = Grid.of(8, [])
>>> grid.cut(parse_sharding("{devices=[1,2,4]<=[4,2]T(1,0) last_tile_dim_replicate}"), 2)
Cut(dims=((), (2,)), partial=(), order=0)
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from compiler.hlo.iota_order import canonical_iota
from compiler.hlo.sharding import HloSharding, Tiles
from compiler.hlo.sharding_text import normalised, parse_sharding
from compiler.sharding.placement import in_tiles

__all__ = ["Axes", "Cut", "Dims", "Grid", "parse_sharding"]

UNREDUCED = "unreduced"
Axes = tuple[int, ...]
Dims = tuple[int, ...]
Devices: TypeAlias = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


@dataclass(frozen=True)
class Cut:
    """The axes of each dimension; along those of `partial` devices hold parts of a sum."""

    dims: tuple[Axes, ...]
    partial: Axes = ()
    order: int = 0

    @staticmethod
    def whole(rank: int) -> Cut:
        """The same data everywhere."""
        return Cut(((),) * rank)

    def with_dim(self, dim: int, axes: Axes) -> Cut:
        """The same with other axes in one dimension."""
        dims = (*self.dims[:dim], axes, *self.dims[dim + 1 :])
        return Cut(dims, self.partial, self.order)

    def used(self) -> Axes:
        """All axes that cut a dimension."""
        return tuple(itertools.chain(*self.dims))

    def normal(self) -> Cut:
        """What is the same on all devices has no order."""
        has_order = bool(self.used() or self.partial)
        return self if has_order or not self.order else replace(self, order=0)

    def summed(self) -> Cut:
        """The same where sums are made."""
        return replace(self, partial=()).normal() if self.partial else self


@dataclass
class Grid:
    """`sizes` of the axes; `orders[k][position]` is the device there in order k."""

    sizes: Dims
    orders: list[Dims] = field(default_factory=list)
    _counts: dict[Axes, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    @staticmethod
    def of(device_count: int, shardings: Iterable[HloSharding]) -> Grid:
        """A grid whose axes are whole parts of as many of the shardings' axes as can be."""
        ends = {1, device_count}
        for sharding in shardings:
            if sharding.tiles is None:
                continue
            for size in _ends(sharding.tiles.reshape or sharding.tiles.dims):
                wanted = sorted({*ends, size})
                if device_count % size == 0 and all(
                    b % a == 0 for a, b in itertools.pairwise(wanted)
                ):
                    ends.add(size)
        factors = [b // a for a, b in itertools.pairwise(sorted(ends))]
        sizes = tuple(p for f in factors for p in _primes(f))
        return Grid(sizes, [tuple(range(device_count))])

    @property
    def device_count(self) -> int:
        """All devices."""
        return math.prod(self.sizes)

    def count(self, axes: Axes) -> int:
        """Into how many tiles the axes cut; kept, since searches for routes ask for little else."""
        found = self._counts.get(axes)
        if found is None:
            found = self._counts[axes] = math.prod(self.sizes[a] for a in axes)
        return found

    def local(self, dims: Sequence[int], cut: Cut) -> Dims:
        """The dimensions of a device's part."""
        return tuple(-(-s // self.count(a)) for s, a in zip(dims, cut.dims, strict=True))

    def tile_index(self, axes: Axes, order: int = 0) -> Devices:
        """For every device, which tile along these axes it holds."""
        strides = [self.count(axes[i + 1 :]) for i in range(len(axes))]
        digits = self._digits()
        found = np.zeros(self.device_count, np.int64)
        for axis, stride in zip(axes, strides, strict=True):
            found += digits[axis] * stride
        result = np.zeros_like(found)
        result[list(self.orders[order])] = found
        return result

    def _digits(self) -> list[Devices]:
        ids = np.arange(self.device_count)
        return list(np.unravel_index(ids, self.sizes)) if self.sizes else []

    def groups(self, axes: Axes, order: int = 0) -> tuple[tuple[int, ...], ...]:
        """Devices that differ only along these axes, each group in the order of its tiles."""
        ids = np.array(self.orders[order]).reshape(self.sizes)
        rest = [a for a in range(len(self.sizes)) if a not in axes]
        rows = ids.transpose(*rest, *axes).reshape(-1, self.count(axes))
        return tuple(tuple(int(i) for i in row) for row in rows)

    def along(self, axes: Axes, pairs: Iterable[tuple[int, int]], order: int = 0) -> list[Dims]:
        """(source, target) devices for (source, target) tiles along the axes."""
        groups = self.groups(axes, order)
        return [(group[a], group[b]) for group in groups for a, b in pairs]

    def moves(self, before: Cut, after: Cut) -> list[Dims]:
        """(source, target) for every device, for a cut into as many tiles that lie elsewhere.

        A device takes its tile from one that agrees with it along all axes that cut neither.
        """
        fixed = tuple(
            a for a in range(len(self.sizes)) if a not in before.used() and a not in after.used()
        )
        if before.order != after.order:
            fixed = ()
        holders = self._by_tile(before, fixed)
        wanted = self._by_tile(after, fixed)
        pairs: list[Dims] = []
        for tile, targets in wanted.items():
            sources = holders[tile]
            both = [d for d in targets if d in sources]
            pairs += [(d, d) for d in both]
            left = [d for d in sources if d not in both]
            pairs += zip(left, (d for d in targets if d not in both), strict=True)
        return sorted(pairs, key=lambda pair: pair[1])

    def _by_tile(self, cut: Cut, fixed: Axes) -> dict[Dims, list[int]]:
        columns = [self.tile_index(axes, cut.order) for axes in (*cut.dims, fixed)]
        found: dict[Dims, list[int]] = {}
        for device in range(self.device_count):
            found.setdefault(tuple(int(c[device]) for c in columns), []).append(device)
        return found

    def cut(self, sharding: HloSharding, rank: int) -> Cut:
        """The cut of an array's sharding; one on a single device is computed on all of them."""
        sharding = in_tiles(sharding)
        partial = self.group_axes(sharding, rank, UNREDUCED)
        if sharding.tiles is None:
            return replace(Cut.whole(rank), partial=partial)
        axes, order = self._dealt(sharding, rank)
        return Cut(axes[:rank], partial, order).normal()

    def group_axes(self, sharding: HloSharding, rank: int, kind: str) -> Axes:
        """The axes along which devices are told apart in a way of `KINDS`."""
        sharding = in_tiles(sharding)
        if sharding.tiles is None:
            return tuple(range(len(self.sizes))) if sharding.kind == kind else ()
        if kind not in sharding.subgroups:
            return ()
        groups = zip(sharding.subgroups, self._dealt(sharding, rank)[0][rank:], strict=True)
        return tuple(sorted(axis for name, axes in groups if name == kind for axis in axes))

    def _dealt(self, sharding: HloSharding, rank: int) -> tuple[tuple[Axes, ...], int]:
        """The axes of each tile dimension, those of subgroups last (where not all of them are copies), and
        in which order of devices."""
        assert sharding.tiles is not None
        array = sharding.tiles.array()
        if array.ndim - len(sharding.subgroups) != rank:
            raise ValueError(f"sharding {sharding} does not fit an array of {rank} dimensions")
        has_groups = any(kind != "replicated" for kind in sharding.subgroups)
        found = self._axes_of(array, array.ndim if has_groups else rank)
        return (found, 0) if found is not None else self._foreign(array)

    def _axes_of(self, array: Devices, count: int) -> tuple[Axes, ...] | None:
        """The axes of each tile dimension; None when the devices are not in the grid's order."""
        where = np.empty((count, self.device_count), np.int64)
        places = np.indices(array.shape).reshape(array.ndim, -1)
        where[:, array.reshape(-1)] = places[:count]
        found = []
        for dim in range(count):
            axes = self._axes_of_index(where[dim], array.shape[dim])
            if axes is None:
                return None
            found.append(axes)
        return tuple(found)

    def _axes_of_index(self, index: Devices, count: int) -> Axes | None:
        steps = {}
        for axis in range(len(self.sizes)):
            step = int(index[math.prod(self.sizes[axis + 1 :])] - index[0])
            if step:
                steps[axis] = step
        axes = tuple(sorted(steps, key=lambda a: -steps[a]))
        if self.count(axes) != count or not np.array_equal(self.tile_index(axes), index):
            return None
        return axes

    def _foreign(self, array: Devices) -> tuple[tuple[Axes, ...], int]:
        """The axes in another order, and its number: prime axes dealt out to the tile dimensions one
        after another."""
        left = list(range(len(self.sizes)))
        dims: list[Axes] = []
        for count in array.shape:
            axes: Axes = ()
            for prime in _primes(count):
                axis = next(a for a in left if self.sizes[a] == prime)
                left.remove(axis)
                axes += (axis,)
            dims.append(axes)
        positions = sum(
            self._strided(axes, index)
            for axes, index in zip(dims, np.indices(array.shape), strict=True)
        )
        order = np.empty(self.device_count, np.int64)
        order[np.asarray(positions).reshape(-1)] = array.reshape(-1)
        known = tuple(int(d) for d in order)
        if known not in self.orders:
            self.orders.append(known)
        return tuple(dims), self.orders.index(known)

    def first_tiles(self, cut: Cut, counts: Sequence[int]) -> Cut | None:
        """The cut by the first axes of each dimension alone, which make so many tiles, in another order of
        devices if it takes one; None where the tiles are no multiple of these."""
        ends = [self._end(axes, count) for axes, count in zip(cut.dims, counts, strict=True)]
        if None not in ends:
            dims = tuple(axes[:end] for axes, end in zip(cut.dims, ends, strict=True))
            return replace(cut, dims=dims).normal()
        if any(self.count(axes) % count for axes, count in zip(cut.dims, counts, strict=True)):
            return None
        used = cut.used()
        rest = [axis for axis in range(len(self.sizes)) if axis not in used]
        split = [
            size
            for axes, count in zip(cut.dims, counts, strict=True)
            for size in (count, self.count(axes) // count)
        ]
        devices = np.array(self.orders[cut.order]).reshape(self.sizes).transpose(*used, *rest)
        dims, order = self._foreign(devices.reshape(*split, -1))
        return Cut(dims[: 2 * len(counts) : 2], (), order).normal()

    def _end(self, axes: Axes, count: int) -> int | None:
        """How many of the first axes make so many tiles; None when no number of them does."""
        ends = (end for end in range(len(axes) + 1) if self.count(axes[:end]) == count)
        return next(ends, None)

    def _strided(self, axes: Axes, index: Devices) -> Devices:
        """The position in the grid of tile `index` along the axes, all other digits zero."""
        total = np.zeros_like(index)
        rest = index
        for axis in reversed(axes):
            total += (rest % self.sizes[axis]) * math.prod(self.sizes[axis + 1 :])
            rest = rest // self.sizes[axis]
        return total

    def sharding(self, cut: Cut) -> HloSharding:
        """The cut as XLA writes it."""
        named = (*cut.used(), *cut.partial)
        rest = tuple(a for a in range(len(self.sizes)) if a not in named)
        groups = {UNREDUCED: self.count(cut.partial), "replicated": self.count(rest)}
        kinds = tuple(kind for kind, count in groups.items() if count > 1)
        if not cut.used() and len(kinds) <= 1:
            return HloSharding(kinds[0] if kinds else "replicated")
        ids = np.array(self.orders[cut.order]).reshape(self.sizes)
        order = (*named, *rest)
        array = ids.transpose(*order)
        counts = tuple(self.count(axes) for axes in cut.dims)
        tail = tuple(groups[kind] for kind in kinds)
        if cut.order == 0:
            tiles = Tiles((*counts, *tail), *canonical_iota(self.sizes, order))
        else:
            tiles = Tiles((*counts, *tail), devices=tuple(int(d) for d in array.reshape(-1)))
        return normalised(HloSharding.tiled(tiles, kinds))


def _ends(sizes: Sequence[int]) -> list[int]:
    """The products of the first sizes."""
    return [math.prod(sizes[: i + 1]) for i in range(len(sizes))]


@functools.cache
def _primes(number: int) -> Dims:
    found, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return tuple(found)
