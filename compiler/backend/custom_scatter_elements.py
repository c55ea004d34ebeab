"""scatter of single elements: a register of 1024 updates at a time, by indexed loads and stores.

    clear the tables
    for each chunk of updates:
        for each register of them:
            lanes that share a table and mean the same place add up what they bring, by rotations
            add that to what the table holds there        (indexed load, addition, indexed store)
    the result is the operand and all tables, added up

An indexed store takes its lanes one after another, so two lanes that mean the same place would lose
one of the updates. Lanes of different tables cannot meet; among those of one table every lane gets
the sum of all that mean its place, and it does not matter which of them is stored last. What
*adding* is, the scatter says: a sum, a maximum, any operation with an identity. Updates that replace
what was there go to the result itself, in their order.

`compiler.backend.element_cut` says when that pays, and how many tables there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from compiler.analysis.indexing import Expr, Var, const, var
from compiler.analysis.indexing_boxes import Box, round_to_tiles, whole_box
from compiler.analysis.kernel_vmem import GUARD_ROWS
from compiler.analysis.scatter_dims import ScatterDims
from compiler.analysis.windows import DerivedVar, GridDim, OperandWindow, WindowPlan, grid_dim
from compiler.backend.custom_gather import Coordinate, word_of
from compiler.backend.element_cut import (
    VREG,
    ElementCut,
    is_cut_by_windows,
    part_unit,
    register_rows,
    shared_rows,
)
from compiler.backend.grid_loop import GridLoop, StepContext
from compiler.backend.kernel_calls import BufferPlace
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import LANE, SUBLANE
from compiler.backend.vector.meeting import brought_together, neutral_of
from compiler.backend.vector.ops import Ops
from compiler.backend.vector.reducers import Reducer, reducer_of
from compiler.backend.vector.stores import Storer
from compiler.backend.vector.tile_indices import point_index
from compiler.backend.vector.tile_loops import TileLoops, TilePoint, tile_space
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.llo.ir import MReg, SReg, VReg
from tpu_sim.isa.geometry import LANES, SUBLANES

if TYPE_CHECKING:
    from compiler.backend.custom import CustomKernel

_FILL = 8
"""Stores or additions of tables in one body."""
_FAN = 8
"""Tables that are added up in one pass."""
_FIRST = Var("first_of_indices", 0, 1 << 24)


class ElementScatter:
    """Emits one scatter of elements."""

    def __init__(self, kernel: CustomKernel, dims: ScatterDims, cut: ElementCut) -> None:
        self.kernel = kernel
        self.builder = kernel.builder
        self.dims = dims
        self.cut = cut
        size, unit = dims.operand.array.dims[0], part_unit(dims)
        tiles = -(-size // unit)
        self.parts = -(-size // cut.part)
        self.part_dim = grid_dim("part", unit, tiles, tiles // self.parts)
        self.part_origin = self.part_dim.origin if self.parts > 1 else const(0)
        self.is_cut_by_windows = self.parts > 1 and is_cut_by_windows(dims)
        self.window_rows = register_rows(dims)  # of a part
        if self.is_cut_by_windows:
            self.window_rows //= tiles // self.part_dim.block
        self.narrow = None if cut.replaces else shared_rows(dims)
        # index vectors of a register, registers of a row in a chunk
        self.unit = LANES if self.window_rows else VREG
        if self.narrow is not None:
            self.unit *= self.narrow.tiles
        self.block, self.chunk_dim = self._chunks()
        self._first = _FIRST
        self.arguments = dict(zip(kernel.body.parameters, kernel.interface.operands, strict=True))
        self.plan = self._plan()
        self._tables: list[int] = []

    # windows

    def _chunks(self) -> tuple[int, GridDim]:
        """Registers of a row in a chunk, and the chunks. Where tiles share registers all registers are whole:
        the last chunk starts as many tiles earlier as it lacks."""
        most = self.cut.chunk * (VREG // self.unit)
        if self.narrow is None:
            count = -(-self.dims.vectors // self.unit)
            block = min(count, most)
            return block, grid_dim("chunk", self.unit, count, block)
        tiles, together = -(-self.dims.vectors // LANES), self.cut.together
        block = min(tiles // self.narrow.tiles, most) // together * together
        return block, grid_dim("chunk", LANES, tiles, block * self.narrow.tiles)

    def _plan(self) -> WindowPlan:
        d = self.dims
        derived: tuple[DerivedVar, ...] = ()
        boxes: dict[HloInstruction, Box] = {}
        count = self.block * self.unit
        if d.updates.opcode == "parameter":
            window = [d.updates.array.dims[i] for i in d.window_dims]
            low = [const(0) for _ in window]
            if self.is_cut_by_windows:
                low[0], window[0] = self.part_origin, min(self.cut.part, window[0])
            boxes[d.updates] = Box((*low, self.chunk_dim.origin), (*window, count))
        boxes[d.indices] = Box((self.chunk_dim.origin,), (count,))
        if d.indices.array.rank == 2:
            boxes[d.indices], derived = self._rows_of_indices()
        if d.operand.opcode == "parameter":
            boxes[d.operand] = self._part_box(d.operand.array)
        inputs = []
        for node, wanted in boxes.items():
            box = round_to_tiles(node.array, wanted)
            inputs.append(OperandWindow(node, self.arguments[node].shape, box.low, box.extent))
        shape = self.kernel.fusion.array
        part = round_to_tiles(shape, self._part_box(shape))
        output = OperandWindow(self.kernel.root, shape, part.low, part.extent)
        grid = (self.part_dim, self.chunk_dim) if self.parts > 1 else (self.chunk_dim,)
        return WindowPlan(grid, tuple(inputs), (output,), derived=derived)

    def _part_box(self, shape: ArrayShape) -> Box:
        """What a step has of the operand or of the result."""
        low = (self.part_origin, *(const(0) for _ in shape.dims[1:]))
        return Box(low, (min(self.cut.part, shape.dims[0]), *shape.dims[1:]))

    def _rows_of_indices(self) -> tuple[Box, tuple[DerivedVar, ...]]:
        """The chunk's columns of `[components, n]`: a last chunk starts earlier, to end with it."""
        components, size = self.dims.indices.array.dims
        tiles, held = -(-size // LANES), self.block * (self.unit // LANES)
        if held >= tiles:
            return whole_box(self.dims.indices.array), ()
        self._first = Var(_FIRST.name, 0, tiles - held)
        value = self.chunk_dim.origin // LANES
        box = Box((const(0), var(self._first) * LANES), (components, held * LANES))
        return box, (DerivedVar(self._first, value),)

    # code

    def emit(self) -> None:
        """Emit everything."""
        self._reducer = None if self.cut.replaces else reducer_of(self.dims.scatter)
        inputs = [self.arguments[w.node] for w in self.plan.inputs]
        results = list(self.kernel.interface.results)
        grid = GridLoop(self.builder, self.plan, inputs, results, {})
        if self._reducer is not None:
            self._make_tables()
            if self.parts == 1:
                self._clear_tables(self._reducer)
        grid.emit(self._compute)
        self.builder.note += " together"

    def _compute(self, context: StepContext) -> None:
        b = self.builder
        nodes = [w.node for w in self.plan.inputs]
        arrays = dict(zip(nodes, context.inputs, strict=True))
        (target,) = context.outputs
        emitter = VectorEmitter(b, arrays, dict(context.sregs), {})
        counter = context.counters[-1]
        is_many = self.chunk_dim.steps > 1
        if self._reducer is not None and self.parts > 1:
            with b.if_(b.scmp("eq", "s32", counter, b.sconst(0))):
                self._clear_tables(self._reducer)
        if self._reducer is None and not self._is_there():
            self._once(emitter, counter if is_many else -1, 0, target)
        b.new_block()
        with b.loop(max(1, self.window_rows), "window") as row:
            window_row = emitter.index_values.bind("row", 0, max(0, self.window_rows - 1), row)
            self._registers(emitter, window_row, counter, target)
        b.new_block()
        if self._reducer is not None:
            self._once(emitter, counter if is_many else -1, self.chunk_dim.steps - 1, target)

    def _registers(
        self, emitter: VectorEmitter, window_row: Expr, counter: SReg, target: VmemArray
    ) -> None:
        """All registers of the chunk, of updates with windows those of one row of registers."""
        steps = -(-self.block // self.cut.together)
        with self.builder.loop(steps, "updates") as group:
            place = emitter.index_values.bind("group", 0, steps - 1, group)
            for number in range(self.cut.together):
                at = place * self.cut.together + number
                self._register(emitter, at, window_row, number, counter, target)
        self.builder.new_block()

    def _is_there(self) -> bool:
        """Whether an operand that stays in VMEM lies where the result does."""
        source = self.arguments.get(self.dims.operand)
        (result,) = self.kernel.interface.results
        return source is not None and source.place is BufferPlace.VMEM and source.row == result.row

    def _once(self, emitter: VectorEmitter, counter: SReg, step: int, target: VmemArray) -> None:
        """The operand, and what the tables hold, into the result, at the given step."""
        b = self.builder
        if counter < 0:
            self._make_result(emitter, target)
            return
        with b.if_(b.scmp("eq", "s32", counter, b.sconst(step))):
            self._make_result(emitter, target)

    # one register of updates

    def _register(
        self,
        emitter: VectorEmitter,
        number: Expr,
        window_row: Expr,
        table: int,
        counter: SReg,
        target: VmemArray,
    ) -> None:
        """Combine register `number` of the chunk with table `table`, or with the result."""
        b, ops = self.builder, emitter.ops
        narrow = self.narrow
        first = self.chunk_dim.origin
        inside = number
        if self.window_rows:
            inside = emitter.index_values.clamped(number, self.block - 1)
        held, position = (first + at * self.unit + var(LANE) for at in (inside, number))
        if not self.window_rows:
            held = position = position + var(SUBLANE) * LANES
        in_window = window = self._window_place(window_row) if self.window_rows else ()
        tiles = [held]
        if narrow is not None:
            tiles = [held + tile * LANES for tile in range(narrow.tiles)]
            in_window = (*window[:-1], narrow.row)
            position = position + narrow.tile * LANES
        word, is_there = self._words(emitter, tiles, in_window, target)
        is_there = ops.both(is_there, self._is_own(emitter, position, counter))
        if window:
            rows = self.dims.updates.array.dims[-2]
            is_there = ops.both(is_there, emitter.index_values.within(in_window[-1], 0, rows - 1))
        values = [emitter.emit(self.dims.updates, (*window, at)) for at in tiles]
        value = values[0] if narrow is None else narrow.stacked(ops, values)
        if self._reducer is None:
            ops.emit("vst.idx", target.window, target.base, word, value, is_there)
            b.new_block()
            return
        word = ops.select(is_there, word, ops.integer(-1))
        (total,) = brought_together(ops, self._reducer, word, [value], self._turns())
        word = ops.select(is_there, self._in_tables(emitter, word, target), ops.integer(0))
        window_of_table = self._tables[table]
        old = ops.emit("vld.idx", window_of_table, 0, word)
        new = self._reducer.combine(ops, [old], [total])
        new = self._reducer.finish(ops, new)
        ops.emit("vst.idx", window_of_table, 0, word, new[0], is_there)

    def _window_place(self, window_row: Expr) -> tuple[Expr, ...]:
        """Where in an update's window the elements of a register lie, by dimension."""
        *majors, rows = self.dims.updates.array.dims[:-1]
        tiles = -(-rows // SUBLANES)
        if self.is_cut_by_windows:
            of_one = tiles * math.prod(majors[1:]) if majors else 1
            first = self.part_origin if majors else self.part_origin // SUBLANES
            window_row = first * of_one + window_row
        place: list[Expr] = [window_row % tiles * SUBLANES + var(SUBLANE)]
        outer = window_row // tiles
        for size in reversed(majors):
            place.insert(0, outer % size)
            outer = outer // size
        return tuple(place)

    def _words(
        self,
        emitter: VectorEmitter,
        tiles: Sequence[Expr],
        window: tuple[Expr, ...],
        target: VmemArray,
    ) -> tuple[VReg, MReg]:
        """Which word of the operand each update means, and whether there is such a one; `tiles` are the
        numbers of the updates that share the register."""
        ops, d = emitter.ops, self.dims
        is_there = -1
        places = [Coordinate(const(0)) for _ in range(d.operand.array.rank)]
        for dim, inside_window in zip(d.operand_window_dims, window, strict=True):
            places[dim] = Coordinate(
                inside_window - self.part_origin if dim == 0 else inside_window
            )
        for component, dim in enumerate(d.index_map):
            major = () if d.indices.array.rank == 1 else (const(component),)
            starts = [emitter.emit(d.indices, (*major, number)) for number in tiles]
            start = starts[0] if self.narrow is None else self.narrow.joined(ops, starts)
            last = ops.integer(d.operand.array.dims[dim] - 1)
            inside = ops.compare("le", "u32", start, last)
            is_there = inside if is_there < 0 else ops.both(is_there, inside)
            if dim == 0 and self.parts > 1:
                first = ops.splat(emitter.index_values.scalar(self.part_origin))
                start = ops.isub(start, first)
                is_own = ops.compare("lt", "u32", start, ops.integer(self.cut.part))
                is_there = ops.both(is_there, is_own)
            places[dim] = Coordinate(const(0), start)
        word, _ = word_of(emitter, target, places)
        if self.narrow is not None:  # each tile has rows of its own in a tile of the table
            shift = self.narrow.tile * (self.narrow.rows * LANES)
            word = ops.iadd(word, emitter.index_values.vector(shift))
        return ops.select(is_there, word, ops.integer(0)), is_there

    def _is_own(self, emitter: VectorEmitter, position: Expr, counter: SReg) -> MReg:
        """The updates that there are, without those that the chunk before had."""
        b, ops, values = self.builder, emitter.ops, emitter.index_values
        mask = values.within(position, 0, self.dims.vectors - 1)
        if self.chunk_dim.is_even:
            return mask
        begin = ops.splat(b.smuli(counter, self.block * self.unit))
        return ops.both(mask, ops.compare("ge", "s32", values.vector(position), begin))

    def _turns(self) -> Iterator[tuple[int, int]]:
        """Lanes and sublanes to another lane of the same table."""
        is_apart = self.cut.copies > LANES or self.window_rows > 0
        for across in range(0, LANES, min(self.cut.copies, LANES)):
            for down in range(1 if is_apart else SUBLANES):
                if across or down:
                    yield across, down

    def _in_tables(self, emitter: VectorEmitter, word: VReg, target: VmemArray) -> VReg:
        """The word in the table of each lane."""
        ops, copies = emitter.ops, self.cut.copies
        size = target.word_rows * LANES
        table = ops.emit("vandi", ops.lane(), min(copies, LANES) - 1)
        if copies > LANES:
            table = ops.iadd(ops.imul_constant(ops.sublane(), LANES), table)
        return ops.iadd(word, ops.imul_constant(table, size))

    # tables

    @property
    def _table_rows(self) -> int:
        shape = self.kernel.fusion.array
        part = round_to_tiles(shape, self._part_box(shape))
        return VmemArray(shape, 0, 0, part.low, part.extent).word_rows

    def _make_tables(self) -> None:
        rows = self._table_rows * self.cut.copies
        for number in range(self.cut.together):
            self._tables.append(self.builder.window(f"table{number}", rows + GUARD_ROWS))

    def _clear_tables(self, reducer: Reducer) -> None:
        b = self.builder
        rows = self._table_rows * self.cut.copies
        emitter = VectorEmitter(b, {}, {}, {})

        def clear(row: SReg, offset: int) -> None:
            neutral = neutral_of(emitter.ops, reducer)
            for table in self._tables:
                b.emit("vst", table, row, offset, 1, neutral)

        self._over_rows(rows, clear)

    def _over_rows(self, rows: int, body: Callable[[SReg, int], None]) -> None:
        """`body` of (sreg, offset) for every register of `rows` rows."""
        b = self.builder
        tiles = rows // SUBLANES
        looped = tiles // _FILL
        b.new_block()
        if looped:
            with b.loop(looped, "tables", parallel=True) as counter:
                first = b.smuli(counter, _FILL * SUBLANES)
                for number in range(_FILL):
                    body(first, number * SUBLANES)
            b.new_block()
        for number in range(looped * _FILL, tiles):
            body(0, number * SUBLANES)
        b.new_block()

    def _make_result(self, emitter: VectorEmitter, target: VmemArray) -> None:
        """The operand, combined with the tables where there are any."""
        if self._reducer is None:
            emitter.emit_stage([self.dims.operand], [target])
            return
        self._add_up(self._reducer, emitter)
        reducer, ops = self._reducer, emitter.ops
        space, storer = tile_space(target, 1), Storer(ops, emitter.index_values)

        def body(point: TilePoint) -> None:
            at = point_index(target, space, point, 0)
            state = [emitter.emit(self.dims.operand, at)]
            major = const(0)
            for position, size in zip(point.majors, target.major_pitch, strict=True):
                major = major * size + position
            tile = (major * target.row_pitch + point.row_tile) * target.col_pitch + point.col_tile
            row, offset = emitter.index_values.row_address(0, tile * SUBLANES)
            for table in self._tables:
                found = ops.emit("vld", table, row, offset, 1)
                if self.narrow is not None:
                    found = self.narrow.total(ops, found, partial(_combined, ops, reducer))
                state = reducer.combine(ops, state, [found])
            storer.store(target, major, point.row_tile, point.col_tile, reducer.finish(ops, state))

        TileLoops(self.builder, emitter.sregs).run(space, 10 * self.cut.together, body)
        self.builder.new_block()

    def _add_up(self, reducer: Reducer, emitter: VectorEmitter) -> None:
        """All tables of a register's lanes into the first one."""
        b, ops = self.builder, emitter.ops
        count = self.cut.copies
        while count > 1:
            fan = min(_FAN, count)
            count //= fan
            apart = count * self._table_rows

            def combine(row: SReg, offset: int, fan: int = fan, apart: int = apart) -> None:
                for table in self._tables:
                    state = [ops.emit("vld", table, row, offset, 1)]
                    for number in range(1, fan):
                        base = b.sadd(row, b.sconst(number * apart))
                        state = reducer.combine(
                            ops, state, [ops.emit("vld", table, base, offset, 1)]
                        )
                    b.emit("vst", table, row, offset, 1, reducer.finish(ops, state)[0])

            self._over_rows(apart, combine)


def _combined(ops: Ops, reducer: Reducer, a: VReg, b: VReg) -> VReg:
    """Two registers of 32-bit numbers as one."""
    return reducer.finish(ops, reducer.combine(ops, [a], [b]))[0]
