"""The network of a slice: chips on a mesh or torus of links, ways between them, what links carry.

A dimension wraps around if its size is a multiple of the chip's `ici_wrap_size`, on some chips only if
every dimension is (`ici_wrap_whole`). A dimension of 2 has one link. Ways are shortest and go
along x first, then y, then z; where both directions of a ring are as short, neighbours take turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Route

Coordinates = tuple[int, int, int]
Link = tuple[int, int, int]
"""A link one way: the chip it leaves, its dimension, and +1 or -1."""
I64 = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_ROWS_AT_ONCE = 1 << 18
"""Transfers whose ways are counted together: enough to be quick, with few MB of arrays."""


@dataclass(frozen=True)
class Torus:
    """``dims`` chips along x, y and z; chip ``x + X * (y + Y * z)`` stands at (x, y, z)."""

    dims: Coordinates = (1, 1, 1)
    wraps: tuple[bool, bool, bool] = (False, False, False)

    @property
    def chip_count(self) -> int:
        """How many chips there are."""
        return prod(self.dims)

    def coordinates(self, chip: int) -> Coordinates:
        """Where a chip stands."""
        x, y, _ = self.dims
        return chip % x, chip // x % y, chip // (x * y)

    def chip_at(self, place: Sequence[int]) -> int:
        """The chip that stands there."""
        x, y, z = place
        return x + self.dims[0] * (y + self.dims[1] * z)

    def way(self, source: int, target: int) -> Iterator[Link]:
        """The links from one chip to another."""
        here, end = list(self.coordinates(source)), self.coordinates(target)
        parity = sum(here)
        for axis, size in enumerate(self.dims):
            ahead = (end[axis] - here[axis]) % size
            direction = 1 if end[axis] >= here[axis] else -1
            if self.wraps[axis]:
                is_even = 2 * ahead == size
                direction = 1 if 2 * ahead < size or (is_even and parity % 2 == 0) else -1
            while here[axis] != end[axis]:
                yield self.chip_at(here), axis, direction
                here[axis] = (here[axis] + direction) % size

    def distance(self, source: int, target: int) -> int:
        """Links of the shortest way."""
        total = 0
        for axis, (a, b) in enumerate(
            zip(self.coordinates(source), self.coordinates(target), strict=True)
        ):
            apart = abs(a - b)
            total += min(apart, self.dims[axis] - apart) if self.wraps[axis] else apart
        return total

    def legs(self, pairs: I64) -> Iterator[tuple[int, I64, Flags, I64]]:
        """The `way` of all rows (source, target) of `pairs` at once, a dimension at a time: which, the
        places where it begins there, whether it goes up, and how many links it takes."""
        x, y, _ = self.dims
        here, end = (
            np.stack([chip % x, chip // x % y, chip // (x * y)], axis=1) for chip in pairs.T
        )
        is_even = here.sum(axis=1) % 2 == 0
        for axis, size in enumerate(self.dims):
            ahead = (end[:, axis] - here[:, axis]) % size
            is_up = end[:, axis] >= here[:, axis]
            if self.wraps[axis]:
                is_up = (2 * ahead < size) | ((2 * ahead == size) & is_even)
            yield axis, here, is_up, np.where(is_up, ahead, -ahead % size)
            here[:, axis] = end[:, axis]

    def steps(self, pairs: I64) -> Iterator[tuple[I64, I64]]:
        """`legs` a link at a time: which rows go on, and the numbers of the links that they take (below
        `link_numbers`)."""
        x, y, _ = self.dims
        for axis, start, is_up, left in self.legs(pairs):
            here = start.copy()
            going = np.flatnonzero(left)
            while going.size:
                chips = here[going] @ np.array([1, x, x * y])
                yield going, (chips * 3 + axis) * 2 + is_up[going]
                moved = here[going, axis] + np.where(is_up[going], 1, -1)
                here[going, axis] = moved % self.dims[axis]
                left[going] -= 1
                going = going[left[going] > 0]

    def hops(self, pairs: I64) -> I64:
        """How many links the way of each row (source, target) of `pairs` takes."""
        found = np.zeros(len(pairs), np.int64)
        for _, _, _, links in self.legs(pairs):
            found += links
        return found

    @property
    def link_numbers(self) -> int:
        """How many numbers `steps` has for links, those that are not there included."""
        return self.chip_count * len(self.dims) * 2

    def loads(self, pairs: I64) -> I64:
        """How many of the transfers between `pairs` of chips each link carries, by its number."""
        found = np.zeros((*reversed(self.dims), len(self.dims), 2), np.int64)
        for axis, here, is_up, left in self.legs(pairs):
            for direction, goes in ((0, ~is_up), (1, is_up)):
                own = found[..., axis, direction]
                own += self._carried(axis, here[goes], left[goes], is_up=bool(direction))
        return found.reshape(-1)

    def _carried(self, axis: int, start: I64, left: I64, *, is_up: bool) -> I64:
        """By z, y and x of the chip that a link leaves how many of the runs of `left` links along a
        dimension it is in: each is one more from where it begins, and one fewer behind its end."""
        size = self.dims[axis]
        at = start[:, axis] if is_up else size - 1 - start[:, axis]
        dims = list(self.dims)
        dims[axis] = 2 * size  # a run round the end goes on there
        strides = np.array([1, dims[0], dims[0] * dims[1]])
        first = start @ strides + (at - start[:, axis]) * strides[axis]
        total = prod(dims)
        changes = np.bincount(first, minlength=total)
        changes -= np.bincount(first + left * strides[axis], minlength=total)
        place = 2 - axis
        counts = np.cumsum(changes.reshape(dims[::-1]), axis=place)
        inside, beyond = np.split(counts, 2, axis=place)
        carried: I64 = inside + beyond
        return carried if is_up else np.flip(carried, axis=place)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """All links, both ways of each."""
        found = []
        for chip in range(self.chip_count):
            place = self.coordinates(chip)
            for axis, size in enumerate(self.dims):
                for direction in (1, -1):
                    inside = 0 <= place[axis] + direction < size
                    if size > 1 and (inside or self.wraps[axis]):
                        found.append((chip, axis, direction))
        return tuple(found)

    @property
    def bisection_links(self) -> int:
        """Links, counted once for both ways, that the worst cut into two equal halves crosses."""
        counts = [
            self.chip_count // size * (2 if wrap else 1)
            for size, wrap in zip(self.dims, self.wraps, strict=True)
            if size > 1
        ]
        return min(counts, default=0)

    def ring(self, chips: Sequence[int]) -> list[int]:
        """The chips in an order in which neighbours, the last and the first too, are near.

        Along one dimension that is their order there; a plane with an even side has a cycle of
        single links: out along the first row, back and forth through the others.
        """
        places = [self.coordinates(chip) for chip in chips]
        spans = [sorted({place[axis] for place in places}) for axis in range(3)]
        is_box = prod(map(len, spans)) == len(chips)
        long = [axis for axis in range(3) if len(spans[axis]) > 1]
        if not is_box or len(long) != 2:
            return sorted(chips, key=lambda chip: _snake(self.coordinates(chip), spans))
        a, b = long
        if len(spans[b]) % 2 and len(spans[a]) % 2 == 0:
            a, b = b, a
        if len(spans[b]) % 2:  # both odd: no cycle of single links
            return sorted(chips, key=lambda chip: _snake(self.coordinates(chip), spans))
        return sorted(chips, key=lambda chip: _cycle(self.coordinates(chip), spans, (a, b)))


def torus_of(chip: Chip, dims: Coordinates) -> Torus:
    """The network of a slice of `dims` chips."""
    size = chip.ici_wrap_size
    fits = [n >= size and n % size == 0 for n in dims]
    if chip.ici_wrap_whole:
        fits = [all(fits)] * 3
    return Torus(dims, (fits[0], fits[1], fits[2]))


def _snake(place: Coordinates, spans: list[list[int]]) -> tuple[int, int, int]:
    """Back and forth: each step goes to a neighbour, the way home may be long."""
    x, y, z = (spans[axis].index(place[axis]) for axis in range(3))
    y = y if z % 2 == 0 else len(spans[1]) - 1 - y
    x = x if (y + z * len(spans[1])) % 2 == 0 else len(spans[0]) - 1 - x
    return z, y, x


def _cycle(place: Coordinates, spans: list[list[int]], axes: tuple[int, int]) -> tuple[int, int]:
    """Along row 0 of the second axis' columns, then back and forth through the rest of each."""
    a, b = (spans[axis].index(place[axis]) for axis in axes)
    if a == 0:
        return (0, b)
    rows = len(spans[axes[1]])
    column = rows - 1 - b
    inner = a if column % 2 == 0 else len(spans[axes[0]]) - a
    return (1 + column, inner)


