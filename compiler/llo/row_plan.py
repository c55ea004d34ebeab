"""What the builder and the scheduler ask about a row again and again, worked out once per row."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache

from tpu_sim.isa import rows as _rows
from tpu_sim.isa.instruction import ROWS, Crossing, Kind, Operand, Row, Slot

_WRITTEN = {Kind.VD: "v", Kind.MD: "m", Kind.SD: "s"}

assert _rows.valu  # importing the package fills ROWS


class Action(Enum):
    """How the builder numbers a row."""

    VECTOR = "vector"  # pure, vreg or vmask result: numbered in its block
    SCALAR = "scalar"  # pure, sreg result: numbered over scopes
    LOAD = "load"  # numbered until its memory is written
    EFFECT = "effect"  # never numbered


@dataclass(frozen=True, eq=False)
class RowPlan:
    """A row's derived facts. Operand positions are those of the operands without the destination.

    `pop` is the plan of the row that fetches the result a row pushes (EUP, XLU).
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
    writes_smem: bool
    is_dma: bool


_POPS = {"eup": "vpop.eup", "xlu": "vpop.xlu"}


@cache
def row_plan(name: str) -> RowPlan:
    """The plan of the row called `name`; KeyError when there is none."""
    row = ROWS[name]
    written = [o for o in row.operands if o.kind in _WRITTEN]
    sources = [o for o in row.operands if o.kind not in _WRITTEN]
    result = _WRITTEN[written[0].kind] if written else ""
    window = _position(sources, Kind.WIN)
    return RowPlan(
        name=name,
        row=row,
        action=_action(row, result),
        result=result,
        operand_count=len(sources),
        pop=row_plan(_POPS[row.pushes]) if row.pushes in _POPS else None,
        window=window,
        base=window + 1 if window >= 0 else -1,
        offset=next((i for i, o in enumerate(sources) if window >= 0 and o.name == "k"), -1),
        scalar_operands=tuple(i for i, o in enumerate(sources) if o.kind is Kind.SS),
        writes_smem=row.effect == "scalar_store",
        is_dma=row.effect in ("dma_start", "dma_wait"),
    )


def _position(sources: list[Operand], kind: Kind) -> int:
    return next((i for i, o in enumerate(sources) if o.kind is kind), -1)


def _action(row: Row, result: str) -> Action:
    if row.effect in ("load", "load_indexed", "scalar_load"):
        return Action.LOAD
    if row.crossing is Crossing.STATE:
        return Action.EFFECT
    if row.slot is Slot.SCALAR and result == "s":
        return Action.SCALAR
    return Action.VECTOR
