"""Loads and stores between VMEM and vregs.

VMEM is an array of 512-byte rows (128 lanes x 32 bit). A window is a range of rows in the kernel's
window table; every access names its window, and an address is ``window base + sreg s + k`` rows.
An access outside its window is a fault. Windows of one kernel do not overlap, so a window id is
also the alias class. Spill slots lie outside all windows.
"""

from __future__ import annotations

from tpu_sim.isa.instruction import Crossing, Row, Slot, define, operands


def _memory(
    name: str, opcode: int, slot: Slot, spec: str, latency: str, effect: str, doc: str
) -> Row:
    return define(
        Row(name, opcode, slot, operands(spec), latency, doc, Crossing.STATE, effect=effect)
    )


VLD = _memory(
    "vld", 1, Slot.LOAD, "d:vd w:win s:ss k:i32 stride:imm", "load", "load",
    "d[i, :] = row base + s + k + i*stride for sublanes i; stride 0 broadcasts one row",
)  # fmt: skip
VLD_IDX = _memory(
    "vld.idx", 2, Slot.LOAD, "d:vd w:win s:ss a:vs", "load_indexed", "load_indexed",
    "d[i, l] = word a[i, l] (row*128 + lane) counted from row base + s; one word a lane, slow",
)  # fmt: skip
VLD_FILL = _memory("vld.fill", 3, Slot.LOAD, "d:vd n:spill", "load", "fill", "d = spill slot n")
MLD_FILL = _memory(
    "mld.fill", 4, Slot.LOAD, "d:md n:spill", "load", "fill_mask", "mask d = spill slot n"
)
VST = _memory(
    "vst", 1, Slot.STORE, "w:win s:ss k:i32 stride:imm a:vs", "store", "store",
    "row base + s + k + i*stride = a[i, :] for sublanes i in ascending order",
)  # fmt: skip
VST_MSK = _memory(
    "vst.msk", 2, Slot.STORE, "w:win s:ss k:i32 stride:imm a:vs m:ms", "store", "store_masked",
    "vst of the lanes where mask m is set",
)  # fmt: skip
VST_IDX = _memory(
    "vst.idx", 3, Slot.STORE, "w:win s:ss a:vs b:vs m:ms", "store_indexed", "store_indexed",
    "word a[i, l] counted from row base + s = b[i, l] where m is set, in order of i, then l; slow",
)  # fmt: skip
VST_SPILL = _memory(
    "vst.spill", 4, Slot.STORE, "n:spill a:vs", "store", "spill", "spill slot n = a"
)
MST_SPILL = _memory(
    "mst.spill", 5, Slot.STORE, "n:spill a:ms", "store", "spill_mask", "spill slot n = mask a"
)
