"""Which core sends to which in an exchange among groups, and over which routes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from compiler.hlo.replica_groups import Groups
from tpu_sim.isa.program import Route
from tpu_sim.isa.torus import Slice

_KEPT = 16
"""Exchanges whose routes are kept: a program has few kinds of groups, and asks for each many times."""


def by_core(cores: int, groups: Groups, step: int) -> list[int]:
    """For each core the one that many places on in its group, in the order of the groups."""
    targets = np.full(cores, -1)
    for group in groups:
        first = step % len(group)
        targets[list(group)] = (*group[first:], *group[:first])
    found: list[int] = targets.tolist()
    return found


@lru_cache(_KEPT)
def all_to_all_routes(cores: Slice, groups: Groups) -> tuple[Route, ...]:
    """By slot, a core's own left out, the route to its core, on port 0.

    Transfers follow each other there, so each has the share of the busiest link that it has on average.
    """
    ways = _all_ways(cores, groups)
    load = max(1.0, cores.heaviest(ways) / len(ways)) if ways else 1.0
    return tuple(Route(tuple(way), cores.hops(way), load, 0) for way in ways)


@lru_cache(_KEPT)
def farthest_route(cores: Slice, groups: Groups) -> Route:
    """The longest route of an all-to-all, with what its links carry if all slots are under way at once."""
    return cores.farthest(_all_ways(cores, groups), 0)


def _all_ways(cores: Slice, groups: Groups) -> list[list[int]]:
    return [by_core(len(cores.chips), groups, step) for step in range(1, len(groups[0]))]
