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

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from compiler.analysis.indexing import Expr, const, linearize, ranged, var
from compiler.analysis.indexing_boxes import Box
from compiler.analysis.indexing_maps import Index
from compiler.backend.vector.addresses import tiled_address
from compiler.backend.vector.arrays import VmemArray, allocate
from compiler.backend.vector.constants import uniform_constant
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.index_values import LANE, SUBLANE
from compiler.backend.vector.ops import value_class
from compiler.backend.vector.probe import inner_point, operations, probe_emitter
from compiler.backend.vector.reduce_plan import (
    ACCUMULATORS,
    Accumulators,
    ReducedBox,
    ReducePlan,
    reduce_plan,
)
from compiler.backend.vector.reducers import Reducer, State, reducer_of
from compiler.backend.vector.stage import emit_stage
from compiler.backend.vector.stores import Storer
from compiler.backend.vector.tile_indices import full_tile
from compiler.backend.vector.tile_loops import (
    BODY_OPS,
    TileLoops,
    TilePoint,
    TileSpace,
    places_in_box,
    tile_points,
)
from compiler.backend.vector.transposed_reads import (
    LEAST_TRANSPOSED,
    block_row_tiles,
    reads_transposed,
)
from compiler.hlo.ir import HloInstruction
from compiler.kernels.plan import accumulators_name
from compiler.kernels.planning import is_long, result_nodes, state_tiles, turned
from compiler.llo.ir import SReg
from tpu_sim.isa.geometry import SUBLANES

_STRAIGHT_LINE_OPS = 600
_TRANSPOSED_OPS = 3600
"""The same for code that reads blocks through the transpose units, which then are filled side by side."""
_JOINT_OPS = 2400
"""Operations to aim at, at most, in a body of many reduces, which share more with each tile in it."""
_JOINT_SHARE = 480
"""Of them for each of the reduces."""
_DEAR_TILE = 12
"""Operations from which it is worth asking whether kept columns differ, as parts put together do."""
_MOST_COPIES = 16
"""Column tiles that have code of their own: what compiling them takes stays small (assumed)."""


def emit_reduce_stage(
    emitter: ElementEmitter,
    reduces: Sequence[HloInstruction],
    targets: Sequence[Sequence[VmemArray]],
    reduced: ReducedBox | None = None,
    accumulate: SReg | None = None,
) -> None:
    """See `VectorEmitter.emit_reduce_stage`."""
    first = targets[0][0]
    plan = reduce_plan(reduces, Box(first.origin, first.extent), reduced, emitter)
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


def tile_operations(
    emitter: ElementEmitter, reduces: Sequence[HloInstruction], box: Box, reduced: ReducedBox | None
) -> int:
    """Operations of a stage of several reduces for the values of one reduced tile.

    `box` is the box of the results; the starts of dynamic slices are bound.
    """
    plan = reduce_plan(reduces, box, reduced, emitter)
    return _ReduceStage(emitter, plan, reduces, [], None).cost()


