"""Emission of one component: lane loops, lane-crossing steps, and the values between them.

A component is a set of connected vector operations with its memory accesses. Its levels alternate:
even levels hold lane-by-lane operations and run as a loop over 16-lane chunks with all values in
host registers; odd levels hold crossing operations on a whole row or column of chunks. The shape
decides which loop is outermost:

    FLAT     one loop of 64 chunks                      no crossing
    ROWS     for row of 8: levels, each 8 chunks        crosses lanes only
    COLUMNS  for column of 8: levels, each 8 sublanes   crosses sublanes only
    FULL     levels, each over all chunks               both

Values that cross levels wait in scratch slots: 512 bytes in ROWS and COLUMNS, a vreg in FULL. A
rotation or broadcast of what lies in memory counts as lane by lane (`tpu_sim.jit.moves`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

from tpu_sim.isa.geometry import ROW_BYTES, VREG_BYTES
from tpu_sim.isa.instruction import ROWS
from tpu_sim.jit.component import (
    Component,
    LocalOp,
    Shape,
    direct_values,
    is_moving,
    levels_of,
    rematerialized_values,
    scratch_slots,
    shape_of,
)
from tpu_sim.jit.crossing import CHUNKS
from tpu_sim.jit.crossing_kernels import crossing_kernel
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.lanes import CHUNK_BYTES, LlvmLanes, mask_of_bits
from tpu_sim.jit.moves import move_chunk, moved
from tpu_sim.jit.partial_values import PartialValue, equal_runs, partial_values
from tpu_sim.jit.values import OperationRole, Scalar, Use

_RESULT = 2
ROW_BUFFER_BYTES = (_RESULT + 1) * ROW_BYTES
"""Scratch memory for a row or column of each operand of a crossing operation and of its result."""
_TO_SECOND_CACHE = "i32 0, i32 2, i32 1"
"""Of a prefetch: data to be read, into the second cache. A few rows of many tiles overflow the first."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where a chunk lies: i64 names or numbers of its sublane, its column, and byte offsets."""

    sublane: str
    column: str
    vreg_bytes: str  # offset of the chunk in a vreg
    slot_bytes: str  # offset of the chunk in a scratch slot


