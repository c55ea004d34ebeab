"""Stages whose registers hold eight places of another dimension than the rows along their sublanes.

A tile of f32[3,65536] has 3 rows in 8 sublanes, one of f32[4096,2,64] has 2. Where rows are few a
stage takes one row of eight tiles instead: loads and stores step from tile to tile, and every
sublane computes.

    f32[3,65536]      512 registers of 3 rows, or 3 * 64 of one row of eight column tiles
    f32[4096,2,64]    4096 registers of 2 rows, or 2 * 512 of one row of eight matrices
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.analysis.indexing import Expr, const
from compiler.backend.vector.tile_loops import TilePoint, TileSpace

SUBLANES = 8
_COLUMNS = -1


@dataclass(frozen=True)
class SublaneAxis:
    """`count` places, from `first` on, of a dimension of a stage's tiles: column tiles or a major one.

    `is_across`: eight of them lie along the sublanes, and rows are looked at one by one. Otherwise the
    rows do, as in the tiles.
    """

    axis: int
    first: int
    count: int
    is_across: bool

    def space(self, space: TileSpace) -> TileSpace:
        """What loops go over: of what lies across, a row of tiles for each row of words."""
        majors, cols, is_columns = space.majors, space.cols, self.axis == _COLUMNS
        count = self.count // SUBLANES if self.is_across else self.count
        if not is_columns:
            majors = (*majors[: self.axis], count, *majors[self.axis + 1 :])
        if not self.is_across:
            cols = cols - self.first * 128 if is_columns else cols
            return replace(space, majors=majors, cols=cols)
        cols = count * 128 if is_columns else cols
        return TileSpace(majors, _words(space) * SUBLANES, cols, 1)

    def placed(self, point: TilePoint) -> TilePoint:
        """A point of that space as one of the stage's own."""
        is_columns = self.axis == _COLUMNS
        at = point.col_tile if is_columns else point.majors[self.axis]
        at = at * SUBLANES + point.sublane if self.is_across else at
        at = at + self.first
        moved = replace(point, col_tile=at) if is_columns else _with_major(point, self.axis, at)
        if not self.is_across:
            return moved
        return replace(moved, row_tile=const(0), sublane=point.row_tile)


def sublane_axes(space: TileSpace) -> tuple[SublaneAxis, ...]:
    """The dimension whose places had better lie along the sublanes: the eights of it, and the rest.

    None where the rows fill them as well.
    """
    if space.is_vector or space.row_tiles != 1:
        return ()
    sizes = {d: n for d, n in enumerate(space.majors) if n >= SUBLANES}
    if space.cols // 128 >= SUBLANES:
        sizes[_COLUMNS] = space.cols // 128  # whole ones
    counts = {axis: _registers(space, axis, size) for axis, size in sizes.items()}
    best = min(counts, key=lambda axis: counts[axis], default=None)
    if best is None or counts[best] >= space.tile_count:
        return ()
    whole = sizes[best] // SUBLANES * SUBLANES
    places = space.col_tiles if best == _COLUMNS else sizes[best]
    across = SublaneAxis(best, 0, whole, is_across=True)
    rest = SublaneAxis(best, whole, places - whole, is_across=False)
    return (across, rest) if rest.count else (across,)


def _words(space: TileSpace) -> int:
    """Rows of words, each of `packing` rows."""
    return -(-space.rows // space.packing)


def _registers(space: TileSpace, axis: int, size: int) -> int:
    """Registers with eight places of a dimension along the sublanes, of which `size` are whole."""
    places = space.col_tiles if axis == _COLUMNS else size
    others = space.tile_count // places
    return others * (size // SUBLANES * _words(space) + places - size // SUBLANES * SUBLANES)


def _with_major(point: TilePoint, axis: int, at: Expr) -> TilePoint:
    majors = point.majors
    return replace(point, majors=(*majors[:axis], at, *majors[axis + 1 :]))
