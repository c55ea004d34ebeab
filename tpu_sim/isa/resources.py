"""What instructions use and define besides registers: queues, memories, units, flags.

A row names its resources (`tpu_sim.isa.instruction.Row.uses`, `defines`, `frees`), and what follows
from them is worked out from these names: order in a schedule, hazards, races, causes of cycles, which
loops threads may share. What an instruction does to a resource is the effect below its row.
"""

from __future__ import annotations


class Resource(str):
    """A resource by the name it has in messages.

    No Enum: looking up a member of one takes Python 3.11 a tenth of a microsecond, and schedulers
    and checkers ask for every instruction. There is one object for each resource.
    """

    __slots__ = ()


EUP = Resource("eup")
XLU = Resource("xlu")
MRF = Resource("mrf")
"""Result queues; of the MXUs each unit has one."""

VMEM = Resource("vmem")
"""The window that an instruction names."""
SPILL = Resource("spill")
"""The spill slot that an instruction names."""
SMEM = Resource("smem")
CORE_NUMBER = Resource("core number")
"""Which core of its device a core is."""
TRANSFER = Resource("transfer")
"""The DMA engine, and the memories that a descriptor names."""
FLAG = Resource("flag")
"""A sync flag."""

SHADOW = Resource("shadow")
"""A unit's shadow weights, open for pushes."""
WEIGHTS = Resource("weights")
"""What was pushed into a unit's shadow weights."""
ACTIVE = Resource("active")
"""The weights that a unit multiplies by."""

TRANSPOSE_SHADOW = Resource("transpose shadow")
"""The block that a transpose unit is filled with, open for pushes."""
TRANSPOSE_INPUT = Resource("transpose input")
"""What was pushed into that block."""
TRANSPOSED = Resource("transposed block")
"""The block that is read."""

LANE_QUEUES = frozenset({EUP, XLU})
"""Queues of lane functions; they are empty at the ends of a block."""
QUEUES = LANE_QUEUES | {MRF}
TRANSPOSE_UNIT = frozenset({TRANSPOSE_SHADOW, TRANSPOSE_INPUT, TRANSPOSED})
MATRIX_UNIT = frozenset({SHADOW, WEIGHTS, ACTIVE})
UNIT_STEPS = MATRIX_UNIT | TRANSPOSE_UNIT
"""Resources of a unit that an instruction names: a step waits until what it uses is complete."""
