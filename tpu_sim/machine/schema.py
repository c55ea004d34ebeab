"""One schema of a core's state: the words that both machines keep, by name and place.

The NumPy machine sees them as views of an array (`tpu_sim.machine.state`), native code as offsets
from a pointer (`tpu_sim.jit.context.Word`). Words are 64 bits, sregs two to a word. What is large
(memories, weights, transposed blocks, waiting results, records) lies apart, and the machines may
keep it in an order of their own while they run; `CoreState` has the one order that is stated.
"""

from __future__ import annotations

from dataclasses import dataclass

from tpu_sim.isa.causes import Cause
from tpu_sim.isa.checker import MAX_PORTS
from tpu_sim.isa.chip_limits import MOST_RESULTS, MOST_SREGS, MOST_UNITS
from tpu_sim.isa.program import MAX_FLAGS
from tpu_sim.machine.node_table import LOOP_DEPTH


@dataclass(frozen=True)
class Field:
    """`count` words called `name`."""

    name: str
    count: int
    meaning: str


SCHEMA = (
    Field("now", 1, "the cycle at which the next bundle would issue"),
    Field("causes", len(Cause), "cycles of the kernel call by `Cause`; behind `now`"),
    Field("until", 1, "the cycle from which on the run pauses at the next border of a node"),
    Field("until_call", 1, "the kernel call, by its number in time, at whose begin the run pauses"),
    Field("body", 1, "where the run stands: main or a kernel, by `NodeTable`"),
    Field("node", 1, "the node of that body to go on with"),
    Field("return_node", 1, "in a kernel: the node of main behind its call"),
    Field("call", 1, "number of the kernel call under way"),
    Field("call_start", 1, "cycle of that call"),
    Field("mxu_passes", 1, "passes of the kernel call"),
    Field("dma_wait", 1, "cycles the kernel call was stalled in dma.wait"),
    Field("hbm_bytes", 1, "bytes the kernel call moved to or from HBM"),
    Field("dma_free", 1, "when the DMA engine is free"),
    Field("cores", 1, "cores of the device that share the kernel"),
    Field("core", 1, "the one whose part runs"),
    Field("core_flags", 1, "sync flags of the kernel that each core finds done"),
    Field("core_dma", 1, "when the DMA engines were free as the call began"),
    Field("core_dma_free", 1, "when those of the cores that are through are free"),
    Field("core_end", 1, "when the slowest core that is through was"),
    Field("core_causes", len(Cause), "its cycles by `Cause`"),
    Field("record_count", 1, "kernel calls that are over"),
    Field("unit_free", MOST_UNITS, "when each MXU's next pass may issue (`PASS_BITS`)"),
    Field("mrf_pushed", MOST_UNITS, "results that each MXU has put into its queue"),
    Field("mrf_popped", MOST_UNITS, "results that were popped of each queue"),
    Field("sregs", MOST_SREGS // 2, "scalar registers, 32 bits each"),
    Field("counters", 2 * LOOP_DEPTH, "iterations that loops have done: main's, the kernel's"),
    Field("trips", 2 * LOOP_DEPTH, "iterations that loops are to do"),
    Field("flag_done", MAX_FLAGS, "cycle at which all transfers on a flag are done"),
    Field("flag_cause", MAX_FLAGS, "what a wait for a flag counts as; a wait makes it `LOWERED`"),
    Field(
        "flag_pending",
        MAX_FLAGS,
        "raises by other cores that are expected; below 0: that came before",
    ),
    Field(
        "port_free",
        MAX_PORTS,
        "when the core's transfers over each port to other chips are through",
    ),
    Field("mrf_ready", MOST_UNITS * MOST_RESULTS, "per MXU a ring: when each result may be popped"),
)


def _offsets() -> dict[str, int]:
    found, at = {}, 0
    for field in SCHEMA:
        found[field.name] = at
        at += field.count
    return found


OFFSETS = _offsets()
"""The first word of each field."""
STATE_WORDS = sum(field.count for field in SCHEMA)
assert OFFSETS["causes"] == OFFSETS["now"] + 1 == 1, "a range of iterations counts in such a pair"