class _ReduceStage:
    """Emits one stage; see the module."""

    def __init__(
        self,
        emitter: ElementEmitter,
        plan: ReducePlan,
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
        if self._run_transposed():
            self._emitter.builder.new_block()
            return
        cost, are_apart = self.cost(), False
        columns = self._plan.kept.col_tiles
        if cost > _DEAR_TILE and 1 < columns <= _MOST_COPIES:
            dearest = max(self.cost(const(k)) for k in sorted({0, columns // 2, columns - 1}))
            if 2 * dearest < cost:
                cost, are_apart = dearest, True
        total = cost * self._plan.reduced.tile_count
        is_straight = total <= _STRAIGHT_LINE_OPS

        def body(kept: TilePoint) -> None:
            if is_straight:
                self._straight([kept])
            else:
                self._looped(cost, [kept])

        self._loops.parallel = is_straight  # else all tiles go through the same accumulators
        if are_apart:
            self._loops.run_column_steps_apart(self._plan.kept, 1, 1, body)
        elif is_straight:
            self._loops.run(self._plan.kept, total + 10 * self._states, body)
        else:
            self._loops.run_steps(self._plan.kept, 1, 1, body)
        self._emitter.builder.new_block()

    def cost(self, column: Expr | None = None, step: int = 1) -> int:
        """Operations for the values of one reduced tile, all phases of it, for `step` tiles of kept rows;
        in a given kept column."""
        probe = probe_emitter(self._emitter)
        probe.loader.can_transpose = self._emitter.loader.can_transpose
        stage = _ReduceStage(probe, self._plan, self._reduces, self._targets, None)
        kept = inner_point(probe, self._plan.kept)
        if column is not None:
            kept = replace(kept, col_tile=column)
        tiles = [replace(kept, row_tile=kept.row_tile + k) for k in range(step)]
        point = inner_point(probe, self._plan.reduced)

        def emit() -> None:
            for tile in tiles:
                for part in range(self._parts):
                    for inner in range(self._inner_parts):
                        stage._values(tile, point, part, inner)

        return operations(probe, emit) + step * self._states * self._parts * self._inner_parts

    def _run_transposed(self) -> bool:
        """Blocks of 128 rows at a time where some of what is read has its rows along the lanes.

        Each block of rows takes one block after the other of what it reduces, so that all that a transpose
        unit holds is used at once. False: nothing is read so.
        """
        plan = self._plan
        step = min(block_row_tiles(plan.kept.packing), plan.kept.row_tiles)
        is_enough = plan.keeps_rows and step * self._parts >= LEAST_TRANSPOSED
        if not is_enough or not self._reads_transposed():
            return False
        self._emitter.loader.can_transpose = True
        cost = self.cost(step=step)
        is_little = cost * plan.reduced.tile_count <= _TRANSPOSED_OPS
        is_straight = is_little or not any(map(is_long, self._reduces))
        waiting: list[TilePoint] = []

        @contextmanager
        def block() -> Iterator[None]:
            waiting.clear()
            yield
            if is_straight:
                self._straight(waiting)
            else:
                self._looped(cost, waiting, _TRANSPOSED_OPS)

        loops = TileLoops(self._emitter.builder, self._emitter.sregs, block, parallel=is_straight)
        loops.run_steps(plan.kept, step, 1, waiting.append)
        self._emitter.loader.can_transpose = False
        return True

    def _reads_transposed(self) -> bool:
        kept, reduced = (_any_point(space) for space in (self._plan.kept, self._plan.reduced))
        index = self._plan.index(kept, reduced, 0, 0)
        return any(
            reads_transposed(self._emitter, operand, index)
            for reduce in self._reduces
            for operand in reduce.operands[: len(reduce.operands) // 2]
        )

    def _straight(self, tiles: Sequence[TilePoint]) -> None:
        """Some kept tiles, whose reduced tiles are gone over together, by straight-line code."""
        self._store_all(tiles, self._states_of(tiles))

    def row_values(self, kept: TilePoint) -> list[int]:
        """The first reduce's first result at a kept tile, a register for each phase of its rows."""
        return [state[0] for state in self._finished(kept, 0, self._states_of([kept]))]

    def _states_of(self, tiles: Sequence[TilePoint]) -> list[list[State]]:
        """The folded states of each phase of each kept tile's rows, one tile's after the other's.

        Of a single tile phase after phase is gone over, which takes fewer registers.
        """
        places = self._places(tiles)
        groups = [[place] for place in places] if len(tiles) == 1 else [places]
        states: list[list[State]] = []
        for group in groups:
            sums = self._empty(len(tiles), len(group))
            for point in tile_points(self._plan.reduced):
                self._take_in(sums, group, point)
            states += [self._folded(one.total()) for one in sums]
        return states

    def _places(self, tiles: Sequence[TilePoint]) -> list[tuple[TilePoint, int]]:
        """The phases of kept tiles' rows."""
        return list(itertools.product(tiles, range(self._parts)))

    def _empty(self, tiles: int, states: int) -> list[Accumulators]:
        """Running states of kept tiles; those of several do not wait for each other anyway."""
        many = max(1, len(self._reduces) // 2)
        count = max(1, ACCUMULATORS // many) if tiles == 1 else 1
        return [Accumulators(self._combine, count) for _ in range(states)]

    def _take_in(
        self,
        sums: Sequence[Accumulators],
        places: Sequence[tuple[TilePoint, int]],
        point: TilePoint,
    ) -> None:
        """Add one reduced tile's values to the running states of kept tiles' phases."""
        for (kept, part), one in zip(places, sums, strict=True):
            for inner in range(self._inner_parts):
                one.add(self._values(kept, point, part, inner))

    def _store_all(self, tiles: Sequence[TilePoint], states: Sequence[list[State]]) -> None:
        for number, kept in enumerate(tiles):
            parts = states[number * self._parts : (number + 1) * self._parts]
            self._store(kept, list(parts))

    def _combine(self, a: list[State], b: list[State]) -> list[State]:
        return [
            reducer.combine(self._ops, x, y)
            for reducer, x, y in zip(self._reducers, a, b, strict=True)
        ]

    def _looped(self, cost: int, tiles: Sequence[TilePoint], body_ops: int = BODY_OPS) -> None:
        """The same for some kept tiles, with their states in VMEM between iterations of loops over the
        reduced tiles."""
        places = self._places(tiles)
        for slot in range(len(places)):
            self._save(slot, [self._identity(n) for n in range(len(self._reducers))])

        sums: list[Accumulators] = []

        @contextmanager
        def block() -> Iterator[None]:
            sums[:] = self._empty(len(tiles), len(places))
            for slot, one in enumerate(sums):
                one.add(self._restored(slot))
            yield
            for slot, one in enumerate(sums):
                self._save(slot, one.total())

        def body(point: TilePoint) -> None:
            self._take_in(sums, places, point)

        loops = TileLoops(self._emitter.builder, self._emitter.sregs, block, parallel=False)
        if len(self._reduces) > 1:
            body_ops = max(body_ops, min(_JOINT_OPS, len(self._reduces) * _JOINT_SHARE))
        loops.run(self._plan.reduced, cost, body, body_ops)
        self._emitter.builder.new_block()
        folded = [self._folded(self._restored(slot)) for slot in range(len(places))]
        self._store_all(tiles, folded)
        self._emitter.builder.new_block()

    def _row(self, slot: int, number: int) -> int:
        return (slot * self._states + number) * SUBLANES

    def _save(self, slot: int, state: list[State]) -> None:
        flat = [value for one in state for value in one]
        for number, value in enumerate(flat):
            self._ops.emit("vst", self._accumulators, 0, self._row(slot, number), 1, value)

    def _restored(self, slot: int) -> list[State]:
        numbers = iter(range(self._states))
        return [
            [
                self._ops.emit("vld", self._accumulators, 0, self._row(slot, next(numbers)), 1)
                for _ in reducer.dtypes
            ]
            for reducer in self._reducers
        ]

    def _values(self, kept: TilePoint, point: TilePoint, part: int, inner: int) -> list[State]:
        """The operands' values of one reduced tile, the identity where there is no element."""
        index = self._plan.index(kept, point, part, inner)
        conditions = self._plan.conditions(point, inner)
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


def _any_point(space: TileSpace) -> TilePoint:
    """Any tile of a space."""
    majors = tuple(ranged(f"m{d}", n) for d, n in enumerate(space.majors))
    row, col = ranged("rt", space.row_tiles), ranged("ct", space.col_tiles)
    return TilePoint(majors, row, col, var(SUBLANE), var(LANE))


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
        plan = ReducePlan(
            dims, (len(dims) - 1,), kept, reduced, True, False, low, (const(0),), dims[-1:]
        )
        self._stage = _ReduceStage(emitter, plan, [reduce], [], None)

    def rows(self, point: TilePoint) -> list[int]:
        """The results of a tile of rows, the same in all lanes, a register for each phase."""
        return self._stage.row_values(point)


__all__ = ["Reducer", "RowReduction", "emit_reduce_stage"]