@dataclass(frozen=True)
class Slice:
    """The cores that run a program together: the network, and the chip that each core is on."""

    torus: Torus
    chips: tuple[int, ...]

    def route(self, targets: Sequence[int], beside: Sequence[Sequence[int]], port: int) -> Route:
        """The route of transfers from each core to its target (-1: none).

        `beside` are the targets of the transfers that are under way at the same time, these included.
        """
        return self._route(targets, self._loads(beside), port)

    def farthest(self, ways: Sequence[Sequence[int]], port: int) -> Route:
        """The route with the most hops of transfers that are all under way, by the targets of each."""
        return self._route(max(ways, key=self.hops), self._loads(ways), port)

    def hops(self, targets: Sequence[int]) -> int:
        """Links of the longest way of transfers from each core to its target (-1: none)."""
        return int(self.torus.hops(self._pairs(targets)).max(initial=0))

    def _route(self, targets: Sequence[int], loads: I64, port: int) -> Route:
        steps = self.torus.steps(self._pairs(targets))
        load = max((int(loads[links].max()) for _, links in steps), default=0)
        return Route(tuple(targets), self.hops(targets), float(load or 1), port)

    def links_of(self, pairs: Iterable[Sequence[int]]) -> set[int]:
        """The numbers of the links that transfers between pairs of cores take."""
        chips = self._chips[np.array(list(pairs), np.int64).reshape(-1, 2)]
        steps = [links for _, links in self.torus.steps(chips)]
        return set(np.unique(np.concatenate(steps)).tolist()) if steps else set()

    def heaviest(self, ways: Sequence[Sequence[int]]) -> int:
        """The most transfers that one link carries if all are under way at the same time."""
        return int(self._loads(ways).max()) or 1

    def _loads(self, ways: Sequence[Sequence[int]]) -> I64:
        found = np.zeros(self.torus.link_numbers, np.int64)
        some = max(1, _ROWS_AT_ONCE // len(self.chips))
        for first in range(0, len(ways), some):
            pairs = [self._pairs(targets) for targets in ways[first : first + some]]
            found += self.torus.loads(np.concatenate(pairs))
        return found

    def ring(self, cores: Sequence[int]) -> list[int]:
        """The cores in an order in which neighbours are near (`Torus.ring`)."""
        on_chip: dict[int, list[int]] = {}
        for core in cores:
            on_chip.setdefault(self.chips[core], []).append(core)
        return [core for chip in self.torus.ring(list(on_chip)) for core in on_chip[chip]]

    @cached_property
    def _chips(self) -> I64:
        return np.array(self.chips, np.int64)

    def _pairs(self, targets: Sequence[int]) -> I64:
        """Rows of the chip that sends and the one that receives, of transfers that leave their chip."""
        ends = np.array(targets, np.int64)
        sends = np.flatnonzero(ends >= 0)
        pairs = np.stack([self._chips[sends], self._chips[ends[sends]]], axis=1)
        leaving: I64 = pairs[pairs[:, 0] != pairs[:, 1]]
        return leaving