class ComponentEmitter:
    """Emits the body of one component's function and reports the scratch bytes it needs."""

    def __init__(self, component: Component) -> None:
        self.component = component
        self.shape = shape_of(component)
        self.emitter = FunctionEmitter("c")
        self.levels = levels_of(component)
        self._direct = direct_values(component)
        self._uniform: dict[int, str] = {}
        self._starts: dict[tuple[int, int], str] = {}
        self._shifted: dict[int, str] = {}
        self._ahead: dict[int, str] = {}
        self._slots: dict[int, int] = {}
        self._slot_width = VREG_BYTES if self.shape is Shape.FULL else ROW_BYTES
        self._partial = partial_values(component, self._direct)
        self._partial_places = {part.value: n for n, part in enumerate(self._partial)}
        apart = {i for part in self._partial for i in part.ops if i not in self._direct}
        self._level_ops: dict[int, list[int]] = {}
        for index, level in enumerate(self.levels):
            if index not in apart:
                self._level_ops.setdefault(level, []).append(index)
        self._rematerialized = rematerialized_values(component, self._direct)
        self._first_slot = ROW_BUFFER_BYTES + len(self._partial) * VREG_BYTES
        self.scratch_bytes = self._first_slot
        if self.shape is not Shape.FLAT:
            self._slots = scratch_slots(component, self._level_ops, self._rematerialized)
            self.scratch_bytes += (1 + max(self._slots.values(), default=-1)) * self._slot_width

    @property
    def is_streaming(self) -> bool:
        """Whether memory limits it, as most of it is sums: the leaner code is, the further ahead a
        CPU reads."""
        return 2 * sum(len(part.ops) for part in self._partial) > len(self.component.ops)

    def emit(self) -> str:
        """The instructions of the function body."""
        self._find_pieces()
        for run in equal_runs(self.component, self._partial):
            if run.count == 1:
                self._partial_value(run.first, "0")
                continue
            group = self.component.ops[run.first.ops[0]].group
            with self.emitter.loop(run.count) as number:
                shift = self.emitter.value(f"mul i64 {number}, {run.step_rows * ROW_BYTES}")
                self._shifted[group] = self.emitter.offset(f"%g{group}", shift)
                self._partial_value(run.first, self.emitter.value(f"shl i64 {number}, 12"))
            del self._shifted[group]
        match self.shape:
            case Shape.FLAT:
                self._lane_level(0, None)
            case Shape.ROWS | Shape.COLUMNS:
                with self.emitter.loop(CHUNKS) as outer:
                    self._uniform.clear()
                    for level in sorted(self._level_ops):
                        self._level(level, outer)
            case Shape.FULL:
                for level in sorted(self._level_ops):
                    self._level(level, None)
        return self.emitter.text()

    def _partial_value(self, part: PartialValue, further: str) -> None:
        """Compute a value beforehand, and keep it `further` bytes behind its place."""
        with self._frame(None) as frame:
            chunk = _ChunkScope(self, frame)
            for index in part.ops:
                chunk.emit(index)
            pointer = self.partial_pointer(part.value, frame.vreg_bytes)
            assert pointer is not None
            target = self.emitter.offset(pointer, further)
            self.emitter.store("<16 x i32>", chunk.fetch(part.value), target, CHUNK_BYTES)

    def _find_pieces(self) -> None:
        """Where the pieces of windows' data start, relative to the groups, and where the next do."""
        loads = [op for op in self.component.ops if op.role is OperationRole.LOAD and op.piece_rows]
        for group in sorted({op.group for op in loads}):
            own = [op for op in loads if op.group == group]
            pieces = 1 + max(op.piece for op in own)
            gaps = self.emitter.value(f"mul i64 %h{group}, {pieces}")
            bytes_ahead = pieces * own[0].piece_rows * ROW_BYTES
            self._ahead[group] = self.emitter.value(f"add i64 {gaps}, {bytes_ahead}")
        for op in self.component.ops:
            key = (op.group, op.piece)
            if op.piece and key not in self._starts:
                gaps = self.emitter.value(f"mul i64 %h{op.group}, {op.piece}")
                self._starts[key] = self.emitter.offset(f"%g{op.group}", gaps)

    def group_pointer(self, op: LocalOp) -> str:
        """The pointer from which the rows of an access are counted in its first piece."""
        shifted = self._shifted.get(op.group)
        return shifted or self._starts.get((op.group, op.piece), f"%g{op.group}")

    def fetch_ahead(self, op: LocalOp, address: str) -> None:
        """Fetch from the pieces behind the component's: a CPU sees no pattern in leaps over gaps."""
        if op.piece_rows:
            ahead = self.emitter.offset(address, self._ahead[op.group])
            self.emitter.do(f"call void @llvm.prefetch.p0(ptr {ahead}, {_TO_SECOND_CACHE})")

    def gaps_before(self, op: LocalOp, sublane: str) -> str:
        """Bytes of the gaps between an access' first row and that of a sublane, an i64."""
        e = self.emitter
        row = e.value(f"mul i64 {sublane}, {op.stride}")
        number = e.value(f"udiv i64 {e.value(f'add i64 {row}, {op.phase}')}, {op.piece_rows}")
        return e.value(f"mul i64 %h{op.group}, {number}")

    def _level(self, level: int, outer: str | None) -> None:
        if level % 2 == 0:
            self._lane_level(level, outer)
            return
        rows = [
            i for i in self._level_ops[level] if self.component.ops[i].role is OperationRole.ROW
        ]
        columns = [
            i for i in self._level_ops[level] if self.component.ops[i].role is OperationRole.COLUMN
        ]
        for indices, is_row in ((rows, True), (columns, False)):
            if not indices:
                continue
            if outer is not None:
                self._crossing_ops(indices, outer, is_row)
                continue
            with self.emitter.loop(CHUNKS) as inner:
                self._crossing_ops(indices, inner, is_row)

    # lane levels

    @contextmanager
    def _frame(self, outer: str | None) -> Iterator[_Frame]:
        """Open the chunk loop of a lane level."""
        e = self.emitter
        if outer is None:
            with e.loop(CHUNKS * CHUNKS) as i:
                sublane, column = e.value(f"lshr i64 {i}, 3"), e.value(f"and i64 {i}, 7")
                linear = e.value(f"shl i64 {i}, 6")
                yield _Frame(sublane, column, linear, linear)
            return
        with e.loop(CHUNKS) as inner:
            slot_bytes = e.value(f"shl i64 {inner}, 6")
            if self.shape is Shape.ROWS:
                row = e.value(f"shl i64 {outer}, 9")
                yield _Frame(outer, inner, e.value(f"add i64 {row}, {slot_bytes}"), slot_bytes)
            else:
                row, column = e.value(f"shl i64 {inner}, 9"), e.value(f"shl i64 {outer}, 6")
                yield _Frame(inner, outer, e.value(f"add i64 {row}, {column}"), slot_bytes)

    def _lane_level(self, level: int, outer: str | None) -> None:
        wanted = self._wanted(level)
        if not wanted:
            return
        with self._frame(outer) as frame:
            chunk = _ChunkScope(self, frame)
            for index in wanted:
                chunk.emit(index)

    def _wanted(self, level: int) -> list[int]:
        """Operations of a level, preceded by the values it recomputes."""
        needed: set[int] = set()
        for index in self._level_ops.get(level, ()):
            op = self.component.ops[index]
            if index not in self._rematerialized or op.out >= 0 or op.role is OperationRole.STORE:
                needed.add(index)
            if index in self._rematerialized and op.out < 0:
                continue
            needed.update(
                a.value
                for a in op.arguments
                if isinstance(a, Use) and a.value in self._rematerialized
            )
        return sorted(needed)

    def partial_pointer(self, index: int, vreg_bytes: str) -> str | None:
        """Where a chunk of a value that was computed beforehand lies; None for other values."""
        place = self._partial_places.get(index)
        if place is None:
            return None
        start = ROW_BUFFER_BYTES + place * VREG_BYTES
        return self.emitter.offset(self.emitter.offset("%scratch", vreg_bytes), start)

    def slot_pointer(self, index: int, slot_bytes: str) -> str:
        """Where a chunk of a value that crosses levels lies."""
        base = self._first_slot + self._slots[index] * self._slot_width
        return self.emitter.offset(self.emitter.offset("%scratch", slot_bytes), base)

    def place_of(self, index: int, sublane: str, column: str) -> str:
        """Pointer to the chunk of a value in memory at a sublane and column."""
        op = self.component.ops[index]
        e = self.emitter
        if index not in self._direct:
            position = {Shape.ROWS: [(column, 6)], Shape.COLUMNS: [(sublane, 6)]}
            parts = position.get(self.shape, [(sublane, 9), (column, 6)])
            return e.shifted(self.slot_pointer(index, "0"), parts)
        if op.role is OperationRole.LEAF:
            return e.shifted(f"%l{op.leaf}", [(sublane, 9), (column, 6)])
        base = e.offset(self.group_pointer(op), op.offset * ROW_BYTES)
        if op.crosses_pieces:
            base = e.offset(base, self.gaps_before(op, sublane))
        if op.stride not in (0, 1):
            sublane = e.value(f"mul i64 {sublane}, {op.stride}")
        return e.shifted(base, [(sublane, 9), (column, 6)] if op.stride else [(column, 6)])

    # crossing levels

    def _crossing_ops(self, indices: list[int], position: str, is_row: bool) -> None:
        """Call the library for a row or column of each operation."""
        e = self.emitter
        for index in indices:
            op = self.component.ops[index]
            arguments: list[str] = []
            for number, argument in enumerate(op.arguments):
                match argument:
                    case Use(value):
                        arguments += self._crossing_operand(value, number, position, is_row)
                    case Scalar(text):
                        immediate = op.arguments[number + 1]
                        assert isinstance(immediate, int)
                        amount = LlvmLanes(e).scalar_add(text, immediate)
                        arguments.append(f"i32 {amount}")
            for target in self._crossing_targets(index, position, is_row):
                together = ", ".join([*target, *arguments])
                e.do(f"call void @{crossing_kernel(op.name)}({together})")
            if self._is_uniform(op):
                loaded = e.load("<16 x i32>", self._buffer(_RESULT), CHUNK_BYTES)
                self._uniform[index] = loaded

    def _is_uniform(self, op: LocalOp) -> bool:
        """Whether one chunk stands for all chunks of a crossing result."""
        return self.shape is not Shape.FULL and "fold" in op.name

    def _buffer(self, number: int) -> str:
        return self.emitter.offset("%scratch", number * ROW_BYTES)

    def _crossing_operand(
        self, index: int, number: int, position: str, is_row: bool
    ) -> tuple[str, str]:
        """Pointer and stride of a row or column of a value, which is put into a buffer if need be."""
        e = self.emitter
        op = self.component.ops[index]
        same_everywhere = self.uniform(index)
        if same_everywhere is not None:
            e.store("<16 x i32>", same_everywhere, self._buffer(number), CHUNK_BYTES)
            return f"ptr {self._buffer(number)}", "i64 0"
        at = (position, "0") if is_row else ("0", position)
        if index in self._direct and not (op.crosses_pieces and not is_row):
            rows = 1 if op.role is OperationRole.LEAF else op.stride
            stride = CHUNK_BYTES if is_row else rows * ROW_BYTES
            return f"ptr {self.place_of(index, *at)}", f"i64 {stride}"
        if index not in self._direct and index in self._slots:
            return f"ptr {self.place_of(index, *at)}", f"i64 {self._slot_stride(is_row)}"
        buffer = self._buffer(number)
        for k in range(CHUNKS):
            chunk = _ChunkScope(self, self._crossing_frame(position, k, is_row)).fetch(index)
            e.store("<16 x i32>", chunk, e.offset(buffer, k * CHUNK_BYTES), CHUNK_BYTES)
        return f"ptr {buffer}", f"i64 {CHUNK_BYTES}"

    def _slot_stride(self, is_row: bool) -> int:
        """Bytes from a chunk of a row or column to the next in a scratch slot."""
        return ROW_BYTES if self.shape is Shape.FULL and not is_row else CHUNK_BYTES

    def _crossing_targets(
        self, index: int, position: str, is_row: bool
    ) -> Iterator[tuple[str, str]]:
        """Pointer and stride of each place that a row or column of a result is written to."""
        op = self.component.ops[index]
        at = (position, "0") if is_row else ("0", position)
        if self._is_uniform(op):
            yield f"ptr {self._buffer(_RESULT)}", "i64 0"
        elif index in self._slots:
            yield f"ptr {self.place_of(index, *at)}", f"i64 {self._slot_stride(is_row)}"
        if op.out >= 0:
            place = self.emitter.shifted(f"%o{op.out}", [(at[0], 9), (at[1], 6)])
            yield f"ptr {place}", f"i64 {CHUNK_BYTES if is_row else ROW_BYTES}"

    def _crossing_frame(self, position: str, k: int, is_row: bool) -> _Frame:
        e = self.emitter
        in_full = self.shape is Shape.FULL
        if is_row:
            linear = e.value(f"shl i64 {position}, 9")
            linear = e.value(f"add i64 {linear}, {k * CHUNK_BYTES}")
            return _Frame(position, str(k), linear, linear if in_full else str(k * CHUNK_BYTES))
        linear = e.value(f"shl i64 {position}, 6")
        linear = e.value(f"add i64 {linear}, {k * ROW_BYTES}")
        return _Frame(str(k), position, linear, linear if in_full else str(k * CHUNK_BYTES))

    def uniform(self, index: int) -> str | None:
        """The chunk that stands for all chunks of a value, if there is one."""
        return self._uniform.get(index)

    def has_slot(self, index: int) -> bool:
        """Whether a value is kept in a scratch slot."""
        return index in self._slots and index not in self._uniform

    def is_rematerialized(self, index: int) -> bool:
        """Whether a value is recomputed where it is used."""
        return index in self._rematerialized


