"""Kernels of kCustom fusions, by the opcode of the root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from compiler.analysis.fusion_body import FusionBody
from compiler.backend.exchange.plan import ExchangePlan
from compiler.backend.kernel_calls import Argument, KernelInterface
from compiler.backend.kernel_options import KernelOptions
from compiler.backend.smem_scratch import SmemScratch
from compiler.hlo.ir import HloInstruction
from compiler.llo.builder import LloBuilder
from tpu_sim.isa.chips import Chip


@dataclass(frozen=True)
class CustomKernel:
    """What a custom emitter gets. `in_place` pairs (result leaf, operand leaf) in one HBM range."""

    builder: LloBuilder
    chip: Chip
    fusion: HloInstruction
    body: FusionBody
    root: HloInstruction
    interface: KernelInterface
    in_place: tuple[tuple[int, int], ...]
    smem: SmemScratch
    exchange: ExchangePlan | None = None
    options: KernelOptions = field(default_factory=KernelOptions)

    def argument(self, parameter: HloInstruction) -> Argument:
        """What the kernel is given for a parameter of its body."""
        return self.interface.operands[self.body.parameters.index(parameter)]


CustomEmitter = Callable[[CustomKernel], None]
