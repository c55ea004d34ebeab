"""Vector stages: nodes computed over whole boxes, tile by tile."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial

from compiler.analysis.indexing import Expr, const, linearize, ranged, var, variables
from compiler.analysis.indexing_boxes import leaf_indices
from compiler.analysis.indexing_maps import Index
from compiler.analysis.lane_costs import OWN_COLUMNS
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.bounds import zero_outside
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.index_values import LANE, SUBLANE
from compiler.backend.vector.long_sums import long_sums, run_side_by_side
from compiler.backend.vector.ops import value_class
from compiler.backend.vector.places_apart import PlacesApart
from compiler.backend.vector.probe import Work, axis, inner_point, probe_emitter, work
from compiler.backend.vector.row_periods import RowPeriod, period_of_rows
from compiler.backend.vector.row_splits import row_factors, row_variable, split_rows
from compiler.backend.vector.shared_tiles import share_much
from compiler.backend.vector.stage_cost import stage_packing
from compiler.backend.vector.stores import Storer
from compiler.backend.vector.sublane_axes import SublaneAxis, sublane_axes
from compiler.backend.vector.tile_indices import full_tile, point_index
from compiler.backend.vector.tile_loops import (
    BODY_OPS,
    TileLoops,
    TilePoint,
    TileSpace,
    tile_space,
    tile_step,
)
from compiler.backend.vector.transposed_reads import (
    LEAST_TRANSPOSED,
    block_row_tiles,
    matrices_at_once,
    reads_transposed,
)
from compiler.backend.vector.turned_stage import can_turn, run_turned
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction
from tpu_sim.isa.geometry import SUBLANES

_DEAR_TILE = 40
"""Operations from which it is worth asking whether column tiles differ."""
_ALIKE = 1.25
"""Of the least operations for a tile: what longer runs of columns may take."""
_MATRIX_OPS = 8192
"""What the small matrices of one body may take, as probes of one tile count it (assumed)."""
_TRANSPOSED_COLUMNS = 4
"""Blocks side by side in one body: one goes through the transpose unit as the other is read."""


def emit_stage(
    emitter: ElementEmitter,
    nodes: Sequence[HloInstruction],
    targets: Sequence[VmemArray],
    limits: tuple[int, ...] | None = None,
    zero_fill: bool = False,
) -> None:
    """See `VectorEmitter.emit_stage`."""
    packing = stage_packing(nodes, targets, emitter.bindings)
    space = tile_space(targets[0], packing)
    for node, target in zip(nodes, targets, strict=True):
        if tile_space(target, packing) != space:
            message = f"%{node.name}: the results of one stage differ in their boxes"
            raise CompileError(message, node.span)
        _check_class(node, target)
    emitter.bind_starts(nodes)
    bounds = limits if limits is not None else nodes[0].array.dims
    stage = BoxStage(tuple(nodes), tuple(targets), space, bounds if zero_fill else None)
    loops = TileLoops(emitter.builder, emitter.sregs)
    pairs = zip(nodes, targets, strict=True)
    is_dense = space.row_tiles * packing >= LEAST_TRANSPOSED
    if is_dense and any(_transposes(emitter, node, target, space) for node, target in pairs):
        if can_turn(emitter, nodes, targets, space):
            run_turned(emitter, loops, nodes, targets, space, stage.bounds)
        else:
            emitter.loader.can_transpose = True
            _run_transposed(emitter, loops, stage)
            emitter.loader.can_transpose = False
    else:
        _run_parts(emitter, loops, stage)
    emitter.builder.new_block()


@dataclass(frozen=True)
class BoxStage:
    """Nodes computed over boxes of the same tiles; `bounds` is set where elements outside are to be 0."""

    nodes: tuple[HloInstruction, ...]
    targets: tuple[VmemArray, ...]
    space: TileSpace
    bounds: tuple[int, ...] | None = None
    axis: SublaneAxis | None = None
    """Which part of the tiles is meant, and what lies along the sublanes; None: all, rows."""

    @property
    def loops(self) -> TileSpace:
        """What loops over the stage's tiles go over."""
        return self.space if self.axis is None else self.axis.space(self.space)

    def placed(self, point: TilePoint) -> TilePoint:
        """A point of the loops as one of the stage's space."""
        return point if self.axis is None else self.axis.placed(point)


