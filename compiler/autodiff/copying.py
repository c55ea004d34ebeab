"""Copies of a computation's instructions in another one, with tuples taken apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler.autodiff.values import Instr, Value, pack, unpack
from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation
from compiler.rewrite.emitter import Emitter


class Copying:
    """The computation that instructions go to."""

    def __init__(self, computation: HloComputation) -> None:
        self.computation = computation

    def emitter(self, near: Instr) -> Emitter:
        """An emitter whose instructions remember that they come of `near`."""
        return Emitter(near, self.computation)

    def new_computation(self, near: Instr, name: str) -> Emitter:
        """An emitter of a new computation of the same module."""
        computation = HloComputation(name)
        computation.module = self.computation.module
        return Emitter(near, computation)

    def emit(self, instr: Instr, operands: Sequence[Value]) -> Value:
        """A copy of an instruction with other operands."""
        e = self.emitter(instr)
        copy = clone(instr, self.computation, [pack(e, operand) for operand in operands])
        return unpack(e, copy)

    def plain(self, instr: Instr, operands: Sequence[Value]) -> Value:
        """The value of an instruction; tuples are put together and taken apart without any."""
        if instr.opcode == "tuple":
            return tuple(operands)
        if instr.opcode == "get-tuple-element":
            whole = operands[0]
            assert isinstance(whole, tuple)
            return whole[instr.index]
        return self.emit(instr, operands)


def needed(computation: HloComputation) -> Iterator[Instr]:
    """What the root needs, operands first, without parameters."""
    wanted = {computation.root_instruction}
    for instr in reversed(computation.instructions):
        if instr in wanted:
            wanted.update(instr.operands)
    return (i for i in computation if i in wanted and i.opcode != "parameter")
