"""Loads and stores between VMEM and vregs.

VMEM is an array of 512-byte rows (128 lanes x 32 bit). A window is a range of rows in the kernel's
window table; every access names its window, and an address is ``window base + sreg s + k`` rows.
An access outside its window is a fault. Windows of one kernel do not overlap, so a window id is
also the alias class. Spill slots lie outside all windows.
"""

from __future__ import annotations

from tpu_sim.isa.instruction import Crossing, Does, Row, Slot, define
from tpu_sim.isa.resources import SPILL, VMEM, Resource
from tpu_sim.isa.semantics import calls


def _load(name: str, opcode: int, spec: str, of: Resource, doc: str, does: Does) -> Row:
    return define(
        name, opcode, Slot.LOAD, spec, "load", doc, does, crossing=Crossing.STATE, uses=(of,),
    )  # fmt: skip


def _store(name: str, opcode: int, spec: str, to: Resource, doc: str, does: Does) -> Row:
    return define(
        name, opcode, Slot.STORE, spec, "store", doc, does, crossing=Crossing.STATE, defines=(to,),
    )  # fmt: skip


VLD = _load(
    "vld", 1, "d:vd w:win s:ss k:i32 stride:imm", VMEM,
    "d[i, :] = row base + s + k + i*stride for sublanes i; stride 0 broadcasts one row",
    calls("load_rows"),
)  # fmt: skip
VLD_IDX = define(
    "vld.idx", 2, Slot.LOAD, "d:vd w:win s:ss a:vs", "load_indexed",
    "d[i, l] = word a[i, l] (row*128 + lane) counted from row base + s; one word a lane, slow",
    calls("load_words"), crossing=Crossing.STATE, uses=(VMEM,), held="load_indexed_cycles",
)  # fmt: skip
VLD_FILL = _load("vld.fill", 3, "d:vd n:spill", SPILL, "d = spill slot n", calls("fill"))
MLD_FILL = _load("mld.fill", 4, "d:md n:spill", SPILL, "mask d = spill slot n", calls("fill_mask"))
VST = _store(
    "vst", 1, "w:win s:ss k:i32 stride:imm a:vs", VMEM,
    "row base + s + k + i*stride = a[i, :] for sublanes i in ascending order", calls("store_rows"),
)  # fmt: skip
VST_MSK = _store(
    "vst.msk", 2, "w:win s:ss k:i32 stride:imm a:vs m:ms", VMEM,
    "vst of the lanes where mask m is set", calls("store_rows"),
)  # fmt: skip
VST_IDX = define(
    "vst.idx", 3, Slot.STORE, "w:win s:ss a:vs b:vs m:ms", "store_indexed",
    "word a[i, l] counted from row base + s = b[i, l] where m is set, in order of i, then l; slow",
    calls("store_words"), crossing=Crossing.STATE, defines=(VMEM,), held="store_indexed_cycles",
)  # fmt: skip
VST_SPILL = _store("vst.spill", 4, "n:spill a:vs", SPILL, "spill slot n = a", calls("spill"))
MST_SPILL = _store(
    "mst.spill", 5, "n:spill a:ms", SPILL, "spill slot n = mask a", calls("spill_mask")
)