def _run_parts(emitter: ElementEmitter, loops: TileLoops, stage: BoxStage) -> None:
    """Loops over registers that have as many elements as they may have."""
    axes = sublane_axes(stage.space) if stage.bounds is None else ()
    parts = [replace(stage, axis=axis) for axis in axes]
    across = parts[0] if parts else None
    if across is None or not _fits(across) or not _is_cheaper(emitter, across):
        _run(emitter, loops, stage)
        return
    space = across.loops
    words = space.row_tiles
    tiles = max(1, BODY_OPS // max(1, _cost_across(emitter, across)))
    col_step = tile_step(space.col_tiles, tiles)
    body = partial(emit_tile, emitter, across)
    loops.run_steps(space, words, col_step, body, max(1, tiles // col_step))
    for rest in parts[1:]:
        _run(emitter, loops, rest)


def _fits(across: BoxStage) -> bool:
    """Whether the words of a row of each result are in one tile, a known step from place to place."""
    return all(not target.replicated and target.row_tiles == 1 for target in across.targets)


def _is_cheaper(emitter: ElementEmitter, across: BoxStage) -> bool:
    """Whether eight tiles a row at a time take fewer operations than tile by tile."""
    rows = replace(across, axis=None)
    factors = (rows.space.row_tiles,)
    least = _cost(emitter, rows, factors)
    if least > _DEAR_TILE and rows.space.col_tiles > 1:  # columns may be looked at apart
        middle = rows.space.col_tiles // 2
        least = min(least, _cost(emitter, rows, factors, columns=range(middle, middle + 1)))
    return _cost_across(emitter, across) < SUBLANES * least


def _cost_across(emitter: ElementEmitter, across: BoxStage) -> int:
    """Operations for a register of each row."""
    words = across.loops.row_tiles
    return sum(_cost(emitter, across, (words,), const(word)) for word in range(words))


def _run(emitter: ElementEmitter, loops: TileLoops, stage: BoxStage) -> None:
    """Loops over the tiles; runs of columns, or rows, apart where each takes much less than any of them.

    So it is with a concatenation along the columns, or the rows: which operand a tile reads is known once
    it is known in which part it lies. Rows that stand for several dimensions of what is read are
    a loop each.
    """
    indices = list(_read_indices(emitter, stage))
    factors = row_factors(stage.loops, indices)
    space, body = split_rows(stage.loops, factors, partial(emit_tile, emitter, stage))
    if space.tile_count == 1:
        loops.run(space, 1, body)
        return
    operations, cost = _work(emitter, stage, factors)

    def tile_of(other: ElementEmitter) -> Callable[[TilePoint], None]:
        return split_rows(stage.loops, factors, partial(emit_tile, other, stage))[1]

    if cost <= _DEAR_TILE:
        loops.run(space, operations, body)
        return
    period = _row_period(emitter, stage, indices, cost)
    least = cost // 2 if period is None else min(cost // 2, period.issue_cycles)
    too_much = _ALIKE * least  # no choice below is of a run that takes as much
    runs = _runs(space)
    costs = [_most(_run_costs(emitter, stage, factors, run), too_much) for run in runs]
    if costs and min(costs) < least:
        found = next(i for i, dearest in enumerate(costs) if dearest <= _ALIKE * min(costs))
        if runs[found] == 1:
            places = PlacesApart(
                stage.loops, space, lambda other: partial(emit_tile, other, stage), tile_of
            )
            if places.run(emitter, loops, indices, costs[found]):
                return
        loops.run_columns_apart(space, costs[found], body, runs[found])
    elif period is not None:
        period.run(loops, stage.loops, BODY_OPS, partial(emit_tile, emitter, stage))
    elif not _run_rows_apart(emitter, loops, stage, factors, cost):
        sums = long_sums(emitter, stage.nodes)
        if sums:
            tile = (partial(_wanted, stage), partial(emit_tile, emitter, stage))
            run_side_by_side(emitter, sums, stage.loops, factors, operations, *tile)
            return
        together = share_much(emitter, space, operations, tile_of)
        loops.run(space, operations, body, 2 * operations if together else BODY_OPS)


def _wanted(stage: BoxStage, point: TilePoint) -> Iterator[tuple[HloInstruction, Index]]:
    """What a tile computes, with the indices of its phases."""
    point = stage.placed(point)
    for node, target in zip(stage.nodes, stage.targets, strict=True):
        for part in range(stage.space.packing):
            yield node, point_index(target, stage.space, point, part)


def _run_rows_apart(
    emitter: ElementEmitter,
    loops: TileLoops,
    stage: BoxStage,
    factors: tuple[int, ...],
    cost: int,
) -> bool:
    """Loops in which each row tile has code of its own, where that takes less than half of `cost`."""
    space, body = split_rows(stage.loops, factors, partial(emit_tile, emitter, stage))
    if not 1 < space.row_tiles <= OWN_COLUMNS:
        return False
    rows = _three(space.row_tiles)
    dearest = _most((_cost(emitter, stage, factors, const(k)) for k in rows), cost / 2)
    if 2 * dearest >= cost:
        return False
    step = max(1, min(space.row_tiles, BODY_OPS // max(1, dearest)))
    loops.run_rows_apart(space, step, 1, body)
    return True


def _row_period(
    emitter: ElementEmitter, stage: BoxStage, indices: Sequence[Expr], cost: int
) -> RowPeriod | None:
    """Rows after which what is read is cut alike, if it pays to know where a tile is in them."""

    def tile_of(other: ElementEmitter) -> Callable[[TilePoint], None]:
        return partial(emit_tile, other, stage)

    return period_of_rows(emitter, stage.loops, indices, cost, tile_of)


def _run_costs(
    emitter: ElementEmitter, stage: BoxStage, factors: tuple[int, ...], run: int
) -> Iterator[int]:
    """Operations for a tile of runs of so many columns, of three of them."""
    for k in _three(stage.loops.col_tiles // run):
        yield _cost(emitter, stage, factors, columns=range(k * run, (k + 1) * run))


def _three(count: int) -> tuple[int, ...]:
    """The middle one of so many, where there is mostly least to know, the first and the last."""
    return tuple(dict.fromkeys((count // 2, 0, count - 1)))


def _most(costs: Iterable[int], too_much: float) -> int:
    """The most of some costs, which are not all looked at once one is too much."""
    most = 0
    for cost in costs:
        most = max(most, cost)
        if most >= too_much:
            break
    return most


def _runs(space: TileSpace) -> list[int]:
    """Lengths of the runs of column tiles that may have code of their own, the longest first.

    A concatenation of equal parts is read alike within a part, which may be many tiles wide.
    """
    count = space.col_tiles
    if count <= OWN_COLUMNS:
        return [1] if count > 1 else []
    if space.cols % 128:
        return []
    return [n for n in range(count // 2, 0, -1) if count % n == 0 and count // n <= OWN_COLUMNS]


def _run_transposed(emitter: ElementEmitter, loops: TileLoops, stage: BoxStage) -> None:
    """Bodies of 128 rows; each by itself where its columns or rows say which operand is read."""
    space = stage.space
    step = block_row_tiles(space.packing)
    body = partial(emit_tile, emitter, stage)
    blocks = -(-space.row_tiles // step)
    pair = min(_TRANSPOSED_COLUMNS, space.col_tiles)
    down = -(-emitter.builder.chip.transpose_units // pair)  # so that every unit is at work
    whole = (space.row_tiles,)
    loops.block_rows = step
    cost = _cost(emitter, stage, whole) if max(blocks, space.col_tiles) > 1 else 0
    if 1 < space.col_tiles <= OWN_COLUMNS:
        columns = {0, space.col_tiles // 2, space.col_tiles - 1}
        apart = sum(_cost(emitter, stage, whole, columns=range(k, k + 1)) for k in columns)
        if 2 * apart < len(columns) * cost:
            _run_columns(emitter, loops, stage, down * step)
            return
    if 1 < blocks <= OWN_COLUMNS:
        rows = _three(blocks)
        apart = _most((_cost(emitter, stage, whole, const(k * step)) for k in rows), cost / 2)
        if 2 * apart < cost:
            loops.run_rows_apart(space, down * step, pair, body)
            return
    units = emitter.builder.chip.transpose_units
    together = max(1, units // (min(down, blocks) * pair))
    if blocks == space.col_tiles == 1 and space.majors:
        most = _MATRIX_OPS // max(1, _cost(emitter, stage, whole))
        together = matrices_at_once(space.majors[-1], together, most, units)
    loops.run_steps(space, down * step, pair, body, together)


def _run_columns(emitter: ElementEmitter, loops: TileLoops, stage: BoxStage, row_step: int) -> None:
    """Runs of column tiles by how they are read: as they lie, turned, or transposed one by one."""
    space = stage.space
    body = partial(emit_tile, emitter, stage)
    for kind, run in itertools.groupby(
        range(0, space.col_tiles, 2), partial(_kind, emitter, stage)
    ):
        starts = list(run)
        columns = range(starts[0], min(starts[-1] + 2, space.col_tiles))
        emitter.loader.can_transpose = kind is _Kind.TRANSPOSED
        if kind is _Kind.TURNED:
            pairs = (stage.nodes, stage.targets, space, stage.bounds, columns)
            run_turned(emitter, loops, *pairs)
            continue
        is_plain = kind is _Kind.PLAIN
        loops.block_rows = 1 if is_plain else block_row_tiles(space.packing)
        steps = (2, 4) if is_plain else (row_step, _TRANSPOSED_COLUMNS)
        loops.run_column_steps_apart(space, *steps, body, columns)
    emitter.loader.can_transpose = True


class _Kind(Enum):
    """How a pair of column tiles is had."""

    PLAIN = auto()
    TURNED = auto()
    TRANSPOSED = auto()


def _kind(emitter: ElementEmitter, stage: BoxStage, first: int) -> _Kind:
    space = stage.space
    columns = range(first, min(first + 2, space.col_tiles))
    pairs = list(zip(stage.nodes, stage.targets, strict=True))
    is_plain = [
        not any(_transposes(emitter, node, target, space, const(k)) for node, target in pairs)
        for k in columns
    ]
    if all(is_plain):
        return _Kind.PLAIN
    turns = not any(is_plain) and all(
        can_turn(emitter, stage.nodes, stage.targets, space, k) for k in columns
    )
    return _Kind.TURNED if turns else _Kind.TRANSPOSED


def _read_indices(emitter: ElementEmitter, stage: BoxStage) -> Iterator[Expr]:
    """All indices at which the stage reads what lies in VMEM, by the variable of its row tile."""
    space = stage.loops
    majors = tuple(ranged(f"m{d}", n) for d, n in enumerate(space.majors))
    col = ranged("ct", space.col_tiles)
    point = stage.placed(TilePoint(majors, row_variable(space), col, var(SUBLANE), var(LANE)))
    stop = frozenset(emitter.bindings) | frozenset(emitter.scalars)
    for node, target in zip(stage.nodes, stage.targets, strict=True):
        index = point_index(target, stage.space, point, 0)
        for indices in leaf_indices(node, index, stop).values():
            for at in indices:
                yield from at


def _cost(
    emitter: ElementEmitter,
    stage: BoxStage,
    factors: tuple[int, ...],
    row_tile: Expr | None = None,
    columns: range | None = None,
) -> int:
    """Cycles for which a tile in loops, or in a given row or some columns, holds issue slots."""
    return _work(emitter, stage, factors, row_tile, columns).issue_cycles


def _work(
    emitter: ElementEmitter,
    stage: BoxStage,
    factors: tuple[int, ...],
    row_tile: Expr | None = None,
    columns: range | None = None,
) -> Work:
    probe = probe_emitter(emitter)
    probe.loader.can_transpose = emitter.loader.can_transpose
    space, body = split_rows(stage.loops, factors, partial(emit_tile, probe, stage))
    point = inner_point(probe, space)
    if row_tile is not None:
        point = replace(point, row_tile=row_tile)
    if columns is not None:
        point = replace(point, col_tile=const(columns.start) + axis(probe, "run", len(columns)))
    return work(probe, partial(body, point))


def emit_tile(emitter: ElementEmitter, stage: BoxStage, point: TilePoint) -> None:
    """Compute and store one tile of all nodes of a stage."""
    point = stage.placed(point)
    storer = Storer(emitter.ops, emitter.index_values)
    held = {array.window for array in emitter.bindings.values()}
    is_over_operand = any(target.window in held for target in stage.targets)
    waiting: list[Callable[[], None]] = []
    for node, target in zip(stage.nodes, stage.targets, strict=True):
        parts = _tile_parts(emitter, stage, node, target, point)
        store = partial(_store_tile, emitter, storer, node, target, point, parts)
        if is_over_operand:
            waiting.append(store)  # another result may read what lies there
        else:
            store()  # registers are free again
    for late in waiting:
        late()


def _store_tile(
    emitter: ElementEmitter,
    storer: Storer,
    node: HloInstruction,
    target: VmemArray,
    point: TilePoint,
    parts: list[int],
) -> None:
    major = linearize(point.majors, target.major_pitch)
    with emitter.builder.coming_from(node.name):
        if SUBLANE in variables(major) | variables(point.col_tile):
            storer.store_across(target, major, point.sublane, point.col_tile, parts)
            return
        storer.store(target, major, point.row_tile, point.col_tile, parts)


def _tile_parts(
    emitter: ElementEmitter,
    stage: BoxStage,
    node: HloInstruction,
    target: VmemArray,
    point: TilePoint,
) -> list[int]:
    """The registers of a node's tile, one for each phase of its rows."""
    space = stage.space
    parts: list[int] = []
    for part in range(space.packing):
        if part >= space.rows and stage.bounds is None:
            parts.append(parts[0])  # rows of no element, in any sublane
            continue
        value = emitter.emit(node, point_index(target, space, point, part))
        if stage.bounds is not None:
            whole = point_index(target, space, full_tile(point), part)
            value = zero_outside(emitter, node, whole, stage.bounds, value)
        parts.append(value)
    return parts


def _transposes(
    emitter: ElementEmitter,
    node: HloInstruction,
    target: VmemArray,
    space: TileSpace,
    col_tile: Expr | None = None,
) -> bool:
    """Whether some leaf is read with rows along the lanes: then a body takes a 128x128 block.

    With `col_tile` that is asked of these columns only.
    """
    point = TilePoint(
        tuple(ranged(f"m{d}", n) for d, n in enumerate(space.majors)),
        ranged("rt", space.row_tiles),
        ranged("ct", space.col_tiles) if col_tile is None else col_tile,
        var(SUBLANE),
        var(LANE),
    )
    return reads_transposed(emitter, node, point_index(target, space, point, 0))


def _check_class(node: HloInstruction, target: VmemArray) -> None:
    if value_class(node.array.dtype) != value_class(target.shape.dtype):
        message = f"%{node.name}: {node.array.dtype} cannot be stored as {target.shape.dtype}"
        raise CompileError(message, node.span)
