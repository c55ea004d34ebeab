"""How an array gets from one cut to another: the cheapest short sequence of moves.

    gather     the last axes of a dimension are gone: all-gather
    exchange   the last axes of a dimension cut another one instead: all-to-all
    cut        further axes cut a dimension: each device keeps a part of what it has
    permute    the same tiles lie elsewhere: collective-permute
    reduce     partial sums become sums: all-reduce
    scatter    partial sums become tiles of sums: reduce-scatter
    mask       a sum becomes partial ones: the first device has it, the others zeros

Costs are bytes that a device sends by the ring formulas, and a little for each message: exchanges pack
what has few lanes, so that no padding is sent.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from compiler.partitioner.grid import Axes, Cut, Dims, Grid

_LAUNCH = 8.0
"""Bytes that the start of a collective counts for: of ways that send alike, the one of fewer moves is
taken (assumed)."""
_MOST_STATES = 600
"""Cuts from which on only ways straight to the goal are looked at: the search is to stay short
(assumed)."""


@dataclass(frozen=True)
class Move:
    """One step: `axes` of dimension `dim` (to dimension `other`), and the cut after it."""

    kind: str
    after: Cut
    dim: int = 0
    axes: Axes = ()
    other: int = 0


Route: TypeAlias = tuple[float, int, tuple[Move, ...]]
"""What it costs, from which start, and its moves."""


@dataclass
class Router:
    """Finds routes, and remembers them."""

    grid: Grid
    _known: dict[object, _Search] = field(default_factory=dict)

    def route(self, dims: Dims, width: int, starts: tuple[Cut, ...], goal: Cut) -> Route:
        """To `goal` for an array of `dims` of `width` bytes each."""
        goal = goal.normal()
        if goal in starts:
            return 0.0, starts.index(goal), ()
        route = self._search(dims, width, starts, goal).route(math.inf)
        assert route is not None
        return route

    def cost(
        self, dims: Dims, width: int, starts: tuple[Cut, ...], goal: Cut, most: float = math.inf
    ) -> float:
        """The cost of the route; where that is more than `most`, any number that is more."""
        goal = goal.normal()
        if goal in starts:
            return 0.0
        search = self._search(dims, width, starts, goal)
        route = search.route(most)
        return route[0] if route is not None else search.least_cost

    def _search(self, dims: Dims, width: int, starts: tuple[Cut, ...], goal: Cut) -> _Search:
        key = (dims, width, starts, goal)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _Search(self.grid, dims, width, starts, goal)
        return found


class _Search:
    """Best-first search from all starts at once, as far as somebody has asked; if it grows too long, by
    way of the whole. Whoever holds less than the goal must get the rest, so nearer cuts come first."""

    def __init__(
        self, grid: Grid, dims: Dims, width: int, starts: tuple[Cut, ...], goal: Cut
    ) -> None:
        self.grid, self.dims, self.width, self.goal = grid, dims, width, goal
        self._sizes: dict[tuple[Axes, ...], int] = {}
        self._goal_bytes = self._bytes(goal)
        self._number = itertools.count()
        self._queue: list[tuple[float, int, float, Cut, int, tuple[Move, ...]]] = []
        for index, cut in enumerate(starts):
            self._push(0.0, cut, index, ())
        self.least_cost = self._queue[0][0]
        """No route costs less."""
        self._done: set[Cut] = set()
        self._least: dict[Cut, float] = {}
        self._found: Route | None = None

    def route(self, most: float) -> Route | None:
        """The route; None where it costs more than `most`."""
        if self._found is None and self.least_cost <= most:
            self._go_on(most)
        found = self._found
        return found if found is not None and found[0] <= most else None

    def _go_on(self, most: float) -> None:
        queue, done, least = self._queue, self._done, self._least
        while queue:
            self.least_cost, _, cost, cut, index, path = queue[0]
            if self.least_cost > most:
                return
            heapq.heappop(queue)
            if cut == self.goal:
                self._found = cost, index, path
                return
            if cut in done:
                continue
            done.add(cut)
            for move in self._moves(cut, is_direct=len(done) > _MOST_STATES):
                after = move.after
                if after in done:
                    continue
                total = cost + self._cost(cut, move)
                if total < least.get(after, math.inf):
                    least[after] = total
                    self._push(total, after, index, (*path, move))
        raise AssertionError(f"no way to {self.goal}")

    def _push(self, cost: float, cut: Cut, start: int, path: tuple[Move, ...]) -> None:
        rest = max(0, self._goal_bytes - self._bytes(cut))
        heapq.heappush(self._queue, (cost + rest, next(self._number), cost, cut, start, path))

    def _bytes(self, cut: Cut) -> int:
        """Bytes of a device's part."""
        found = self._sizes.get(cut.dims)
        if found is None:
            found = self.width * math.prod(self.grid.local(self.dims, cut))
            self._sizes[cut.dims] = found
        return found

    def _cost(self, cut: Cut, move: Move) -> float:
        n = self.grid.count(move.axes)
        share = (n - 1) / n
        if move.kind in ("cut", "mask"):
            return 0.001
        if move.kind == "gather":
            return _LAUNCH + self._bytes(move.after) * share
        if move.kind == "reduce":
            return _LAUNCH + 2 * self._bytes(cut) * share
        if move.kind in ("exchange", "scatter"):
            return _LAUNCH + self._bytes(cut) * share
        return _LAUNCH + self._bytes(cut)

    def _moves(self, cut: Cut, *, is_direct: bool) -> Iterator[Move]:
        rest = tuple(axis for axis in cut.partial if axis not in self.goal.partial)
        if rest:
            yield from self._reductions(cut, rest)
            return
        if self.goal.partial:
            yield from self._masks(cut)
        for dim, axes in enumerate(cut.dims):
            for keep in range(len(axes)):
                if (keep == 0 or not is_direct) and self._fits(dim, axes[:keep], axes[keep:]):
                    after = cut.with_dim(dim, axes[:keep]).normal()
                    yield Move("gather", after, dim, axes[keep:])
        yield from self._cuts(cut)
        if not is_direct and not cut.partial:
            yield from self._exchanges(cut)
            yield from self._permutes(cut)

    def _masks(self, cut: Cut) -> Iterator[Move]:
        added = tuple(axis for axis in self.goal.partial if axis not in cut.partial)
        is_free = not any(axis in cut.used() for axis in added)
        if added and is_free and (cut.order == self.goal.order or not cut.used()):
            after = replace(cut, partial=self.goal.partial, order=self.goal.order)
            yield Move("mask", after, 0, added)

    def _size(self, dim: int, axes: Axes) -> int:
        return -(-self.dims[dim] // self.grid.count(axes))

    def _fits(self, dim: int, before: Axes, added: Axes) -> bool:
        """Whether cutting each tile along `added` makes the tiles of a cut along both."""
        whole = self._size(dim, before)
        part = self._size(dim, (*before, *added))
        return not before or whole == part * self.grid.count(added)

    def _reductions(self, cut: Cut, rest: Axes) -> Iterator[Move]:
        kept = tuple(axis for axis in cut.partial if axis not in rest)
        yield Move("reduce", replace(cut, partial=kept).normal(), 0, rest)
        for dim, axes in enumerate(cut.dims):
            goal = self.goal.dims[dim] if self.goal.order == cut.order else ()
            if goal[: len(axes)] != axes:
                continue
            run = tuple(itertools.takewhile(lambda a: a in rest, goal[len(axes) :]))
            for end in range(len(run), 0, -1):
                added = run[:end]
                if self._fits(dim, axes, added):
                    left = tuple(a for a in cut.partial if a not in added)
                    after = replace(cut.with_dim(dim, (*axes, *added)), partial=left)
                    yield Move("scatter", after, dim, added)

    def _cuts(self, cut: Cut) -> Iterator[Move]:
        if cut.order != self.goal.order and (cut.used() or cut.partial):
            return
        used = (*cut.used(), *cut.partial)
        for dim, axes in enumerate(cut.dims):
            goal = self.goal.dims[dim]
            if goal[: len(axes)] != axes:
                continue
            run = tuple(itertools.takewhile(lambda a: a not in used, goal[len(axes) :]))
            for end in range(len(run), 0, -1):
                if self._fits(dim, axes, run[:end]):
                    after = replace(cut.with_dim(dim, (*axes, *run[:end])), order=self.goal.order)
                    yield Move("cut", after, dim, run[:end])

    def _exchanges(self, cut: Cut) -> Iterator[Move]:
        for dim, axes in enumerate(cut.dims):
            for keep, other in itertools.product(range(len(axes)), range(len(cut.dims))):
                moved = axes[keep:]
                count = self.grid.count((*cut.dims[other], *moved))
                if other == dim or self.grid.count(self.goal.dims[other]) % count:
                    continue
                if self._fits(dim, axes[:keep], moved) and self._fits(
                    other, cut.dims[other], moved
                ):
                    after = cut.with_dim(dim, axes[:keep])
                    after = after.with_dim(other, (*cut.dims[other], *moved))
                    yield Move("exchange", after, dim, moved, other)

    def _permutes(self, cut: Cut) -> Iterator[Move]:
        """To the goal, to as much of it as has the same number of tiles, or in another order."""
        if not cut.used():
            return
        wanted = self._nearest(cut)
        if wanted is not None and wanted != cut:
            yield Move("permute", wanted)
        for dim, axes in enumerate(cut.dims):
            for keep in range(1, len(axes)):
                turned = (*axes[keep:], *axes[:keep])
                yield Move("permute", cut.with_dim(dim, turned), dim)

    def _nearest(self, cut: Cut) -> Cut | None:
        """The cut with as many tiles of each dimension whose axes are the goal's first ones."""
        dims: list[Axes | None] = []
        for axes, goal in zip(cut.dims, self.goal.dims, strict=True):
            ends = range(len(goal) + 1)
            same = [goal[:e] for e in ends if self.grid.count(goal[:e]) == self.grid.count(axes)]
            dims.append(same[0] if same else None)
        if cut.order != self.goal.order and None in dims:
            return None
        taken = {a for axes in dims if axes is not None for a in axes}
        free = [a for a in dict.fromkeys((*cut.used(), *self.goal.used())) if a not in taken]
        found: list[Axes] = []
        for axes, wanted in zip(cut.dims, dims, strict=True):
            if wanted is None:
                wanted = self._replaced(axes, free)
                if wanted is None:
                    return None
            found.append(wanted)
        return Cut(tuple(found), order=self.goal.order)

    def _replaced(self, axes: Axes, free: list[int]) -> Axes | None:
        """The same axes where they are free, others of their sizes where not; takes them."""
        found = []
        for axis in axes:
            others = [a for a in free if self.grid.sizes[a] == self.grid.sizes[axis]]
            if not others:
                return None
            chosen = axis if axis in free else others[0]
            free.remove(chosen)
            found.append(chosen)
        return tuple(found)
