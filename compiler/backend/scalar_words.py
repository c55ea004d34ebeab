"""Words of vregs and VMEM that become scalars: by `vtos` where they are few, else by a transfer.

A word takes the latency of `vtos`, each further one an instruction of two units; a transfer takes the
latency of the DMA engine, whatever its size.
"""

from __future__ import annotations

from compiler.hlo.dtypes import PRED, DType
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.program import SMEM, VMEM, DmaDescriptor

_MOST_WORDS = 16
"""Code for more is long, and saves less and less (assumed)."""


def first_word(builder: LloBuilder, window: int, base: SReg, dtype: DType) -> SReg:
    """The first element of an array at row `base` of a window, as the scalar unit holds one of s32, u32, f32
    or pred (0 or 1)."""
    word = builder.emit("vtos", builder.emit("vld", window, base, 0, 0))
    return builder.sandi(word, 0xFF) if dtype == PRED else word


def words_to_smem(builder: LloBuilder, window: int, word: SReg, count: int) -> None:
    """Words from the start of a window to SMEM, from `word` on; they are there in the next block."""
    b = builder
    if count > _MOST_WORDS:
        _transfer(b, DmaDescriptor(VMEM, SMEM, count, (), window), 0, word)
        return
    line = b.emit("vld", window, 0, 0, 0)
    for lane in range(count):
        here = b.emit("vbcast.lane", line, 0, lane) if lane else line
        b.emit("sst", word, lane, b.emit("vtos", here))


def words_to_vmem(builder: LloBuilder, window: int, word: SReg, count: int) -> None:
    """Words of SMEM, from `word` on, to the start of a window; waits until they are there."""
    _transfer(builder, DmaDescriptor(SMEM, VMEM, count, (), window), word, 0)


def _transfer(b: LloBuilder, descriptor: DmaDescriptor, source: SReg, target: SReg) -> None:
    flag = b.flag()
    b.emit("dma.start", b.descriptor(descriptor), source, target, flag, 0, 0, 0)
    b.emit("dma.wait", flag, 0)
