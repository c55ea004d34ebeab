"""About how long the instructions of a finished program run, for the order in which they do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.analysis.async_flags import (
    adds_up,
    group_size,
    phases,
    reduction_pieces,
    ring_steps,
    start_of,
)
from compiler.analysis.kernel_work import kernel_work
from compiler.analysis.trip_count import UNKNOWN_TRIPS, expected_trips
from compiler.analysis.vmem_scope import uses_vmem
from compiler.analysis.window_config import WINDOW_CONFIG, read_config
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.replica_groups import Groups
from compiler.hlo.shape import leaves
from tpu_sim.isa.chips import Chip


@dataclass(frozen=True)
class ExchangeCost:
    """Cycles until other cores have said that they are ready, and from then until all has come."""

    ready: int
    transfer: int


class RunningTimes:
    """Cycles of instructions on a chip, about; `exchange_cost` is told of a collective, `ports` are those of
    permutes by their pairs."""

    def __init__(
        self,
        chip: Chip,
        exchange_cost: Callable[[HloInstruction], ExchangeCost],
        ports: Mapping[Groups, int],
    ) -> None:
        self.chip = chip
        self._ports = ports
        self._exchange_cost = exchange_cost
        self._costs: dict[object, ExchangeCost] = {}
        self._costs_of: dict[HloInstruction, ExchangeCost] = {}
        self._known: dict[HloInstruction, float] = {}
        self._port_of: dict[HloInstruction, int | None] = {}

    def of(self, instr: HloInstruction) -> float:
        """Cycles until an instruction is over; of a start, until its transfers are under way."""
        if instr not in self._known:
            self._known[instr] = self._found(instr)
        return self._known[instr]

    def transfer(self, half: HloInstruction) -> float:
        """Cycles from the end of a start or update until all that it waits for next has come."""
        start = start_of(half)
        root = start.calls.root_instruction if start.opcode == "async-start" else start
        return self._cost(root).transfer / (1 if root is start else ring_steps(root))

    def port(self, start: HloInstruction) -> int | None:
        """The port that a permute's transfers hold; None for exchanges that take several."""
        if start not in self._port_of:
            root = start.calls.root_instruction if start.opcode == "fusion" else start
            pairs = root.attrs.get("source_target_pairs")
            self._port_of[start] = self._ports.get(pairs) if isinstance(pairs, tuple) else None
        return self._port_of[start]

    @property
    def hop(self) -> float:
        """Cycles from one chip to the next."""
        return self.chip.ici_hop_cycles

    def _found(self, instr: HloInstruction) -> float:
        chip, traits = self.chip, OPCODES[instr.opcode]
        if instr.opcode == "while":
            trips = expected_trips(instr) or UNKNOWN_TRIPS
            return trips * sum(map(self._of_all, instr.called_computations()))
        if traits.has(Trait.HANDS_STATE):
            return max(map(self._of_all, instr.called_computations()), default=0)
        if traits.has(Trait.ASYNC):
            return chip.call_overhead_cycles + self._steps(instr)
        if not traits.has(Trait.KERNEL) or not uses_vmem(instr):
            return 0
        return chip.call_overhead_cycles + self._of_kernel(instr)

    def _cost(self, exchange: HloInstruction) -> ExchangeCost:
        """The cost of a collective, or of what a permute's start begins."""
        found = self._costs_of.get(exchange)
        if found is None:
            found = self._costs_of[exchange] = self._cost_of_equals(exchange)
        return found

    def _cost_of_equals(self, exchange: HloInstruction) -> ExchangeCost:
        attrs = exchange.attrs
        key = (
            exchange.opcode.removesuffix("-start"),
            attrs.get("replica_groups", attrs.get("source_target_pairs")),
            tuple(operand.shape for operand in exchange.operands),
        )
        if key not in self._costs:
            self._costs[key] = self._exchange_cost(exchange)
        return self._costs[key]

    def pieces(self, half: HloInstruction) -> int:
        """In how many pieces a transfer comes, each of which is worked on and sent on by itself."""
        if not adds_up(half):
            return 1
        start = start_of(half)
        return reduction_pieces(group_size(start.calls.root_instruction), int(_slot_bytes(start)))

    def lap(self, half: HloInstruction) -> float:
        """Cycles of an update or done that it works while later pieces come or earlier ones are sent on."""
        if half.opcode == "async-start":
            return 0
        return self._sums(half) * (1 - 1 / self.pieces(half))

    def _sums(self, half: HloInstruction) -> float:
        """Of a reduction's steps: of each piece two arrays are read and one is written."""
        if not adds_up(half):
            return 0
        start, chip = start_of(half), self.chip
        steps = ring_steps(start.calls.root_instruction) / phases(start)[1]
        bytes_cycles = 3 * _slot_bytes(start) / chip.hbm_bytes_per_cycle
        return steps * bytes_cycles

    def _steps(self, half: HloInstruction) -> float:
        """What a half waits for beside the transfers before it, and adds."""
        start = start_of(half)
        root = start.calls.root_instruction if start.opcode == "async-start" else start
        if half is start:
            return self._cost(root).ready
        if root is start:
            return 0
        steps = ring_steps(root) / phases(start)[1]
        return max(0.0, steps - 1) * self.transfer(start) + self._sums(half)

    def _of_all(self, computation: HloComputation) -> float:
        return sum(map(self.of, computation))

    def _of_kernel(self, kernel: HloInstruction) -> float:
        config = read_config(kernel).get(WINDOW_CONFIG)
        if isinstance(config, dict) and "estimated_cycles" in config:
            return float(config["estimated_cycles"])
        chip = self.chip
        if self.is_exchange(kernel):
            cost = self._cost(kernel.calls.root_instruction)
            return cost.ready + cost.transfer
        in_place = ((0, 0),)  # an update is: copies come later, where they must
        return kernel_work(kernel, in_place).least_bytes / chip.hbm_bytes_per_cycle

    def is_exchange(self, kernel: HloInstruction) -> bool:
        """Whether an instruction is a kernel of one whole exchange."""
        if kernel.opcode != "fusion" or kernel.kind != "kCustom":
            return False
        return OPCODES[kernel.calls.root_instruction.opcode].has(Trait.COLLECTIVE)


def _slot_bytes(start: HloInstruction) -> float:
    """Bytes of what one device has in the end of a reduction, or gives to a gather."""
    root = start.calls.root_instruction
    parts = group_size(root) if root.opcode == "reduce-scatter" else 1
    return exchanged_bytes(start) / parts


def exchanged_bytes(start: HloInstruction) -> float:
    """Bytes that a device sends between a start and its done."""
    arrays = [leaf for operand in start.operands for leaf in leaves(operand.shape)]
    return sum(a.element_count * a.dtype.bits / 8 for a in arrays)
