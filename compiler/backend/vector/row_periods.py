"""Rows of a stage a period at a time, where what it reads begins at any row of a tile.

Rows of windows of 7 x 7 pixels, ``row = ((b * 8 + i) * 8 + j) * 49 + p * 7 + q``, are read from rows of an
image: divisions by 7 and by 49 cut them at places of a tile of eight that are known at run time only. After
392 rows, 49 tiles, they are cut alike again. Code that has a period's tiles one after the other knows all
these places: a tile is a few loads joined by masks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from compiler.analysis.indexing import Atom, Expr, Quotient, Var
from compiler.analysis.iteration_space import MOST_PERIOD
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.probe import Work, axis, inner_point, probe_emitter, work
from compiler.backend.vector.row_splits import ROW
from compiler.backend.vector.tile_loops import TileLoops, TilePoint, TileSpace

_HOPELESS = 0.75
"""Of the cost of a tile at an unknown place: where a known place takes that much, the others, which read the
same values cut elsewhere, do not bring the mean below half (assumed), and are not looked at: emitting a
tile to count it takes long."""


@dataclass(frozen=True)
class RowPeriod:
    """A period of so many row `tiles`, of which none takes more than `operations`; `issue_cycles` are
    those of a tile on the average."""

    tiles: int
    operations: int
    issue_cycles: int

    def run(
        self, loops: TileLoops, space: TileSpace, body_ops: int, body: Callable[[TilePoint], None]
    ) -> None:
        """Loops over periods that call `body` with every tile, in code of about `body_ops` operations."""
        step = max(1, min(self.tiles, body_ops // max(1, self.operations)))
        if self.tiles == space.row_tiles:
            loops.run_rows_apart(space, step, 1, body)
        else:
            loops.run_row_periods(space, self.tiles, step, 1, body)


def period_of_rows(
    emitter: ElementEmitter,
    space: TileSpace,
    indices: Iterable[Expr],
    cost: int,
    body_of: Callable[[ElementEmitter], Callable[[TilePoint], None]],
) -> RowPeriod | None:
    """A period whose tiles take less than half of the `cost` of one at an unknown place, and of those of
    a shorter period.

    `indices`: what the stage reads, with `row_variable` for its row tile; `cost` in cycles of issue
    slots; `body_of` an emitter computes a tile with it.
    """
    best: RowPeriod | None = None
    for tiles in _row_periods(space, indices):
        places: list[Work] = []
        for place in sorted({0, tiles // 2, tiles - 1}):
            places.append(_at_place(emitter, space, tiles, place, body_of))
            if places[-1].issue_cycles >= _HOPELESS * cost:
                break
        mean = sum(place.issue_cycles for place in places) // len(places)
        if 2 * mean < cost:
            best = RowPeriod(tiles, max(place.operations for place in places), mean)
            cost = mean
    return best


def _at_place(
    emitter: ElementEmitter,
    space: TileSpace,
    tiles: int,
    place: int,
    body_of: Callable[[ElementEmitter], Callable[[TilePoint], None]],
) -> Work:
    """What a tile at a known place of a period takes."""
    probe = probe_emitter(emitter)
    probe.loader.can_transpose = emitter.loader.can_transpose
    number = axis(probe, "period", space.row_tiles // tiles)
    point = replace(inner_point(probe, space), row_tile=number * tiles + place)
    return work(probe, partial(body_of(probe), point))


def _row_periods(space: TileSpace, indices: Iterable[Expr]) -> Iterator[int]:
    """Numbers of row tiles after which more divisions of the row are as before than after any lower one.

    So they are where rows begin anew, whatever the last tile holds of them.
    """
    if space.is_vector or space.row_tiles == 1:
        return
    atoms = {atom for index in indices for atom in _divisions(index)}
    is_whole = space.rows == space.row_tiles * 8 * space.packing
    most = sum(_growth_of(atom, 1) is not None for atom in atoms)
    for tiles in range(2, min(space.row_tiles, MOST_PERIOD) + 1):
        if tiles == space.row_tiles:
            yield tiles
        elif is_whole and space.row_tiles % tiles == 0 and most < len(atoms):
            alike = sum(_growth_of(atom, tiles) is not None for atom in atoms)
            if alike > most:
                most = alike
                yield tiles


def _divisions(index: Expr) -> Iterator[Atom]:
    """The quotients and remainders in an index that contain the row variable."""
    for atom, _ in index.terms:
        if not isinstance(atom, Var) and _has_row(atom.body):
            yield atom
            yield from _divisions(atom.body)


def _has_row(expr: Expr) -> bool:
    return any(
        atom.name == ROW if isinstance(atom, Var) else _has_row(atom.body) for atom, _ in expr.terms
    )


def _growth(expr: Expr, tiles: int) -> int | None:
    """By how much an index grows with so many row tiles; None: that differs from row to row."""
    total = 0
    for atom, factor in expr.terms:
        growth = _growth_of(atom, tiles)
        if growth is None:
            return None
        total += factor * growth
    return total


def _growth_of(atom: Atom, tiles: int) -> int | None:
    if isinstance(atom, Var):
        return tiles if atom.name == ROW else 0
    growth = _growth(atom.body, tiles)
    if growth is None or growth % atom.divisor:
        return None
    return growth // atom.divisor if isinstance(atom, Quotient) else 0
