"""How the translator treats an instruction: read off its row's resources."""

from __future__ import annotations

from functools import cache

from tpu_sim.isa.instruction import Crossing, Row, Slot
from tpu_sim.isa.resources import FLAG, LANE_QUEUES, MRF, SPILL, TRANSPOSED, VMEM
from tpu_sim.jit.values import Role

_CROSSING_ROLES = {
    Crossing.NONE: Role.POINT,
    Crossing.LANES: Role.ROW,
    Crossing.SUBLANES: Role.COLUMN,
}


@cache
def role_of(row: Row) -> Role:
    """The role of a row's operations, or of the instruction if it makes none."""
    if row.slot is Slot.SCALAR:
        return Role.SCALAR
    if not row.is_state:
        return _CROSSING_ROLES.get(row.crossing, Role.STATE)
    if SPILL in row.touches or row.pops in LANE_QUEUES:
        return Role.RENAME
    if FLAG in row.touches:
        return Role.TRANSFER if row.is_transfer else Role.WAIT
    if VMEM in row.touches and not row.is_indexed:
        return Role.LOAD if VMEM in row.uses else Role.STORE
    return Role.LEAF if row.uses & {MRF, TRANSPOSED} else Role.STATE


@cache
def phase_of(row: Row) -> int:
    """The order within a bundle: what reads memories and queues sees them as they were before it."""
    if VMEM in row.defines:
        return 2
    return 0 if row.is_state and row.write is not None and row.slot is not Slot.SCALAR else 1


@cache
def is_timed(row: Row) -> bool:
    """Whether the clock looks at it: it may stall, or makes others stall."""
    return MRF in row.touches or FLAG in row.uses
