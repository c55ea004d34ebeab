"""State operations of a segment: MXU, transpose unit, indexed accesses, transfers.

`StateOps` is the `tpu_sim.isa.effects.CorePrimitives` of their effects. Each is a call of a
precompiled kernel or a copy. Positions in queues and which block is active are known up to one number per
unit at the segment's start: an MXU's is found when a command runs, the transpose units' are loaded in
`begin`; `end` writes them back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from tpu_sim.isa.geometry import ROW_BYTES, VREG_BYTES
from tpu_sim.isa.program import HBM, SMEM, VMEM
from tpu_sim.isa.resources import MRF, Resource
from tpu_sim.jit.command_kernels import PASS_KINDS, CommandKind
from tpu_sim.jit.commands import AnyPlace, CommandList, PiecePlace, Pointer, RingPlace, WeightsPlace
from tpu_sim.jit.context import TRANSPOSE_BYTES, Word
from tpu_sim.jit.dma_functions import DMA_FAULTS
from tpu_sim.jit.library import LOAD_INDEXED, STORE_INDEXED
from tpu_sim.jit.scope import FunctionScope
from tpu_sim.jit.translated import FaultKind
from tpu_sim.jit.values import Scalar, Use, ValueOp
from tpu_sim.jit.window_kernels import entry_offset

_WHOLE_BLOCK = (0x00FF, 0xFF00)
"""Plain or transposed pushes that write all of a weight block."""
_INDEX_BITS = 16
"""Of `Word.TRANSPOSE_INDEX`, for each transpose unit."""

_SPACE_NAMES = {HBM: "HBM", VMEM: "VMEM", SMEM: "SMEM"}
_PASSES_TO_SHARE = 8
"""MXU passes (a quarter of a microsecond each, or more) from which waking other threads pays."""
_TRANSPOSE = {32: CommandKind.TRANSPOSE, 16: CommandKind.TRANSPOSE_HALVES}
"""By bits of an element."""


class StateOps:
    """Emits the state operations of one segment.

    `operand` gives the pointer of a vreg or mask read, `result` that of a vreg written.
    """

    def __init__(
        self,
        scope: FunctionScope,
        ops: Iterable[ValueOp],
        waiting: Mapping[int, int],
        operand: Callable[[Use], AnyPlace],
        result: Callable[[ValueOp], Pointer],
        dma_function: Callable[[int], str],
    ) -> None:
        self._scope = scope
        self._emitter = scope.emitter
        self._commands = scope.commands
        self._waiting = waiting
        self._operand = operand
        self._result = result
        self._dma_function = dma_function
        self._pushed: Counter[int] = Counter()
        self._popped: Counter[int] = Counter()
        self._transposes = False
        for op in ops:
            self._count(op)
        self._pushes: Counter[int] = Counter()
        self._transposed_blocks: dict[tuple[int, int], str] = {}
        self._list: CommandList | None = None
        self._transpose_index = ""
        self._transposed: Counter[int] = Counter()
        self._following: dict[int, AnyPlace] = {}
        self._op: ValueOp

    def _count(self, op: ValueOp) -> None:
        if op.row is None:
            return
        row = op.row
        if row.pops == MRF:
            self._popped[_number(op, 0)] += 1
        elif row.pushes == MRF:
            self._pushed[_number(op, 0)] += 2
        elif row.is_unit_step and not row.is_mxu:
            self._transposes = True

    def begin(self) -> None:
        """Load the positions the segment starts from."""
        if self._transposes:
            self._transpose_index = self._scope.load_word(Word.TRANSPOSE_INDEX)

    def end(self) -> None:
        """Write the positions back, as commands after all others."""
        number = self._commands.number
        for unit, bits in sorted(self._pushes.items()):
            self._run(CommandKind.NOTE_PUSHES, number(unit), number(bits))
        for unit in sorted(self._pushed.keys() | self._popped.keys()):
            waiting, popped = self._waiting.get(unit, 0), self._popped[unit]
            if waiting + self._pushed[unit] != popped:
                kind = CommandKind.MOVE_HEAD if waiting else CommandKind.SET_HEAD
                self._run(kind, number(unit), number(popped))
        if self._transposed:
            self._scope.store_word(Word.TRANSPOSE_INDEX, self._transpose_indices())

    def emit_stage(self, ops: list[ValueOp]) -> None:
        """Append the state operations of a stage, given in program order."""
        self._following = self._next_sources(ops)
        units = {_number(op, 0) for op in ops if _is_mxu(op)}
        matmuls = sum(op.row is not None and op.row.pushes == MRF for op in ops)
        threads = self._scope.module.threads
        is_large = len(units) > 1 and matmuls >= _PASSES_TO_SHARE
        if threads > 1 and is_large and all(_is_mxu(op) for op in ops):
            self._emit_tasks(ops)
            return
        for op in _grouped(ops):
            self.emit(op)

    def _next_sources(self, ops: list[ValueOp]) -> dict[int, AnyPlace]:
        """For each pass where the left side of its unit's next one lies, after the last a guess."""
        by_unit: dict[int, list[ValueOp]] = {}
        for op in ops:
            if op.row is not None and op.row.pushes == MRF:
                by_unit.setdefault(_number(op, 0), []).append(op)
        found: dict[int, AnyPlace] = {}
        for passes in by_unit.values():
            sources = [self._operand(Use(op.uses[0])) for op in passes]
            if len(sources) > 1:
                sources.append(_extrapolated(*sources[-2:]))
                found.update(zip((op.index for op in passes), sources[1:], strict=True))
        return found

    def _emit_tasks(self, ops: list[ValueOp]) -> None:
        """One task per MXU: their queues, weights and results are their own."""
        by_unit: dict[int, CommandList] = {}
        for op in ops:
            self._list = by_unit.setdefault(_number(op, 0), CommandList())
            self.emit(op)
        self._list = None
        self._commands.fork(list(by_unit.values()))

    def _run(self, kind: int, *arguments: int) -> None:
        """Run a command after those before it, or add it to a task."""
        if self._list is not None:
            self._list.add(kind, arguments)
        else:
            self._commands.add(kind, arguments)

    def _run_on(self, kind: int, *places: AnyPlace) -> None:
        self._run(kind, *(self._commands.pointer(place) for place in places))

    def emit(self, op: ValueOp) -> None:
        """Append one state operation."""
        assert op.row is not None
        self._op = op
        op.row.does(self, *op.arguments)

    # MXU

    def push_weights(self, unit: int, a: Use, row: int, *, is_transposed: bool) -> None:
        """See `Core`."""
        self._pushes[unit] |= 1 << (row + 8 if is_transposed else row)
        kind = CommandKind.MATPUSH_TRANSPOSED if is_transposed else CommandKind.MATPUSH
        place = WeightsPlace(unit, True, row * (64 if is_transposed else VREG_BYTES))
        self._run_on(kind, place, self._operand(a))

    def swap_weights(self, unit: int) -> None:
        """See `Core`. The shadow is cleared late: what no push wrote is zeroed when it becomes active."""
        number = self._commands.number
        bits = self._pushes.pop(unit, 0)
        if not any(bits & whole == whole for whole in _WHOLE_BLOCK):
            if bits:
                self._run(CommandKind.NOTE_PUSHES, number(unit), number(bits))
            shadow = self._commands.pointer(WeightsPlace(unit, True, 0))
            self._run(CommandKind.SETTLE_WEIGHTS, shadow, number(unit))
        self._run(CommandKind.SWAP_WEIGHTS, number(unit))

    def multiply(self, unit: int, a: Use, pass_format: str) -> None:
        """See `Core`."""
        source = self._operand(a)
        # both results of a pass lie together: positions are even, the ring's size too
        number = self._waiting.get(unit, 0) + 2 * self._op.queue_number
        following = self._following.get(self._op.index, source)
        places = (self.ring_place(unit, number), source, WeightsPlace(unit, False, 0), following)
        self._run_on(PASS_KINDS[pass_format], *places)

    def ring_place(self, unit: int, number: int) -> Pointer | RingPlace:
        """The result `number` behind the oldest one of a unit when the segment starts."""
        entries = self._scope.module.ring_entries[self._scope.kernel.name]
        if self._waiting.get(unit, 0):
            return RingPlace(unit, number, entries)
        first = unit * entries * VREG_BYTES  # an empty queue may start anywhere
        return Pointer("%results", first + number % entries * VREG_BYTES)

    # leaves

    def leaf_place(self, op: ValueOp) -> Pointer | RingPlace:
        """Where the result that a LEAF pops or reads lies."""
        assert op.row is not None
        place = op.row.does(_Leaf(self, op.queue_number), *op.arguments)
        assert isinstance(place, Pointer | RingPlace)
        return place

    # transpose units

    def push_block(self, unit: int, a: Use, row: int) -> None:
        """See `Core`."""
        name, start = self._transpose_shadow(unit)
        place = Pointer(name, start + row * VREG_BYTES)
        self._run_on(CommandKind.COPY_VREG, place, self._operand(a))

    def transpose(self, unit: int, element_bits: int) -> None:
        """See `Core`."""
        self._transposed[unit] += 1
        target = self.transpose_place(unit, self._transposed[unit])
        self._run_on(_TRANSPOSE[element_bits], target, self._transpose_shadow(unit))

    def _transpose_shadow(self, unit: int) -> Pointer:
        return Pointer(
            "%transpose", unit * (1 + self._scope.module.transpose_blocks) * TRANSPOSE_BYTES
        )

    def _transpose_block(self, unit: int, swaps: int) -> str:
        """Ring index of a unit's active block after `swaps` of its swaps in this segment."""
        e = self._emitter
        shifted = e.value(f"lshr i64 {self._transpose_index}, {_INDEX_BITS * unit}")
        index = e.value(f"and i64 {shifted}, {(1 << _INDEX_BITS) - 1}")
        if swaps == 0:
            return index
        moved = e.value(f"add i64 {index}, {swaps}")
        return e.value(f"urem i64 {moved}, {self._scope.module.transpose_blocks}")

    def _transpose_indices(self) -> str:
        """The ring indices of all units after the segment."""
        e = self._emitter
        total = "0"
        for unit in range(self._scope.chip.transpose_units):
            index = self._transpose_block(unit, self._transposed[unit])
            total = e.value(f"or i64 {total}, {e.value(f'shl i64 {index}, {_INDEX_BITS * unit}')}")
        return total

    def transpose_place(self, unit: int, swaps: int) -> Pointer:
        """A unit's active block after `swaps` of its swaps in this segment."""
        e = self._emitter
        start = self._transpose_shadow(unit)[1] + TRANSPOSE_BYTES
        key = (unit, swaps)
        if key not in self._transposed_blocks:
            index = self._transpose_block(unit, swaps)
            block = e.value(f"getelementptr [{TRANSPOSE_BYTES} x i8], ptr %transpose, i64 {index}")
            self._transposed_blocks[key] = block
        return Pointer(self._transposed_blocks[key], start)

    # indexed accesses and transfers

    def load_words(self, window: int, s: Scalar, index: Use) -> None:
        """See `Core`."""
        position = self._position(window, s, index)
        result = self._pointer(self._result(self._op))
        self._call_indexed(window, f"{LOAD_INDEXED.symbol}(ptr {result}, {position})")

    def store_words(self, window: int, s: Scalar, index: Use, a: Use, mask: Use) -> None:
        """See `Core`."""
        position = self._position(window, s, index)
        source, where = (self._pointer(self._operand(value)) for value in (a, mask))
        self._call_indexed(window, f"{STORE_INDEXED.symbol}({position}, ptr {source}, ptr {where})")

    def _position(self, number: int, s: Scalar, index: Use) -> str:
        """Word addresses are counted from the window's row `s`; all must lie in the window."""
        e = self._emitter
        window = self._scope.kernel.windows[number]
        base = e.offset("%vmem", window.base_row * ROW_BYTES)
        first = e.value(f"sext i32 {s.text} to i64")
        first = e.value(f"mul i64 {first}, {ROW_BYTES // 4}")
        words = window.rows * ROW_BYTES // 4
        pointer = self._pointer(self._operand(index))
        return f"ptr {base}, i64 {first}, i64 {words}, ptr {pointer}"

    def _call_indexed(self, window: int, call: str) -> None:
        e = self._emitter
        self._commands.flush()
        is_inside = e.value(f"call i1 @{call}")
        outside = e.value(f"xor i1 {is_inside}, true")
        name = self._scope.kernel.windows[window].name
        message = f"{self._op.name}: a word address is not within window {name}"
        self._scope.fault_if(outside, FaultKind.WINDOW, message)

    def _pointer(self, place: AnyPlace) -> str:
        e = self._emitter
        if isinstance(place, Pointer):
            return e.offset(*place)
        if isinstance(place, PiecePlace):
            gaps = e.value(f"mul i64 {place.gap}, {place.number}")
            return e.offset(e.offset(place.pointer, gaps), place.rows * ROW_BYTES)
        assert isinstance(place, RingPlace), "weights are no operands"
        head = self._scope.load_word(Word.HEAD + place.unit)
        slot = e.value(f"and i64 {e.value(f'add i64 {head}, {place.number}')}, {place.entries - 1}")
        ring = e.offset("%results", place.unit * place.entries * VREG_BYTES)
        return e.value(f"getelementptr [{VREG_BYTES} x i8], ptr {ring}, i64 {slot}")

    def start(self, *_operands: object) -> None:
        """See `Core`."""
        self._commands.flush()
        emit_transfer(self._scope, self._op, self._dma_function)


