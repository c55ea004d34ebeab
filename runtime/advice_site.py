"""What the rules of `runtime.advice` look at, and what they find."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.kernel_report import VREG_ELEMENTS, KernelReport
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Slot
from tpu_sim.isa.kernel_facts import KernelFacts, OperationFacts

_PRODUCTS = frozenset({"dot", "convolution"})


@dataclass(frozen=True)
class Finding:
    """What would help a call site: cycles that would go, and the operation that it is about.

    Of the sites of one piece of advice `once` stays for one of them.
    """

    rule: str
    saved: float
    why: str
    remedy: str
    source: str = ""
    once: float = 0.0


@dataclass(frozen=True)
class SiteFacts:
    """A call site: its report, what its kernel's operations are, and the chip."""

    report: KernelReport
    facts: KernelFacts
    chip: Chip
    element_ops: int  # of all calls

    def cycles(self, *causes: Cause) -> float:
        """Cycles of some causes."""
        return float(sum(self.report.causes[cause.label] for cause in causes))

    @property
    def waits(self) -> float:
        """Cycles that wait for HBM."""
        return self.cycles(Cause.DMA_IN, Cause.DMA_OUT)

    @property
    def calls(self) -> int:
        """Calls of the site; 1 where none is counted."""
        return max(self.report.calls, 1)

    @property
    def elements_per_cycle(self) -> int:
        """Operations on elements that the vector slots can do in a cycle."""
        return self.chip.slot_count(Slot.VALU) * VREG_ELEMENTS * self.chip.cores_per_device

    def transfer_cycles(self, size_bytes: float) -> float:
        """What HBM takes for so many bytes, at the rate that a DMA gets."""
        return size_bytes / (self.chip.hbm_bytes_per_cycle * self.chip.cores_per_device)

    def above_transfers(self, cycles: float) -> float:
        """Of cycles that would go, those that transfers do not take instead."""
        return min(cycles, self.report.cycles - self.transfer_cycles(self.report.hbm_bytes))

    def of_opcodes(self, opcodes: frozenset[str]) -> list[OperationFacts]:
        """The operations of some opcodes."""
        return [operation for operation in self.facts.operations if operation.opcode in opcodes]

    @property
    def product(self) -> OperationFacts | None:
        """The product with most multiply-adds of the matrix unit."""

        def multiply_adds(operation: OperationFacts) -> int:
            batch, rows, columns, depth = operation.dims
            return batch * rows * columns * depth

        products = [p for p in self.of_opcodes(_PRODUCTS) if len(p.dims) == 4 and p.passes]
        return max(products, key=multiply_adds, default=None)
