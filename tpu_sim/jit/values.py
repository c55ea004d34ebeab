"""Vector operations of a block after renaming: every value has one definition.

A `ValueOp` is one vector instruction whose register operands have become the indices of the
operations that define them (`Use`), and whose sregs have become native i32 values (`Scalar`).
There are many of these values: named tuples are made, compared and hashed much faster than dataclasses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

from tpu_sim.isa.instruction import Row


class OperationRole(str):
    """How the translator treats an operation.

    No Enum: looking up a member of one takes Python 3.11 a tenth of a microsecond, and several
    dozen are looked up for every operation. There is one object for each role.
    """

    __slots__ = ()
    POINT: ClassVar[OperationRole]  # lane by lane
    ROW: ClassVar[OperationRole]  # crosses the lanes of a sublane
    COLUMN: ClassVar[OperationRole]  # crosses the sublanes of a lane
    LOAD: ClassVar[OperationRole]
    STORE: ClassVar[OperationRole]
    LEAF: ClassVar[
        OperationRole
    ]  # a vreg that lies in host memory: queue entry, transposed rows, carried
    STATE: ClassVar[OperationRole]  # moves machine state: MXU, transpose unit, DMA, indexed access
    # of instructions that make no operation
    SCALAR: ClassVar[OperationRole]
    RENAME: ClassVar[OperationRole]  # moves a value to another register, or to or from a spill slot
    TRANSFER: ClassVar[OperationRole]
    WAIT: ClassVar[OperationRole]
    WORD: ClassVar[OperationRole]  # takes a value's word to the scalar unit


for _name in OperationRole.__annotations__:
    setattr(OperationRole, _name, OperationRole(_name.lower()))


LANE_ROLES = frozenset(
    {OperationRole.POINT, OperationRole.LOAD, OperationRole.STORE, OperationRole.LEAF}
)
"""Operations that run inside a chunk loop; ROW and COLUMN cross chunks."""
OPERATIONS = LANE_ROLES | {OperationRole.ROW, OperationRole.COLUMN, OperationRole.STATE}
"""Roles of instructions that become operations."""


class Use(NamedTuple):
    """The value that operation number `value` defines."""

    value: int


use = cache(Use)
"""The `Use` of a value, made once: operations have small numbers, again and again the same."""


class Scalar(NamedTuple):
    """A native i32: `text` is an SSA name or a number, equal to `root` + `offset` modulo 2**32.

    `root` is an SSA name, or "" for a constant; addresses with one root are comparable.
    """

    text: str
    root: str
    offset: int


Argument = Use | Scalar | int
"""An operand of a row: a value, a scalar, or an immediate."""


def constant_scalar(number: int) -> Scalar:
    """A scalar whose value is known."""
    return Scalar(str(number), "", number)


LAST_SUBLANE = 7


class RowAddress(NamedTuple):
    """Rows of a window: `root` + `offset` + i * `stride` for sublane i."""

    window: int
    root: str
    offset: int
    stride: int

    @property
    def low(self) -> int:
        """Smallest row offset touched."""
        return self.offset + min(0, LAST_SUBLANE * self.stride)

    @property
    def high(self) -> int:
        """Largest row offset touched."""
        return self.offset + max(0, LAST_SUBLANE * self.stride)

    def rows(self) -> range | tuple[int]:
        """Row offsets touched, relative to `root`."""
        if self.stride == 0:
            return (self.offset,)
        return range(self.offset, self.offset + 8 * self.stride, self.stride)


@dataclass(eq=False, slots=True)
class ValueOp:
    """One operation; `index` is also the number of the value it defines, `uses` those it reads.

    `carried` is set for a LEAF that was computed by an earlier segment: its carry slot.
    """

    index: int
    role: OperationRole
    row: Row | None
    arguments: tuple[Argument, ...]
    is_mask: bool = False
    address: RowAddress | None = None
    bundle: int = 0
    uses: tuple[int, ...] = ()
    stage: int = 0
    queue_number: int = 0  # nth vmatmul, vpop.mrf or transpose swap of its unit in the block
    carried: int = -1
    producer: int = -1  # the STATE operation a LEAF must follow, -1 if none
    memory_before: Sequence[tuple[int, bool]] = ()
    """Earlier conflicting accesses: (operation, whether it touches exactly the same words)."""

    @property
    def name(self) -> str:
        """The row's name, or the role's where there is no row."""
        return self.row.name if self.row is not None else str(self.role)
