"""The clock: native code that counts the cycles of `tpu_sim.isa.timing`, and nothing else.

Inside a block the time of issue is a native value plus a known number of bundles; it becomes a new
value only where a bundle may stall. Between blocks the time lies in the context. What touches
queues, flags and the DMA engine are small functions of the module (`clock_functions`).
"""

from __future__ import annotations

from tpu_sim.isa.causes import Cause, Counts, transfer_cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import HBM, Bundle, DmaDescriptor
from tpu_sim.isa.timing import (
    FRACTION_BITS,
    PASS_BITS,
    descriptor_unit_bytes,
    dma_cost,
    pass_occupancy,
    result_ready_cycles,
)
from tpu_sim.jit.context import READY_RING, Word
from tpu_sim.jit.emitter import Emitter
from tpu_sim.jit.scope import FunctionScope


class BlockClock:
    """Counts the cycles of one block, bundle by bundle."""

    def __init__(self, scope: FunctionScope) -> None:
        self._scope = scope
        self._emitter = scope.emitter
        self._base = ""
        self._elapsed = 0

    def _now(self) -> str:
        """The cycle at which the next bundle would issue."""
        if not self._base:
            self._base = self._scope.load_word(Word.NOW)
        if self._elapsed:
            self._base = self._emitter.value(f"add i64 {self._base}, {self._elapsed}")
            self._elapsed = 0
        return self._base

    def stall(self, bundle: Bundle, flags: dict[int, str]) -> None:
        """Wait for what the bundle needs; `flags` gives the flag number of each ``dma.wait``."""
        arrival = ""
        for position, instr in enumerate(bundle):
            match instr.row.effect:
                case "dma_wait":
                    wait = f"clock_wait(ptr %ctx, i64 {flags[position]}, i64 {{}}, i64 {{}})"
                case "pop_mrf":
                    wait = f"clock_pop(ptr %ctx, i64 {instr.operands[1]}, i64 {{1}})"
                case "matmul":
                    wait = f"clock_unit(ptr %ctx, i64 {instr.operands[0]}, i64 {{1}})"
                case _:
                    continue
            arrival = arrival or self._now()
            self._base = self._emitter.value(f"call i64 @{wait.format(arrival, self._base)}")

    def issue(self, bundle: Bundle) -> None:
        """Account for the bundle's multiplications and go on to the next cycle."""
        for instr in bundle:
            if instr.row.effect == "matmul":
                arguments = f"ptr %ctx, i64 {instr.operands[0]}, i64 {self._now()}"
                self._emitter.do(f"call void @clock_matmul({arguments})")
        self._elapsed += 1

    def transfer(self, descriptor: DmaDescriptor, flag: str, counts: tuple[str, str]) -> None:
        """A DMA started by the bundle that issues now (before `issue` of that bundle)."""
        size = self._transfer_bytes(descriptor, counts)
        sides = (descriptor.src_space == HBM) + (descriptor.dst_space == HBM)
        cost = dma_cost(descriptor.src_space, descriptor.dst_space, self._scope.chip)
        self._emitter.do(
            f"call void @clock_transfer(ptr %ctx, i64 {flag}, i64 {size}, i64 {sides}, "
            f"i64 {cost.factor}, i64 {cost.setup}, i64 {cost.latency}, "
            f"i64 {int(transfer_cause(descriptor))}, i64 {self._now()})"
        )

    def _transfer_bytes(self, descriptor: DmaDescriptor, counts: tuple[str, str]) -> str:
        e = self._emitter
        size = descriptor.chunk * descriptor_unit_bytes(descriptor)
        total = ""
        for dim in descriptor.dims:
            if dim.count >= 0:
                size *= dim.count
                continue
            wide = e.value(f"zext i32 {counts[-1 - dim.count]} to i64")
            total = e.value(f"mul i64 {total}, {wide}") if total else wide
        return e.value(f"mul i64 {total}, {size}") if total else str(size)

    def finish(self, issued: Counts) -> None:
        """Write the time back, and what the block's bundles count as."""
        self._scope.store_word(Word.NOW, self._now())
        charge(self._scope, issued)


def charge(scope: FunctionScope, counts: Counts) -> None:
    """Add cycles to their causes."""
    for cause, cycles in counts:
        scope.add_to_word(Word.CAUSES + cause, cycles)


