"""The passes from lowered LLO to LLO that can be scheduled: what each does, their order, its reasons.

Names are those of ``tpuc opt kernel.llo --passes a,b,c``. After the last one `compiler.llo.schedule`
makes bundles, which is what everything here is for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.llo.ir import LloKernel
from compiler.llo.passes.dead_code import remove_dead_code
from compiler.llo.passes.facts import SREGS_ASSIGNED, VECTORS_FIT, LloFact
from compiler.llo.passes.immediate_operands import hold_constants
from compiler.llo.passes.packed_rounding import pack_unrounded
from compiler.llo.passes.spill import spill_vregs
from compiler.llo.passes.sreg_allocation import allocate_sregs
from compiler.llo.passes.unroll import unroll_parallel_loops
from compiler.pass_pipeline import Edge
from tpu_sim.isa.chips import Chip


@dataclass(frozen=True)
class LloPass:
    """One rewriting of a kernel, in place; `run` returns whether it changed anything."""

    name: str
    summary: str
    run: Callable[[LloKernel, Chip], bool]
    requires: tuple[LloFact, ...] = ()
    establishes: tuple[LloFact, ...] = ()
    ends: tuple[LloFact, ...] = ()


LLO_PASSES: dict[str, LloPass] = {
    item.name: item
    for item in (
        LloPass(
            "packed-rounding",
            "packs what was rounded to bf16 from what it was rounded from",
            pack_unrounded,
            ends=(VECTORS_FIT,),
        ),
        LloPass(
            "immediate-operands",
            "lets operations hold their constants, which need no registers then",
            hold_constants,
        ),
        LloPass("dead-code", "drops operations whose result nothing reads", remove_dead_code),
        LloPass(
            "unroll",
            "puts several iterations of a short parallel loop into one body, joins blocks",
            unroll_parallel_loops,
            ends=(VECTORS_FIT, SREGS_ASSIGNED),
        ),
        LloPass(
            "spill",
            "keeps vregs and vmasks beyond the register files in spill slots, or makes them again",
            spill_vregs,
            establishes=(VECTORS_FIT,),
            ends=(SREGS_ASSIGNED,),
        ),
        LloPass(
            "sreg-allocation",
            "gives every sreg a physical register, keeps those beyond the file in SMEM",
            allocate_sregs,
            establishes=(SREGS_ASSIGNED,),
        ),
    )
}

LLO_PIPELINE: tuple[str, ...] = (
    "packed-rounding",
    "immediate-operands",
    "dead-code",
    "unroll",
    "spill",
    "sreg-allocation",
)

SCHEDULE = "schedule"
"""The name, after all passes, of what makes bundles of the LLO."""
SCHEDULE_REQUIRES = (VECTORS_FIT, SREGS_ASSIGNED)

LLO_MUST_PRECEDE: tuple[Edge, ...] = (
    ("packed-rounding", "dead-code", "it leaves roundings that nothing reads"),
    ("immediate-operands", "dead-code", "it leaves constants that nothing reads"),
    ("dead-code", "unroll", "how far to unroll follows from the slots and registers of a body"),
    ("dead-code", "spill", "what nothing reads would take a register up to its end of the block"),
    ("dead-code", "sreg-allocation", "a dead sreg takes a register"),
    ("unroll", "spill", "copies of an iteration hold more values at once"),
    ("unroll", "sreg-allocation", "it makes sregs, which have no register then"),
    ("spill", "sreg-allocation", "a value that is made again reads its sregs once more, later"),
)
