"""State operations of a segment: MXU, transpose unit, indexed accesses, transfers.

Each is a call of a precompiled kernel or a copy. Positions in queues and which weight block is
active are known up to one number per unit at the segment's start; that number is loaded in
`begin` and written back in `end`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from tpu_sim.isa.program import HBM, SMEM, VMEM
from tpu_sim.isa.rows.mxu import VMATMUL_S8, VMATMUL_U8
from tpu_sim.jit.command_kernels import Kind
from tpu_sim.jit.commands import CommandList, Place, RingPlace
from tpu_sim.jit.context import ROW_BYTES, TRANSPOSE_BYTES, VREG_BYTES, WEIGHT_BYTES, Word
from tpu_sim.jit.dma_functions import DMA_FAULTS
from tpu_sim.jit.hbm_windows import entry_offset
from tpu_sim.jit.library import LOAD_INDEXED, STORE_INDEXED
from tpu_sim.jit.scope import FaultKind, FunctionScope
from tpu_sim.jit.values import Scalar, Use, ValueOp

_WHOLE_BLOCK = (0x00FF, 0xFF00)
"""Plain or transposed pushes that write all of a weight block."""
_INDEX_BITS = 16
"""Of `Word.TRANSPOSE_INDEX`, for each transpose unit."""

_SPACE_NAMES = {HBM: "HBM", VMEM: "VMEM", SMEM: "SMEM"}
_PASSES_TO_SHARE = 8
"""MXU passes (a quarter of a microsecond each, or more) from which waking other threads pays."""
_PASSES = {VMATMUL_S8.name: Kind.MATMUL_S8, VMATMUL_U8.name: Kind.MATMUL_U8}
"""Passes with a kernel of their own."""
_MXU_EFFECTS = frozenset({"matpush", "matpush_t", "matswap", "matmul"})


class StateOps:
    """Emits the state operations of one segment.

    `operand` gives the pointer of a vreg or mask read, `result` that of a vreg written.
    """

    def __init__(
        self,
        scope: FunctionScope,
        ops: Iterable[ValueOp],
        waiting: Mapping[int, int],
        operand: Callable[[Use], Place | RingPlace],
        result: Callable[[ValueOp], Place],
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
        self._swapped: Counter[int] = Counter()
        self._weights_units: set[int] = set()
        self._transposes = False
        for op in ops:
            self._count(op)
        self._head: dict[int, str] = {}
        self._active: dict[int, str] = {}
        self._blocks: dict[int, list[str]] = {}
        self._pushes: dict[int, tuple[str, int]] = {}
        self._rings: dict[int, str] = {}
        self._transposed_blocks: dict[tuple[int, int], str] = {}
        self._list: CommandList | None = None
        self._transpose_index = ""
        self._transposed: Counter[int] = Counter()
        self._following: dict[int, Place | RingPlace] = {}

    def _count(self, op: ValueOp) -> None:
        if op.row is None:
            return
        effect = op.row.effect
        if effect == "pop_mrf":
            self._popped[_number(op, 0)] += 1
        elif effect == "matmul":
            self._pushed[_number(op, 0)] += 2
        elif effect == "matswap":
            self._swapped[_number(op, 0)] += 1
        elif effect.startswith("xpose"):
            self._transposes = True
        if effect in _MXU_EFFECTS:
            self._weights_units.add(_number(op, 0))

    def begin(self) -> None:
        """Load the positions the segment starts from."""
        for unit in sorted(self._pushed.keys() | self._popped.keys()):
            if self._waiting.get(unit, 0):  # an empty queue may start anywhere
                self._head[unit] = self._scope.load_word(Word.HEAD + unit)
        for unit in sorted(self._weights_units):
            self._load_blocks(unit)
        if self._transposes:
            self._transpose_index = self._scope.load_word(Word.TRANSPOSE_INDEX)

    def _load_blocks(self, unit: int) -> None:
        """Pointers of the active and the shadow weights."""
        e = self._emitter
        active = self._active[unit] = self._scope.load_word(Word.ACTIVE + unit)
        self._pushes[unit] = (self._scope.load_word(Word.PUSHES + unit), 0)
        base = e.offset("%weights", unit * 2 * WEIGHT_BYTES)
        shadow = e.value(f"xor i64 {active}, 1")
        self._blocks[unit] = [
            e.offset(base, e.value(f"mul i64 {parity}, {WEIGHT_BYTES}"))
            for parity in (active, shadow)
        ]

    def end(self) -> None:
        """Write the positions back."""
        e = self._emitter
        for unit in sorted(self._pushed.keys() | self._popped.keys()):
            popped = self._popped[unit]
            if self._waiting.get(unit, 0) + self._pushed[unit] != popped:
                start = self._head.get(unit)
                head = e.value(f"add i64 {start}, {popped}") if start else str(popped)
                self._scope.store_word(Word.HEAD + unit, head)
        for unit in sorted(self._weights_units):
            self._scope.store_word(Word.PUSHES + unit, self._pushes_value(unit))
        for unit, count in sorted(self._swapped.items()):
            if count % 2:
                flipped = e.value(f"xor i64 {self._active[unit]}, 1")
                self._scope.store_word(Word.ACTIVE + unit, flipped)
        if self._transposed:
            self._scope.store_word(Word.TRANSPOSE_INDEX, self._transpose_indices())

    def emit_stage(self, ops: list[ValueOp]) -> None:
        """Append the state operations of a stage, given in program order."""
        self._following = self._next_sources(ops)
        units = {_number(op, 0) for op in ops if _is_mxu(op)}
        matmuls = sum(op.row is not None and op.row.effect == "matmul" for op in ops)
        threads = self._scope.module.threads
        is_large = len(units) > 1 and matmuls >= _PASSES_TO_SHARE
        if threads > 1 and is_large and all(_is_mxu(op) for op in ops):
            self._emit_tasks(ops)
            return
        for op in _grouped(ops):
            self.emit(op)

    def _next_sources(self, ops: list[ValueOp]) -> dict[int, Place | RingPlace]:
        """For each pass where the left side of its unit's next one lies, after the last a guess."""
        by_unit: dict[int, list[ValueOp]] = {}
        for op in ops:
            if op.row is not None and op.row.effect == "matmul":
                by_unit.setdefault(_number(op, 0), []).append(op)
        found: dict[int, Place | RingPlace] = {}
        for passes in by_unit.values():
            sources = [self._operand(_use(op, 1)) for op in passes]
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

    def _run(self, kind: Kind, *arguments: int) -> None:
        """Run a command after those before it, or add it to a task."""
        if self._list is not None:
            self._list.add(kind, arguments)
        else:
            self._commands.add(kind, arguments)

    def _run_on(self, kind: Kind, *places: Place | RingPlace) -> None:
        self._run(kind, *(self._commands.pointer(place) for place in places))

    def emit(self, op: ValueOp) -> None:
        """Append one state operation."""
        assert op.row is not None
        match op.row.effect:
            case "matpush" | "matpush_t":
                self._matpush(op)
            case "matswap":
                self._matswap(_number(op, 0))
            case "matmul":
                self._matmul(op)
            case "xpose_push":
                name, start = self._transpose_shadow(_number(op, 0))
                row = (name, start + _number(op, 2) * VREG_BYTES)
                self._run_on(Kind.COPY_VREG, row, self._operand(_use(op, 1)))
            case "xpose_swap" | "xpose_swap16":
                unit = _number(op, 0)
                self._transposed[unit] += 1
                target = self._transpose_place(unit, self._transposed[unit])
                kind = Kind.TRANSPOSE
                if op.row.effect == "xpose_swap16":
                    kind = Kind.TRANSPOSE_HALVES
                self._run_on(kind, target, self._transpose_shadow(unit))
            case "load_indexed" | "store_indexed":
                self._indexed(op)
            case "dma_start":
                self._dma(op)
            case effect:
                raise AssertionError(f"no native code for effect {effect}")

    # MXU

    def _matpush(self, op: ValueOp) -> None:
        assert op.row is not None
        unit, row = _number(op, 0), _number(op, 2)
        shadow = self._blocks[unit][1]
        source = self._operand(_use(op, 1))
        is_plain = op.row.effect == "matpush"
        root, bits = self._pushes[unit]
        self._pushes[unit] = (root, bits | 1 << (row if is_plain else row + 8))
        kind = Kind.MATPUSH if is_plain else Kind.MATPUSH_TRANSPOSED
        self._run_on(kind, (shadow, row * (VREG_BYTES if is_plain else 64)), source)

    def _pushes_value(self, unit: int) -> str:
        """Which pushes there were since the last swap, as an i64."""
        root, bits = self._pushes[unit]
        return self._emitter.value(f"or i64 {root}, {bits}") if root else str(bits)

    def _matswap(self, unit: int) -> None:
        """The shadow is cleared late: what no push wrote is zeroed when it becomes active."""
        shadow = self._blocks[unit][1]
        bits = self._pushes[unit][1]
        if not any(bits & whole == whole for whole in _WHOLE_BLOCK):
            pushes = self._commands.integer("i64", self._pushes_value(unit))
            self._run(Kind.SETTLE_WEIGHTS, self._commands.pointer((shadow, 0)), pushes)
        self._blocks[unit].reverse()
        self._pushes[unit] = ("", 0)

    def _matmul(self, op: ValueOp) -> None:
        unit = _number(op, 0)
        source = self._operand(_use(op, 1))
        # both results of a pass lie together: positions are even, the ring's size too
        results = self._ring_place(unit, self._waiting.get(unit, 0) + 2 * op.queue_number)
        weights = (self._blocks[unit][0], 0)
        assert op.row is not None
        kind = _PASSES.get(op.row.name, Kind.MATMUL)
        self._run_on(kind, results, source, weights, self._following.get(op.index, source))

    def _ring_place(self, unit: int, number: int) -> Place | RingPlace:
        """The result `number` behind the oldest one of a unit when the segment starts."""
        entries = self._scope.module.ring_entries[self._scope.kernel.name]
        first = unit * entries * VREG_BYTES
        if unit not in self._head:
            return "%results", first + number % entries * VREG_BYTES
        if unit not in self._rings:
            self._rings[unit] = self._emitter.offset("%results", first)
        return RingPlace(self._rings[unit], self._head[unit], number, entries)

    # leaves

    def leaf_place(self, op: ValueOp) -> Place | RingPlace:
        """Where the result that a LEAF pops or reads lies."""
        assert op.row is not None
        unit = _number(op, 0)
        if op.row.effect == "pop_mrf":
            return self._ring_place(unit, op.queue_number)
        name, start = self._transpose_place(unit, op.queue_number)
        return name, start + _number(op, 1) * VREG_BYTES

    def _transpose_shadow(self, unit: int) -> Place:
        return "%transpose", unit * (1 + self._scope.module.transpose_blocks) * TRANSPOSE_BYTES

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

    def _transpose_place(self, unit: int, swaps: int) -> Place:
        e = self._emitter
        start = self._transpose_shadow(unit)[1] + TRANSPOSE_BYTES
        key = (unit, swaps)
        if key not in self._transposed_blocks:
            index = self._transpose_block(unit, swaps)
            block = e.value(f"getelementptr [{TRANSPOSE_BYTES} x i8], ptr %transpose, i64 {index}")
            self._transposed_blocks[key] = block
        return self._transposed_blocks[key], start

    # indexed accesses and transfers

    def _indexed(self, op: ValueOp) -> None:
        """Word addresses are counted from the window's row `s`; all must lie in the window."""
        e = self._emitter
        assert op.row is not None
        window = self._scope.kernel.windows[_number(op, 0)]
        base = e.offset("%vmem", window.base_row * ROW_BYTES)
        first = e.value(f"sext i32 {_scalar(op, 1)} to i64")
        first = e.value(f"mul i64 {first}, {ROW_BYTES // 4}")
        index = self._pointer(self._operand(_use(op, 2)))
        position = f"ptr {base}, i64 {first}, i64 {window.rows * ROW_BYTES // 4}, ptr {index}"
        if op.row.effect == "load_indexed":
            call = f"{LOAD_INDEXED}(ptr {self._pointer(self._result(op))}, {position})"
        else:
            source, mask = (self._pointer(self._operand(_use(op, n))) for n in (3, 4))
            call = f"{STORE_INDEXED}({position}, ptr {source}, ptr {mask})"
        self._commands.flush()
        is_inside = e.value(f"call i1 @{call}")
        outside = e.value(f"xor i1 {is_inside}, true")
        message = f"{op.row.name}: a word address is not within window {window.name}"
        self._scope.fault_if(outside, FaultKind.WINDOW, message)

    def _pointer(self, place: Place | RingPlace) -> str:
        e = self._emitter
        if not isinstance(place, RingPlace):
            return e.offset(*place)
        position = e.value(f"add i64 {place.position}, {place.number}")
        slot = e.value(f"and i64 {position}, {place.entries - 1}")
        return e.value(f"getelementptr [{VREG_BYTES} x i8], ptr {place.ring}, i64 {slot}")

    def _dma(self, op: ValueOp) -> None:
        self._commands.flush()
        emit_transfer(self._scope, op, self._dma_function)


def _is_mxu(op: ValueOp) -> bool:
    return op.row is not None and op.row.effect in _MXU_EFFECTS


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


def _extrapolated(first: Place | RingPlace, second: Place | RingPlace) -> Place | RingPlace:
    """The place as far behind `second` as `second` is behind `first`, where that is known."""
    if isinstance(first, RingPlace) or isinstance(second, RingPlace) or first[0] != second[0]:
        return second
    return second[0], 2 * second[1] - first[1]


def _number(op: ValueOp, position: int) -> int:
    argument = op.arguments[position]
    assert isinstance(argument, int)
    return argument


def _use(op: ValueOp, position: int) -> Use:
    argument = op.arguments[position]
    assert isinstance(argument, Use)
    return argument


def _scalar(op: ValueOp, position: int) -> str:
    argument = op.arguments[position]
    assert isinstance(argument, Scalar)
    return argument.text
