"""LLO: instructions of the ISA over virtual registers, under structured control flow.

    LloKernel
      windows      (name, rows), by window id
      descriptors  DMA descriptors, by id
      registers    the physical register of each sreg, once they are assigned
      body         LloNode = LloBlock, or control flow around such blocks

An LLO operation is a `tpu_sim.isa.instruction.Instr` whose register numbers are virtual. vregs and
vmasks are numbered over the whole kernel, written once and read in the block that writes them.
sregs are written once too, except variables (`LloKernel.variables`); sreg 0 is the ISA's s0, which
reads 0. A row that pushes the EUP or XLU queue is followed, in order, by the pop of its result.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tpu_sim.isa.control_flow import ControlFlow
from tpu_sim.isa.instruction import Instr, Kind
from tpu_sim.isa.program import MAX_ARGUMENTS, DmaDescriptor

VReg = int
MReg = int
SReg = int

REGISTER_LETTERS: dict[Kind, str] = {
    Kind.VD: "v",
    Kind.VS: "v",
    Kind.MD: "m",
    Kind.MS: "m",
    Kind.SD: "s",
    Kind.SS: "s",
}
"""The register file an operand kind names, as its letter in texts."""

WRITTEN_KINDS = frozenset({Kind.VD, Kind.MD, Kind.SD})

ARGUMENT_WORDS = MAX_ARGUMENTS
"""SMEM words before a program's scalars: a kernel's arguments; spilled sregs take them from the top."""

ALIAS_STRIDE = 1 << 16
"""Unrolling names window w ``w + ALIAS_STRIDE * c`` in copy c of an iteration: accesses of different
copies are independent. Until bundles are made, a window number means its window modulo this."""


@dataclass(slots=True)
class LloBlock:
    """Straight-line operations."""

    ops: list[Instr] = field(default_factory=list)
    name: str = ""


LloNode = ControlFlow[LloBlock]


@dataclass(frozen=True, slots=True)
class LloWindow:
    """A range of VMEM that the kernel uses: `rows` of 512 bytes.

    With a `place` it starts at that row and holds what kernels leave to each other; else it is the
    kernel's own, wherever there is room.
    """

    name: str
    rows: int
    place: int = -1


@dataclass(slots=True)
class LloKernel:
    """One kernel before scheduling. `flags` counts its sync flags.

    `cores` of a device share its grid.

    `spill_slots` counts the vregs and vmasks that its largest block keeps in memory; `registers` is
    empty until sregs are assigned.

    `flops`, `element_ops` and `least_bytes` are for reports, as in `tpu_sim.isa.program.Kernel`.

    `remarks` tell the user where a plan of last resort was taken.
    """

    name: str
    arg_count: int
    windows: list[LloWindow]
    descriptors: list[DmaDescriptor]
    body: list[LloNode]
    flags: int = 0
    cores: int = 1
    variables: set[SReg] = field(default_factory=set)
    spill_slots: int = 0
    registers: dict[SReg, int] = field(default_factory=dict)
    flops: int = 0
    element_ops: int = 0
    least_bytes: int = 0
    note: str = ""
    remarks: tuple[str, ...] = ()
