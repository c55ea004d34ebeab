"""Puts instructions into bundles at the first cycle, or a later one, that the rules of the checker allow."""

from __future__ import annotations

import random

from benchmarks.machine_fuzz.flow import Flow
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import ROWS, Instr, Slot
from tpu_sim.isa.program import Block, Bundle
from tpu_sim.isa.resources import MRF, TRANSPOSE_INPUT, TRANSPOSE_SHADOW
from tpu_sim.isa.timing import occupancy_cycles, result_latency
from tpu_sim.isa.unit_steps import leaves, needs


class Issue:
    """The bundles of one block so far. Instructions are issued in the order of `emit`."""

    def __init__(self, chip: Chip, source: random.Random, flow: Flow) -> None:
        self.chip = chip
        self.flow = flow
        self._random = source
        self._bundles: list[list[Instr]] = []
        self._ready: dict[tuple[str, int], int] = dict(flow.residues)
        self._units: dict[str, int] = dict(flow.units)
        self._busy: dict[str, list[int]] = {}
        self._queues: dict[str, list[int]] = {"eup": [], "xlu": []}
        self._cycle = 0
        self._slack = source.choice([0.0, 0.02, 0.3])

    def waiting(self, queue: str) -> int:
        """Results in the EUP or XLU queue."""
        return len(self._queues[queue])

    def emit(self, name: str, *operands: int) -> None:
        """Issue one instruction."""
        instr = Instr(ROWS[name], operands)
        if self._random.random() < self._slack:
            self._cycle += self._random.randrange(1, 4)
        cycle = max(self._cycle, self._earliest(instr))
        while self._is_full(instr, cycle):
            cycle += 1
        while len(self._bundles) <= cycle:
            self._bundles.append([])
        self._bundles[cycle].append(instr)
        self._cycle = cycle
        self._account(instr, cycle)

    def _steps(self, instr: Instr) -> tuple[list[str], list[tuple[str, int]]]:
        """Unit steps that an instruction waits for, and those that wait for it, with cycles."""
        row = instr.row
        before, after = [*needs(instr)], [*leaves(instr, self.chip)]
        unit = instr.operands[row.unit_index] if row.unit_index >= 0 else -1
        if row.pushes == MRF:
            before.append(f"mul {unit}")
            after += [(f"mul {unit}", self.chip.matmul_cycles), (f"mul result {unit}", 1)]
        elif row.pops == MRF:
            before.append(f"mul result {unit}")
        elif TRANSPOSE_INPUT in row.touches:  # a swap stands alone with its unit's pushes and swaps
            if TRANSPOSE_SHADOW in row.frees:
                before += [f"transpose shadow {unit}", f"swap {unit}"]
            after.append((f"swap {unit}", 1))
        return before, after

    def _earliest(self, instr: Instr) -> int:
        row = instr.row
        needs = [0, *(self._units.get(name, 0) for name in self._steps(instr)[0])]
        needs += [
            self._ready.get((r.register_class, instr.operands[r.index]), 0) for r in row.reads
        ]
        if row.write is not None:
            register = (row.write.register_class, instr.operands[row.write.index])
            pending = self._ready.get(register, 0)
            # a slower write under way must land first
            needs.append(pending - result_latency(instr, self.chip) + 1 if pending else 0)
        if instr.row.pops in self._queues:
            needs.append(self._queues[instr.row.pops][0])
        return max(needs)

    def _is_full(self, instr: Instr, cycle: int) -> bool:
        bundle = self._bundles[cycle] if cycle < len(self._bundles) else []
        same = [other for other in bundle if other.row.slot is instr.row.slot]
        held = sum(end > cycle for end in self._busy.get(instr.row.slot.value, ()))
        if instr.row.slot is Slot.MXU and self._mxu(instr) in [self._mxu(other) for other in same]:
            return True
        row = instr.row
        if row.write is not None and any(self._writes_same(instr, other) for other in bundle):
            return True
        return len(same) + held >= self.chip.slot_count(instr.row.slot)

    def _writes_same(self, one: Instr, other: Instr) -> bool:
        a, b = one.row.write, other.row.write
        if a is None or b is None or a.register_class != b.register_class:
            return False
        return one.operands[a.index] == other.operands[b.index]

    def _mxu(self, instr: Instr) -> int:
        return instr.operands[instr.row.unit_index] // self.chip.units_per_mxu

    def _account(self, instr: Instr, cycle: int) -> None:
        latency = result_latency(instr, self.chip)
        row = instr.row
        if row.write is not None:
            register = (row.write.register_class, instr.operands[row.write.index])
            self._ready[register] = cycle + latency
        if instr.row.pushes in self._queues:
            self._queues[instr.row.pushes].append(cycle + latency)
        if instr.row.pops in self._queues:
            self._queues[instr.row.pops].pop(0)
        for name, delay in self._steps(instr)[1]:
            self._units[name] = max(self._units.get(name, 0), cycle + delay)
        hold = occupancy_cycles(instr.row, self.chip)
        if hold > 1:
            self._busy.setdefault(instr.row.slot.value, []).append(cycle + hold)

    def finish(self, name: str, lands: bool) -> Block:
        """The block; with `lands` long enough for everything under way to land."""
        end = max([len(self._bundles), *(end for ends in self._busy.values() for end in ends)])
        if lands:
            end = max([end, *self._ready.values(), *self._units.values()])
        elif self._random.random() < 0.2:
            end += self._random.randrange(3)
        for bundle in self._bundles:  # the order matters to queues only
            if self._random.random() < 0.1:
                self._random.shuffle(bundle)
        bundles: list[Bundle] = [tuple(bundle) for bundle in self._bundles]
        bundles += [()] * (end - len(bundles))
        flow = self.flow
        flow.residues = {
            key: ready - end
            for key, ready in self._ready.items()
            if key[0] == "s" and ready > end and key[1] in flow.sregs
        }
        flow.units = {
            key: ready - end
            for key, ready in self._units.items()
            if ready > end and not key.startswith(("mul", "swap"))
        }
        return Block(bundles, name)
