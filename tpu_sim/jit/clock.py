"""The clock: native code that counts the cycles of `tpu_sim.isa.timing`, and nothing else.

Inside a block the time of issue is a native value plus a known number of bundles; it becomes a new
value only where a bundle may stall. Between blocks the time lies in the context.
"""

from __future__ import annotations

from collections import Counter

from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import HBM, Bundle, DmaDescriptor
from tpu_sim.isa.timing import (
    descriptor_unit_bytes,
    dma_cycles_factor,
    result_ready_cycles,
)
from tpu_sim.jit.context import READY_RING, Word
from tpu_sim.jit.scope import FunctionScope

_FRACTION_BITS = 24


class BlockClock:
    """Counts the cycles of one block, bundle by bundle."""

    def __init__(self, scope: FunctionScope) -> None:
        self._scope = scope
        self._emitter = scope.emitter
        self._base = ""
        self._elapsed = 0
        self._pushed: Counter[int] = Counter()
        self._popped: Counter[int] = Counter()
        self._tails: dict[int, str] = {}
        self._heads: dict[int, str] = {}
        self._matmuls = 0

    def _now(self) -> str:
        """The cycle at which the next bundle would issue."""
        if not self._base:
            self._base = self._scope.load_word(Word.NOW)
        if self._elapsed:
            self._base = self._emitter.value(f"add i64 {self._base}, {self._elapsed}")
            self._elapsed = 0
        return self._base

    def _later(self, a: str, b: str) -> str:
        return self._emitter.value(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")

    def stall(self, bundle: Bundle, flags: dict[int, str]) -> None:
        """Wait for what the bundle needs; `flags` gives the flag number of each ``dma.wait``."""
        waits: list[str] = []
        for position, instr in enumerate(bundle):
            match instr.row.effect:
                case "dma_wait":
                    waits.append(self._flag_done(flags[position]))
                case "pop_mrf":
                    waits.append(self._oldest_result(instr.operands[1]))
                case "matmul":
                    waits.append(self._scope.load_word(Word.UNIT_FREE + instr.operands[0]))
        if waits:
            issue = self._now()
            for wait in waits:
                issue = self._later(issue, wait)
            self._base = issue

    def _flag_done(self, flag: str) -> str:
        e = self._emitter
        pointer = e.offset(self._scope.word_pointer(Word.FLAG_DONE), e.value(f"shl i64 {flag}, 3"))
        done = e.load("i64", pointer, 8)
        wait = e.value(f"sub i64 {self._later(done, self._now())}, {self._now()}")
        self._scope.add_to_word(Word.DMA_WAIT, wait)
        return done

    def _ready_pointer(self, unit: int, start: str, number: int) -> str:
        e = self._emitter
        slot = e.value(f"and i64 {e.value(f'add i64 {start}, {number}')}, {READY_RING - 1}")
        base = self._scope.word_pointer(Word.READY + unit * READY_RING)
        return e.offset(base, e.value(f"shl i64 {slot}, 3"))

    def _oldest_result(self, unit: int) -> str:
        if unit not in self._heads:
            self._heads[unit] = self._scope.load_word(Word.CLOCK_HEAD + unit)
        pointer = self._ready_pointer(unit, self._heads[unit], self._popped[unit])
        self._popped[unit] += 1
        return self._emitter.load("i64", pointer, 8)

    def issue(self, bundle: Bundle) -> None:
        """Account for the bundle's multiplications and go on to the next cycle."""
        for instr in bundle:
            if instr.row.effect == "matmul":
                self._matmul(instr)
        self._elapsed += 1

    def _matmul(self, instr: Instr) -> None:
        e = self._emitter
        chip = self._scope.chip
        unit = instr.operands[0]
        now = self._now()
        if unit not in self._tails:
            self._tails[unit] = self._scope.load_word(Word.CLOCK_TAIL + unit)
        for ready in result_ready_cycles(chip):
            pointer = self._ready_pointer(unit, self._tails[unit], self._pushed[unit])
            self._pushed[unit] += 1
            e.store("i64", e.value(f"add i64 {now}, {ready}"), pointer, 8)
        free = e.value(f"add i64 {now}, {chip.matmul_cycles}")
        self._scope.store_word(Word.UNIT_FREE + unit, free)
        self._matmuls += 1

    def transfer(
        self, descriptor: DmaDescriptor, flag: str, counts: tuple[str, str]
    ) -> None:
        """A DMA started by the bundle that issues now (before `issue` of that bundle)."""
        e = self._emitter
        size = self._transfer_bytes(descriptor, counts)
        scaled = e.value(f"mul i64 {size}, {dma_cycles_factor(self._scope.chip)}")
        scaled = e.value(f"add i64 {scaled}, {(1 << _FRACTION_BITS) - 1}")
        cycles = e.value(f"lshr i64 {scaled}, {_FRACTION_BITS}")
        start = self._later(self._now(), self._scope.load_word(Word.DMA_FREE))
        free = e.value(f"add i64 {start}, {cycles}")
        self._scope.store_word(Word.DMA_FREE, free)
        done = e.value(f"add i64 {free}, {self._scope.chip.dma_latency_cycles}")
        pointer = e.offset(self._scope.word_pointer(Word.FLAG_DONE), e.value(f"shl i64 {flag}, 3"))
        e.store("i64", done, pointer, 8)
        sides = (descriptor.src_space == HBM) + (descriptor.dst_space == HBM)
        if sides:
            self._scope.add_to_word(Word.HBM_BYTES, e.value(f"mul i64 {size}, {sides}"))

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

    def finish(self) -> None:
        """Write the time and the queue positions back."""
        for table, counts, starts in (
            (Word.CLOCK_TAIL, self._pushed, self._tails),
            (Word.CLOCK_HEAD, self._popped, self._heads),
        ):
            for unit, count in sorted(counts.items()):
                total = self._emitter.value(f"add i64 {starts[unit]}, {count}")
                self._scope.store_word(table + unit, total)
        if self._matmuls:
            self._scope.add_to_word(Word.MXU_PASSES, self._matmuls)
        self._scope.store_word(Word.NOW, self._now())
