"""DMA and sync flags.

A DMA descriptor (`tpu_sim.isa.program.DmaDescriptor`) holds spaces, counts and strides; the
instruction adds the two addresses and up to two dynamic counts. The transfer is in flight from
start until a wait on its flag returns; its target must not be read, nor its source written, before.
A wait that may be for what another core sends begins its block (`tpu_sim.isa.flag_waits`).
"""

from __future__ import annotations

from tpu_sim.isa.instruction import Crossing, Slot, define
from tpu_sim.isa.resources import FLAG, TRANSFER
from tpu_sim.isa.semantics import calls

DMA_START = define(
    "dma.start", 1, Slot.MISC, "desc:desc src:ss dst:ss flag:flag f:ss c0:ss c1:ss", "dma",
    "start a transfer by descriptor from address src to dst (HBM: 512-byte granules; VMEM: "
    "rows from the descriptor's window; SMEM: words), counted on sync flag `flag + f`; "
    "c0, c1 are dynamic counts", calls("start"),
    crossing=Crossing.STATE, defines=(TRANSFER, FLAG), held="dma_issue_cycles",
)  # fmt: skip
DMA_WAIT = define(
    "dma.wait", 2, Slot.MISC, "flag:flag f:ss", "dma_wait",
    "wait until every transfer counted on sync flag `flag + f` is done", calls("wait"),
    crossing=Crossing.STATE, uses=(FLAG,),
)  # fmt: skip
