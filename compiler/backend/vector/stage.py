"""Vector stages: nodes computed over whole boxes, tile by tile."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from compiler.analysis.indexing import Expr, linearize, var
from compiler.analysis.indexing_maps import Condition, Index
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.cost import operation_count, stage_packing
from compiler.backend.vector.index_values import LANE, SUBLANE
from compiler.backend.vector.ops import value_class
from compiler.backend.vector.stores import Storer
from compiler.backend.vector.tile_loops import TileLoops, TilePoint, TileSpace, tile_space
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction


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
    storer = Storer(emitter.ops, emitter.index_values)
    bounds = limits if limits is not None else nodes[0].array.dims

    def body(point: TilePoint) -> None:
        for node, target in zip(nodes, targets, strict=True):
            parts = []
            for part in range(packing):
                index = point_index(target, space, point, part)
                value = emitter.emit(node, index)
                if zero_fill:
                    whole = point_index(target, space, full_tile(point), part)
                    value = _zero_outside(emitter, node, whole, bounds, value)
                parts.append(value)
            major = linearize(point.majors, space.majors)
            emitter.builder.source = node.name
            storer.store(target, major, point.row_tile, point.col_tile, parts)

    cost = operation_count(nodes, emitter.bindings) * packing
    TileLoops(emitter.builder, emitter.sregs).run(space, cost, body)
    emitter.builder.new_block()


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
