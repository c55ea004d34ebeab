"""Tiles with code of their own for each column and each place in a period of rows.

Taps of a convolution that lie side by side are columns, of which each reads another part of the image. Where
rows begin within a tile, as those of 56 columns do, what a tap reads of a tile is known once the place in the
period is, too: a few loads, not registers from which rows are picked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from compiler.analysis.indexing import Expr, const
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.probe import inner_point, probe_emitter, work
from compiler.backend.vector.row_periods import period_of_rows
from compiler.backend.vector.tile_loops import BODY_OPS, TileLoops, TilePoint, TileSpace

_MOST_OPERATIONS = 8000
"""Of all columns in all places of a period."""
_BodyOf = Callable[[ElementEmitter], Callable[[TilePoint], None]]


@dataclass(frozen=True)
class PlacesApart:
    """A stage's tiles in its `space`, and in `split`, whose rows are several loops, with what emits each."""

    space: TileSpace
    split: TileSpace
    tile_of: _BodyOf
    split_tile_of: _BodyOf

    def run(
        self, emitter: ElementEmitter, loops: TileLoops, indices: Iterable[Expr], cost: int
    ) -> bool:
        """Emit the loops, if tiles at known places take less than half; one at an unknown place takes `cost`.

        What takes less is judged by as many columns as share a body now: they share masks and addresses.
        """
        space = self.space
        count = min(space.col_tiles, max(1, BODY_OPS // max(1, cost)))
        first = (space.col_tiles - count) // 2
        columns = range(first, first + count)
        together = self._columns_at_any_row(emitter, columns)

        def columns_of(other: ElementEmitter) -> Callable[[TilePoint], None]:
            return partial(_emit_columns, self.tile_of(other), columns)

        period = period_of_rows(emitter, space, indices, together, columns_of)
        if period is None:
            return False
        if period.tiles * space.col_tiles * period.issue_cycles > _MOST_OPERATIONS * count:
            return False
        step = max(1, min(space.col_tiles, BODY_OPS * count // max(1, period.operations)))
        body = self.tile_of(emitter)
        loops.run_row_periods(space, period.tiles, 1, step, body, are_apart=True)
        return True

    def _columns_at_any_row(self, emitter: ElementEmitter, columns: range) -> int:
        """Cycles of issue slots of some columns at an unknown row."""
        probe = probe_emitter(emitter)
        probe.loader.can_transpose = emitter.loader.can_transpose
        point = inner_point(probe, self.split)
        emit = partial(_emit_columns, self.split_tile_of(probe), columns, point)
        return work(probe, emit).issue_cycles


def _emit_columns(body: Callable[[TilePoint], None], columns: range, point: TilePoint) -> None:
    for column in columns:
        body(replace(point, col_tile=const(column)))
