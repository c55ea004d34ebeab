"""Facts derived from a row: which operands are registers, read or written, and of which class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tpu_sim.isa.instruction import Kind, Row, Slot

VREG, VMASK, SREG = "v", "m", "s"
"""Register classes, by the letter they have in texts."""

_READS = {Kind.VS: VREG, Kind.MS: VMASK, Kind.SS: SREG}
_WRITES = {Kind.VD: VREG, Kind.MD: VMASK, Kind.SD: SREG}


@dataclass(frozen=True)
class RegisterOperand:
    """Operand number `index` of a row is a register of `register_class`."""

    index: int
    register_class: str


@dataclass(frozen=True)
class RowFacts:
    """The register operands of a row, and its slot; a row writes at most one register."""

    slot: str  # the slot's name in chip files
    is_mxu: bool  # whether it takes the slot of an MXU
    reads: tuple[RegisterOperand, ...]
    write: RegisterOperand | None
    unit_index: int  # position of the MXU number, -1 if none
    window_index: int  # position of the window id, -1 if none


@cache
def row_facts(row: Row) -> RowFacts:
    """Read the facts off the row's operand kinds."""
    kinds = [operand.kind for operand in row.operands]
    reads = tuple(RegisterOperand(i, _READS[k]) for i, k in enumerate(kinds) if k in _READS)
    writes = [RegisterOperand(i, _WRITES[k]) for i, k in enumerate(kinds) if k in _WRITES]
    assert len(writes) <= 1, f"{row.name} writes two registers"
    return RowFacts(
        row.slot.value,
        row.slot is Slot.MXU,
        reads,
        writes[0] if writes else None,
        kinds.index(Kind.UNIT) if Kind.UNIT in kinds else -1,
        kinds.index(Kind.WIN) if Kind.WIN in kinds else -1,
    )
