"""DMA and sync flags.

A DMA descriptor (`tpu_sim.isa.program.DmaDescriptor`) holds spaces, counts and strides; the
instruction adds the two addresses and up to two dynamic counts. The transfer is in flight from
start until a wait on its flag returns; its target must not be read, nor its source written, before.
"""

from __future__ import annotations

from tpu_sim.isa.instruction import Crossing, Row, Slot, define, operands

DMA_START = define(
    Row(
        "dma.start",
        1,
        Slot.MISC,
        operands("desc:desc src:ss dst:ss flag:flag f:ss c0:ss c1:ss"),
        "dma",
        "start a transfer by descriptor from address src to dst (HBM: 512-byte granules; VMEM: "
        "rows from the descriptor's window; SMEM: words), counted on sync flag `flag + f`; "
        "c0, c1 are dynamic counts",
        crossing=Crossing.STATE,
        effect="dma_start",
    )
)
DMA_WAIT = define(
    Row(
        "dma.wait",
        2,
        Slot.MISC,
        operands("flag:flag f:ss"),
        "dma_wait",
        "wait until every transfer counted on sync flag `flag + f` is done",
        crossing=Crossing.STATE,
        effect="dma_wait",
    )
)
