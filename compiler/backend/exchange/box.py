"""Groups that are boxes of a slice's network: rings along each axis, and colours that use all axes at once.

A group is a box when its chips are all those of some columns, rows and layers, and its ranks count them
along each axis with one stride. A collective then goes along one axis after another. Its data is cut
into *colours*, one for each axis, which take the axes in different orders: while one goes along x the
other goes along y, so all links carry data. A line without a way home is a folded ring: out over every
other chip, back over those left out; its links carry two transfers each, which is as fast as a line gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from math import prod

import numpy as np

from compiler.backend.exchange.plan import ExchangePlan
from compiler.hlo.replica_groups import Groups
from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Route
from tpu_sim.isa.timing import route_cost
from tpu_sim.isa.torus import I64, Slice

DIRECTIONS = (1, -1)
_PARTS = 192
"""Of a block, which colours share: halves, thirds and quarters of them are whole, down to one of
192."""


@dataclass(frozen=True)
class BoxAxis:
    """One axis of the groups: rings of `size` cores, whose neighbours differ by `stride` in rank.

    `order` are the coordinates along a ring, `routes` the ways to the next core and to the one before.
    """

    size: int
    stride: int
    order: tuple[int, ...]
    routes: tuple[Route, Route]

    @property
    def directions(self) -> tuple[int, ...]:
        """The ways round: between two cores there is one link each way, which both would share."""
        return (0,) if self.size == 2 else (0, 1)

    def cycles(self, size_bytes: int, chip: Chip) -> int:
        """Until that many bytes are at the next core."""
        cost = route_cost(self.routes[0], chip, is_flag=False)
        return cost.cycles(size_bytes) + cost.latency


@dataclass(frozen=True)
class ExchangeBox:
    """What all groups have in common; `places[core]` is its place in the ring of each axis."""

    axes: tuple[BoxAxis, ...]
    places: tuple[tuple[int, ...], ...]

    def ranks_along(self, number: int, by: int = 0) -> I64:
        """For every core what an axis contributes to the rank of the core so many places on in its ring."""
        axis = self.axes[number]
        order = np.array(axis.order, np.int64) * axis.stride
        ranks: I64 = order[(self._places[:, number] + by) % axis.size]
        return ranks

    @cached_property
    def _places(self) -> I64:
        return np.array(self.places, np.int64).reshape(-1, len(self.axes))

    def route_numbers(self, plan: ExchangePlan) -> list[tuple[int, int]]:
        """The numbers of each axis' routes in the program."""
        return [tuple(map(plan.number_of, axis.routes)) for axis in self.axes]  # type: ignore[misc]


@dataclass(frozen=True)
class Colour:
    """A part of each slot, granules `first` to `end`, which goes along `order`."""

    order: tuple[int, ...]
    first: int
    end: int


def colours(box: ExchangeBox, granules: int) -> list[Colour]:
    """Parts of slots of that many granules, and orders, with which a gather of all takes least."""
    axes = tuple((axis.size, axis.routes[0].load / len(axis.directions)) for axis in box.axes)
    orders, shares = _cheapest(axes)
    ends = [round(granules * sum(shares[: k + 1]) / sum(shares)) for k in range(len(orders))]
    firsts = [0, *ends[:-1]]
    parts = [Colour(*part) for part in zip(orders, firsts, ends, strict=True)]
    return [part for part in parts if part.end > part.first]


Orders = tuple[tuple[int, ...], ...]
Shares = tuple[int, ...]


def along_axes(orders: Sequence[Sequence[int]], run: Callable[[int, int, float], float]) -> float:
    """Let each colour go along its axes, one after another, each axis taken by one colour at a time; a
    large block would keep others' small ones waiting. `run` is given colour, phase and start, and
    returns the end. The end of all."""
    ready, done, free = [0.0] * len(orders), [0] * len(orders), dict[int, float]()
    left = list(range(len(orders)))

    def begin(colour: int) -> float:
        return max(ready[colour], free.get(orders[colour][done[colour]], 0.0))

    while left:
        colour = min(left, key=lambda c: (begin(c), done[c], c))
        end = run(colour, done[colour], begin(colour))
        ready[colour] = free[orders[colour][done[colour]]] = end
        done[colour] += 1
        left = [c for c in left if done[c] < len(orders[c])]
    return max(ready)


@cache
def _cheapest(axes: tuple[tuple[int, float], ...]) -> tuple[Orders, Shares]:
    """An order for each colour and whole parts, for axes of a size and a load of their links each."""
    found = []
    for orders in _orders(len(axes)):
        times = [_unit_times(axes, order) for order in orders]
        found.append((*_shares(orders, times), orders))
    _, shares, orders = min(found, key=lambda entry: entry[0])
    return orders, shares


