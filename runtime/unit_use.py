"""How long each unit of the chip works in a call of a kernel: every MXU, vector, scalar, DMA.

A machine records of a call how long all MXUs together were busy and how many bytes moved; how that
spreads over MXUs and directions follows from the kernel's text: which unit each ``vmatmul`` names,
what each transfer moves, how often loops run. Where control flow depends on data, a branch counts
as taken and a loop of unknown length as one iteration, and what the machine recorded sets the scale.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.instruction import Instr, Slot
from tpu_sim.isa.program import HBM, Block, DmaDescriptor, Kernel, Node
from tpu_sim.isa.resources import MRF
from tpu_sim.isa.timing import descriptor_bytes, dma_cost
from tpu_sim.machine.result import KernelRun

DMA_TRACKS = ("DMA in", "DMA out", "DMA within HBM", "DMA on chip")
_VECTOR_SLOTS = frozenset({Slot.VALU, Slot.EUP, Slot.XLU, Slot.LOAD, Slot.STORE, Slot.POP})
_COVERED_BY_PASSES = (Cause.MXU, Cause.MXU_WEIGHTS)


@dataclass
class _Text:
    """What a piece of a kernel's text asks for when it runs once."""

    passes: dict[int, float] = field(default_factory=lambda: defaultdict(float))  # by MXU
    dma: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # engine cycles
    hbm_bytes: float = 0.0
    vector: float = 0.0  # bundles with such an instruction
    scalar: float = 0.0

    def add(self, other: _Text, times: float) -> None:
        for mxu, count in other.passes.items():
            self.passes[mxu] += times * count
        for track, cycles in other.dma.items():
            self.dma[track] += times * cycles
        self.hbm_bytes += times * other.hbm_bytes
        self.vector += times * other.vector
        self.scalar += times * other.scalar


class UnitUse:
    """The use of units by the kernels of a program; each kernel's text is read once."""

    def __init__(self, kernels: Mapping[str, Kernel], chip: Chip) -> None:
        self._kernels = kernels
        self._chip = chip
        self._texts: dict[str, _Text] = {}

    def tracks(self) -> list[str]:
        """Names of the units that some kernel uses, MXUs first."""
        texts = [self._text(name) for name in self._kernels]
        mxus = [f"MXU {number}" for number in range(self._chip.mxu_count)]
        used = {track for text in texts for track in text.dma}
        return [*mxus, "vector", "scalar", *(track for track in DMA_TRACKS if track in used)]

    def of_call(self, run: KernelRun) -> dict[str, int]:
        """Busy cycles by unit, none longer than the call itself."""
        text = self._text(run.name)
        cores = self._kernels[run.name].cores  # each has such units: what one of them does
        passes = sum(text.passes.values())
        found: dict[str, float] = {}
        for mxu, count in text.passes.items():
            busy = run.mxu_busy_cycles * count / passes / self._chip.units_per_mxu / cores
            found[f"MXU {mxu}"] = busy
        covered = sum(run.causes[cause] for cause in _COVERED_BY_PASSES)
        own = run.causes[Cause.VECTOR]
        found["vector"] = min(max(own, text.vector * run.calls), own + covered)
        found["scalar"] = max(run.causes[Cause.SCALAR], text.scalar * run.calls)
        scale = run.hbm_bytes / text.hbm_bytes / cores if text.hbm_bytes else run.calls
        found |= {track: cycles * scale for track, cycles in text.dma.items()}
        return {unit: min(round(cycles), run.cycles) for unit, cycles in found.items() if cycles}

    def _text(self, name: str) -> _Text:
        if name not in self._texts:
            kernel = self._kernels[name]
            self._texts[name] = self._of_nodes(kernel.body, kernel)
        return self._texts[name]

    def _of_nodes(self, nodes: list[Node], kernel: Kernel) -> _Text:
        total = _Text()
        for node in nodes:
            match node:
                case Block():
                    self._take_block(total, node, kernel)
                case Loop():
                    total.add(self._of_nodes(node.body, kernel), node.trip if node.trip >= 0 else 1)
                case If():
                    total.add(self._of_nodes([*node.then, *node.orelse], kernel), 1)
                case While():
                    trips = node.expected_trips if node.expected_trips >= 0 else 1
                    total.add(self._of_nodes(node.test, kernel), trips + 1)
                    total.add(self._of_nodes(node.body, kernel), trips)
        return total

    def _take_block(self, total: _Text, block: Block, kernel: Kernel) -> None:
        for bundle in block.bundles:
            slots = {instr.row.slot for instr in bundle}
            total.vector += bool(slots & _VECTOR_SLOTS)
            total.scalar += Slot.SCALAR in slots
            for instr in bundle:
                if instr.row.pushes == MRF:
                    total.passes[_unit(instr) // self._chip.units_per_mxu] += 1
                elif instr.row.is_transfer:
                    descriptor = instr.operands[instr.row.descriptor_index]
                    self._take_transfer(total, kernel.descriptors[descriptor])

    def _take_transfer(self, total: _Text, descriptor: DmaDescriptor) -> None:
        spaces = (descriptor.src_space, descriptor.dst_space)
        moved = descriptor_bytes(descriptor, 1, 1)
        total.dma[_direction(spaces)] += dma_cost(*spaces, self._chip).cycles(moved)
        total.hbm_bytes += moved * spaces.count(HBM)


def _unit(instr: Instr) -> int:
    """The 128x128 unit that a matrix instruction names."""
    return instr.operands[instr.row.unit_index]


def _direction(spaces: tuple[int, int]) -> str:
    to_and_from = {(True, False): 0, (False, True): 1, (True, True): 2, (False, False): 3}
    return DMA_TRACKS[to_and_from[spaces[0] == HBM, spaces[1] == HBM]]
