"""Rows of a cut dimension that other devices hold: which they are, and how a device gets them.

Device i wants the rows ``starts[i] .. starts[i] + width`` of a dimension of `size` that is cut into
tiles. It has some of them; others come from devices that hold neighbouring tiles, each of which
cuts out what is wanted of it and sends that by a collective-permute. Rows before the beginning and
past the end of the dimension have no meaning.

>>> reach = Reach(size=16, tiles=4, starts=(-1, 3, 7, 11), width=6)
>>> [(t.rows, t.pairs) for t in reach.transfers()]
[(1, ((0, 1), (1, 2), (2, 3))), (4, ((0, 0), (1, 1), (2, 2), (3, 3))), (1, ((1, 0), (2, 1), (3, 2)))]
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from compiler.hlo.ir import HloInstruction
from compiler.partitioner.grid import Axes
from compiler.partitioner.local import Local

Instr = HloInstruction
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class HaloTransfer:
    """`rows` rows from ``firsts[k]`` on of the tile ``pairs[k][0]``, for the device of another.

    They belong at ``places[k]`` of what that device wants, which may be partly outside of it.
    """

    rows: int
    pairs: Pairs
    firsts: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def is_own(self) -> bool:
        """Whether every device has these rows already."""
        return all(source == target for source, target in self.pairs)

    @property
    def is_even(self) -> bool:
        """Whether all devices send the same rows, and put them in the same place."""
        return len(set(self.firsts)) == 1 and len(set(self.places)) == 1


@dataclass(frozen=True)
class Reach:
    """What each tile's device wants of a dimension."""

    size: int
    tiles: int
    starts: tuple[int, ...]
    width: int

    @property
    def tile(self) -> int:
        """Rows of a tile."""
        return -(-self.size // self.tiles)

    def transfers(self) -> list[HaloTransfer]:
        """All that is wanted and there: in each list every tile is sent at most once."""
        return _transfers(self)

    def rows_sent(self) -> int:
        """How many rows a device sends."""
        return sum(t.rows for t in self.transfers() if not t.is_own)

    def messages(self) -> int:
        """How many collective-permutes that takes."""
        return sum(not t.is_own for t in self.transfers())

    @property
    def leaves(self) -> bool:
        """Whether any device wants rows that are not there."""
        return min(self.starts) < 0 or max(self.starts) + self.width > self.size


@cache
def _transfers(reach: Reach) -> list[HaloTransfer]:
    most = max((s % reach.tile + reach.width - 1) // reach.tile for s in reach.starts)
    found = []
    for step in range(most + 1):
        pairs = _wanted(reach, step)
        own = [pair for pair in pairs if pair[0] == pair[1]]
        for group in (own, *_rounds(pair for pair in pairs if pair[0] != pair[1])):
            if group:
                found.append(_transfer(reach, group))
    return found


def _wanted(reach: Reach, step: int) -> list[tuple[int, int]]:
    """(tile, who wants rows of it) for the tiles `step` after the first one wanted."""
    pairs = []
    for target, start in enumerate(reach.starts):
        source = start // reach.tile + step
        first, last = _span(reach, source, target)
        if 0 <= source < reach.tiles and first < last and source * reach.tile + first < reach.size:
            pairs.append((source, target))
    return pairs


def _span(reach: Reach, source: int, target: int) -> tuple[int, int]:
    """The rows of one tile that another tile's device wants."""
    begin = reach.starts[target] - source * reach.tile
    return max(0, begin), min(reach.tile, begin + reach.width)


def _rounds(pairs: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The pairs in lists in which every source is once."""
    found: list[list[tuple[int, int]]] = []
    for pair in pairs:
        free = (r for r in found if all(pair[0] != source for source, _ in r))
        chosen = next(free, None)
        if chosen is None:
            found.append([pair])
        else:
            chosen.append(pair)
    return found


def _transfer(reach: Reach, pairs: list[tuple[int, int]]) -> HaloTransfer:
    spans = [_span(reach, source, target) for source, target in pairs]
    rows = max(last - first for first, last in spans)
    firsts = tuple(min(first, reach.tile - rows) for first, _ in spans)
    places = tuple(
        source * reach.tile + first - reach.starts[target]
        for (source, target), first in zip(pairs, firsts, strict=True)
    )
    return HaloTransfer(rows, tuple(pairs), firsts, places)


def fetch(b: Local, operand: Instr, dim: int, axes: Axes, reach: Reach) -> Instr:
    """The rows that this device wants of a dimension cut along the axes."""
    transfers = reach.transfers()
    if not transfers:
        return b.full(operand.array.dtype, _resized(operand, dim, reach.width), 0)
    parts = [_sent(b, operand, dim, axes, transfer) for transfer in transfers]
    ends = [(t.places[0], t.places[0] + t.rows) for t in transfers]
    is_run = all(a[1] == c[0] for a, c in itertools.pairwise(ends))
    if is_run and all(t.is_even for t in transfers):
        low, high = max(0, ends[0][0]), max(0, reach.width - ends[-1][1])
        joined = b.pad_dim(b.join(parts, dim), dim, low, high)
        start = max(0, -ends[0][0])
        return b.part(joined, dim, start, start + reach.width)
    return _placed(b, dim, axes, reach, parts)


def _resized(operand: Instr, dim: int, size: int) -> tuple[int, ...]:
    dims = operand.array.dims
    return (*dims[:dim], size, *dims[dim + 1 :])


def _sent(b: Local, operand: Instr, dim: int, axes: Axes, transfer: HaloTransfer) -> Instr:
    """What arrives by one transfer."""
    by_source = dict(zip((s for s, _ in transfer.pairs), transfer.firsts, strict=True))
    default = transfer.firsts[0]
    firsts = [by_source.get(int(tile), default) for tile in b.tile(axes)]
    if len(set(firsts)) == 1:
        part = b.part(operand, dim, firsts[0], firsts[0] + transfer.rows)
    else:
        part = b.part_at(operand, dim, b.scalar_of(firsts), transfer.rows)
    if transfer.is_own:
        return part
    return b.permute(part, b.grid.along(axes, transfer.pairs, b.order))


def _placed(b: Local, dim: int, axes: Axes, reach: Reach, parts: list[Instr]) -> Instr:
    """Every part written to its place; to a margin on devices that got nothing by its transfer."""
    transfers = reach.transfers()
    margin = max(t.rows for t in transfers)
    dims = _resized(parts[0], dim, reach.width + 2 * margin)
    rows = b.full(parts[0].array.dtype, dims, 0)
    for transfer, part in zip(transfers, parts, strict=True):
        places = dict(zip((t for _, t in transfer.pairs), transfer.places, strict=True))
        table = [places.get(int(tile), -margin) + margin for tile in b.tile(axes)]
        starts = [b.number(0)] * len(dims)
        starts[dim] = b.scalar_of(table)
        rows = b.dynamic_update_slice(rows, part, starts)
    return b.part(rows, dim, margin, margin + reach.width)


def kept_inside(b: Local, rows: Instr, dim: int, axes: Axes, reach: Reach, fill: Instr) -> Instr:
    """Fetched rows, `fill` where the dimension has none."""
    if not reach.leaves:
        return rows
    starts = [reach.starts[int(tile)] for tile in b.tile(axes)] if axes else [reach.starts[0]]
    inside = b.within(rows, dim, b.scalar_of(starts), 0, reach.size)
    return b.where(inside, rows, fill)