def _orders(count: int) -> Iterator[Orders]:
    """For each colour the axes in the order of a gather: a colour's last, along which it sends most, is no
    other one's. First those of which no two take an axis at the same time."""
    last = [(colour - 1) % count for colour in range(count)]
    yield tuple(tuple((colour + k) % count for k in range(count)) for colour in range(count))
    yield from product(
        *(
            [(*first, end) for first in permutations([k for k in range(count) if k != end])]
            for end in last
        )
    )


def _unit_times(axes: Sequence[tuple[int, float]], order: Sequence[int]) -> list[float]:
    """What each phase of a gather takes of one granule of every slot, on links of rate 1."""
    gathered, times = 1, []
    for number in order:
        size, load = axes[number]
        times.append((size - 1) * gathered * load)
        gathered *= size
    return times


def _shares(orders: Orders, times: Sequence[Sequence[float]]) -> tuple[float, Shares]:
    """What all takes at least, and whole parts of `_PARTS`, one for each colour, for that: from equal ones
    on, parts go from one colour to another while that helps."""

    def total(shares: Sequence[int]) -> float:
        return along_axes(orders, lambda c, phase, start: start + shares[c] * times[c][phase])

    count = len(orders)
    best = tuple(_PARTS // count + (k < _PARTS % count) for k in range(count))
    least, step = total(best), _PARTS // 4
    while step:
        trials = [
            tuple(share + step * ((k == to) - (k == of)) for k, share in enumerate(best))
            for of, to in permutations(range(count), 2)
            if best[of] >= step
        ]
        found = min(((total(trial), trial) for trial in trials), default=(least, best))
        if found[0] < least:
            least, best = found
        else:
            step //= 2
    return least, best


def box_of(cores: Slice, groups: Groups) -> ExchangeBox | None:
    """The box that every group is; None if one is none, or lies otherwise than the first."""
    if len(set(cores.chips)) < len(cores.chips):
        return None  # two cores of a chip are no neighbours along an axis
    found = [_coordinates(cores, group) for group in groups]
    if found[0] is None or any(other is None for other in found):
        return None
    sizes, strides, _ = found[0]
    if any(other is None or other[:2] != (sizes, strides) for other in found):
        return None
    orders = [_ring_order(cores, axis, size) for axis, size in sizes]
    rings = [{coordinate: place for place, coordinate in enumerate(order)} for order in orders]
    places: list[tuple[int, ...]] = [()] * len(cores.chips)
    for other in found:
        assert other is not None
        for core, coordinates in other[2].items():
            places[core] = tuple(ring[k] for ring, k in zip(rings, coordinates, strict=True))
    axes = []
    for number, ((_, size), stride, order) in enumerate(zip(sizes, strides, orders, strict=True)):
        ways = [_targets(groups, places, number, size, step) for step in DIRECTIONS]
        beside = ways if size > 2 else ways[:1]
        routes = [cores.route(way, beside, 2 * number + port) for port, way in enumerate(ways)]
        axes.append(BoxAxis(size, stride, order, (routes[0], routes[1])))
    return ExchangeBox(tuple(axes), tuple(places))


_Found = tuple[tuple[tuple[int, int], ...], tuple[int, ...], dict[int, tuple[int, ...]]]


def _coordinates(cores: Slice, group: Sequence[int]) -> _Found | None:
    """Long axes with their sizes, the strides of ranks along them, and each core's coordinates."""
    chips = [cores.torus.coordinates(cores.chips[core]) for core in group]
    spans = [sorted({place[axis] for place in chips}) for axis in range(3)]
    if prod(map(len, spans)) != len(group):
        return None
    sizes = tuple((axis, len(span)) for axis, span in enumerate(spans) if len(span) > 1)
    at = {
        tuple(spans[axis].index(place[axis]) for axis, _ in sizes): rank
        for rank, place in enumerate(chips)
    }
    zero = (0,) * len(sizes)
    strides = tuple(at[(*zero[:k], 1, *zero[k + 1 :])] - at[zero] for k in range(len(sizes)))
    if any(at[place] != sum(map(_times, place, strides)) for place in at):
        return None
    return sizes, strides, {group[rank]: place for place, rank in at.items()}


def _times(a: int, b: int) -> int:
    return a * b


def _ring_order(cores: Slice, axis: int, size: int) -> tuple[int, ...]:
    if cores.torus.wraps[axis] and cores.torus.dims[axis] == size:
        return tuple(range(size))
    return (*range(0, size, 2), *reversed(range(1, size, 2)))


def _targets(
    groups: Groups, places: Sequence[tuple[int, ...]], axis: int, size: int, step: int
) -> list[int]:
    targets = [-1] * len(places)
    for group in groups:
        at = {places[core]: core for core in group}
        for place, core in at.items():
            targets[core] = at[(*place[:axis], (place[axis] + step) % size, *place[axis + 1 :])]
    return targets
