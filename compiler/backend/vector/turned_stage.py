"""Stages whose 16-bit results are computed turned, and transposed as whole packed blocks.

A node read across its operands' rows, such as the left side of a product that lies ``[K, M]``, is
computed with its rows along the lanes and its columns down the sublanes, which is how the operands
lie. 256 columns by 128 rows are packed into 16 vregs and pushed into a transpose unit; a swap of
halves makes them 2x8 packed vregs of the result. Each unit has a block of its own under way.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from compiler.analysis.indexing import Expr, Var, const, linearize, multiple, ranged, var
from compiler.analysis.indexing_boxes import leaf_indices
from compiler.analysis.indexing_maps import Index
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.bounds import zero_outside
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.index_values import LANE, SUBLANE
from compiler.backend.vector.probe import inner_point, probe_emitter
from compiler.backend.vector.stores import Storer
from compiler.backend.vector.tile_loops import TileLoops, TilePoint, TileSpace
from compiler.backend.vector.transposed_reads import matrices_at_once, reads_transposed
from compiler.backend.vector.unpack import pack
from compiler.hlo.ir import HloInstruction
from compiler.llo.ir import VReg
from tpu_sim.isa.geometry import LANES

_TYPES = ("bf16", "s16", "u16")
_PACKING = 2
_TILE_ROWS = 16
"""Rows of a packed tile of the result, and columns of it that one push takes."""
_BLOCK_ROW_TILES = LANES // _TILE_ROWS
_BLOCK_COL_TILES = 2
_MOST_APART = 8
"""Blocks of rows, or of columns, whose code stands for itself."""
_BODY_OPS = 3600
"""Operations to aim at in a loop body, as probes count them: some blocks are filled while others are
turned."""


@dataclass(frozen=True)
class _Key:
    """A block: where it starts, in tiles of the result."""

    number: int
    majors: tuple[Expr, ...]
    row_tile: Expr
    col_tile: Expr


def can_turn(
    emitter: ElementEmitter,
    nodes: Sequence[HloInstruction],
    targets: Sequence[VmemArray],
    space: TileSpace,
    col_tile: int = -1,
) -> bool:
    """Whether results have 16 bits and nothing that they read needs a transpose once they are turned.

    With `col_tile` that is asked of the block there only.
    """
    if space.packing != _PACKING or space.is_vector:
        return False
    if any(t.shape.dtype.name not in _TYPES or t.replicated or t.shape.rank < 2 for t in targets):
        return False
    place = TilePoint(
        tuple(ranged(f"m{d}", n) for d, n in enumerate(space.majors)),
        ranged("rb", -(-space.row_tiles // _BLOCK_ROW_TILES)) * _BLOCK_ROW_TILES,
        ranged("cb", -(-space.col_tiles // _BLOCK_COL_TILES)) * _BLOCK_COL_TILES
        if col_tile < 0
        else const(col_tile),
        var(SUBLANE),
        var(LANE),
    )
    return not any(
        reads_transposed(emitter, node, _turned(target, place, 0, 0))
        for node, target in zip(nodes, targets, strict=True)
    )


def run_turned(
    emitter: ElementEmitter,
    loops: TileLoops,
    nodes: Sequence[HloInstruction],
    targets: Sequence[VmemArray],
    space: TileSpace,
    bounds: tuple[int, ...] | None,
    columns: range | None = None,
) -> None:
    """Compute `nodes` into `targets`, of which `can_turn` says that they can be had so.

    `columns`: column tiles, from the start of a block on, to leave out all others.
    """
    units = emitter.builder.chip.transpose_units
    size = 1 if len(nodes) > units else len(nodes)
    for first in range(0, len(nodes), size):
        group = range(first, first + size)
        known = columns
        if known is None:
            known = _known_columns(emitter, nodes, targets, space, group)
        least = max(1, units // size)
        enough = _BODY_OPS // (least + 1) + 1  # a body has the least number of blocks from there on
        first_column = None if known is None else known.start
        taken = _block_ops(emitter, nodes, targets, space, group, first_column, enough)
        blocks = max(least, min(2 * units, _BODY_OPS // taken))
        most = -(-(space.col_tiles if known is None else len(known)) // _BLOCK_COL_TILES)
        across = min(most, blocks, least)  # each in a unit of its own
        across = -(-most // -(-most // across))
        down = max(1, blocks // across)
        body = _TurnedTiles(emitter, nodes, targets, space, bounds, group).emit
        loops.block_rows = _BLOCK_ROW_TILES if across * down <= units // size else 1
        row_step = _BLOCK_ROW_TILES * down
        col_step = min(space.col_tiles, _BLOCK_COL_TILES * across)
        period = 0 if columns is not None else _period(emitter, nodes, targets, space)
        if period:
            body = _TurnedTiles(emitter, nodes, targets, space, bounds, group, period).emit
            apart = known is not None
            loops.run_row_periods(space, period, _BLOCK_ROW_TILES, col_step, body, are_apart=apart)
        elif known is not None:
            loops.run_column_steps_apart(space, row_step, _BLOCK_COL_TILES * across, body, known)
        else:
            each = most * -(-space.row_tiles // _BLOCK_ROW_TILES)
            major_step = max(1, blocks // each)
            if each == 1 and space.majors:
                at_once = max(1, units // size)
                most_at_once = _BODY_OPS // taken
                major_step = matrices_at_once(space.majors[-1], blocks, most_at_once, at_once)
            loops.run_steps(space, row_step, col_step, body, major_step)


def _known_columns(
    emitter: ElementEmitter,
    nodes: Sequence[HloInstruction],
    targets: Sequence[VmemArray],
    space: TileSpace,
    group: range,
) -> range | None:
    """All columns, if blocks had better have code of their own for each: a block takes less than half
    of the operations once it is known which parts of a concatenation it is made of."""
    starts = range(0, space.col_tiles, _BLOCK_COL_TILES)
    if not 1 < len(starts) <= _MOST_APART:
        return None
    ops = partial(_block_ops, emitter, nodes, targets, space, group)
    anywhere = ops(None, _BODY_OPS)
    if all(2 * ops(start, anywhere) <= anywhere for start in {0, starts[len(starts) // 2]}):
        return range(space.col_tiles)
    return None


def _period(
    emitter: ElementEmitter,
    nodes: Sequence[HloInstruction],
    targets: Sequence[VmemArray],
    space: TileSpace,
) -> int:
    """After how many row tiles another row of blocks of an operand is read; 0: blocks never part there.

    Rows [image, position] of positions that fill no whole blocks are such: in a block that has
    positions of two images at a place that a loop steers, each lane would look its own up.
    """
    leaves = frozenset(emitter.bindings) | frozenset(emitter.scalars)
    row = Var("row", 0, space.rows - 1)
    majors = tuple(ranged(f"m{d}", n) for d, n in enumerate(space.majors))
    found: set[int] = set()
    for node, target in zip(nodes, targets, strict=True):
        inside = (*majors, var(row), ranged("col", space.cols))
        index = tuple(low + expr for low, expr in zip(target.origin, inside, strict=True))
        for indices in leaf_indices(node, index, leaves).values():
            found.update(d for at in indices for expr in at for d in _divisors(expr, row))
    parts = [rows for rows in found if rows % LANES and LANES % rows]
    if len(parts) != 1:
        return 0
    (rows,) = parts
    is_whole = rows % _TILE_ROWS == 0 and space.rows % rows == 0
    return rows // _TILE_ROWS if is_whole and LANES // 2 <= rows <= _MOST_APART * LANES else 0


def _divisors(expr: Expr, row: Var) -> Iterator[int]:
    """By what a row is divided in an expression."""
    for atom, _ in expr.terms:
        if isinstance(atom, Var):
            continue
        if atom.body == var(row):
            yield atom.divisor
        else:
            yield from _divisors(atom.body, row)


def _block_ops(
    emitter: ElementEmitter,
    nodes: Sequence[HloInstruction],
    targets: Sequence[VmemArray],
    space: TileSpace,
    group: range,
    col_tile: int | None,
    enough: int,
) -> int:
    """Operations of a block of each result, filled and read, at any place or at a column tile.

    Those behind `enough` of them are not looked for.
    """
    probe = probe_emitter(emitter)
    tiles = _TurnedTiles(probe, nodes, targets, space, None, group)
    point = inner_point(probe, space)
    if col_tile is not None:
        point = replace(point, col_tile=const(col_tile))
    read = len(group) * 2 * _BLOCK_COL_TILES * _BLOCK_ROW_TILES
    ops = probe.builder.block.ops
    before = len(ops)
    for _ in tiles.steps(point):
        if len(ops) - before + read >= enough:
            break
    return len(ops) - before + read


def _turned(target: VmemArray, point: TilePoint, push: int, part: int) -> Index:
    """The logical index of what push number `push` of a block takes: rows in lanes."""
    row = point.row_tile * _TILE_ROWS + point.lane
    col = point.col_tile * LANES + (_TILE_ROWS * push + part) + point.sublane * _PACKING
    inside = (*point.majors, row, col)
    return tuple(low + expr for low, expr in zip(target.origin, inside, strict=True))


class _TurnedTiles:
    """The body of the loops: reads a tile out of its block, which it fills at the first of them."""

    def __init__(
        self,
        emitter: ElementEmitter,
        nodes: Sequence[HloInstruction],
        targets: Sequence[VmemArray],
        space: TileSpace,
        bounds: tuple[int, ...] | None,
        numbers: range,
        period: int = 0,
    ) -> None:
        """No block has rows of two times `period` row tiles."""
        self._period = period or space.row_tiles
        self._emitter = emitter
        self._nodes = nodes
        self._targets = targets
        self._space = space
        self._bounds = bounds
        self._numbers = numbers
        self._storer = Storer(emitter.ops, emitter.index_values)
        self._code: object = None
        self._held: list[_Key | None] = []
        self._next = 0

    def emit(self, point: TilePoint) -> None:
        """One tile of all results."""
        for _ in self.steps(point):
            pass

    def steps(self, point: TilePoint) -> Iterator[None]:
        """The same, stopping after every push of a block that is filled for it."""
        for number in self._numbers:
            target = self._targets[number]
            major = linearize(point.majors, target.major_pitch)
            down = self._in_period(point.row_tile) % _BLOCK_ROW_TILES
            half = point.col_tile.constant % _BLOCK_COL_TILES
            key = _Key(number, point.majors, point.row_tile - down, point.col_tile - half)
            with self._emitter.builder.coming_from(self._nodes[number].name):
                unit = yield from self._unit(key)
                word = self._emitter.ops.emit("vxpose.read", unit, _BLOCK_ROW_TILES * half + down)
                self._storer.store_word(target, major, point.row_tile, point.col_tile, word)

    def _in_period(self, row_tile: Expr) -> int:
        """The constant part of a row tile's number in its period."""
        return row_tile.constant % self._period

    def _unit(self, key: _Key) -> Generator[None, None, int]:
        """The transpose unit that holds a block; filled now if none does."""
        builder = self._emitter.builder
        if builder.block is not self._code:
            self._code = builder.block
            self._held = [None] * builder.chip.transpose_units
        if key in self._held:
            return self._held.index(key)
        unit = self._next % len(self._held)
        self._next = unit + 1
        yield from self._fill(key, unit)
        self._held[unit] = key
        return unit

    def _fill(self, key: _Key, unit: int) -> Iterator[None]:
        ops = self._emitter.ops
        space = self._space
        rows = _left(key.row_tile, space.rows, _TILE_ROWS, LANES)
        if self._period < space.row_tiles:
            rows = min(rows, _TILE_ROWS * (self._period - self._in_period(key.row_tile)))
        cols = _left(key.col_tile, space.cols, LANES, _BLOCK_COL_TILES * LANES)
        filled = -(-cols // LANES) * LANES if self._bounds is not None else cols
        for push in range(-(-filled // _TILE_ROWS)):
            left = min(_TILE_ROWS, cols - push * _TILE_ROWS)
            word = self._word(key, push, rows, left) if left > 0 else ops.integer(0)
            ops.emit("vxpose.push", unit, word, push)
            yield
        ops.emit("vxpose.swap.b16", unit)

    def _word(self, key: _Key, push: int, rows: int, cols: int) -> VReg:
        """The packed pairs of columns that a push takes; `rows` by `cols` of them matter."""
        emitter, number = self._emitter, key.number
        node, target = self._nodes[number], self._targets[number]
        values = []
        for part in range(_PACKING):
            sublanes = max(1, -(-(cols - part) // _PACKING))
            sublane = multiple(Var("s", 0, sublanes - 1), 1)
            lane = multiple(Var("l", 0, rows - 1), 1)
            point = TilePoint(key.majors, key.row_tile, key.col_tile, sublane, lane)
            value = emitter.emit(node, _turned(target, point, push, part))
            if self._bounds is not None:
                whole = TilePoint(key.majors, key.row_tile, key.col_tile, var(SUBLANE), var(LANE))
                index = _turned(target, whole, push, part)
                value = zero_outside(emitter, node, index, self._bounds, value)
            values.append(value)
        return pack(emitter.ops, values, target.shape.dtype)


def _left(tile: Expr, size: int, unit: int, most: int) -> int:
    """How many of `size` elements a block from `tile` on has; all but the last have `most`."""
    return min(most, size - tile.constant * unit) if tile.is_constant else most
