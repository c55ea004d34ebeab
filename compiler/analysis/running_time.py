"""About how long the instructions of a finished program run, for the order in which they do."""

from __future__ import annotations

from compiler.analysis.async_flags import group_size, phases, start_of
from compiler.analysis.kernel_work import kernel_work
from compiler.analysis.trip_count import expected_trips
from compiler.analysis.vmem_scope import uses_vmem
from compiler.analysis.window_config import WINDOW_CONFIG, read_config
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import leaves
from tpu_sim.isa.chips import Chip

_UNKNOWN_TRIPS = 10


class RunningTimes:
    """Cycles of instructions on a chip, about."""

    def __init__(self, chip: Chip) -> None:
        self._chip = chip
        self._known: dict[HloInstruction, float] = {}

    def of(self, instr: HloInstruction) -> float:
        """Cycles until an instruction is over; of a start, until its transfers are under way."""
        if instr not in self._known:
            self._known[instr] = self._found(instr)
        return self._known[instr]

    def transfer(self, half: HloInstruction) -> float:
        """Cycles from the end of a start or update until all that it waits for next has come."""
        chip, start = self._chip, start_of(half)
        size = exchanged_bytes(start)
        if start.opcode == "async-start":  # of a gather: slots that go both ways round a ring
            devices = group_size(start.calls.root_instruction)
            ways = 1 if devices == 2 else 2
            size = size * (devices - 1) / (ways * phases(start)[1])
        return size / chip.ici_bytes_per_cycle + chip.ici_hop_cycles

    @property
    def hop(self) -> float:
        """Cycles from one chip to the next."""
        return self._chip.ici_hop_cycles

    def _found(self, instr: HloInstruction) -> float:
        chip, traits = self._chip, OPCODES[instr.opcode]
        if instr.opcode == "while":
            trips = expected_trips(instr) or _UNKNOWN_TRIPS
            return trips * sum(map(self._of_all, instr.called_computations()))
        if traits.has(Trait.HANDS_STATE):
            return max(map(self._of_all, instr.called_computations()), default=0)
        if traits.has(Trait.ASYNC):
            waits = chip.ici_sync_cycles if instr.opcode.endswith("-start") else 0
            return chip.call_overhead_cycles + waits
        if not traits.has(Trait.KERNEL) or not uses_vmem(instr):
            return 0
        return chip.call_overhead_cycles + self._of_kernel(instr)

    def _of_all(self, computation: HloComputation) -> float:
        return sum(map(self.of, computation))

    def _of_kernel(self, kernel: HloInstruction) -> float:
        config = read_config(kernel).get(WINDOW_CONFIG)
        if isinstance(config, dict) and "estimated_cycles" in config:
            return float(config["estimated_cycles"])
        chip = self._chip
        least = kernel_work(kernel, ()).least_bytes
        if kernel.opcode == "fusion" and _is_exchange(kernel.calls.root_instruction):
            return least / chip.ici_bytes_per_cycle + chip.ici_sync_cycles + chip.ici_hop_cycles
        return least / chip.hbm_bytes_per_cycle


def _is_exchange(root: HloInstruction) -> bool:
    return OPCODES[root.opcode].has(Trait.COLLECTIVE)


def exchanged_bytes(start: HloInstruction) -> float:
    """Bytes that a device sends between a start and its done."""
    arrays = [leaf for operand in start.operands for leaf in leaves(operand.shape)]
    return sum(a.element_count * a.dtype.bits / 8 for a in arrays)
