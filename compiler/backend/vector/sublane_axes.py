"""Parts of a stage's tiles that have eight places of another dimension than the rows along their sublanes.

Where rows are few a stage takes one row of eight tiles instead of one tile of few rows: loads and
stores step from tile to tile, and every sublane computes (`compiler.analysis.sublane_axis`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from compiler.analysis.indexing import Expr, const
from compiler.analysis.sublane_axis import COLUMNS, ROWS, sublane_choice
from compiler.backend.vector.tile_loops import TilePoint, TileSpace
from tpu_sim.isa.geometry import LANES, SUBLANES


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
        majors, cols, is_columns = space.majors, space.cols, self.axis == COLUMNS
        count = self.count // SUBLANES if self.is_across else self.count
        if not is_columns:
            majors = (*majors[: self.axis], count, *majors[self.axis + 1 :])
        if not self.is_across:
            cols = cols - self.first * LANES if is_columns else cols
            return replace(space, majors=majors, cols=cols)
        cols = count * LANES if is_columns else cols
        return TileSpace(majors, _words(space) * SUBLANES, cols, 1)

    def placed(self, point: TilePoint) -> TilePoint:
        """A point of that space as one of the stage's own."""
        is_columns = self.axis == COLUMNS
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
    axis = sublane_choice(space.majors, _words(space), space.cols).axis
    if axis == ROWS:
        return ()
    places = space.col_tiles if axis == COLUMNS else space.majors[axis]
    whole = (space.cols // LANES if axis == COLUMNS else places) // SUBLANES * SUBLANES
    across = SublaneAxis(axis, 0, whole, is_across=True)
    rest = SublaneAxis(axis, whole, places - whole, is_across=False)
    return (across, rest) if rest.count else (across,)


def _words(space: TileSpace) -> int:
    """Rows of words, each of `packing` rows."""
    return -(-space.rows // space.packing)


def _with_major(point: TilePoint, axis: int, at: Expr) -> TilePoint:
    majors = point.majors
    return replace(point, majors=(*majors[:axis], at, *majors[axis + 1 :]))
