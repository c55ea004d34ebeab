"""State operations of a segment: MXU, transpose unit, indexed accesses, transfers.

Each is a call of a precompiled kernel or a copy. Positions in queues and which weight block is
active are known up to one number per unit at the segment's start; that number is loaded in
`begin` and written back in `end`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from tpu_sim.isa.program import HBM, SMEM, VMEM
from tpu_sim.jit.context import ROW_BYTES, TRANSPOSE_BYTES, VREG_BYTES, WEIGHT_BYTES, Word
from tpu_sim.jit.dma_functions import DMA_FAULTS
from tpu_sim.jit.hbm_windows import entry_offset
from tpu_sim.jit.library import (
    COPY_VREG,
    LOAD_INDEXED,
    MATMUL,
    MATPUSH_TRANSPOSED,
    SETTLE_WEIGHTS,
    STORE_INDEXED,
    TRANSPOSE,
)
from tpu_sim.jit.scope import FaultKind, FunctionScope
from tpu_sim.jit.task_table import Command
from tpu_sim.jit.values import Scalar, Use, ValueOp

_SPACE_NAMES = {HBM: "HBM", VMEM: "VMEM", SMEM: "SMEM"}
_PASSES_TO_SHARE = 8
"""MXU passes (a quarter of a microsecond each, or more) from which waking other threads pays."""
_MXU_EFFECTS = frozenset({"matpush", "matpush_t", "matswap", "matmul"})


class StateOps:
    """Emits the state operations of one segment.

    `operand` gives the pointer of a vreg or mask read, `result` that of a vreg written.
    """

    def __init__(
        self,
        scope: FunctionScope,
        ops: Iterable[ValueOp],
        operand: Callable[[Use], str],
        result: Callable[[ValueOp], str],
        dma_function: Callable[[int], str],
    ) -> None:
        self._scope = scope
        self._emitter = scope.emitter
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
        self._tail: dict[int, str] = {}
        self._head: dict[int, str] = {}
        self._active: dict[int, str] = {}
        self._blocks: dict[int, list[str]] = {}
        self._pushes: dict[int, str] = {}
        self._rings: dict[int, str] = {}
        self._commands: list[Command] | None = None
        self._transpose_index = ""
        self._transposed = 0
        self._following: dict[int, str] = {}

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
        for unit in sorted(self._pushed):
            self._tail[unit] = self._scope.load_word(Word.TAIL + unit)
        for unit in sorted(self._popped):
            self._head[unit] = self._scope.load_word(Word.HEAD + unit)
        for unit in sorted(self._weights_units):
            self._load_blocks(unit)
        if self._transposes:
            self._transpose_index = self._scope.load_word(Word.TRANSPOSE_INDEX)

    def _load_blocks(self, unit: int) -> None:
        """Pointers of the active and the shadow weights."""
        e = self._emitter
        active = self._active[unit] = self._scope.load_word(Word.ACTIVE + unit)
        self._pushes[unit] = self._scope.load_word(Word.PUSHES + unit)
        base = e.offset("%weights", unit * 2 * WEIGHT_BYTES)
        shadow = e.value(f"xor i64 {active}, 1")
        self._blocks[unit] = [
            e.offset(base, e.value(f"mul i64 {parity}, {WEIGHT_BYTES}"))
            for parity in (active, shadow)
        ]

    def end(self) -> None:
        """Write the positions back."""
        e = self._emitter
        for table, counts, starts in (
            (Word.TAIL, self._pushed, self._tail),
            (Word.HEAD, self._popped, self._head),
        ):
            for unit, count in sorted(counts.items()):
                self._scope.store_word(table + unit, e.value(f"add i64 {starts[unit]}, {count}"))
        for unit in sorted(self._weights_units):
            self._scope.store_word(Word.PUSHES + unit, self._pushes[unit])
        for unit, count in sorted(self._swapped.items()):
            if count % 2:
                flipped = e.value(f"xor i64 {self._active[unit]}, 1")
                self._scope.store_word(Word.ACTIVE + unit, flipped)
        if self._transposed:
            self._scope.store_word(Word.TRANSPOSE_INDEX, self._transpose_block(self._transposed))

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

    def _next_sources(self, ops: list[ValueOp]) -> dict[int, str]:
        """For each pass where the left side of its unit's next one lies, after the last a guess."""
        by_unit: dict[int, list[ValueOp]] = {}
        for op in ops:
            if op.row is not None and op.row.effect == "matmul":
                by_unit.setdefault(_number(op, 0), []).append(op)
        found: dict[int, str] = {}
        for passes in by_unit.values():
            sources = [self._operand(_use(op, 1)) for op in passes]
            if len(sources) > 1:
                sources.append(self._extrapolated(*sources[-2:]))
                found.update(zip((op.index for op in passes), sources[1:], strict=True))
        return found

    def _extrapolated(self, first: str, second: str) -> str:
        """The pointer as far behind `second` as `second` is behind `first`."""
        e = self._emitter
        addresses = [e.value(f"ptrtoint ptr {pointer} to i64") for pointer in (first, second)]
        return e.offset(second, e.value(f"sub i64 {addresses[1]}, {addresses[0]}"))

    def _emit_tasks(self, ops: list[ValueOp]) -> None:
        """One task per MXU: their queues, weights and results are their own."""
        by_unit: dict[int, list[Command]] = {}
        for op in ops:
            self._commands = by_unit.setdefault(_number(op, 0), [])
            self.emit(op)
        self._commands = None
        table = self._scope.task_table()
        for commands in by_unit.values():
            table.add_commands(commands)
        table.run()

    def _run(self, function: str, *arguments: str) -> None:
        """Call a kernel now, or add it to the commands of a task."""
        if self._commands is not None:
            self._commands.append((function, arguments))
        else:
            self._emitter.do(f"call void @{function}({', '.join(arguments)})")

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
                shadow = self._emitter.offset("%transpose", _number(op, 1) * VREG_BYTES)
                self._copy(shadow, self._operand(_use(op, 0)))
            case "xpose_swap":
                self._transposed += 1
                target = self._transpose_pointer(self._transposed)
                self._run(TRANSPOSE, f"ptr {target}", "ptr %transpose")
            case "load_indexed" | "store_indexed":
                self._indexed(op)
            case "dma_start":
                self._dma(op)
            case effect:
                raise AssertionError(f"no native code for effect {effect}")

    def _copy(self, target: str, source: str) -> None:
        self._run(COPY_VREG, f"ptr {target}", f"ptr {source}")

    # MXU

    def _matpush(self, op: ValueOp) -> None:
        assert op.row is not None
        unit, row = _number(op, 0), _number(op, 2)
        shadow = self._blocks[unit][1]
        source = self._operand(_use(op, 1))
        is_plain = op.row.effect == "matpush"
        bit = 1 << (row if is_plain else row + 8)
        self._pushes[unit] = self._emitter.value(f"or i64 {self._pushes[unit]}, {bit}")
        if is_plain:
            self._copy(self._emitter.offset(shadow, row * VREG_BYTES), source)
            return
        target = self._emitter.offset(shadow, row * 64)
        self._run(MATPUSH_TRANSPOSED, f"ptr {target}", f"ptr {source}")

    def _matswap(self, unit: int) -> None:
        """The shadow is cleared late: what no push wrote is zeroed when it becomes active."""
        shadow = self._blocks[unit][1]
        self._run(SETTLE_WEIGHTS, f"ptr {shadow}", f"i64 {self._pushes[unit]}")
        self._blocks[unit].reverse()
        self._pushes[unit] = "0"

    def _matmul(self, op: ValueOp) -> None:
        unit = _number(op, 0)
        source = self._operand(_use(op, 1))
        # both results of a pass lie together: positions are even, the ring's size too
        results = self._ring_pointer(unit, self._tail[unit], 2 * op.queue_number)
        weights = self._blocks[unit][0]
        following = self._following.get(op.index, source)
        self._run(MATMUL, *(f"ptr {p}" for p in (results, source, weights, following)))

    def _ring_pointer(self, unit: int, start: str, number: int) -> str:
        e = self._emitter
        entries = self._scope.module.ring_entries[self._scope.kernel.name]
        ring = self._rings.get(unit)
        if ring is None:
            ring = self._rings[unit] = e.offset("%results", unit * entries * VREG_BYTES)
        position = e.value(f"add i64 {start}, {number}") if number else start
        slot = e.value(f"and i64 {position}, {entries - 1}")
        return e.value(f"getelementptr [{VREG_BYTES} x i8], ptr {ring}, i64 {slot}")

    # leaves

    def leaf_pointer(self, op: ValueOp) -> str:
        """Where the result that a LEAF pops or reads lies."""
        assert op.row is not None
        if op.row.effect == "pop_mrf":
            unit = _number(op, 0)
            return self._ring_pointer(unit, self._head[unit], op.queue_number)
        block = self._transpose_pointer(op.queue_number)
        return self._emitter.offset(block, _number(op, 0) * VREG_BYTES)

    def _transpose_block(self, swaps: int) -> str:
        """Ring index of the active transposed block after `swaps` swaps of this segment."""
        if swaps == 0:
            return self._transpose_index
        e = self._emitter
        moved = e.value(f"add i64 {self._transpose_index}, {swaps}")
        return e.value(f"urem i64 {moved}, {self._scope.module.transpose_blocks}")

    def _transpose_pointer(self, swaps: int) -> str:
        e = self._emitter
        byte_offset = e.value(f"mul i64 {self._transpose_block(swaps)}, {TRANSPOSE_BYTES}")
        return e.offset(e.offset("%transpose", TRANSPOSE_BYTES), byte_offset)

    # indexed accesses and transfers

    def _indexed(self, op: ValueOp) -> None:
        """Word addresses are counted from the window's row `s`; all must lie in the window."""
        e = self._emitter
        assert op.row is not None
        window = self._scope.kernel.windows[_number(op, 0)]
        base = e.offset("%vmem", window.base_row * ROW_BYTES)
        first = e.value(f"sext i32 {_scalar(op, 1)} to i64")
        first = e.value(f"mul i64 {first}, {ROW_BYTES // 4}")
        index = self._operand(_use(op, 2))
        position = f"ptr {base}, i64 {first}, i64 {window.rows * ROW_BYTES // 4}, ptr {index}"
        if op.row.effect == "load_indexed":
            call = f"{LOAD_INDEXED}(ptr {self._result(op)}, {position})"
        else:
            source, mask = self._operand(_use(op, 3)), self._operand(_use(op, 4))
            call = f"{STORE_INDEXED}({position}, ptr {source}, ptr {mask})"
        is_inside = e.value(f"call i1 @{call}")
        outside = e.value(f"xor i1 {is_inside}, true")
        message = f"{op.row.name}: a word address is not within window {window.name}"
        self._scope.fault_if(outside, FaultKind.WINDOW, message)

    def _dma(self, op: ValueOp) -> None:
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


