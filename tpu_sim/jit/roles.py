"""How the translator treats an instruction: read off its row's resources."""

from __future__ import annotations

from functools import cache

from tpu_sim.isa.instruction import SREG, Crossing, Row, Slot
from tpu_sim.isa.resources import FLAG, LANE_QUEUES, MRF, SPILL, TRANSPOSED, VMEM
from tpu_sim.jit.values import OperationRole

_CROSSING_ROLES = {
    Crossing.NONE: OperationRole.POINT,
    Crossing.LANES: OperationRole.ROW,
    Crossing.SUBLANES: OperationRole.COLUMN,
}


@cache
def role_of(row: Row) -> OperationRole:
    """The role of a row's operations, or of the instruction if it makes none."""
    if row.slot is Slot.SCALAR:
        return OperationRole.SCALAR
    if not row.is_state:
        return _CROSSING_ROLES.get(row.crossing, OperationRole.STATE)
    if row.write is not None and row.write.register_class == SREG:
        return OperationRole.WORD
    if SPILL in row.touches or row.pops in LANE_QUEUES:
        return OperationRole.RENAME
    if FLAG in row.touches:
        return OperationRole.TRANSFER if row.is_transfer else OperationRole.WAIT
    if VMEM in row.touches and not row.is_indexed:
        return OperationRole.LOAD if VMEM in row.uses else OperationRole.STORE
    return OperationRole.LEAF if row.uses & {MRF, TRANSPOSED} else OperationRole.STATE


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
