"""The row type: everything the project knows about one instruction, said once.

A row gives an instruction's name, opcode, slot, operands, latency class, and the resources that it
uses and defines. Encoder, decoder, assembler, scheduler, hazard checker, both machines and
``docs/isa.md`` read rows; nothing else says what an instruction is. What it does is a function in its
row: the meaning of a lane instruction, written once against `tpu_sim.isa.semantics.Lanes`, or the
effect of a state instruction (memory, queues, MXU, DMA), against `tpu_sim.isa.effects.CorePrimitives`.

The same `Instr` is an LLO operation when its register numbers are virtual and part of a bundle
when they are physical.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.resources import QUEUES, SMEM, UNIT_STEPS, VMEM, Resource


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
    XPOSE = "xpose"  # transpose unit number
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
    Kind.XPOSE: 16,
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


VREG, VMASK, SREG = "v", "m", "s"
"""Register classes, by the letter they have in texts."""

_READS = {Kind.VS: VREG, Kind.MS: VMASK, Kind.SS: SREG}
_WRITES = {Kind.VD: VREG, Kind.MD: VMASK, Kind.SD: SREG}


@dataclass(frozen=True)
class Operand:
    """One operand of a row: its role name in texts and its kind; it is less than `limit` if not 0."""

    name: str
    kind: Kind
    limit: int = 0


@dataclass(frozen=True)
class RegisterOperand:
    """Operand number `index` of a row is a register of `register_class`."""

    index: int
    register_class: str


Does = Callable[..., object]
"""What an instruction does; `Row` says how it is called."""


@dataclass(frozen=True, eq=False)
class Row:
    """One instruction. There is one `Row` object per instruction, so rows compare by identity.

    `does` is called as ``does(lanes, *sources)`` with one value per VS/MS operand, one scalar value per
    SS operand and one Python number per immediate, in row order; it returns the destination's value.
    A state instruction's is called with a `tpu_sim.isa.effects.CorePrimitives` in place of the lanes;
    without a destination it returns what the core's method returned.

    `latency` names a latency class of the chip file: cycles from issue until the result, the queue
    entry or what it `defines` may be read. What it `frees` is open again in the next cycle.
    `held` names the chip's parameter that says how long it holds its slot, "" for one cycle;
    `required` one that is 0 on chips without the instruction.
    """

    name: str
    opcode: int
    slot: Slot
    operands: tuple[Operand, ...]
    latency: str
    doc: str
    does: Does
    crossing: Crossing = Crossing.NONE
    uses: frozenset[Resource] = frozenset()
    defines: frozenset[Resource] = frozenset()
    frees: frozenset[Resource] = frozenset()
    held: str = ""
    required: str = ""

    def __reduce__(self) -> tuple[Callable[[str], Row], tuple[str]]:
        """Copies and pickles of a row are the row of the table."""
        return _row_called, (self.name,)

    def operand_index(self, name: str) -> int:
        """Position of the operand called `name`."""
        return next(i for i, o in enumerate(self.operands) if o.name == name)

    def _position(self, *kinds: Kind) -> int:
        return next((i for i, o in enumerate(self.operands) if o.kind in kinds), -1)

    @cached_property
    def is_state(self) -> bool:
        """Whether it has an effect on machine state, and no meaning for lanes."""
        return self.crossing is Crossing.STATE

    @cached_property
    def pushes(self) -> str:
        """The result queue it pushes, "" if none."""
        return next(iter(self.defines & QUEUES), "")

    @cached_property
    def pops(self) -> str:
        """The result queue it pops, "" if none."""
        return next(iter(self.uses & QUEUES), "")

    @cached_property
    def touches(self) -> frozenset[Resource]:
        """All its resources."""
        return self.uses | self.defines | self.frees

    @cached_property
    def is_unit_step(self) -> bool:
        """Whether it is a step of an MXU or a transpose unit, which wait for each other."""
        return not UNIT_STEPS.isdisjoint(self.touches)

    @cached_property
    def reads(self) -> tuple[RegisterOperand, ...]:
        """The registers it reads."""
        pairs = enumerate(operand.kind for operand in self.operands)
        return tuple(RegisterOperand(i, _READS[kind]) for i, kind in pairs if kind in _READS)

    @cached_property
    def write(self) -> RegisterOperand | None:
        """The register it writes: at most one, its first operand."""
        kinds = [operand.kind for operand in self.operands]
        assert not any(kind in _WRITES for kind in kinds[1:]), f"{self.name}: destination not first"
        written = _WRITES.get(kinds[0]) if kinds else None
        return None if written is None else RegisterOperand(0, written)

    @cached_property
    def sources(self) -> tuple[tuple[int, str], ...]:
        """Positions of the operands but for the destination, each with its register class or ""."""
        kinds = enumerate(operand.kind for operand in self.operands)
        return tuple((i, _READS.get(kind, "")) for i, kind in kinds if kind not in _WRITES)

    @cached_property
    def slot_name(self) -> str:
        """The slot's name in chip files."""
        return str(self.slot.value)

    @cached_property
    def is_mxu(self) -> bool:
        """Whether it takes the slot of an MXU."""
        return self.slot is Slot.MXU

    @cached_property
    def unit_index(self) -> int:
        """Position of the number of the MXU or transpose unit, -1 if none."""
        return self._position(Kind.UNIT, Kind.XPOSE)

    @cached_property
    def window_index(self) -> int:
        """Position of the window id, -1 if none; the sreg that is added to it follows."""
        return self._position(Kind.WIN)

    @cached_property
    def offset_index(self) -> int:
        """Position of the immediate of an address, -1 if none."""
        return next(
            (i for i, o in enumerate(self.operands) if self.is_address and o.name == "k"), -1
        )

    @cached_property
    def is_address(self) -> bool:
        """Whether operands are an address of VMEM or SMEM."""
        return self.window_index >= 0 or (self.slot is Slot.SCALAR and self.is_state)

    @cached_property
    def stride_index(self) -> int:
        """Position of the stride between rows, -1 if none."""
        return next((i for i, o in enumerate(self.operands) if o.name == "stride"), -1)

    @cached_property
    def is_indexed(self) -> bool:
        """Whether it accesses words of a window whose addresses lie in a vreg."""
        return self.window_index >= 0 and self.stride_index < 0

    @cached_property
    def slot_index(self) -> int:
        """Position of the spill slot, -1 if none."""
        return self._position(Kind.SPILL)

    @cached_property
    def flag_index(self) -> int:
        """Position of the number of a sync flag, -1 if none; the sreg that is added to it follows."""
        return self._position(Kind.FLAG)

    @cached_property
    def descriptor_index(self) -> int:
        """Position of the descriptor, -1 if none."""
        return self._position(Kind.DESC)

    @cached_property
    def is_transfer(self) -> bool:
        """Whether it starts a transfer by a descriptor."""
        return self.descriptor_index >= 0


