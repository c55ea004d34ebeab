"""Rows of a cut dimension that other devices hold: which they are, and how a device gets them.

Device i wants the rows ``starts[i] .. starts[i] + width`` of a dimension of `size` that is cut into
tiles. Pieces of a few neighbouring tiles are sent by collective-permutes and put side by side; rows
before the beginning and past the end of the dimension have no meaning.

>>> reach = Reach(size=16, tiles=4, starts=(-1, 3, 7, 11), width=6)
>>> [(piece.low, piece.high, piece.pairs) for piece in reach.pieces()]
[(3, 4, ((0, 1), (1, 2), (2, 3))), (0, 4, ((0, 0), (1, 1), (2, 2), (3, 3))), (0, 1, ((1, 0), (2, 1), (3, 2)))]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from compiler.hlo.ir import HloInstruction
from compiler.partitioner.grid import Axes
from compiler.partitioner.local import Local

Instr = HloInstruction
Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Piece:
    """Rows ``low .. high`` of a tile, from tile to tile."""

    low: int
    high: int
    pairs: Pairs

    @property
    def is_own(self) -> bool:
        """Whether every device has what it wants already."""
        return all(source == target for source, target in self.pairs)

    def rounds(self) -> list[Pairs]:
        """The pairs in lists in which every tile is sent once."""
        found: list[list[tuple[int, int]]] = []
        for pair in self.pairs:
            free = (r for r in found if all(pair[0] != source for source, _ in r))
            chosen = next(free, None)
            if chosen is None:
                found.append([pair])
            else:
                chosen.append(pair)
        return [tuple(r) for r in found]


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

    def pieces(self) -> list[Piece]:
        """The rows of each tile at the same distance, in order."""
        return _pieces(self)

    def offsets(self) -> list[int]:
        """Where the wanted rows begin in the pieces put side by side."""
        first = self.pieces()[0].low
        return [start % self.tile - first for start in self.starts]

    def rows_sent(self) -> int:
        """How many rows a device sends."""
        return sum(
            (piece.high - piece.low) * len(piece.rounds())
            for piece in self.pieces()
            if not piece.is_own
        )

    @property
    def leaves(self) -> bool:
        """Whether any device wants rows that are not there."""
        return min(self.starts) < 0 or max(self.starts) + self.width > self.size


@cache
def _pieces(reach: Reach) -> list[Piece]:
    size, width = reach.tile, reach.width
    bases = [start // size for start in reach.starts]
    within = [start % size for start in reach.starts]
    most = max((w + width - 1) // size for w in within)
    return [_piece(reach, bases, within, step) for step in range(most + 1)]


def _piece(reach: Reach, bases: list[int], within: list[int], step: int) -> Piece:
    size = reach.tile
    low, high = size, 0
    pairs = []
    for target, (base, start) in enumerate(zip(bases, within, strict=True)):
        first, last = max(0, start - step * size), min(size, start + reach.width - step * size)
        if last <= first:
            continue
        low, high = min(low, first), max(high, last)
        source = base + step
        if 0 <= source < reach.tiles and source * size + first < reach.size:
            pairs.append((source, target))
    return Piece(low, high, tuple(pairs))


def fetch(b: Local, operand: Instr, dim: int, axes: Axes, reach: Reach) -> Instr:
    """The rows that this device wants of a dimension cut along the axes."""
    if not axes:
        return _of_whole(b, operand, dim, reach.starts[0], reach)
    parts = list(_parts(b, operand, dim, axes, reach))
    joined = b.join(parts, dim)
    offsets = reach.offsets()
    table = [offsets[int(tile)] for tile in b.tile(axes)]
    if len(set(table)) == 1:
        return b.part(joined, dim, table[0], table[0] + reach.width)
    return b.part_at(joined, dim, b.scalar_of(table), reach.width)


def _of_whole(b: Local, operand: Instr, dim: int, start: int, reach: Reach) -> Instr:
    low, high = max(0, -start), max(0, start + reach.width - reach.size)
    padded = b.pad_dim(operand, dim, low, high)
    return b.part(padded, dim, start + low, start + low + reach.width)


def _parts(b: Local, operand: Instr, dim: int, axes: Axes, reach: Reach) -> Iterator[Instr]:
    for piece in reach.pieces():
        part = b.part(operand, dim, piece.low, piece.high)
        if not piece.pairs:
            yield b.like(part, 0)
        elif piece.is_own:
            yield part
        else:
            yield _sent(b, part, axes, piece)


def _sent(b: Local, part: Instr, axes: Axes, piece: Piece) -> Instr:
    found: Instr | None = None
    for pairs in piece.rounds():
        moved = b.permute(part, b.grid.along(axes, pairs, b.order))
        if found is None:
            found = moved
            continue
        targets = {target for _, target in pairs}
        is_new = b.flag_of([int(tile) in targets for tile in b.tile(axes)])
        found = b.select(b.broadcast(is_new, part.array.dims), moved, found)
    assert found is not None
    return found


def kept_inside(b: Local, rows: Instr, dim: int, axes: Axes, reach: Reach, fill: Instr) -> Instr:
    """Fetched rows, `fill` where the dimension has none."""
    if not reach.leaves:
        return rows
    starts = [reach.starts[int(tile)] for tile in b.tile(axes)] if axes else [reach.starts[0]]
    inside = b.within(rows, dim, b.scalar_of(starts), 0, reach.size)
    return b.where(inside, rows, fill)
