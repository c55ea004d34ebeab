"""The clock: native code that counts the cycles of `tpu_sim.isa.timing`, and nothing else.

Inside a block the time of issue is a native value plus a known number of bundles; it becomes a new
value only where a bundle may stall. Between blocks the time lies in the context. What touches
queues, flags and the DMA engine are functions of the kernel library (`tpu_sim.jit.clock_kernels`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tpu_sim.isa.causes import Counts, transfer_cause
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import HBM, NO_ROUTE, DmaDescriptor
from tpu_sim.isa.resources import FLAG, MRF
from tpu_sim.isa.timing import descriptor_unit_bytes
from tpu_sim.jit.clock_kernels import (
    EXCHANGE,
    FINISH,
    MAX_ELAPSED,
    RUN_STEPS,
    TRANSFER,
    WAIT,
    ClockStep,
    step_word,
)
from tpu_sim.jit.context import Word
from tpu_sim.jit.scope import FunctionScope
from tpu_sim.machine.fabric import ROUTES


class BlockClock:
    """Counts the cycles of one block, bundle by bundle."""

    def __init__(self, scope: FunctionScope) -> None:
        self._scope = scope
        self._emitter = scope.emitter
        self._base = ""
        self._elapsed = 0
        self._steps: list[int] = []

    def _now(self) -> str:
        """The cycle at which the next bundle would issue."""
        if not self._base:
            self._base = self._scope.load_word(Word.NOW)
        if self._steps:
            self._step(ClockStep.END, 0)
            steps = self._scope.constant(self._steps, "I")
            self._base = self._emitter.value(
                f"call i64 @{RUN_STEPS}(ptr %ctx, ptr {steps}, i64 {self._base})"
            )
            self._steps = []
        elif self._elapsed:
            self._base = self._emitter.value(f"add i64 {self._base}, {self._elapsed}")
            self._elapsed = 0
        return self._base

    def _step(self, step: ClockStep, unit: int) -> None:
        """A step at the time the next bundle would issue."""
        while self._elapsed > MAX_ELAPSED:
            self._steps.append(step_word(ClockStep.IDLE, 0, MAX_ELAPSED))
            self._elapsed -= MAX_ELAPSED
        self._steps.append(step_word(step, unit, self._elapsed))
        self._elapsed = 0

    def stall(self, bundle: Sequence[Instr], flags: dict[int, str]) -> None:
        """Wait for what the bundle needs; `flags` gives the flag number of each ``dma.wait``."""
        arrival = self._now() if flags else ""
        for position, instr in enumerate(bundle):
            row = instr.row
            if FLAG in row.uses:
                arguments = f"i64 {flags[position]}, i64 {arrival}, i64 {self._now()}"
                self._base = self._emitter.value(f"call i64 @{WAIT}(ptr %ctx, {arguments})")
            elif MRF in row.touches:
                step = ClockStep.POP if row.pops else ClockStep.UNIT
                self._step(step, instr.operands[row.unit_index])

    def issue(self, bundle: Sequence[Instr]) -> None:
        """Account for the bundle's multiplications and go on to the next cycle."""
        for instr in bundle:
            if instr.row.pushes == MRF:
                self._step(ClockStep.MATMUL, instr.operands[instr.row.unit_index])
        self._elapsed += 1

    def transfer(self, descriptor: DmaDescriptor, flag: str, counts: tuple[str, str]) -> None:
        """A DMA started by the bundle that issues now (before `issue` of that bundle)."""
        size = self._transfer_bytes(descriptor, counts)
        if descriptor.route != NO_ROUTE:
            self._emitter.do(
                f"call void @{EXCHANGE}(ptr %ctx, i64 {flag}, i64 {size}, i64 {descriptor.route}, "
                f"i64 {self._now()})"
            )
            return
        spaces = (descriptor.src_space, descriptor.dst_space)
        self._emitter.do(
            f"call void @{TRANSFER}(ptr %ctx, i64 {flag}, i64 {size}, i64 {spaces.count(HBM)}, "
            f"i64 {ROUTES.index(spaces)}, i64 {int(transfer_cause(descriptor))}, i64 {self._now()})"
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

    def finish(self, issued: Counts) -> str:
        """Write the time back, and what the block's bundles count as; returns the time."""
        now = self._now()
        finish(self._scope, now, issued)
        return now


def finish(scope: FunctionScope, now: str, counts: Counts) -> None:
    """Set the time to `now` and add cycles to their causes."""
    if not counts:
        scope.store_word(Word.NOW, now)
        return
    words = [word for count in counts for word in count]
    table = scope.constant([len(counts), *words], "q")
    scope.emitter.do(f"call void @{FINISH}(ptr {scope.core}, ptr {table}, i64 {now})")
