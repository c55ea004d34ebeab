"""The row type: everything the project knows about one instruction, said once.

A row gives an instruction's name, slot, operand kinds, latency class and queue effect. Encoder,
decoder, assembler, scheduler, hazard checker, both machines and ``docs/isa.md`` read rows; nothing
else says what an instruction is. The meaning of a lane instruction is a function registered right
below its row, written once against `tpu_sim.isa.semantics.Lanes`; what moves machine state (memory,
queues, MXU, DMA) is a method of the machine named by `Row.effect`.

The same `Instr` is an LLO operation when its register numbers are virtual and part of a bundle
when they are physical.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar


class Slot(Enum):
    """A class of issue slots; the chip file says how many of each a bundle has."""

    SCALAR = "scalar"
    VALU = "valu"
    EUP = "eup"
    XLU = "xlu"
    LOAD = "load"
    STORE = "store"
    MXU = "mxu"  # one slot per MXU; the instruction's `unit` operand picks it
    POP = "pop"  # EUP, XLU and MXU result queues
    MISC = "misc"  # DMA, sync flags


class Kind(Enum):
    """What an operand is. The value is its letter in formats; `bits` its width in the encoding."""

    VD = "vd"  # vreg written
    VS = "vs"  # vreg read
    MD = "md"  # vmask written
    MS = "ms"  # vmask read
    SD = "sd"  # sreg written
    SS = "ss"  # sreg read; s0 reads as 0
    I32 = "i32"  # signed 32-bit immediate
    F32 = "f32"  # f32 immediate: its bit pattern as a signed int
    IMM = "imm"  # signed 16-bit immediate
    UNIT = "unit"  # MXU number
    WIN = "win"  # window id: index into the kernel's window table
    DESC = "desc"  # index into the kernel's DMA descriptor table
    FLAG = "flag"  # sync flag number
    SPILL = "spill"  # spill slot, addressable by nothing else


KIND_BITS: dict[Kind, int] = {
    Kind.VD: 6,
    Kind.VS: 6,
    Kind.MD: 5,
    Kind.MS: 5,
    Kind.SD: 6,
    Kind.SS: 6,
    Kind.I32: 32,
    Kind.F32: 32,
    Kind.IMM: 16,
    Kind.UNIT: 3,
    Kind.WIN: 8,
    Kind.DESC: 10,
    Kind.FLAG: 8,
    Kind.SPILL: 12,
}
"""Field widths. Registers: 64 vregs, 32 vmasks, 64 sregs at most on any chip."""


class Crossing(Enum):
    """Which lanes a result lane may depend on: decides the loop shape of the translator."""

    NONE = "none"  # lane by lane
    LANES = "lanes"  # other lanes of the same sublane
    SUBLANES = "sublanes"  # the same lane of other sublanes
    ALL = "all"
    STATE = "state"  # not a lane function: machine state


@dataclass(frozen=True)
class Operand:
    """One operand of a row: its role name in texts and its kind."""

    name: str
    kind: Kind


@dataclass(frozen=True, eq=False)
class Row:
    """One instruction. There is one `Row` object per instruction, so rows compare by identity.

    `latency` names a latency class of the chip file: cycles from issue until the result (or the
    queue entry) may be read. `pushes`/`pops` name a queue: "eup", "xlu" or "mrf".
    `effect` names the machine method that executes a state instruction ("" for lane functions).
    """

    name: str
    opcode: int
    slot: Slot
    operands: tuple[Operand, ...]
    latency: str
    doc: str
    crossing: Crossing = Crossing.NONE
    pushes: str = ""
    pops: str = ""
    effect: str = ""

    def __reduce__(self) -> tuple[Callable[[str], Row], tuple[str]]:
        """Copies and pickles of a row are the row of the table."""
        return _row_called, (self.name,)

    def operand_index(self, name: str) -> int:
        """Position of the operand called `name`."""
        return next(i for i, o in enumerate(self.operands) if o.name == name)


@dataclass(slots=True, unsafe_hash=True)
class Instr:
    """An instruction: a row and one int per operand (register number, immediate or f32 bits).

    A value, never changed; not declared frozen, because a frozen dataclass takes three times as
    long to make, and a program has a hundred thousand of them.
    """

    row: Row
    operands: tuple[int, ...]
    source: str = ""  # the HLO instruction it came from, for texts and reports only


Meaning = Callable[..., object]
F = TypeVar("F", bound=Meaning)

ROWS: dict[str, Row] = {}
MEANINGS: dict[str, Meaning] = {}


def _row_called(name: str) -> Row:
    return ROWS[name]


def define(row: Row) -> Row:
    """Enter a row into the table; two rows of one slot may not share a name or opcode."""
    assert row.name not in ROWS, f"row {row.name} is defined twice"
    clash = [r.name for r in ROWS.values() if r.slot is row.slot and r.opcode == row.opcode]
    assert not clash, f"rows {clash[0]} and {row.name} share opcode {row.opcode}"
    ROWS[row.name] = row
    return row


def meaning(*rows: Row) -> Callable[[F], F]:
    """Register the decorated function as the meaning of `rows`.

    It is called as ``f(lanes, *sources)``: one value per VS/MS operand, one scalar value per SS
    operand, one Python number per immediate, in row order; it returns the destination's value.
    """

    def register(function: F) -> F:
        for row in rows:
            assert row.name not in MEANINGS, f"{row.name} has two meanings"
            MEANINGS[row.name] = function
        return function

    return register


def operands(spec: str) -> tuple[Operand, ...]:
    """Parse ``"d:vd a:vs k:imm"`` into operands."""
    pairs = (item.split(":") for item in spec.split())
    return tuple(Operand(name, Kind(kind)) for name, kind in pairs)
