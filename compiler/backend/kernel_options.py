"""Options of kernel lowering that are the user's to choose."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.backend.exchange.plan import ExchangePlan
from compiler.backend.smem_scratch import SmemScratch
from tpu_sim.isa.chips import Chip

PRECISIONS = ("default", "high", "highest")


@dataclass(frozen=True)
class KernelOptions:
    """`precision` of f32 dots: one, three or six bf16 passes. `loops_in_vmem`: loops whose arrays
    fit VMEM are one kernel, but for those named in `loops_in_main`. `elements_together`: scatters
    of single elements take a register of updates at a time."""

    precision: str = "default"
    loops_in_vmem: bool = True
    loops_in_main: frozenset[str] = frozenset()
    elements_together: bool = True

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision {self.precision!r}: want one of {', '.join(PRECISIONS)}")


@dataclass(frozen=True)
class KernelTarget:
    """What kernels are lowered for: the chip, the user's options, the SMEM they may use, and the plan
    of exchanges with other chips of a program for several."""

    chip: Chip
    options: KernelOptions
    smem: SmemScratch
    exchange: ExchangePlan | None = None
