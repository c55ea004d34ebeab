"""Steps of the MXUs and the transpose units: which wait for which, and how long."""

from __future__ import annotations

from functools import cache

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Instr, Row
from tpu_sim.isa.resources import UNIT_STEPS
from tpu_sim.isa.timing import result_latency


def needs(instr: Instr) -> tuple[str, ...]:
    """What must be complete before a step: resources of the unit it names."""
    row = instr.row
    return _needs(row, instr.operands[row.unit_index]) if row.is_unit_step else ()


def leaves(instr: Instr, chip: Chip) -> tuple[tuple[str, int], ...]:
    """What a step leaves incomplete, and for how many cycles: other steps must wait as long."""
    row = instr.row
    if not row.is_unit_step:
        return ()
    return _leaves(row, instr.operands[row.unit_index], result_latency(instr, chip))


@cache
def _needs(row: Row, unit: int) -> tuple[str, ...]:
    return tuple(f"{resource} {unit}" for resource in row.uses & UNIT_STEPS)


@cache
def _leaves(row: Row, unit: int, latency: int) -> tuple[tuple[str, int], ...]:
    found = [(f"{resource} {unit}", latency) for resource in row.defines & UNIT_STEPS]
    return tuple(found + [(f"{resource} {unit}", 1) for resource in row.frees])