class _ChunkScope:
    """The values of one chunk: computed here, or fetched from slots and memory when first used."""

    def __init__(self, owner: ComponentEmitter, frame: _Frame) -> None:
        self._owner = owner
        self._emitter = owner.emitter
        self._frame = frame
        self._lanes = LlvmLanes(owner.emitter)
        self._values: dict[int, str] = {}
        self._group_pointers: dict[str, str] = {}
        self._has_position = False

    def fetch(self, index: int) -> str:
        """The chunk of value `index`."""
        known = self._values.get(index)
        if known is None:
            known = self._owner.uniform(index)
        if known is not None:
            return known
        if self._owner.is_rematerialized(index):
            self.emit(index)
            return self._values[index]
        op = self._owner.component.ops[index]
        pointer = self._owner.partial_pointer(index, self._frame.vreg_bytes)
        if pointer is None:
            at = self._mask_or_vreg(op, self._frame.slot_bytes)
            pointer = self._owner.slot_pointer(index, at)
        self._values[index] = self._load(op, pointer)
        return self._values[index]

    def emit(self, index: int) -> None:
        """Compute one lane operation."""
        op = self._owner.component.ops[index]
        match op.role:
            case OperationRole.STORE:
                self._store(op)
                return
            case OperationRole.LOAD:
                address = self._address(op)
                self._owner.fetch_ahead(op, address)
                value = self._emitter.load("<16 x i32>", address, CHUNK_BYTES)
            case OperationRole.LEAF:
                byte_offset = self._mask_or_vreg(op, self._frame.vreg_bytes)
                value = self._load(op, self._emitter.offset(f"%l{op.leaf}", byte_offset))
            case _:
                value = self._compute(op)
        self._values[index] = value
        if self._owner.has_slot(index):
            byte_offset = self._mask_or_vreg(op, self._frame.slot_bytes)
            self._keep(op, value, self._owner.slot_pointer(index, byte_offset))
        if op.out >= 0:
            byte_offset = self._mask_or_vreg(op, self._frame.vreg_bytes)
            self._keep(op, value, self._emitter.offset(f"%o{op.out}", byte_offset))

    def _move(self, op: LocalOp) -> str:
        """A rotation or broadcast, read from where its operand lies."""
        index = moved(op.arguments)
        same_everywhere = self._owner.uniform(index)
        if same_everywhere is not None:
            return same_everywhere
        position = (self._frame.sublane, self._frame.column)
        place = partial(self._owner.place_of, index)
        return move_chunk(self._lanes, op.name, op.arguments, position, place)

    def _compute(self, op: LocalOp) -> str:
        if is_moving(op):
            return self._move(op)
        if op.name in ("vlane", "vsublane") and not self._has_position:
            self._set_position()
        arguments: list[object] = []
        for argument in op.arguments:
            match argument:
                case Use(value):
                    arguments.append(self.fetch(value))
                case Scalar(text):
                    arguments.append(text)
                case number:
                    arguments.append(number)
        return cast(str, ROWS[op.name].does(self._lanes, *arguments))

    def _set_position(self) -> None:
        self._has_position = True
        e = self._emitter
        self._lanes.sublane = e.value(f"trunc i64 {self._frame.sublane} to i32")
        column = e.value(f"trunc i64 {self._frame.column} to i32")
        self._lanes.lane = e.value(f"shl i32 {column}, 4")

    def _mask_or_vreg(self, op: LocalOp, byte_offset: str) -> str:
        """A mask takes 2 bytes per chunk where a vreg takes 64."""
        if not op.is_mask:
            return byte_offset
        if not byte_offset.startswith("%"):
            return str(int(byte_offset) >> 5)
        return self._emitter.value(f"lshr i64 {byte_offset}, 5")

    def _load(self, op: LocalOp, pointer: str) -> str:
        if not op.is_mask:
            return self._emitter.load("<16 x i32>", pointer, CHUNK_BYTES)
        return mask_of_bits(self._lanes, self._emitter.load("i16", pointer, 2))

    def _keep(self, op: LocalOp, value: str, pointer: str) -> None:
        if not op.is_mask:
            self._emitter.store("<16 x i32>", value, pointer, CHUNK_BYTES)
            return
        bits = self._emitter.value(f"bitcast <16 x i1> {value} to i16")
        self._emitter.store("i16", bits, pointer, 2)

    def _store(self, op: LocalOp) -> None:
        values = [self.fetch(a.value) for a in op.arguments if isinstance(a, Use)]
        pointer = self._address(op)
        if len(values) == 1:
            self._emitter.store("<16 x i32>", values[0], pointer, CHUNK_BYTES)
            return
        self._emitter.do(
            f"call void @llvm.masked.store.v16i32.p0(<16 x i32> {values[0]}, "
            f"ptr align {CHUNK_BYTES} {pointer}, <16 x i1> {values[1]})"
        )

    def _address(self, op: LocalOp) -> str:
        e = self._emitter
        offset = op.offset * ROW_BYTES
        group = self._owner.group_pointer(op)
        if op.crosses_pieces:
            group = e.offset(group, self._owner.gaps_before(op, self._frame.sublane))
        if op.stride == 1:
            base = self._group_pointers.get(group)
            if base is None:
                base = e.offset(group, self._frame.vreg_bytes)
                self._group_pointers[group] = base
            return e.offset(base, offset)
        at = e.value(f"shl i64 {self._frame.column}, 6")
        if op.stride:
            rows = e.value(f"mul i64 {self._frame.sublane}, {op.stride * ROW_BYTES}")
            at = e.value(f"add i64 {rows}, {at}")
        return e.offset(e.offset(group, at), offset)