class _ClockFunction:
    """One helper function under construction."""

    def __init__(self, header: str) -> None:
        self.emitter = Emitter("k")
        self._header = header

    def word(self, word: int, index: str = "") -> str:
        """Pointer to a context word, or to entry `index` of a table of words."""
        pointer = self.emitter.offset("%ctx", int(word) * 8)
        if not index:
            return pointer
        return self.emitter.value(f"getelementptr i64, ptr {pointer}, i64 {index}")

    def load(self, pointer: str) -> str:
        """A word's value."""
        return self.emitter.load("i64", pointer, 8)

    def add(self, pointer: str, amount: str | int) -> str:
        """Add to a word; returns its value before."""
        old = self.load(pointer)
        total = self.emitter.value(f"add i64 {old}, {amount}")
        self.emitter.store("i64", total, pointer, 8)
        return old

    def stall(self, cause: str, until: str) -> str:
        """Wait from ``%now`` until a time, for a cause given by number; returns the later time."""
        later = self.later("%now", until)
        waited = self.emitter.value(f"sub i64 {later}, %now")
        self.add(self.word(Word.CAUSES, cause), waited)
        return later

    def later(self, a: str, b: str) -> str:
        """The maximum of two times."""
        return self.emitter.value(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")

    def ready(self, position: str) -> str:
        """Pointer to the ready time of result number `position` of ``%unit``."""
        e = self.emitter
        slot = e.value(f"and i64 {position}, {READY_RING - 1}")
        ring = e.value(f"mul i64 %unit, {READY_RING}")
        return self.word(Word.READY, e.value(f"add i64 {ring}, {slot}"))

    def define(self, result: str = "void") -> str:
        """The function's text."""
        body = f"entry:\n{self.emitter.text()}\n ret {result}"
        return f"define internal {self._header} #0 {{\n{body}\n}}\n"


def clock_functions(chip: Chip) -> str:
    """The helper functions that translated blocks call."""
    functions = [_pop_function(), _unit_function(), _matmul_function(chip)]
    return "\n".join([*functions, _wait_function(chip), _transfer_function()])


def _pop_function() -> str:
    f = _ClockFunction("i64 @clock_pop(ptr %ctx, i64 %unit, i64 %now)")
    oldest = f.add(f.word(Word.CLOCK_HEAD, "%unit"), 1)
    return f.define(f"i64 {f.stall(str(int(Cause.MXU_RESULT)), f.load(f.ready(oldest)))}")


def _unit_function() -> str:
    f = _ClockFunction("i64 @clock_unit(ptr %ctx, i64 %unit, i64 %now)")
    free = f.emitter.value(f"lshr i64 {f.load(f.word(Word.UNIT_FREE, '%unit'))}, {PASS_BITS}")
    return f.define(f"i64 {f.stall(str(int(Cause.MXU)), free)}")


def _matmul_function(chip: Chip) -> str:
    f = _ClockFunction("void @clock_matmul(ptr %ctx, i64 %unit, i64 %now)")
    tail = f.word(Word.CLOCK_TAIL, "%unit")
    for cycles in result_ready_cycles(chip):
        ready = f.emitter.value(f"add i64 %now, {cycles}")
        f.emitter.store("i64", ready, f.ready(f.add(tail, 1)), 8)
    unit = f.word(Word.UNIT_FREE, "%unit")
    start = f.later(f.load(unit), f.emitter.value(f"shl i64 %now, {PASS_BITS}"))
    free = f.emitter.value(f"add i64 {start}, {pass_occupancy(chip)}")
    f.emitter.store("i64", free, unit, 8)
    f.add(f.word(Word.MXU_PASSES), 1)
    return f.define()


def _wait_function(chip: Chip) -> str:
    """The wait counts from `arrival`, when the bundle could issue but for its waits."""
    f = _ClockFunction("i64 @clock_wait(ptr %ctx, i64 %flag, i64 %arrival, i64 %now)")
    done = f.later("%now", f.load(f.word(Word.FLAG_DONE, "%flag")))
    done = f.emitter.value(f"add i64 {done}, {chip.dma_wait_cycles}")
    waited = f.emitter.value(f"sub i64 {done}, %arrival")
    f.add(f.word(Word.DMA_WAIT), waited)
    cause = f.load(f.word(Word.FLAG_CAUSE, "%flag"))
    return f.define(f"i64 {f.stall(cause, done)}")


def _transfer_function() -> str:
    """`dma_times`, for a transfer of a `DmaCost`."""
    cost = "i64 %factor, i64 %setup, i64 %latency"
    parameters = f"i64 %flag, i64 %size, i64 %sides, {cost}, i64 %cause, i64 %now"
    f = _ClockFunction(f"void @clock_transfer(ptr %ctx, {parameters})")
    e = f.emitter
    scaled = e.value("mul i64 %size, %factor")
    scaled = e.value(f"add i64 {scaled}, {(1 << FRACTION_BITS) - 1}")
    cycles = e.value(f"lshr i64 {scaled}, {FRACTION_BITS}")
    cycles = e.value(f"add i64 {cycles}, %setup")
    engine = f.word(Word.DMA_FREE)
    free = e.value(f"add i64 {f.later('%now', f.load(engine))}, {cycles}")
    e.store("i64", free, engine, 8)
    done = e.value(f"add i64 {free}, %latency")
    flag = f.word(Word.FLAG_DONE, "%flag")
    e.store("i64", f.later(done, f.load(flag)), flag, 8)
    e.store("i64", "%cause", f.word(Word.FLAG_CAUSE, "%flag"), 8)
    f.add(f.word(Word.HBM_BYTES), e.value("mul i64 %size, %sides"))
    return f.define()
