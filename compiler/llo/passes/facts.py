"""Facts about a kernel that LLO passes establish and that scheduling counts on.

As in `compiler.passes.facts`: a pass says what it requires, establishes and ends; where everything is
verified each fact that should hold is looked up after every pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.llo.ir import LloKernel
from compiler.llo.op_table import op_table
from compiler.llo.passes.spill import exceeds
from compiler.llo.passes.sreg_allocation import clash
from compiler.llo.walk import blocks
from tpu_sim.isa.chips import Chip


@dataclass(frozen=True, eq=False)
class LloFact:
    """`broken` says in words what breaks it, nothing where it holds."""

    name: str
    broken: Callable[[LloKernel, Chip], str]


def _too_many_live(kernel: LloKernel, chip: Chip) -> str:
    table = op_table(chip)
    for number, block in enumerate(blocks(kernel.body)):
        for letter, limit, what in (("v", chip.vregs, "vregs"), ("m", chip.vmasks, "vmasks")):
            if exceeds(block.ops, table, letter, limit):
                return f"block {number} {block.name!r} holds more than {limit} {what} at once"
    return ""


VECTORS_FIT = LloFact("vectors-fit", _too_many_live)
"""In source order no block ever holds more vregs or vmasks than the chip has."""
SREGS_ASSIGNED = LloFact("sregs-assigned", clash)
"""Every sreg has a physical register that no other needs while it lives."""
