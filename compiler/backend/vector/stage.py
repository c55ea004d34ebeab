"""Vector stages: nodes computed over whole boxes, tile by tile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from compiler.analysis.indexing import Expr, const, linearize, ranged, var
from compiler.analysis.indexing_boxes import leaf_indices
from compiler.analysis.indexing_maps import Condition, Index
from compiler.backend.vector.addresses import physical_index
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.index_values import LANE, SUBLANE
from compiler.backend.vector.ops import value_class
from compiler.backend.vector.probe import inner_point, operations, probe_emitter
from compiler.backend.vector.stage_cost import stage_packing
from compiler.backend.vector.stores import Storer
from compiler.backend.vector.tile_loops import TileLoops, TilePoint, TileSpace, tile_space
from compiler.backend.vector.transposes import transposed_index
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction

_DEAR_TILE = 150
"""Operations from which it is worth asking whether column tiles differ."""
_MOST_COPIES = 64
_LEAST_TRANSPOSED = 2
"""Vregs of a transposed block for which the transpose takes less than indexed loads."""


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
    stage = _Stage(tuple(nodes), tuple(targets), space, bounds if zero_fill else None)
    loops = TileLoops(emitter.builder, emitter.sregs)
    pairs = zip(nodes, targets, strict=True)
    is_dense = space.row_tiles * packing >= _LEAST_TRANSPOSED
    if is_dense and any(_transposes(emitter, node, target, space) for node, target in pairs):
        emitter.loader.can_transpose = True
        loops.run_steps(space, 16 // packing, 1, partial(_emit_tile, emitter, stage))
        emitter.loader.can_transpose = False
    else:
        _run(emitter, loops, stage)
    emitter.builder.new_block()


@dataclass(frozen=True)
class _Stage:
    """What is computed: `bounds` is set where elements outside are to be 0."""

    nodes: tuple[HloInstruction, ...]
    targets: tuple[VmemArray, ...]
    space: TileSpace
    bounds: tuple[int, ...] | None


def _run(emitter: ElementEmitter, loops: TileLoops, stage: _Stage) -> None:
    """Loops over the tiles; column tiles one by one where each takes much less than any of them.

    So it is with a concatenation along the columns: which operand a tile reads is known once its
    column is.
    """
    space = stage.space
    body = partial(_emit_tile, emitter, stage)
    if space.tile_count == 1:
        loops.run(space, 1, body)
        return
    cost = _cost(emitter, stage, None)
    if cost > _DEAR_TILE and 1 < space.col_tiles <= _MOST_COPIES:
        columns = {0, space.col_tiles // 2, space.col_tiles - 1}
        if 2 * max(_cost(emitter, stage, const(k)) for k in columns) < cost:
            loops.run_columns_apart(space, body)
            return
    loops.run(space, cost, body)


def _cost(emitter: ElementEmitter, stage: _Stage, col_tile: Expr | None) -> int:
    """Operations for a tile, in a given column or in a loop over the columns."""
    probe = probe_emitter(emitter)
    point = inner_point(probe, stage.space)
    if col_tile is not None:
        point = replace(point, col_tile=col_tile)
    return operations(probe, partial(_emit_tile, probe, stage, point))


def _emit_tile(emitter: ElementEmitter, stage: _Stage, point: TilePoint) -> None:
    storer = Storer(emitter.ops, emitter.index_values)
    space = stage.space
    for node, target in zip(stage.nodes, stage.targets, strict=True):
        parts = []
        for part in range(space.packing):
            value = emitter.emit(node, point_index(target, space, point, part))
            if stage.bounds is not None:
                whole = point_index(target, space, full_tile(point), part)
                value = _zero_outside(emitter, node, whole, stage.bounds, value)
            parts.append(value)
        major = linearize(point.majors, space.majors)
        emitter.builder.source = node.name
        storer.store(target, major, point.row_tile, point.col_tile, parts)


def point_index(array: VmemArray, space: TileSpace, point: TilePoint, part: int) -> Index:
    """The logical index of a tile's elements, for rows of phase `part`."""
    row = point.row_tile * (8 * space.packing) + point.sublane * space.packing + part
    inside: tuple[Expr, ...]
    if array.shape.rank == 0:
        return ()
    if array.replicated:
        inside = (*point.majors, row)
    elif space.is_vector:
        inside = (row * 128 + point.lane,)
    else:
        inside = (*point.majors, row, point.col_tile * 128 + point.lane)
    return tuple(low + expr for low, expr in zip(array.origin, inside, strict=True))


def _transposes(
    emitter: ElementEmitter, node: HloInstruction, target: VmemArray, space: TileSpace
) -> bool:
    """Whether some leaf is read with rows along the lanes: then a body takes a 128x128 block."""
    point = TilePoint(
        tuple(ranged(f"m{d}", n) for d, n in enumerate(space.majors)),
        ranged("rt", space.row_tiles),
        ranged("ct", space.col_tiles),
        var(SUBLANE),
        var(LANE),
    )
    index = point_index(target, space, point, 0)
    leaves = leaf_indices(node, index, frozenset(emitter.bindings) | frozenset(emitter.scalars))
    return any(
        transposed_index(emitter.bindings[leaf], *physical_index(emitter.bindings[leaf], at))
        for leaf, indices in leaves.items()
        if leaf in emitter.bindings
        for at in indices
    )


def _zero_outside(
    emitter: ElementEmitter,
    node: HloInstruction,
    index: Index,
    bounds: Iterable[int],
    value: int,
) -> int:
    checks = (Condition(expr, 0, size - 1) for expr, size in zip(index, bounds, strict=True))
    needed = tuple(check for check in checks if not check.is_always)
    if not needed:
        return value
    kind = value_class(node.array.dtype)
    zero = emitter.ops.flag(False) if kind == "m" else emitter.ops.integer(0)
    return emitter.ops.choose(kind, emitter.mask(needed), value, zero)


def full_tile(point: TilePoint) -> TilePoint:
    """The point with all sublanes and lanes, those that do not matter included."""
    return replace(point, sublane=var(SUBLANE), lane=var(LANE))


def _check_class(node: HloInstruction, target: VmemArray) -> None:
    if value_class(node.array.dtype) != value_class(target.shape.dtype):
        message = f"%{node.name}: {node.array.dtype} cannot be stored as {target.shape.dtype}"
        raise CompileError(message, node.span)
