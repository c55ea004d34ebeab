"""The state of one core as the plain machine keeps it: memories, registers, units, clock."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip

U32 = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

LANES, SUBLANES, BLOCK = 128, 8, 128


def _block() -> npt.NDArray[np.float32]:
    return np.zeros((BLOCK, BLOCK), np.float32)


@dataclass
class MxuState:
    """One MXU unit: active and shadow weights (bf16 values as f32), results with their ready cycle;
    `free` is when the next pass may issue, in fixed point (`tpu_sim.isa.timing.unit_free`)."""

    active: npt.NDArray[np.float32] = field(default_factory=_block)
    shadow: npt.NDArray[np.float32] = field(default_factory=_block)
    results: deque[tuple[int, U32]] = field(default_factory=deque)
    free: int = 0


@dataclass
class KernelCounts:
    """What one kernel call is charged for."""

    matmuls: int = 0
    dma_wait_cycles: int = 0
    hbm_bytes: int = 0
    causes: list[int] = field(default_factory=lambda: [0] * len(Cause))


class CoreState:
    """Everything a bundle can read or write, HBM apart.

    VMEM, SMEM, the clock and the DMA engine outlive a kernel; the rest is reset by `enter_kernel`.
    """

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.vmem: U32 = np.zeros((chip.vmem_rows, LANES), np.uint32)
        self.smem: U32 = np.zeros(chip.smem_words, np.uint32)
        self.now = 0
        self.dma_engine_free = 0
        self.enter_kernel(0)

    def enter_kernel(self, flags: int) -> None:
        """Reset registers, queues, units and sync flags."""
        chip = self.chip
        self.vregs: dict[int, U32] = {}
        self.vmasks: dict[int, Mask] = {}
        self.sregs: U32 = np.zeros(chip.sregs, np.uint32)
        self.eup: deque[U32] = deque()
        self.xlu: deque[U32] = deque()
        self.mxus = [MxuState() for _ in range(chip.mxu_units)]
        blocks = (chip.transpose_units, BLOCK, BLOCK)
        self.xpose_shadow: U32 = np.zeros(blocks, np.uint32)
        self.xpose_active: U32 = np.zeros(blocks, np.uint32)
        self.mask_spills: dict[int, Mask] = {}
        self.flag_done = [0] * flags
        self.flag_causes = [Cause.DMA_IN] * flags
        self.counts = KernelCounts()

    def sreg(self, number: int) -> int:
        """An sreg as a signed number."""
        return int(self.sregs[number : number + 1].view(np.int32)[0])
