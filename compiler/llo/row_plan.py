"""What the builder and the scheduler ask about a row again and again, worked out once per row."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from tpu_sim.isa import rows as _rows
from tpu_sim.isa.instruction import ROWS, SREG, Row, Slot
from tpu_sim.isa.resources import FLAG, SMEM, VMEM

assert _rows.valu  # importing the package fills ROWS


class Action(str):
    """How the builder numbers a row. (Members of an Enum take Python 3.11 long to look up.)"""

    __slots__ = ()
    VECTOR: ClassVar[Action]  # pure, vreg or vmask result: numbered in its block
    SCALAR: ClassVar[Action]  # pure, sreg result: numbered over scopes
    LOAD: ClassVar[Action]  # numbered until its memory is written
    EFFECT: ClassVar[Action]  # never numbered


for _name in Action.__annotations__:
    setattr(Action, _name, Action(_name))


@dataclass(frozen=True, eq=False)
class RowPlan:
    """A row's derived facts. Operand positions are those of the operands without the destination.

    `pop` is the plan of the row that fetches the result a row pushes (EUP, XLU). `is_lanes_only`:
    it reads nothing but vregs, vmasks and immediates, and is pure.
    """

    name: str
    row: Row
    action: Action
    result: str
    operand_count: int
    pop: RowPlan | None
    window: int
    base: int
    offset: int
    scalar_operands: tuple[int, ...]
    is_lanes_only: bool
    writes_smem: bool
    is_dma: bool


_POPS = {"eup": "vpop.eup", "xlu": "vpop.xlu"}


@cache
def row_plan(name: str) -> RowPlan:
    """The plan of the row called `name`; KeyError when there is none."""
    row = ROWS[name]
    written = row.write is not None
    result = row.write.register_class if row.write is not None else ""
    window = row.window_index - written
    scalars = tuple(r.index - written for r in row.reads if r.register_class == SREG)
    action = _action(row, result)
    return RowPlan(
        name=name,
        row=row,
        action=action,
        result=result,
        operand_count=len(row.operands) - written,
        pop=row_plan(_POPS[row.pushes]) if row.pushes in _POPS else None,
        window=window,
        base=window + 1 if window >= 0 else -1,
        offset=row.offset_index - written if window >= 0 else -1,
        scalar_operands=scalars,
        is_lanes_only=action is Action.VECTOR and not scalars and window < 0,
        writes_smem=SMEM in row.defines,
        is_dma=FLAG in row.touches,
    )


def _action(row: Row, result: str) -> Action:
    if row.uses & {VMEM, SMEM}:
        return Action.LOAD
    if row.is_state:
        return Action.EFFECT
    if row.slot is Slot.SCALAR and result == "s":
        return Action.SCALAR
    return Action.VECTOR