@dataclass(slots=True, unsafe_hash=True)
class Instr:
    """An instruction: a row and one int per operand (register number, immediate or f32 bits).

    A value, never changed; not declared frozen, because a frozen dataclass takes three times as
    long to make, and a program has a hundred thousand of them.
    """

    row: Row
    operands: tuple[int, ...]
    source: str = ""  # the HLO instruction it came from, for texts and reports only


ROWS: dict[str, Row] = {}
ROW_OF_CODE: dict[tuple[Slot, int], Row] = {}
"""Rows by slot and opcode."""


def _row_called(name: str) -> Row:
    return ROWS[name]


def define(
    name: str,
    opcode: int,
    slot: Slot,
    operands: str,
    latency: str,
    doc: str,
    does: Does,
    *,
    crossing: Crossing = Crossing.NONE,
    uses: Iterable[Resource] = (),
    defines: Iterable[Resource] = (),
    frees: Iterable[Resource] = (),
    held: str = "",
    required: str = "",
) -> Row:
    """Enter a row into the table; see `Row`. Operands are written ``"d:vd a:vs row:imm<8"``.

    `opcode` is the instruction's number in its slot, as programs in files have it: it never changes
    and is never used again (``tests/isa/opcodes.json`` pins them).
    """
    row = Row(
        name, opcode, slot, parse_operands(operands), latency, doc, does, crossing,
        frozenset(uses), frozenset(defines), frozenset(frees), held, required,
    )  # fmt: skip
    assert name not in ROWS, f"row {name} is defined twice"
    clash = ROW_OF_CODE.get((slot, opcode))
    assert clash is None, (
        f"rows {clash and clash.name} and {name} share opcode {opcode} of slot {slot.value}; "
        "docs/isa.md says which are free"
    )
    _check_address(row)
    ROWS[name] = ROW_OF_CODE[slot, opcode] = row
    return row


def _check_address(row: Row) -> None:
    """Order of accesses, their limits and their units are worked out from one address in these operands."""
    kinds = [operand.kind for operand in row.operands]
    names = {operand.name for operand in row.operands}
    if VMEM in row.touches:
        window = row.window_index
        is_one = kinds.count(Kind.WIN) == 1 and kinds[window + 1 : window + 2] == [Kind.SS]
        assert is_one and len(names & {"k", "stride"}) != 1, (
            f"row {row.name}: an address of VMEM is a window, an sreg behind it, and both of `k` and "
            "`stride` or, of words that a vreg names, neither; a row has one"
        )
    if SMEM in row.touches:
        offsets = [operand.name for operand in row.operands if operand.kind is Kind.I32]
        assert offsets == ["k"] and Kind.SS in kinds, (
            f"row {row.name}: an address of SMEM is the first sreg and an offset `k:i32`; a row has one"
        )


def parse_operands(spec: str) -> tuple[Operand, ...]:
    """Parse ``"d:vd a:vs k:imm row:imm<8"`` into operands."""
    found = []
    for item in spec.split():
        name, kind = item.split(":")
        kind, _, limit = kind.partition("<")
        found.append(Operand(name, Kind(kind), int(limit or 0)))
    return tuple(found)
