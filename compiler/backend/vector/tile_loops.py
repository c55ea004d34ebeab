"""Loops over the vreg tiles of a box, unrolled so that a body has enough work for the slots."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

from compiler.analysis.indexing import Expr, Var, const, multiple, var
from compiler.backend.vector.arrays import VmemArray
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg

BODY_OPS = 400
"""Operations to aim at in a loop body."""


@dataclass(frozen=True)
class TileSpace:
    """The tiles of a stage: `majors` extents, row tiles of 8*packing rows, column tiles.

    `rows` and `cols` are what the box holds, not rounded; `is_vector` says that column tile 0 is
    all there is and the logical index is 128 * row + lane.
    """

    majors: tuple[int, ...]
    rows: int
    cols: int
    packing: int
    is_vector: bool = False

    @property
    def row_tiles(self) -> int:
        """Stage tiles down."""
        return -(-self.rows // (8 * self.packing))

    @property
    def col_tiles(self) -> int:
        """Stage tiles across."""
        return -(-self.cols // 128)

    @property
    def tile_count(self) -> int:
        """Tiles in all."""
        return math.prod(self.majors) * self.row_tiles * self.col_tiles


@dataclass(frozen=True)
class TilePoint:
    """One tile: its place, and the sublane and lane variables with the range that matters."""

    majors: tuple[Expr, ...]
    row_tile: Expr
    col_tile: Expr
    sublane: Expr
    lane: Expr


def tile_space(array: VmemArray, packing: int) -> TileSpace:
    """The tiles of an array's box for a stage of `packing`."""
    is_vector = array.shape.rank == 1 and not array.replicated
    return TileSpace(array.majors, array.rows, array.cols, packing, is_vector)


def tile_points(space: TileSpace) -> Iterator[TilePoint]:
    """Every tile of a (small) space in row-major order, for straight-line code."""
    rows = _whole_axis(space.row_tiles, space.rows, 8, space.packing)
    cols = _whole_axis(space.col_tiles, space.cols, 128, 1)
    for majors in itertools.product(*(range(n) for n in space.majors)):
        for row in range(space.row_tiles):
            for col in range(space.col_tiles):
                yield TilePoint(
                    tuple(const(m) for m in majors),
                    const(row),
                    const(col),
                    _position("s", 8, rows, const(row)),
                    _position("l", 128, cols, const(col)),
                )


def _whole_axis(count: int, elements: int, unit: int, packing: int) -> _Segment:
    return _Segment(0, count, count, _partial(count, elements, unit, packing))


@dataclass(frozen=True)
class _Segment:
    """Positions first .. first + count - 1 of an axis, `step` of them in one body."""

    first: int
    count: int
    step: int
    size: int  # elements of the last position that matter (sublanes, lanes); 0: all


