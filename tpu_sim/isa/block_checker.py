"""Static rules inside one block, and what the block needs from and leaves for its neighbours.

A block is looked at once, by `summarize_block`; control flow then joins summaries (`checker`).
Cycles count from the block's first bundle; dynamic stalls only ever give more time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.errors import HazardError, ProgramError
from tpu_sim.isa.instruction import SREG, Instr
from tpu_sim.isa.operand_limits import OperandLimits, RowFacts
from tpu_sim.isa.program import Block, Bundle
from tpu_sim.isa.resources import MRF, TRANSPOSE_INPUT, TRANSPOSE_SHADOW
from tpu_sim.isa.text import format_bundle
from tpu_sim.isa.timing import result_latency
from tpu_sim.isa.unit_steps import leaves, needs


@dataclass
class BlockSummary:
    """What a block asks of the state before it and what it leaves.

    `sreg_reads`: the cycle an incoming sreg is first read. `sreg_lands`: cycles after the block's
    end until an sreg it wrote may be read. `unit_uses`/`unit_lands`: the same for MXU and transpose
    unit steps, by name. `mrf_low`/`mrf_high`/`mrf_net`: result-queue levels relative to entry.
    """

    cycles: int
    sreg_reads: dict[int, int] = field(default_factory=dict)
    sreg_lands: dict[int, int] = field(default_factory=dict)
    unit_uses: dict[str, int] = field(default_factory=dict)
    unit_lands: dict[str, int] = field(default_factory=dict)
    mrf_low: dict[int, int] = field(default_factory=dict)
    mrf_high: dict[int, int] = field(default_factory=dict)
    mrf_net: dict[int, int] = field(default_factory=dict)


def summarize_block(block: Block, chip: Chip, limits: OperandLimits, where: str) -> BlockSummary:
    """Check a block's own rules; raises `ProgramError`."""
    return _BlockChecker(block, chip, limits, where).run()


