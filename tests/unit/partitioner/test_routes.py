"""Routes between cuts: the cheapest sequence of moves, looked for no further than a bound."""

from __future__ import annotations

import itertools
import math

import pytest

from compiler.partitioner.grid import Cut, Grid
from compiler.partitioner.moves import Router

GRID = Grid((2, 2, 2))
DIMS = (16, 24)
CUTS = [
    Cut((a, b), partial)
    for a, b, partial in [
        ((), (), ()),
        ((0,), (), ()),
        ((0, 1), (2,), ()),
        ((2, 1), (0,), ()),
        ((), (0, 1, 2), ()),
        ((1,), (), (0, 2)),
        ((), (2,), (0,)),
    ]
]


def test_a_gather_sends_what_is_missing() -> None:
    cost = Router(GRID).cost(DIMS, 4, (Cut(((0, 1, 2), ())),), Cut.whole(2))
    assert cost == pytest.approx(16 * 24 * 4 * 7 / 8, abs=8)


@pytest.mark.parametrize(("start", "goal"), list(itertools.permutations(CUTS, 2)))
def test_a_bound_ends_a_search_that_goes_on_later(start: Cut, goal: Cut) -> None:
    if goal.partial:
        return
    exact = Router(GRID).cost(DIMS, 4, (start,), goal)
    router = Router(GRID)
    for most in (0.0, exact / 3, math.nextafter(exact, 0)):
        if most < exact:
            assert most < router.cost(DIMS, 4, (start,), goal, most) <= exact
    assert router.cost(DIMS, 4, (start,), goal, exact) == exact
    cost, _, moves = router.route(DIMS, 4, (start,), goal)
    assert cost == exact
    assert moves[-1].after == goal


def test_the_nearest_start_is_taken() -> None:
    starts = (Cut(((0,), ())), Cut(((), (0, 1))))
    _, start, moves = Router(GRID).route(DIMS, 4, starts, Cut(((), (0, 1, 2))))
    assert (start, [move.kind for move in moves]) == (1, ["cut"])
