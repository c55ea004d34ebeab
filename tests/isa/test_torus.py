"""The network of a slice: distances, loads against formulas, rings of single links."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import numpy as np
import pytest

from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.torus import Slice, Torus, torus_of

WRAPPED = (True, True, True)
FLAT = (False, False, False)


@pytest.mark.parametrize(
    ("target", "dims", "wraps"),
    [
        ("v5e", (4, 2, 1), FLAT),
        ("v5e", (16, 4, 1), (True, False, False)),
        ("v5e", (16, 16, 1), (True, True, False)),
        ("v5p", (4, 4, 4), WRAPPED),
        ("v5p", (2, 4, 4), FLAT),
        ("7x", (4, 4, 8), WRAPPED),
    ],
)
def test_which_dimensions_wrap_around(
    target: str, dims: tuple[int, int, int], wraps: tuple[bool, bool, bool]
) -> None:
    assert torus_of(load_chip(target), dims).wraps == wraps


@pytest.mark.parametrize(
    ("dims", "wraps", "heaviest"),
    [  # the largest load of an all-to-all over the chips, as the bisection has it
        ((4, 2, 1), FLAT, 1.0),
        ((4, 4, 1), FLAT, 1.0),
        ((8, 1, 1), FLAT, 2.0),
        ((16, 1, 1), WRAPPED, 2.0),
        ((4, 4, 4), WRAPPED, 0.5),
        ((4, 4, 8), WRAPPED, 1.0),
    ],
)
def test_all_to_all_loads_links_as_the_bisection_says(
    dims: tuple[int, int, int], wraps: tuple[bool, bool, bool], heaviest: float
) -> None:
    torus = Torus(dims, wraps)
    count = torus.chip_count
    loads = torus.loads(np.array([*product(range(count), repeat=2)]))
    assert loads.max() == heaviest * count
    assert loads.sum() == sum(torus.distance(a, b) for a in range(count) for b in range(count))


@pytest.mark.parametrize("wraps", list(product((False, True), repeat=3)))
def test_steps_of_many_transfers_are_the_ways_of_each(wraps: tuple[bool, bool, bool]) -> None:
    torus = Torus((4, 3, 2), wraps)
    pairs = [*product(range(torus.chip_count), repeat=2)]
    found: list[list[int]] = [[] for _ in pairs]
    for going, links in torus.steps(np.array(pairs)):
        for row, link in zip(going, links, strict=True):
            found[row].append(int(link))
    for (a, b), links_of_one in zip(pairs, found, strict=True):
        way = [(chip * 3 + axis) * 2 + (step > 0) for chip, axis, step in torus.way(a, b)]
        assert links_of_one == way


@pytest.mark.parametrize("wraps", list(product((False, True), repeat=3)))
def test_loads_and_hops_of_many_transfers_are_those_of_their_ways(
    wraps: tuple[bool, bool, bool],
) -> None:
    torus = Torus((4, 3, 2), wraps)
    pairs = [(a, b) for a, b in product(range(torus.chip_count), repeat=2) if (a + 2 * b) % 5]
    wanted = np.zeros(torus.link_numbers, np.int64)
    for a, b in pairs:
        for chip, axis, step in torus.way(a, b):
            wanted[(chip * 3 + axis) * 2 + (step > 0)] += 1
    assert np.array_equal(torus.loads(np.array(pairs)), wanted)
    assert torus.hops(np.array(pairs)).tolist() == [torus.distance(a, b) for a, b in pairs]


@pytest.mark.parametrize("dims", [(2, 2, 1), (4, 2, 1), (3, 4, 1), (4, 3, 1), (8, 8, 1), (2, 2, 2)])
def test_a_mesh_with_an_even_side_has_a_ring_of_single_links(dims: tuple[int, int, int]) -> None:
    torus = Torus(dims)
    ring = torus.ring(range(prod(dims)))
    assert sorted(ring) == list(range(prod(dims)))
    assert {torus.distance(a, b) for a, b in pairwise([*ring, ring[0]])} == {1}


def test_ways_are_shortest_and_go_round() -> None:
    torus = Torus((4, 4, 1), (True, False, False))
    assert list(torus.way(0, 3)) == [(0, 0, -1)]
    assert len(list(torus.way(0, 12))) == 3
    for a in range(16):
        for b in range(16):
            assert len(list(torus.way(a, b))) == torus.distance(a, b)


def test_a_route_knows_hops_and_shared_links() -> None:
    line = Slice(Torus((4, 1, 1)), (0, 1, 2, 3))
    onward = (1, 2, 3, 0)
    back = (3, 0, 1, 2)
    alone, both = line.route(onward, [onward], 0), line.route(onward, [onward, back], 0)
    assert (alone.hops, alone.load, both.load) == (3, 1.0, 2.0)
    assert (both.source(0), line.route((1, -1, -1, -1), [(1, -1, -1, -1)], 0).source(0)) == (3, -1)
    cores = Slice(Torus((2, 1, 1)), (0, 0, 1, 1))  # two cores on a chip
    assert cores.route((1, 0, 3, 2), [(1, 0, 3, 2)], 0).hops == 0
