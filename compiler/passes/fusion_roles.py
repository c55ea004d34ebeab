"""The roles that fusion gives instructions, and what an instruction is by itself; `fusion_nodes` decides.

FIXED, CUSTOM, REAL, VIRTUAL and leaves are explained there.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np

from compiler.analysis.tiled_layout import is_bitcast
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_any, with_trait
from compiler.hlo.shape import ArrayShape

SHAPE_OPS = with_any(Trait.INDEX_MAP | Trait.SYMBOLIC)
_MOVES = with_trait(Trait.PIECEWISE) - {"dynamic-update-slice"}


class Role(enum.Enum):
    """How fusion treats an instruction (see the module docstring)."""

    FIXED = "fixed"
    CUSTOM = "custom"
    REAL = "real"
    VIRTUAL = "virtual"


class Access(enum.Flag):
    """How a leaf is read."""

    SAME = enum.auto()
    ROW = enum.auto()
    OTHER = enum.auto()


Leaves = dict[HloInstruction, Access]


@dataclass
class FusionNode:
    """Fusion's view of one instruction.

    `op_count` is the work per element, of a real one its own alone; `repeat_count` is that of
    computing it anew, virtual instructions included; `paths` says along how many of them each leaf
    is read.
    """

    instr: HloInstruction
    role: Role
    leaves: Leaves = field(default_factory=dict)
    op_count: int = 0
    repeat_count: int = 0
    has_row_operand: bool = False
    paths: dict[HloInstruction, int] = field(default_factory=dict)


def is_scalar_constant(instr: HloInstruction) -> bool:
    """Whether the instruction is a constant that a kernel can hold as an immediate."""
    literal = instr.attrs.get("literal")
    return instr.opcode == "constant" and isinstance(literal, np.ndarray) and literal.size == 1


def is_index_or_elementwise(instr: HloInstruction) -> bool:
    """Whether an emitter computes the instruction element by element through index maps."""
    if not isinstance(instr.shape, ArrayShape):
        return False
    if instr.opcode in SHAPE_OPS or instr.opcode in _MOVES or is_scalar_constant(instr):
        return True
    return is_by_element(instr)


def is_by_element(instr: HloInstruction) -> bool:
    """Whether each element comes from those at its own index."""
    if instr.opcode == "bitcast-convert":
        return instr.array.dims == instr.operands[0].array.dims
    return OPCODES[instr.opcode].has(Trait.ELEMENTWISE)


def is_variadic_part(instr: HloInstruction) -> bool:
    """Whether this is one result of a variadic reduce."""
    return instr.opcode == "get-tuple-element" and instr.operands[0].opcode == "reduce"


def is_free_reshape(instr: HloInstruction) -> bool:
    """Whether this is a reshape that moves no bytes, outside a fusion a `bitcast`."""
    return instr.opcode == "reshape" and is_bitcast(instr.operands[0].array, instr.array)
