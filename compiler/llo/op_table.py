"""Rows as the backend's schedulers see them: small ints, worked out once per row and chip."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from tpu_sim.isa import rows as _rows
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import ROWS, SREG, VMASK, VREG, Row, Slot
from tpu_sim.isa.resources import (
    ACTIVE,
    EUP,
    FLAG,
    MRF,
    QUEUES,
    SMEM,
    SPILL,
    TRANSFER,
    TRANSPOSE_INPUT,
    TRANSPOSED,
    VMEM,
    WEIGHTS,
    XLU,
    Resource,
)
from tpu_sim.isa.timing import occupancy_cycles

assert _rows.valu  # importing the package fills ROWS


class Code(int):
    """How an instruction is ordered with others beyond its registers.

    No Enum: looking up a member of one takes Python 3.11 a tenth of a microsecond, and schedulers
    do it many times for every instruction. There is one object for each code.
    """

    __slots__ = ()
    PLAIN: ClassVar[Code]
    LOAD: ClassVar[Code]
    STORE: ClassVar[Code]
    SMEM_LOAD: ClassVar[Code]
    SMEM_STORE: ClassVar[Code]
    DMA_START: ClassVar[Code]
    DMA_WAIT: ClassVar[Code]
    MATPUSH: ClassVar[Code]
    MATSWAP: ClassVar[Code]
    MATMUL: ClassVar[Code]
    MRF_POP: ClassVar[Code]
    XPOSE_PUSH: ClassVar[Code]
    XPOSE_SWAP: ClassVar[Code]
    XPOSE_READ: ClassVar[Code]
    PUSH: ClassVar[Code]
    POP: ClassVar[Code]
    SPILL: ClassVar[Code]
    FILL: ClassVar[Code]


for _number, _name in enumerate(Code.__annotations__):
    setattr(Code, _name, Code(_number))


_DEFINED: dict[Resource, Code] = {
    VMEM: Code.STORE,
    SMEM: Code.SMEM_STORE,
    SPILL: Code.SPILL,
    TRANSFER: Code.DMA_START,
    WEIGHTS: Code.MATPUSH,
    ACTIVE: Code.MATSWAP,
    TRANSPOSE_INPUT: Code.XPOSE_PUSH,
    TRANSPOSED: Code.XPOSE_SWAP,
    EUP: Code.PUSH,
    XLU: Code.PUSH,
}
"""By a resource that a row defines its code; otherwise what it uses says it."""
_USED: dict[Resource, Code] = {
    VMEM: Code.LOAD,
    SMEM: Code.SMEM_LOAD,
    SPILL: Code.FILL,
    FLAG: Code.DMA_WAIT,
    ACTIVE: Code.MATMUL,
    MRF: Code.MRF_POP,
    TRANSPOSED: Code.XPOSE_READ,
    EUP: Code.POP,
    XLU: Code.POP,
}


def _code(row: Row) -> Code:
    for table, resources in ((_DEFINED, row.defines), (_USED, row.uses)):
        for resource in resources:
            if resource in table:
                return table[resource]
    return Code.PLAIN


CLASS_ORDER = (
    Slot.POP, Slot.STORE, Slot.VALU, Slot.EUP, Slot.XLU, Slot.SCALAR, Slot.LOAD, Slot.MISC,
    Slot.MXU,
)  # fmt: skip
"""Resource classes in the order the scheduler fills a bundle: what frees registers comes first.
The MXU class is followed by one class per further unit."""

CLASS_INDEX: dict[Slot, int] = {slot: index for index, slot in enumerate(CLASS_ORDER)}
MXU_CLASS = CLASS_INDEX[Slot.MXU]

QUEUE_INDEX: dict[str, int] = {EUP: 0, XLU: 1}


@dataclass(frozen=True, eq=False, slots=True)
class OpInfo:
    """One row on one chip. Operand positions index the whole operand tuple; -1 is none.

    `defines` is the register file written ("v", "m", "s" or ""); the destination is operand 0.
    `takes` is the file from which issuing it takes a register ("v", "m" or ""): a push takes one for
    the result, its pop none. `reads` are the vector files read, with the operands.
    `occupies` is how many cycles the slot is held; `tail` is how long after its issue the block
    must last, because later blocks count on the effect being complete.
    """

    row: Row
    code: Code
    resource: int
    latency: int
    occupies: int
    defines: str
    takes: str
    reads: tuple[tuple[str, tuple[int, ...]], ...]
    vregs: tuple[int, ...]
    masks: tuple[int, ...]
    sregs: tuple[int, ...]
    queue: int
    window: int
    offset: int
    stride: int
    unit: int
    has_effect: bool
    tail: int


@cache
def op_table(chip: Chip) -> dict[str, OpInfo]:
    """`OpInfo` of every row by name."""
    return {name: _op_info(row, chip) for name, row in ROWS.items()}


def registers_read(info: OpInfo, operands: tuple[int, ...]) -> list[tuple[str, int]]:
    """The registers an operation reads, each with the letter of its file: vregs, vmasks, sregs."""
    reads = [("v", operands[i]) for i in info.vregs]
    reads += [("m", operands[i]) for i in info.masks]
    return reads + [("s", operands[i]) for i in info.sregs]


def class_capacities(chip: Chip) -> list[int]:
    """Slots per bundle by resource class; each MXU is a class of its own with one slot."""
    shared = [chip.slot_count(slot) for slot in CLASS_ORDER[:-1]]
    return shared + [1] * chip.mxu_count


def _op_info(row: Row, chip: Chip) -> OpInfo:
    code = _code(row)
    defines = row.write.register_class if row.write is not None else ""
    vregs, masks, sregs = (
        tuple(r.index for r in row.reads if r.register_class == letter)
        for letter in (VREG, VMASK, SREG)
    )
    return OpInfo(
        row=row,
        code=code,
        resource=CLASS_INDEX[row.slot],
        latency=chip.latency(row.latency),
        occupies=occupancy_cycles(row, chip),
        defines=defines,
        takes=_takes(code, defines),
        reads=tuple((letter, read) for letter, read in (("v", vregs), ("m", masks)) if read),
        vregs=vregs,
        masks=masks,
        sregs=sregs,
        queue=QUEUE_INDEX.get(row.pushes or row.pops, -1),
        window=row.window_index,
        offset=row.offset_index,
        stride=row.stride_index,
        unit=row.unit_index,
        has_effect=not defines or code is Code.MRF_POP,
        tail=_tail(row, defines, chip),
    )


def _takes(code: Code, defines: str) -> str:
    if code is Code.PUSH:
        return "v"
    return "" if code is Code.POP or defines == "s" else defines


def _tail(row: Row, defines: str, chip: Chip) -> int:
    """Sregs, memories and steps of units outlive a block; a pop waits for the result of its queue."""
    is_durable = defines == "s" or row.defines - QUEUES
    return max(occupancy_cycles(row, chip), chip.latency(row.latency) if is_durable else 1)
