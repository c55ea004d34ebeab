"""Read-modify-write of whole matrices of arrays in VMEM: eight rows at a time, unmasked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from compiler.analysis.indexing import Expr, Var, const, var
from compiler.analysis.indexing_maps import Index
from compiler.backend.row_update import Combiner
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.ops import value_class
from compiler.backend.vector.stores import Storer
from compiler.backend.vector.tile_indices import point_index
from compiler.backend.vector.tile_loops import TileLoops, TilePoint, TileSpace, tile_points
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction
from compiler.llo.ir import SReg

IndexOf = Callable[[Expr, Expr], Index]
"""The updates' index of a row and a column."""
_OPS_PER_TILE = 8
"""About what is emitted for a tile and word of an update: loads, selects, a store."""


def can_update_tiles(dtypes: Sequence[DType]) -> bool:
    """Whether elements of all arrays lie alike in their tiles, and are numbers."""
    is_alike = len({dtype.packing for dtype in dtypes}) == 1
    return is_alike and all(value_class(dtype) != "m" for dtype in dtypes)


class TileUpdate:
    """One matrix of each of `targets`, which hold matrices whole; `places[i]` number it among the
    matrices that target i holds."""

    def __init__(
        self,
        emitter: VectorEmitter,
        combiner: Combiner,
        targets: Sequence[VmemArray],
        places: Sequence[Sequence[SReg]],
        when: SReg = -1,
    ) -> None:
        """`when`: an sreg; the matrices, of few tiles, stay as they are where that is 0."""
        self._when = when
        self._emitter = emitter
        self._combiner = combiner
        zero = tuple(const(0) for _ in targets[0].shape.dims)
        self._targets = [replace(target, origin=zero) for target in targets]
        self._majors = [
            self._major(number, target, where)
            for number, (target, where) in enumerate(zip(targets, places, strict=True))
        ]

    def _major(self, number: int, target: VmemArray, places: Sequence[SReg]) -> tuple[Expr, ...]:
        found: list[Expr] = []
        for dim, (place, size) in enumerate(zip(places, target.majors, strict=True)):
            variable = Var(f"matrix{number}.{dim}.{place}", 0, size - 1)
            self._emitter.sregs[variable] = place
            found.append(var(variable))
        return tuple(found)

    def emit(self, updates: Sequence[HloInstruction], index: IndexOf) -> None:
        """Combine the matrices with their updates."""
        first = self._targets[0]
        space = TileSpace((), first.rows, first.cols, first.packing)

        def body(point: TilePoint) -> None:
            self._tile(updates, index, space, point)

        if self._when >= 0:
            for point in tile_points(space):
                body(point)
            return
        cost = _OPS_PER_TILE * first.packing * len(updates)
        TileLoops(self._emitter.builder, self._emitter.sregs).run(space, cost, body)

    def _tile(
        self,
        updates: Sequence[HloInstruction],
        index: IndexOf,
        space: TileSpace,
        point: TilePoint,
    ) -> None:
        emitter, ops = self._emitter, self._emitter.ops
        storer = Storer(ops, emitter.index_values)
        made: list[list[int]] = [[] for _ in self._targets]
        for part in range(space.packing):
            *_, row, col = point_index(self._targets[0], space, self._inner(point, 0), part)
            at = index(row, col)
            new = [emitter.emit(node, at) for node in updates]
            old = [
                emitter.loader.load(
                    target, point_index(target, space, self._inner(point, number), part)
                )
                for number, target in enumerate(self._targets)
            ]
            state = self._combiner.finish(ops, self._combiner.combine(ops, old, new))
            if self._when >= 0:
                mask = ops.compare_integer("ne", ops.splat(self._when), 0)
                state = [ops.select(mask, a, b) for a, b in zip(state, old, strict=True)]
            for values, value in zip(made, state, strict=True):
                values.append(value)
        for target, majors, values in zip(self._targets, self._majors, made, strict=True):
            major = const(0)
            for place, size in zip(majors, target.major_pitch, strict=True):
                major = major * size + place
            storer.store(target, major, point.row_tile, point.col_tile, values)

    def _inner(self, point: TilePoint, number: int) -> TilePoint:
        return replace(point, majors=self._majors[number])
