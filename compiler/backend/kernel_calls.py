"""The interface of a kernel: which SMEM words its arguments are, and what they mean.

Every array leaf of a fusion's operands, then of its result, is one argument:

    in HBM              the granule its buffer starts at
    in VMEM             nothing: the kernel knows the row
    an operand in SMEM  its value (raw bits); of an array the word it starts at
    a result in SMEM    the SMEM word to write it to
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis.tiled_layout import memory_space
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, TupleShape, leaves
from tpu_sim.isa.program import SMEM, VMEM

Rows = tuple[int, ...]


class BufferPlace(enum.Enum):
    """Where a kernel finds an operand or leaves a result."""

    HBM = "hbm"
    VMEM = "vmem"
    SMEM = "smem"


@dataclass(frozen=True)
class Argument:
    """One kernel argument: SMEM word `index`, an array of `shape`; one in VMEM starts at `row`."""

    index: int
    shape: ArrayShape
    place: BufferPlace
    row: int = -1


@dataclass(frozen=True)
class KernelInterface:
    """Arguments of a kernel, by operand leaf and by result leaf."""

    operands: tuple[Argument, ...]
    results: tuple[Argument, ...]

    @property
    def count(self) -> int:
        """Number of argument words."""
        return len(self.operands) + len(self.results)


def kernel_interface(instr: HloInstruction, rows: Rows = ()) -> KernelInterface:
    """The interface of the kernel that runs `instr`: a fusion, copy or half of an exchange.

    A start or update is told of operands and results, an async-done too; a permute's done of nothing.
    `rows` are where those leaves of operands and results start that lie in VMEM, in their order.
    """
    places = iter(rows)
    if OPCODES[instr.opcode].has(Trait.ASYNC):
        if instr.opcode == "collective-permute-done":
            return KernelInterface((), ())
        shape = instr.operands[0].shape if instr.opcode == "async-done" else instr.shape
        assert isinstance(shape, TupleShape)
        made = [_argument(i, s, places) for i, s in enumerate(leaves(shape))]
        count = len(leaves(shape.elements[0]))
        return KernelInterface(tuple(made[:count]), tuple(made[count:]))
    shapes = [leaf for operand in instr.operands for leaf in leaves(operand.shape)]
    arguments = [_argument(i, s, places) for i, s in enumerate([*shapes, *leaves(instr.shape)])]
    return KernelInterface(tuple(arguments[: len(shapes)]), tuple(arguments[len(shapes) :]))


def _argument(index: int, shape: ArrayShape, rows: Iterator[int]) -> Argument:
    space = memory_space(shape)
    if space == VMEM:
        return Argument(index, shape, BufferPlace.VMEM, next(rows))
    return Argument(index, shape, BufferPlace.SMEM if space == SMEM else BufferPlace.HBM)


def no_kernel(instr: HloInstruction, fusion: HloInstruction | None = None) -> UnsupportedError:
    """The error that says that nothing lowers `instr` (of `fusion`)."""
    target = instr.attrs.get("custom_call_target")
    what = instr.opcode if target is None else f"{instr.opcode} to {target!r}"
    span = instr.span or (fusion.span if fusion is not None else None)
    message = f"%{instr.name}: {what} has no kernel; rewrite it with operations that have"
    if OPCODES[instr.opcode].has(Trait.COLLECTIVE):
        message = (
            f"%{instr.name}: {what} of several participants; compile the program for one device"
        )
    return UnsupportedError(message, span)
