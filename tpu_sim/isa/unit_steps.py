"""Steps of the MXUs and the transpose units: which wait for which, and how long."""

from __future__ import annotations

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.resources import UNIT_STEPS
from tpu_sim.isa.timing import result_latency


def needs(instr: Instr) -> list[str]:
    """What must be complete before a step: resources of the unit it names."""
    row = instr.row
    if not row.is_unit_step:
        return []
    unit = instr.operands[row.unit_index]
    return [f"{resource} {unit}" for resource in row.uses & UNIT_STEPS]


def leaves(instr: Instr, chip: Chip) -> list[tuple[str, int]]:
    """What a step leaves incomplete, and for how many cycles: other steps must wait as long."""
    row = instr.row
    if not row.is_unit_step:
        return []
    unit = instr.operands[row.unit_index]
    latency = result_latency(instr, chip)
    found = [(f"{resource} {unit}", latency) for resource in row.defines & UNIT_STEPS]
    return found + [(f"{resource} {unit}", 1) for resource in row.frees]
