"""A computation of one example as one of many.

    values, flags = Batcher(computation, size).run(f, args, flags)

What does not depend on a batched argument is computed once, for all examples.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.autodiff.copying import Copying, needed
from compiler.autodiff.values import Instr, Mask, Value, is_any
from compiler.batching.table import BATCHING
from compiler.hlo.ir import HloComputation
from compiler.rewrite.emitter import Emitter


class Batcher(Copying):
    """Batching, with the computation that instructions go to (`compiler.batching.step.Scope`)."""

    def __init__(self, computation: HloComputation, size: int) -> None:
        super().__init__(computation)
        self.size = size

    def at(self, e: Emitter) -> Batcher:
        """Batching in an emitter's computation."""
        return Batcher(e.computation, self.size)

    def within(self, near: Instr, name: str) -> tuple[Batcher, Emitter]:
        """Batching in a new computation of the same module."""
        e = self.new_computation(near, name)
        return self.at(e), e

    def run(
        self, computation: HloComputation, args: Sequence[Value], flags: Sequence[Mask]
    ) -> tuple[Value, Mask]:
        """Copy a computation; its result, and which parts of that are batched."""
        values = dict(zip(computation.parameters, args, strict=True))
        found = dict(zip(computation.parameters, flags, strict=True))
        for instr in needed(computation):
            operands = [values[o] for o in instr.operands]
            mine = [found[o] for o in instr.operands]
            if any(is_any(flag) for flag in mine):
                values[instr], found[instr] = BATCHING[instr.opcode](self, instr, operands, mine)
            else:
                values[instr], found[instr] = self.plain(instr, operands), False
        return values[computation.root_instruction], found[computation.root_instruction]