class _Leaf:
    """`Core` of the effects that read what lies in host memory: result or swap `number` of a unit."""

    def __init__(self, ops: StateOps, number: int) -> None:
        self._ops = ops
        self._number = number

    def pop(self, _queue: Resource, unit: int) -> Pointer | RingPlace:
        """See `Core`; of the MXUs' queues."""
        return self._ops.ring_place(unit, self._number)

    def read_block(self, unit: int, row: int) -> Pointer:
        """See `Core`."""
        name, start = self._ops.transpose_place(unit, self._number)
        return Pointer(name, start + row * VREG_BYTES)


def _is_mxu(op: ValueOp) -> bool:
    return op.row is not None and op.row.is_mxu


def _grouped(ops: list[ValueOp]) -> list[ValueOp]:
    """Runs of MXU operations sorted by unit, so that one unit's weights stay in cache."""
    result: list[ValueOp] = []
    run: list[ValueOp] = []
    for op in ops:
        if _is_mxu(op):
            run.append(op)
            continue
        result += [*sorted(run, key=lambda o: _number(o, 0)), op]
        run = []
    return result + sorted(run, key=lambda o: _number(o, 0))


def check_transfer(scope: FunctionScope, op: ValueOp, dma_function: Callable[[int], str]) -> None:
    """Fault where a ``dma.start`` would, and copy nothing."""
    _call_transfer(scope, op, dma_function, "true")


