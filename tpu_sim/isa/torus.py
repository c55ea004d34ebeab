"""The network of a slice: chips on a mesh or torus of links, ways between them, what links carry.

A dimension wraps around if its size is a multiple of the chip's `ici_wrap_size`, on some chips only if
every dimension is (`ici_wrap_whole`). A dimension of 2 has one link. Ways are shortest and go
along x first, then y, then z; where both directions of a ring are as short, neighbours take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Route

Coordinates = tuple[int, int, int]
Link = tuple[int, int, int]
"""A link one way: the chip it leaves, its dimension, and +1 or -1."""
Pair = tuple[int, int]


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

    def loads(self, pairs: Iterable[Pair]) -> Counter[Link]:
        """How many of the transfers between `pairs` of chips each link carries."""
        found: Counter[Link] = Counter()
        for source, target in pairs:
            found.update(self.way(source, target))
        return found

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

    def routes(self, ways: Sequence[Sequence[int]], port: int) -> list[Route]:
        """The routes of transfers that are all under way at the same time, by the targets of each."""
        loads = self._loads(ways)
        return [self._route(targets, loads, port) for targets in ways]

    def _route(self, targets: Sequence[int], loads: Counter[Link], port: int) -> Route:
        ways = [list(self.torus.way(a, b)) for a, b in self._pairs(targets)]
        load = max((loads[link] for way in ways for link in way), default=1)
        return Route(tuple(targets), max(map(len, ways), default=0), float(load), port)

    def heaviest(self, ways: Sequence[Sequence[int]]) -> int:
        """The most transfers that one link carries if all are under way at the same time."""
        return max(self._loads(ways).values(), default=1)

    def _loads(self, ways: Sequence[Sequence[int]]) -> Counter[Link]:
        return self.torus.loads(pair for targets in ways for pair in self._pairs(targets))

    def ring(self, cores: Sequence[int]) -> list[int]:
        """The cores in an order in which neighbours are near (`Torus.ring`)."""
        on_chip: dict[int, list[int]] = {}
        for core in cores:
            on_chip.setdefault(self.chips[core], []).append(core)
        return [core for chip in self.torus.ring(list(on_chip)) for core in on_chip[chip]]

    def _pairs(self, targets: Sequence[int]) -> Iterator[Pair]:
        for core, target in enumerate(targets):
            if target >= 0 and self.chips[core] != self.chips[target]:
                yield self.chips[core], self.chips[target]
