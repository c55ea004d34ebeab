"""Shapes of blocks that a window search tries: sizes, in units, of the dimensions of an iteration space.

They fill a window from the innermost dimension outwards up to a number of tiles, with a few limits on
its width.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from compiler.analysis.iteration_space import IterationDim, IterationSpace

_TILE_TARGETS: tuple[int, ...] = (1 << 30, 8192, 4096, 2048, 1024, 512, 256, 128, 64, 16, 4, 1)
_WIDTH_LIMITS: tuple[int, ...] = (1 << 30, 16, 8, 4, 2, 1)
_DEPTH_LIMITS = (1 << 30, 160, 64, 16, 4)
"""Tiles of K in a step."""
_LEAST_EVEN = 3 / 4
"""Of the block that leaves the last one shorter, what a divisor is taken in its place from."""
_LEAST_OPEN = 1 / 2
"""The same where what is after the end must be left out in every step."""
_TILE_SIDES = (8, 32, 128)
"""Positions along a side of a tile: sublanes, those of packed types, lanes."""


def block_shapes(
    space: IterationSpace, depths: tuple[int, ...] = (), *, has_dot: bool
) -> Iterator[tuple[int, ...]]:
    """Distinct block shapes, largest first; `depths` are limits on tiles of K."""
    has_depth = has_dot and not space.dims[-1].parallel
    outer_dims = space.dims[:-1] if has_depth else space.dims
    ends = _depth_blocks(space.dims[-1], depths or _DEPTH_LIMITS) if has_depth else [()]
    targets = list(itertools.product(_TILE_TARGETS, _WIDTH_LIMITS))
    apart = tuple(replace(d, merged=()) for d in outer_dims)
    spaces = dict.fromkeys((outer_dims, apart))
    filled = (_fill(dims, *target) for target in targets for dims in spaces)
    for outer in dict.fromkeys(filled):
        for end in ends:
            yield (*outer, *end)


def last_resort(space: IterationSpace, *, has_dot: bool) -> Iterator[tuple[int, ...]]:
    """Blocks for when no others fit: dimensions that are better whole are cut too, at any place."""
    if any(d.better_whole or d.period > 1 or not d.parallel for d in space.dims):
        dims = tuple(replace(d, better_whole=False, period=1) for d in space.dims)
        yield from block_shapes(replace(space, dims=dims), (*_DEPTH_LIMITS, 1), has_dot=has_dot)


def turned_shapes(dims: tuple[IterationDim, ...]) -> Iterator[tuple[int, ...]]:
    """Block shapes that begin with a part of an outer dimension.

    It lies along sublanes or lanes of an operand: whoever fetches one of its positions fetches a tile.
    """
    targets = list(itertools.product(_TILE_TARGETS, _WIDTH_LIMITS))
    outer = [i for i, d in enumerate(dims[:-1]) if d.tiles > 1 and _is_cut(d)]
    shapes: dict[tuple[int, ...], None] = {}
    for first, limit in itertools.product(outer, _TILE_SIDES):
        size = _block(dims[first], limit)
        rest = (*dims[:first], replace(dims[first], size=1, unit=1), *dims[first + 1 :])
        for target, width in targets:
            sizes = _fill(rest, target // size, width)
            shapes[(*sizes[:first], size, *sizes[first + 1 :])] = None
    yield from shapes


def _depth_blocks(depth: IterationDim, limits: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Blocks of K: all of it, and parts."""
    allowed = [limit for limit in limits if _is_cut(depth) or limit >= depth.tiles]
    forms = dict.fromkeys((replace(depth, merged=()), depth))
    return [(size,) for size in dict.fromkeys(_block(d, limit) for limit in allowed for d in forms)]


def _fill(dims: tuple[IterationDim, ...], target: int, width: int) -> tuple[int, ...]:
    """Blocks of about `target` tiles, at most `width` of them side by side."""
    sizes: list[int] = []
    left = target
    for number in reversed(range(len(dims))):
        dim = dims[number]
        limit = max(1, left) if _is_cut(dim) else dim.tiles
        if _is_cut(dim) and number == len(dims) - 1:
            limit = min(limit, width)
        size = _block(dim, limit)
        sizes.append(size)
        left //= size
    return tuple(reversed(sizes))


def _is_cut(dim: IterationDim) -> bool:
    return dim.splittable and not dim.better_whole


def _block(dim: IterationDim, limit: int) -> int:
    """The best block of at most `limit` units: a divisor when a large one exists, of merged dimensions
    one that lies within or holds whole ones."""
    if limit >= dim.tiles:
        return dim.tiles
    if dim.period > 1:
        wholes = [d for d in _divisors(dim.tiles) if d % dim.period == 0]
        return max((d for d in wholes if d <= limit), default=wholes[0])
    if dim.merged:
        return max(d for d in _divisors(dim.tiles) if d <= limit and dim.is_within(d))
    divisor = max(d for d in _divisors(dim.tiles) if d <= limit)
    even = -(-dim.tiles // -(-dim.tiles // limit))
    is_exact = dim.disjoint or not (dim.parallel or dim.open_ended)
    least = even * (_LEAST_OPEN if dim.open_ended else _LEAST_EVEN)
    if is_exact or divisor >= least:
        return divisor
    return even


@lru_cache
def _divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))