def emit_transfer(scope: FunctionScope, op: ValueOp, dma_function: Callable[[int], str]) -> None:
    """Call the copy function of a ``dma.start`` and check its status."""
    _call_transfer(scope, op, dma_function, "false")


def _call_transfer(
    scope: FunctionScope, op: ValueOp, dma_function: Callable[[int], str], only_check: str
) -> None:
    descriptor = scope.kernel.descriptors[_number(op, 0)]
    window = scope.kernel.windows[descriptor.window] if descriptor.window >= 0 else None
    arguments = [f"i32 {_scalar(op, i)}" for i in (1, 2, 5, 6)]
    first, rows = (window.base_row, window.rows) if window is not None else (0, 0)
    arguments += [f"i64 {first * ROW_BYTES}", f"i64 {rows * ROW_BYTES}", f"i1 {only_check}"]
    function = dma_function(_number(op, 0))
    if descriptor.dst_space == VMEM and descriptor.window in scope.in_place:
        offset = entry_offset(scope.in_place[descriptor.window].entry)
        arguments.append(f"ptr {scope.emitter.offset('%ctx', offset)}")
    status = scope.emitter.value(f"call i32 @{function}(ptr %ctx, {', '.join(arguments)})")
    spaces = " -> ".join(_SPACE_NAMES[s] for s in (descriptor.src_space, descriptor.dst_space))
    message = f"dma.start {spaces}: outside its memory or window, or a bad dynamic count"
    scope.fault_on_code(status, DMA_FAULTS, message)


def _extrapolated(first: AnyPlace, second: AnyPlace) -> AnyPlace:
    """The place as far behind `second` as `second` is behind `first`, where that is known."""
    if (
        isinstance(first, Pointer)
        and isinstance(second, Pointer)
        and first.pointer == second.pointer
    ):
        return Pointer(second.pointer, 2 * second.offset - first.offset)
    return second


def _number(op: ValueOp, position: int) -> int:
    argument = op.arguments[position]
    assert isinstance(argument, int)
    return argument


def _scalar(op: ValueOp, position: int) -> str:
    argument = op.arguments[position]
    assert isinstance(argument, Scalar)
    return argument.text