class TileLoops:
    """Emits nested loops that call a body for every tile.

    Of the row tiles in a body those come first that start a block of `block_rows`.
    """

    def __init__(
        self,
        builder: LloBuilder,
        sregs: dict[Var, SReg],
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
        parallel: bool = True,
    ) -> None:
        """`around` is entered for the straight-line code of each innermost body.

        `parallel`: bodies of different tiles are independent (loops may be unrolled by it).
        """
        self.block_rows = 1
        self._builder = builder
        self._sregs = sregs
        self._around = around
        self.parallel = parallel

    def run(
        self,
        space: TileSpace,
        ops_per_tile: int,
        body: Callable[[TilePoint], None],
        body_ops: int = BODY_OPS,
    ) -> None:
        """Call `body` with every tile of `space`, in loops unrolled by the cost of a tile to bodies of
        about `body_ops`."""
        tiles = max(1, body_ops // max(1, ops_per_tile))
        col_step = tile_step(space.col_tiles, tiles)
        row_step = tile_step(space.row_tiles, max(1, tiles // col_step))
        self.run_steps(space, row_step, col_step, body, max(1, tiles // (row_step * col_step)))

    def run_columns_apart(
        self, space: TileSpace, ops_per_tile: int, body: Callable[[TilePoint], None], run: int = 1
    ) -> None:
        """Loops over majors and rows; the code of every `run` column tiles stands for itself."""
        most = max(1, BODY_OPS // max(1, ops_per_tile))
        if run == 1:
            self.run_column_steps_apart(space, 1, most, body)
            return
        rows = _segments(space.row_tiles, 1, space.rows, 8, space.packing)
        parts = _segments(run, tile_step(run, most), 0, 0, 1)
        cols = [
            replace(part, first=first + part.first)
            for first in range(0, space.col_tiles, run)
            for part in parts
        ]
        axes = [_segments(size, 1, 0, 0, 1) for size in space.majors]
        self._nest([*axes, rows, cols], [], body)

    def run_column_steps_apart(
        self,
        space: TileSpace,
        row_step: int,
        step: int,
        body: Callable[[TilePoint], None],
        columns: range | None = None,
    ) -> None:
        """The same with `row_step` row and `step` column tiles in a body; some `columns` only."""
        columns = range(space.col_tiles) if columns is None else columns
        rows = _segments(space.row_tiles, row_step, space.rows, 8, space.packing)
        axes = [_segments(size, 1, 0, 0, 1) for size in space.majors]
        self._nest([*axes, rows, _columns_apart(space, step, columns)], [], body)

    def run_rows_apart(
        self, space: TileSpace, step: int, col_step: int, body: Callable[[TilePoint], None]
    ) -> None:
        """Loops over majors and columns; the code of every `step` row tiles stands for itself."""
        size = _whole_axis(space.row_tiles, space.rows, 8, space.packing).size
        rows: list[_Segment] = []
        for first in range(0, space.row_tiles, step):
            count = min(step, space.row_tiles - first)
            rows.append(
                _Segment(first, count, count, size if first + count == space.row_tiles else 0)
            )
        cols = _segments(space.col_tiles, col_step, space.cols, 128, 1)
        axes = [_segments(size, 1, 0, 0, 1) for size in space.majors]
        self._nest([*axes, rows, cols], [], body)

    def run_row_periods(
        self,
        space: TileSpace,
        period: int,
        step: int,
        col_step: int,
        body: Callable[[TilePoint], None],
        *,
        are_apart: bool = False,
    ) -> None:
        """Loops over majors, `period` row tiles at a time, and columns.

        The code of every `step` row tiles of a period stands for itself, and of every `col_step` columns
        where these `are_apart`.
        """
        rows: list[_Segment] = []
        for first in range(0, period, step):
            count = min(step, period - first)
            rows.append(_Segment(first, count, count, 0))
        cols = _segments(space.col_tiles, col_step, space.cols, 128, 1)
        if are_apart:
            cols = _columns_apart(space, col_step, range(space.col_tiles))
        sizes = (*space.majors, space.row_tiles // period)
        axes = [_segments(size, 1, 0, 0, 1) for size in sizes]

        def emit(point: TilePoint) -> None:
            *majors, number = point.majors
            row_tile = number * period + point.row_tile
            body(replace(point, majors=tuple(majors), row_tile=row_tile))

        self._nest([*axes, rows, cols], [], emit)

    def run_steps(
        self,
        space: TileSpace,
        row_step: int,
        col_step: int,
        body: Callable[[TilePoint], None],
        major_step: int = 1,
    ) -> None:
        """The same with given unrolling of rows, columns and the innermost major dimension."""
        rows = _segments(space.row_tiles, row_step, space.rows, 8, space.packing)
        cols = _segments(space.col_tiles, col_step, space.cols, 128, 1)
        steps = [1] * len(space.majors)
        if steps and len(rows) == 1 and len(cols) == 1 and rows[0].count == rows[0].step:
            steps[-1] = (
                tile_step(space.majors[-1], major_step) if cols[0].count == cols[0].step else 1
            )
        axes = [
            _segments(size, step, 0, 0, 1) for size, step in zip(space.majors, steps, strict=True)
        ]
        self._nest([*axes, rows, cols], [], body)

    def _nest(
        self,
        axes: Sequence[list[_Segment]],
        chosen: list[tuple[list[Expr], _Segment]],
        body: Callable[[TilePoint], None],
    ) -> None:
        if not axes:
            self._builder.new_block()
            with self._around():
                self._bodies([], chosen, body)
            return
        for segment in axes[0]:
            trips = segment.count // segment.step
            with self._builder.loop(trips, f"axis{len(chosen)}", self.parallel) as counter:
                base = const(segment.first)
                if trips > 1:
                    variable = Var(f"t{counter}", 0, trips - 1)
                    self._sregs[variable] = counter
                    base = base + var(variable) * segment.step
                places = [base + k for k in range(segment.step)]
                self._nest(axes[1:], [*chosen, (places, segment)], body)

    def _bodies(
        self,
        place: list[Expr],
        rest: Sequence[tuple[list[Expr], _Segment]],
        body: Callable[[TilePoint], None],
    ) -> None:
        if len(rest) > 2:
            for position in rest[0][0]:
                self._bodies([*place, position], rest[1:], body)
            return
        (rows, row_segment), (cols, col_segment) = rest
        firsts = rows[:: self.block_rows]  # what all tiles of a block share is then under way
        others = [row for i, row in enumerate(rows) if i % self.block_rows]
        for row_tile in firsts + others:
            for col_tile in cols:
                sublane = _position("s", 8, row_segment, row_tile)
                lane = _position("l", 128, col_segment, col_tile)
                body(TilePoint(tuple(place), row_tile, col_tile, sublane, lane))


def _position(name: str, whole: int, segment: _Segment, place: Expr) -> Expr:
    """The sublane or lane variable, with the range that matters in this tile."""
    is_last = place.is_constant and place.constant == segment.first + segment.count - 1
    high = (segment.size if segment.size and is_last else whole) - 1
    return multiple(Var(name, 0, high), 1)  # a term even if it is 0: transposes look for it


def tile_step(count: int, most: int) -> int:
    """How many of `count` positions one body takes: all, or a good divisor, or `most`."""
    if count <= most:
        return count
    divisors = [d for d in range(most, max(1, most // 2), -1) if count % d == 0]
    return divisors[0] if divisors else most


def _columns_apart(space: TileSpace, step: int, columns: range) -> list[_Segment]:
    """Some columns, every `step` of them with code of their own."""
    size = _whole_axis(space.col_tiles, space.cols, 128, 1).size
    found: list[_Segment] = []
    for first in columns[::step]:
        count = min(step, columns.stop - first)
        is_last = first + count == space.col_tiles
        found.append(_Segment(first, count, count, size if is_last else 0))
    return found


def _segments(count: int, step: int, elements: int, unit: int, packing: int) -> list[_Segment]:
    """Whole bodies, then the rest; the last position apart if only part of it matters."""
    if count == 0:
        return []
    partial = _partial(count, elements, unit, packing) if unit else 0
    if partial and count > step:
        main = _segments(count - 1, step, 0, 0, 1)
        return [*main, _Segment(count - 1, 1, 1, partial)]
    whole = count - count % step
    segments = [_Segment(0, whole, step, partial if whole == count else 0)] if whole else []
    if whole < count:
        segments.append(_Segment(whole, count - whole, count - whole, partial))
    return segments


def _partial(count: int, elements: int, unit: int, packing: int) -> int:
    """Sublanes or lanes of the last tile that matter; 0 when all do."""
    left = -(-(elements - (count - 1) * unit * packing) // packing)
    return 0 if left == unit else left


def places_in_box(
    space: TileSpace, point: TilePoint, part: int, has_rows: bool, has_cols: bool
) -> tuple[Expr, ...]:
    """Places within the box in the majors, then the row and column where the space has them."""
    row = point.row_tile * (8 * space.packing) + point.sublane * space.packing + part
    if space.is_vector:
        return (row * 128 + point.lane,)
    places = list(point.majors)
    if has_rows:
        places.append(row)
    if has_cols:
        places.append(point.col_tile * 128 + point.lane)
    return tuple(places)
