"""Reduction stages: reduces over any dimensions of one operand box.

Dimensions are kept or reduced; of the operand's physical view the majors, the rows (sublanes) and
the columns (lanes) take part alike:

    for every kept tile:
        state = identity
        for every reduced tile: state = op(state, value), masked where the tile is not full
        if rows are reduced: fold over sublanes        if columns are: fold over lanes
        store

    kept               the result of a kept tile           is stored as
    rows and columns   a tile                              a tile
    rows               a lane-replicated tile              a tile of a `replicated` array
    columns            one row of 128                      a row
    neither            one number                          a row of a `replicated` array

Targets in another arrangement or of a packed type are filled by a second stage from scratch memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from compiler.analysis.indexing import Expr, const, linearize
from compiler.analysis.indexing_boxes import Box
from compiler.analysis.indexing_maps import Condition, Index
from compiler.backend.vector.addresses import tiled_address
from compiler.backend.vector.arrays import VmemArray, allocate
from compiler.backend.vector.constants import uniform_constant
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.ops import value_class
from compiler.backend.vector.probe import inner_point, operations, probe_emitter
from compiler.backend.vector.reducers import Reducer, State, reducer_of
from compiler.backend.vector.stage import emit_stage, full_tile
from compiler.backend.vector.stage_cost import stage_packing
from compiler.backend.vector.stores import Storer
from compiler.backend.vector.tile_loops import (
    TileLoops,
    TilePoint,
    TileSpace,
    places_in_box,
    tile_points,
)
from compiler.hlo.ir import HloInstruction
from compiler.kernels.plan import accumulators_name
from compiler.kernels.planning import result_nodes, state_tiles, turned
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import SUBLANES

ReducedBox = tuple[tuple[Expr, int], ...]
"""(first index, extent) of each reduced dimension, in ascending order of dimension."""

_STRAIGHT_LINE_OPS = 600
_DEAR_TILE = 12
"""Operations from which it is worth asking whether kept columns differ, as parts put together do."""
_MOST_COPIES = 16
_ACCUMULATORS = 4


def emit_reduce_stage(
    emitter: ElementEmitter,
    reduces: Sequence[HloInstruction],
    targets: Sequence[Sequence[VmemArray]],
    reduced: ReducedBox | None = None,
    accumulate: SReg | None = None,
) -> None:
    """See `VectorEmitter.emit_reduce_stage`."""
    plan = _plan(reduces[0], targets[0][0], reduced, emitter)
    direct: list[list[VmemArray]] = []
    copies: list[tuple[HloInstruction, VmemArray, VmemArray]] = []
    for reduce, arrays in zip(reduces, targets, strict=True):
        row: list[VmemArray] = []
        for result, target in zip(result_nodes(reduce), arrays, strict=True):
            box = Box(target.origin, target.extent)
            through = turned(
                reduce,
                result,
                target.shape,
                box,
                is_replicated=target.replicated,
                packing=plan.kept.packing,
            )
            if through is None:
                row.append(target)
                continue
            assert accumulate is None, f"%{reduce.name}: accumulation needs a direct target"
            row.append(allocate(emitter.builder, through))
            copies.append((result, row[-1], target))
        direct.append(row)
    _ReduceStage(emitter, plan, reduces, direct, accumulate).emit()
    for node, scratch, target in copies:
        shadowed = emitter.bindings.get(node)
        emitter.bindings[node] = scratch
        emit_stage(emitter, [node], [target])
        if shadowed is not None:
            emitter.bindings[node] = shadowed
        else:
            del emitter.bindings[node]


@dataclass(frozen=True)
class _Plan:
    """The operand's physical view, dimension by dimension kept or reduced.

    `kept_major`/`reduced_major` number operand dims; `row`/`col` say whether these are kept.
    """

    dims: tuple[int, ...]
    reduced_dims: tuple[int, ...]
    kept: TileSpace
    reduced: TileSpace
    keeps_rows: bool
    keeps_cols: bool
    kept_low: tuple[Expr, ...]
    reduced_low: tuple[Expr, ...]
    reduced_extent: tuple[int, ...]


def _plan(
    reduce: HloInstruction, target: VmemArray, box: ReducedBox | None, emitter: ElementEmitter
) -> _Plan:
    operand = reduce.operands[0]
    dims = operand.array.dims
    reduced_dims = tuple(sorted(reduce.dimensions))
    if box is None:
        box = tuple((const(0), dims[d]) for d in reduced_dims)
    sizes = dict(zip(reduced_dims, (extent for _, extent in box), strict=True))
    kept_dims = [d for d in range(len(dims)) if d not in reduced_dims]
    kept_sizes = dict(zip(kept_dims, target.extent, strict=True))
    count = len(reduce.operands) // 2
    packing = stage_packing(reduce.operands[:count], [], emitter.bindings)
    first_tiled = max(0, len(dims) - 2)
    is_vector = len(dims) == 1
    row, col = (-1, 0) if is_vector else (len(dims) - 2, len(dims) - 1)

    def space(of: dict[int, int]) -> TileSpace:
        majors = tuple(of[d] for d in sorted(of) if d < first_tiled)
        if is_vector and col in of:
            return TileSpace(majors, -(-of[col] // 128), min(128, of[col]), packing, True)
        rows = of.get(row, packing if is_vector else 1)
        return TileSpace(majors, rows, of.get(col, 1), packing)

    keeps_rows = row in kept_sizes
    kept = space(kept_sizes)
    if not keeps_rows:
        kept = replace(kept, packing=1, rows=1)
    return _Plan(
        dims, reduced_dims, kept, _without_rows(space(sizes), keeps_rows), keeps_rows,
        col in kept_sizes, target.origin, tuple(low for low, _ in box),
        tuple(extent for _, extent in box),
    )  # fmt: skip


def _without_rows(space: TileSpace, keeps_rows: bool) -> TileSpace:
    return replace(space, packing=1, rows=1) if keeps_rows else space


class _Accumulators:
    """A few running states, so that the latency of one combination does not bound the loop."""

    def __init__(self, combine: Callable[[list[State], list[State]], list[State]]) -> None:
        self._combine = combine
        self._running: list[list[State]] = []
        self._count = 0

    def add(self, value: list[State]) -> None:
        """Take in one more value."""
        if len(self._running) < _ACCUMULATORS:
            self._running.append(value)
        else:
            slot = self._count % _ACCUMULATORS
            self._running[slot] = self._combine(self._running[slot], value)
        self._count += 1

    def total(self) -> list[State]:
        """All values combined, pairwise."""
        level = self._running
        while len(level) > 1:
            pairs = [self._combine(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
            level = pairs + ([level[-1]] if len(level) % 2 else [])
        return level[0]


class _ReduceStage:
    """Emits one stage; see the module."""

    def __init__(
        self,
        emitter: ElementEmitter,
        plan: _Plan,
        reduces: Sequence[HloInstruction],
        targets: Sequence[Sequence[VmemArray]],
        accumulate: SReg | None,
    ) -> None:
        self._emitter = emitter
        self._ops = emitter.ops
        self._plan = plan
        self._reduces = reduces
        self._reducers = [reducer_of(reduce) for reduce in reduces]
        self._targets = targets
        self._accumulate = accumulate
        self._storer = Storer(emitter.ops, emitter.index_values)
        self._loops = TileLoops(emitter.builder, emitter.sregs)
        self._parts = plan.kept.packing if plan.keeps_rows else 1
        self._inner_parts = 1 if plan.keeps_rows else plan.reduced.packing
        self._states = sum(len(r.dtypes) for r in self._reducers)
        self._accumulators = -1

    def emit(self) -> None:
        """Loops over the kept tiles; the reduced ones in a row or in loops of their own."""
        self._emitter.bind_starts([o for reduce in self._reduces for o in reduce.operands])
        first = self._reduces[0]
        rows = state_tiles(first, self._states) * SUBLANES
        self._accumulators = self._emitter.builder.window(accumulators_name(first), rows)
        cost, are_apart = self._cost(), False
        columns = self._plan.kept.col_tiles
        if cost > _DEAR_TILE and 1 < columns <= _MOST_COPIES:
            dearest = max(self._cost(const(k)) for k in sorted({0, columns // 2, columns - 1}))
            if 2 * dearest < cost:
                cost, are_apart = dearest, True
        total = cost * self._plan.reduced.tile_count
        is_straight = total <= _STRAIGHT_LINE_OPS
        body = self._straight if is_straight else partial(self._looped, cost)
        self._loops.parallel = is_straight  # else all tiles go through the same accumulators
        if are_apart:
            self._loops.run_column_steps_apart(self._plan.kept, 1, 1, body)
        elif is_straight:
            self._loops.run(self._plan.kept, total + 10 * self._states, body)
        else:
            self._loops.run_steps(self._plan.kept, 1, 1, body)
        self._emitter.builder.new_block()

    def _cost(self, column: Expr | None = None) -> int:
        """Operations for the values of one reduced tile, all phases of it; in a given kept column."""
        probe = probe_emitter(self._emitter)
        stage = _ReduceStage(probe, self._plan, self._reduces, self._targets, None)
        kept = inner_point(probe, self._plan.kept)
        if column is not None:
            kept = replace(kept, col_tile=column)
        point = inner_point(probe, self._plan.reduced)

        def emit() -> None:
            for part in range(self._parts):
                for inner in range(self._inner_parts):
                    stage._values(kept, point, part, inner)

        return operations(probe, emit) + self._states * self._parts * self._inner_parts

    def _straight(self, kept: TilePoint) -> None:
        self._store(kept, self._parts_of(kept))

    def row_values(self, kept: TilePoint) -> list[int]:
        """The first reduce's first result at a kept tile, a register for each phase of its rows."""
        return [state[0] for state in self._finished(kept, 0, self._parts_of(kept))]

    def _parts_of(self, kept: TilePoint) -> list[list[State]]:
        """The folded states of each phase of a kept tile's rows, by straight-line code."""
        parts = []
        for part in range(self._parts):
            sums = _Accumulators(self._combine)
            for point in tile_points(self._plan.reduced):
                for inner in range(self._inner_parts):
                    sums.add(self._values(kept, point, part, inner))
            parts.append(self._folded(sums.total()))
        return parts

    def _combine(self, a: list[State], b: list[State]) -> list[State]:
        return [
            reducer.combine(self._ops, x, y)
            for reducer, x, y in zip(self._reducers, a, b, strict=True)
        ]

    def _looped(self, cost: int, kept: TilePoint) -> None:
        """The same with the state in VMEM between iterations of loops over the reduced tiles."""
        for part in range(self._parts):
            start = [self._identity(n) for n in range(len(self._reducers))]
            self._save(part, start)

        sums: list[_Accumulators] = []

        @contextmanager
        def block() -> Iterator[None]:
            sums[:] = [_Accumulators(self._combine) for _ in range(self._parts)]
            for part, one in enumerate(sums):
                one.add(self._restored(part))
            yield
            for part, one in enumerate(sums):
                self._save(part, one.total())

        def body(point: TilePoint) -> None:
            for part in range(self._parts):
                for inner in range(self._inner_parts):
                    sums[part].add(self._values(kept, point, part, inner))

        loops = TileLoops(self._emitter.builder, self._emitter.sregs, block, parallel=False)
        loops.run(self._plan.reduced, cost, body)
        self._emitter.builder.new_block()
        self._store(kept, [self._folded(self._restored(p)) for p in range(self._parts)])
        self._emitter.builder.new_block()

    def _slot(self, part: int, number: int) -> int:
        return (part * self._states + number) * 8

    def _save(self, part: int, state: list[State]) -> None:
        flat = [value for one in state for value in one]
        for number, value in enumerate(flat):
            self._ops.emit("vst", self._accumulators, 0, self._slot(part, number), 1, value)

    def _restored(self, part: int) -> list[State]:
        numbers = iter(range(self._states))
        return [
            [
                self._ops.emit("vld", self._accumulators, 0, self._slot(part, next(numbers)), 1)
                for _ in reducer.dtypes
            ]
            for reducer in self._reducers
        ]

    def _values(self, kept: TilePoint, point: TilePoint, part: int, inner: int) -> list[State]:
        """The operands' values of one reduced tile, the identity where there is no element."""
        index = self._index(kept, point, part, inner)
        conditions = self._conditions(point, inner)
        states: list[State] = []
        for number, reduce in enumerate(self._reduces):
            count = len(reduce.operands) // 2
            state = [self._lanes_of(operand, index) for operand in reduce.operands[:count]]
            if conditions:
                mask = self._emitter.mask(conditions)
                identity = self._identity(number)
                state = [
                    self._ops.select(mask, value, none)
                    for value, none in zip(state, identity, strict=True)
                ]
            states.append(state)
        return states

    def _conditions(self, point: TilePoint, inner: int) -> tuple[Condition, ...]:
        """Where a reduced tile has elements: those of the array, and of this box of it.

        A box of a packed type may end within a tile, whose other rows are the next box's.
        """
        plan = self._plan
        places = places_in_box(
            plan.reduced, full_tile(point), inner, not plan.keeps_rows, not plan.keeps_cols
        )
        found: list[Condition] = []
        boxes = zip(plan.reduced_dims, places, plan.reduced_low, plan.reduced_extent, strict=True)
        for d, place, low, extent in boxes:
            found += [Condition(place, 0, extent - 1), Condition(low + place, 0, plan.dims[d] - 1)]
        return tuple(dict.fromkeys(c for c in found if not c.is_always))

    def _lanes_of(self, node: HloInstruction, index: Index) -> int:
        value = self._emitter.emit(node, index)
        is_mask = value_class(node.array.dtype) == "m"
        return self._ops.mask_to_integer(value) if is_mask else value

    def _identity(self, number: int) -> State:
        reducer = self._reducers[number]
        if not reducer.monoid:
            return self._init(number)
        init = uniform_constant(self._reduces[number].operands[-1])
        if reducer.monoid == "add" and isinstance(init, float) and math.copysign(1.0, init) < 0:
            return [self._ops.real(-0.0)]  # 0.0 + -0.0 is 0.0: only a sum from -0.0 keeps the sign
        return [self._ops.integer(reducer.identity_bits())]

    def _init(self, number: int) -> State:
        reduce = self._reduces[number]
        count = len(reduce.operands) // 2
        return [self._lanes_of(operand, ()) for operand in reduce.operands[count:]]

    def _index(self, kept: TilePoint, point: TilePoint, part: int, inner: int) -> Index:
        """The operand's logical index."""
        plan = self._plan
        kept_places = iter(places_in_box(plan.kept, kept, part, plan.keeps_rows, plan.keeps_cols))
        reduced_places = iter(
            places_in_box(plan.reduced, point, inner, not plan.keeps_rows, not plan.keeps_cols)
        )
        kept_low, reduced_low = iter(plan.kept_low), iter(plan.reduced_low)
        return tuple(
            next(reduced_low) + next(reduced_places)
            if d in plan.reduced_dims
            else next(kept_low) + next(kept_places)
            for d in range(len(plan.dims))
        )

    def _folded(self, states: list[State]) -> list[State]:
        results: list[State] = []
        for reducer, state in zip(self._reducers, states, strict=True):
            if not self._plan.keeps_rows:
                state = reducer.fold(self._ops, state, "sublane")
            if not self._plan.keeps_cols:
                state = reducer.fold(self._ops, state, "lane")
            results.append(state)
        return results

    def _store(self, kept: TilePoint, parts: list[list[State]]) -> None:
        for number, targets in enumerate(self._targets):
            finished = self._finished(kept, number, parts)
            for leaf, target in enumerate(targets):
                self._store_leaf(target, kept, [state[leaf] for state in finished])

    def _finished(self, kept: TilePoint, number: int, parts: list[list[State]]) -> list[State]:
        """The results of a reduce from the folded states of each phase."""
        reducer = self._reducers[number]
        return [
            reducer.finish(self._ops, self._with_start(kept, number, part, states[number]))
            for part, states in enumerate(parts)
        ]

    def _with_start(self, kept: TilePoint, number: int, part: int, state: State) -> State:
        """Combined with the init value, or with what the target holds from earlier grid steps."""
        reducer = self._reducers[number]
        ops = self._ops
        init = self._init(number)
        is_identity = reducer.monoid and init == self._identity(number)
        fresh = state if is_identity else reducer.combine(ops, init, state)
        if self._accumulate is None:
            return fresh
        held = [self._held(target, kept, part) for target in self._targets[number]]
        total = reducer.combine(ops, held, state)
        keep = ops.integer_to_mask(ops.splat(self._accumulate))
        return [ops.select(keep, a, b) for a, b in zip(total, fresh, strict=True)]

    def _held(self, target: VmemArray, kept: TilePoint, part: int) -> int:
        """The present contents of the target where `_store_leaf` will store."""
        places = places_in_box(self._plan.kept, full_tile(kept), part, self._plan.keeps_rows, True)
        inside = places if self._plan.keeps_cols else places[:-1]
        index = tuple(low + place for low, place in zip(target.origin, inside, strict=True))
        return self._emitter.loader.load(target, index)

    def _store_leaf(self, target: VmemArray, kept: TilePoint, values: list[int]) -> None:
        plan = self._plan
        if plan.keeps_rows:
            major = linearize(kept.majors, plan.kept.majors)
            self._storer.store(target, major, kept.row_tile, kept.col_tile, values)
            return
        *outer, last = (const(0), *kept.majors)
        if plan.keeps_cols and not kept.majors:  # a vector: column tile j is row j
            row, col = kept.col_tile, const(0)
        else:
            row, col = last, const(0) if target.replicated else kept.col_tile * 128
        major = linearize(outer[1:], plan.kept.majors[:-1]) if kept.majors else const(0)
        address = tiled_address(target, major, row, col)
        at, offset = self._emitter.index_values.row_address(target.base, address.word_row)
        # every sublane holds the row: eight equal writes
        self._ops.emit("vst", target.window, at, offset, 0, values[0])


class RowReduction:
    """A reduce of one array over its last dimension, in code of somebody else's loops.

    `low` and `extent` are the box of its results, whose rows come in `packing` phases.
    """

    def __init__(
        self,
        emitter: ElementEmitter,
        reduce: HloInstruction,
        low: tuple[Expr, ...],
        extent: tuple[int, ...],
        packing: int,
    ) -> None:
        dims = reduce.operands[0].array.dims
        *majors, rows = extent
        kept = TileSpace(tuple(majors), rows, 1, packing)
        reduced = TileSpace((), 1, dims[-1], 1)
        plan = _Plan(
            dims, (len(dims) - 1,), kept, reduced, True, False, low, (const(0),), dims[-1:]
        )
        self._stage = _ReduceStage(emitter, plan, [reduce], [], None)

    def rows(self, point: TilePoint) -> list[int]:
        """The results of a tile of rows, the same in all lanes, a register for each phase."""
        return self._stage.row_values(point)


__all__ = ["ReducedBox", "Reducer", "RowReduction", "emit_reduce_stage"]