class _BlockChecker:
    """Walks the bundles once, keeping when each register, queue entry and unit is ready."""

    def __init__(self, block: Block, chip: Chip, limits: OperandLimits, where: str) -> None:
        self.block = block
        self.chip = chip
        self.units_per_mxu = chip.units_per_mxu
        self.limits = limits
        self.where = f"{where}, block {block.name!r}" if block.name else where
        self.summary = BlockSummary(len(block.bundles))
        self.cycle = 0
        self.bundle: Bundle = ()
        self.ready: dict[tuple[str, int], int] = {}
        self.queues: dict[str, deque[int]] = {"eup": deque(), "xlu": deque()}
        self.busy: dict[str, list[int]] = {}
        self.last_matmul: dict[int, int] = {}
        self.unit_ready: dict[str, int] = {}

    def run(self) -> BlockSummary:
        for cycle, bundle in enumerate(self.block.bundles):
            self.cycle, self.bundle = cycle, bundle
            if bundle:
                self._bundle()
        self.bundle = ()
        self._end()
        return self.summary

    def _fail(self, message: str, hazard: bool = True) -> None:
        kind = HazardError if hazard else ProgramError
        at = f"{self.where}, bundle {self.cycle}"
        raise kind(message, at, format_bundle(self.bundle) if self.bundle else "")

    def _bundle(self) -> None:
        """All reads come before all writes."""
        limits, slots_left = self.limits, self._free_slots()
        holders: list[tuple[Instr, RowFacts]] = []
        results: list[tuple[Instr, RowFacts]] = []
        has_steps = False
        for instr in self.bundle:
            row, operands = instr.row, instr.operands
            facts = limits.facts(row)
            complaint = limits.complaint(row, operands, facts)
            if complaint:
                self._fail(complaint, hazard=False)
            slots_left[facts.slot] -= 1
            if facts.reads:
                self._reads(operands, facts.reads)
            if facts.pops:
                self._pop(instr)
            if facts.writes or facts.pushes:
                results.append((instr, facts))
            if facts.mxu >= 0 or facts.held > 1:
                holders.append((instr, facts))
            has_steps |= facts.is_unit_step
        self._hold_slots(slots_left, holders)
        written: set[tuple[str, int]] = set()
        for instr, facts in results:
            if facts.writes:
                self._write((facts.writes, instr.operands[0]), facts.latency, written)
            if facts.pushes:
                self._push(instr)
        if has_steps:
            self._units()

    def _free_slots(self) -> dict[str, int]:
        """Issue slots of each class that nothing holds."""
        slots = dict(self.chip.slots)
        for slot, ends in self.busy.items():
            self.busy[slot] = held = [end for end in ends if end > self.cycle]
            slots[slot] -= len(held)
        return slots

    def _hold_slots(self, left: dict[str, int], holders: list[tuple[Instr, RowFacts]]) -> None:
        """No class has fewer slots than the bundle takes; units of an MXU share its one slot."""
        if min(left.values()) < 0:
            slot = next(slot for slot, count in left.items() if count < 0)
            slots = self.chip.slots[slot]
            self._fail(f"{slots - left[slot]} {slot} slots in use, {self.chip.name} has {slots}")
        mxus: set[int] = set()
        for instr, facts in holders:
            if facts.mxu >= 0:
                mxu = instr.operands[facts.mxu] // self.units_per_mxu
                if mxu in mxus:
                    self._fail(f"two instructions for the slot of MXU {mxu}")
                mxus.add(mxu)
            if facts.held > 1:
                self.busy.setdefault(facts.slot, []).append(self.cycle + facts.held)

    def _reads(self, operands: tuple[int, ...], reads: tuple[tuple[int, str], ...]) -> None:
        cycle = self.cycle
        for index, letter in reads:
            number = operands[index]
            ready = self.ready.get((letter, number))
            if ready is None:
                if letter != SREG:
                    self._fail(f"{letter}{number} is read but not written in this block")
                if number:  # s0 is always 0
                    self.summary.sreg_reads.setdefault(number, cycle)
            elif ready > cycle:
                self._fail(f"{letter}{number} is read {ready - cycle} cycles before it is ready")

    def _write(
        self, register: tuple[str, int], latency: int, written: set[tuple[str, int]]
    ) -> None:
        if register in written:
            self._fail(f"{register[0]}{register[1]} is written twice in one bundle")
        written.add(register)
        ready = self.cycle + latency
        pending = self.ready.get(register, 0)
        if pending > self.cycle and pending >= ready:
            self._fail(
                f"{register[0]}{register[1]} is written while an earlier, slower write to it is "
                "under way"
            )
        self.ready[register] = ready

    def _pop(self, instr: Instr) -> None:
        if instr.row.pops == MRF:
            self._move_mrf(instr.operands[instr.row.unit_index], -1)
            return
        queue = self.queues[instr.row.pops]
        if not queue:
            self._fail(f"{instr.row.name} of an empty queue")
        ready = queue.popleft()
        if ready > self.cycle:
            self._fail(f"{instr.row.name} comes {ready - self.cycle} cycles before the result")

    def _push(self, instr: Instr) -> None:
        if instr.row.pushes == MRF:
            self._move_mrf(instr.operands[instr.row.unit_index], 2)
            return
        queue = self.queues[instr.row.pushes]
        entries = {"eup": self.chip.eup_entries, "xlu": self.chip.xlu_entries}[instr.row.pushes]
        if len(queue) >= entries:
            self._fail(f"the {instr.row.pushes} queue overflows its {entries} entries")
        queue.append(self.cycle + result_latency(instr, self.chip))

    def _move_mrf(self, unit: int, change: int) -> None:
        summary = self.summary
        level = summary.mrf_net.get(unit, 0) + change
        summary.mrf_net[unit] = level
        summary.mrf_low[unit] = min(summary.mrf_low.get(unit, 0), level)
        summary.mrf_high[unit] = max(summary.mrf_high.get(unit, 0), level)

    def _units(self) -> None:
        """Order of pushes, swaps, matmuls and reads within the MXUs and the transpose units."""
        marks: list[tuple[str, int]] = []
        for instr in self.bundle:
            row = instr.row
            if not row.is_unit_step:
                continue
            for name in needs(instr):
                self._use(name)
            marks += leaves(instr, self.chip)
            if row.pushes == MRF:
                self._matmul_spacing(instr.operands[row.unit_index])
            if TRANSPOSE_SHADOW in row.frees:
                self._transpose_alone(instr)
            if row.required and not getattr(self.chip, row.required):
                self._fail(f"{row.name}: {self.chip.name} does not have it ({row.required} is 0)")
        for name, latency in marks:
            self.unit_ready[name] = max(self.unit_ready.get(name, 0), self.cycle + latency)

    def _transpose_alone(self, instr: Instr) -> None:
        unit = instr.operands[instr.row.unit_index]
        for other in self.bundle:
            is_write = TRANSPOSE_INPUT in other.row.touches
            if is_write and other is not instr and other.operands[other.row.unit_index] == unit:
                self._fail("a transpose push or swap in the bundle of a swap")

    def _use(self, name: str) -> None:
        ready = self.unit_ready.get(name, 0)
        if ready > self.cycle:
            self._fail(f"the {name} is used {ready - self.cycle} cycles before it is ready")
        if name not in self.unit_ready:
            self.summary.unit_uses.setdefault(name, self.cycle)

    def _matmul_spacing(self, unit: int) -> None:
        before = self.last_matmul.get(unit)
        if before is not None and self.cycle - before < self.chip.matmul_cycles:
            free = self.chip.matmul_cycles - (self.cycle - before)
            self._fail(f"vmatmul issues {free} cycles before unit {unit} is free")
        self.last_matmul[unit] = self.cycle

    def _end(self) -> None:
        summary = self.summary
        self.cycle = summary.cycles
        for name, queue in self.queues.items():
            if queue:
                self._fail(f"the block ends with {len(queue)} results in the {name} queue")
        for slot, ends in self.busy.items():
            if any(end > summary.cycles for end in ends):
                self._fail(f"the block ends while an instruction holds its {slot} slot")
        for (letter, number), ready in self.ready.items():
            if letter == SREG:
                summary.sreg_lands[number] = max(0, ready - summary.cycles)
        for name, ready in self.unit_ready.items():
            summary.unit_lands[name] = max(0, ready - summary.cycles)