def emit_transfer(scope: FunctionScope, op: ValueOp, dma_function: Callable[[int], str]) -> None:
    """Call the copy function of a ``dma.start`` and check its status."""
    descriptor = scope.kernel.descriptors[_number(op, 0)]
    window = scope.kernel.windows[descriptor.window] if descriptor.window >= 0 else None
    arguments = [f"i32 {_scalar(op, i)}" for i in (1, 2, 5, 6)]
    first, rows = (window.base_row, window.rows) if window is not None else (0, 0)
    arguments += [f"i64 {first * ROW_BYTES}", f"i64 {rows * ROW_BYTES}"]
    function = dma_function(_number(op, 0))
    if descriptor.dst_space == VMEM and descriptor.window in scope.in_place:
        offset = entry_offset(scope.in_place[descriptor.window].entry)
        arguments.append(f"ptr {scope.emitter.offset('%ctx', offset)}")
    status = scope.emitter.value(f"call i32 @{function}(ptr %ctx, {', '.join(arguments)})")
    spaces = " -> ".join(_SPACE_NAMES[s] for s in (descriptor.src_space, descriptor.dst_space))
    message = f"dma.start {spaces}: outside its memory or window, or a bad dynamic count"
    scope.fault_on_code(status, DMA_FAULTS, message)


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
