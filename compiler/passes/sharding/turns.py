"""Whose shardings spread first: where those that a program states meet, an estimate decides.

Weights that are only stored in pieces (FSDP, ZeRO) say nothing of how a program is to be computed.
Spread like any other sharding they cut features of activations, and then each product sends
activations about. Which statements are of that kind does not stand in the program. So where a program
takes much more than its share of the work with all of them at once, other orders are tried, and the
cheapest is taken:

    first    the dimensions of one size of arguments and results, as of the batch, spread first, those of
             another size next, and so on as long as that is better; the others have what is left
    stored   arguments and results that are cut spread to nothing: what is inside is whole, or as
             constraints have it
    turned   what must be whole where it is cut (rows of an FFT, of a sort) is cut along another
             dimension, and this spreads first

What a program gives priorities is left as it is, and so is what an estimate calls only a little better.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from compiler.passes.sharding.plan_cost import Pricing
from compiler.passes.sharding.whole_dims import OtherCut, other_cuts
from compiler.sharding.mesh import Axes, DimSharding, Mesh
from compiler.sharding.propagation import PropagationStep, propagate
from compiler.sharding.values import ShardedValue

_LEAST_LOSS = 200_000
"""Cycles beyond an even share of the work that are not worth a second look (assumed)."""
_EVEN = 1.5
"""Nor is a plan that takes so many times the even share at most (assumed)."""
_BETTER = 0.85
"""What another plan may cost at most of the first one's, the estimate being rough (assumed)."""
_MOST_SIZES = 4
"""Sizes of dimensions that are tried, those of the arrays of the fewest bytes first (assumed)."""
_MOST_TURNS = 3
"""How many sizes may have a turn of their own (assumed)."""
_MOST_TURNED = 2
"""How many dimensions are tried instead of one that must be whole (assumed)."""
_STORED_SHARE = 0.4
"""Of HBM that stored arrays may take as a whole (assumed)."""


@dataclass
class _State:
    """What propagation changes of the values."""

    axes: list[list[Axes]]
    is_open: list[list[bool]]
    waiting: list[dict[int, list[tuple[int, DimSharding]]]]
    meshes: list[Mesh | None]

    @staticmethod
    def of(values: Sequence[ShardedValue]) -> _State:
        return _State(
            [list(v.axes) for v in values],
            [list(v.is_open) for v in values],
            [dict(v.waiting) for v in values],
            [v.mesh for v in values],
        )

    def restore(self, values: Sequence[ShardedValue]) -> None:
        for at, value in enumerate(values):
            value.axes, value.is_open = list(self.axes[at]), list(self.is_open[at])
            value.waiting = dict(self.waiting[at])
            value.mesh = self.meshes[at]


def propagate_best(
    steps: Sequence[PropagationStep],
    values: Sequence[ShardedValue],
    borders: Sequence[ShardedValue],
    pricing: Callable[[], Pricing],
) -> tuple[int, str]:
    """Spread shardings, in the best of some ways; returns how often a value gained some, and the way.

    `borders` are the values of arguments and results whose shardings the signature states.
    """
    start = _State.of(values)
    changes = propagate(steps, values)
    cut = [value for value in borders if any(value.axes)]
    if any(start.waiting) or not cut:
        return changes, ""
    prices = pricing()
    first = prices.cost()
    if first.total < _LEAST_LOSS + _EVEN * prices.whole_work() / prices.devices:
        return changes, ""
    search = _Search(steps, values, cut, prices, start)
    search.least, search.found = first.total * _BETTER, changes
    search.run()
    search.end.restore(values)
    return search.found, search.way


class _Search:
    """Tries orders: `end` is the state after the best one, at first that of all at once, `way` its name,
    `found` how often a value gained something, and `least` what another must stay below."""

    found: int
    least: float

    def __init__(
        self,
        steps: Sequence[PropagationStep],
        values: Sequence[ShardedValue],
        cut: Sequence[ShardedValue],
        prices: Pricing,
        start: _State,
    ) -> None:
        self.steps, self.values, self.cut = steps, values, cut
        self.prices, self.start = prices, start
        self.way = ""
        self.end = _State.of(values)
        self._others = other_cuts(steps, _MOST_TURNED)
        start.restore(values)
        self._kept = [list(value.axes) for value in cut]

    def run(self) -> None:
        """Try them."""
        if sum(map(self._size, self.cut)) <= _STORED_SHARE * self.prices.chip.hbm_bytes:
            self._try("stored", self._stored)
        for at, cuts in enumerate(self._others):
            name = f"dimensions beside what must be whole ({at + 1})"
            self._try(name, partial(self._turned, cuts))
        sizes = self._sizes()
        turns: tuple[int, ...] = ()
        while len(turns) < min(_MOST_TURNS, len(sizes) - 1):
            better = None
            for size in sizes:
                order = (*turns, size)
                name = " and then ".join(f"dimensions of {one}" for one in order)
                if size not in turns and self._try(name, partial(self._in_turns, order)):
                    better = order
            if better is None:
                return
            turns = better

    def _try(self, name: str, spread: Callable[[], int]) -> bool:
        """Whether this is the best so far."""
        self.start.restore(self.values)
        found = spread()
        total = self.prices.cost(self.least).total
        if total >= self.least:
            return False
        self.least, self.way, self.found = total, name, found
        self.end = _State.of(self.values)
        return True

    def _stored(self) -> int:
        for value in self.cut:
            value.axes, value.is_open = [()] * len(value.dims), [False] * len(value.dims)
        found = propagate(self.steps, self.values)
        for value, axes in zip(self.cut, self._kept, strict=True):
            value.axes = list(axes)
        return found

    def _turned(self, cuts: Sequence[OtherCut]) -> int:
        """Spread other cuts of what must be whole, then all shardings."""
        for cut in cuts:
            cut.apply()
        self._wait(lambda _: 1)
        return propagate(self.steps, self.values)

    def _in_turns(self, order: tuple[int, ...]) -> int:
        """Spread shardings, those of dimensions of these sizes before all others', in this order."""
        self._wait(lambda size: [*order, size].index(size))
        return propagate(self.steps, self.values)

    def _wait(self, turn_of: Callable[[int], int]) -> None:
        """Let the shardings of arguments and results count in a turn that the size of the dimension gives."""
        for value in self.cut:
            for dim, axes in enumerate(value.axes):
                turn = turn_of(value.dims[dim])
                if axes and turn:
                    found = DimSharding(axes, value.is_open[dim], turn)
                    value.waiting.setdefault(turn, []).append((dim, found))
                    value.axes[dim], value.is_open[dim] = (), False

    def _size(self, value: ShardedValue) -> int:
        return self.prices.widths[value.number] * math.prod(value.dims)

    def _sizes(self) -> list[int]:
        """The sizes of dimensions that are cut, as far as they are tried."""
        found: Counter[int] = Counter()
        for value in self.cut:
            for size in {s for s, axes in zip(value.dims, value.axes, strict=True) if axes}:
                found[size] += self._size(value)
        return sorted(found, key=lambda size: (found[size], size))[:_MOST_SIZES]
