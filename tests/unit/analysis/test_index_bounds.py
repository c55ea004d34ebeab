"""Bounds of the distance of two indices hold, and are close where the indices go together."""

from __future__ import annotations

import random

import pytest

from compiler.analysis.index_bounds import close_bounds
from compiler.analysis.indexing import Expr, Var, const, substitute, var

STEP = Var("t", 0, 1023)


def _index(rng: random.Random) -> Expr:
    """What pads, slices, tiles and reverses make of a step."""
    index = var(STEP) * rng.choice([1, 1, 2, -1]) + rng.randint(-9, 9)
    for _ in range(rng.randint(0, 3)):
        index = (index // rng.choice([2, 3, 8])) * rng.choice([1, 1, 2, 8]) + rng.randint(-5, 5)
    return index


@pytest.mark.parametrize("seed", range(200))
def test_distances_lie_within_their_bounds(seed: int) -> None:
    rng = random.Random(seed)
    distance = _index(rng) - _index(rng)
    low, high = close_bounds(distance)
    for step in (*range(0, 1024, 13), 1023):
        assert low <= substitute(distance, {STEP: const(step)}).constant <= high


@pytest.mark.parametrize(
    ("distance", "bounds"),
    [
        (var(STEP) // 2 - (var(STEP) - 1) // 2, (0, 1)),
        (((var(STEP) + 5) // 8) * 8 - var(STEP), (-2, 5)),
        ((var(STEP) // 2) // 2 - ((var(STEP) - 1) // 2 - 1) // 2, (0, 1)),
        (var(STEP) * 2 - var(STEP), (0, 1023)),
    ],
)
def test_indices_that_go_together_are_close(distance: Expr, bounds: tuple[int, int]) -> None:
    low, high = close_bounds(distance)
    assert bounds[0] - 1 <= low <= bounds[0]
    assert bounds[1] <= high <= bounds[1] + 1
