"""What exchanges of a computation hide behind products that neither need them nor are needed by them."""

from __future__ import annotations

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.collectives.ring_cost import can_estimate, dot_cycles
from tpu_sim.isa.chips import Chip

Instr = HloInstruction


class Hidden:
    """A computation's products, each of which hides as many cycles as it takes, once."""

    def __init__(
        self, computation: HloComputation, chip: Chip, precision: str, *, is_body: bool
    ) -> None:
        self.left = {
            instr: dot_cycles(instr, chip, precision)
            for instr in computation
            if instr.opcode == "dot" and can_estimate(instr)
        }
        self.computation, self.is_body = computation, is_body

    def left_of(self, exchange: Instr, cycles: float) -> float:
        """What of an exchange's cycles nothing else hides.

        One in a loop that needs counters alone may start a turn before (`loop_exchanges`).
        """
        before, behind = _closure(exchange, up=True), _closure(exchange, up=False)
        is_early = not any(i in self.left or _waits(i) or self._changes(i) for i in before)
        for dot in self.left:
            is_gone = dot.computation is None  # its pieces belong to what they hide
            if is_gone or dot in before or (dot in behind and not is_early):
                continue
            taken = min(cycles, self.left[dot])
            self.left[dot] -= taken
            cycles -= taken
        return cycles

    def _changes(self, instr: Instr) -> bool:
        """Whether it is what a turn of a loop works out for the next one, or no loop's at all."""
        if instr.opcode == "parameter":
            return not self.is_body
        if instr.opcode != "get-tuple-element" or instr.operands[0].opcode != "parameter":
            return False
        root = self.computation.root_instruction
        if root.opcode != "tuple":
            return True
        following, shape = root.operands[instr.index], instr.shape
        stays = following.opcode == instr.opcode and following.index == instr.index
        is_counter = isinstance(shape, ArrayShape) and not shape.dims and shape.dtype.is_integer
        return not stays and not is_counter


def _closure(start: Instr, *, up: bool) -> set[Instr]:
    """What an instruction needs, or what needs it."""
    found: set[Instr] = set()
    pending = [start]
    while pending:
        instr = pending.pop()
        for other in instr.operands if up else instr.users:
            if other not in found:
                found.add(other)
                pending.append(other)
    return found


def _waits(instr: Instr) -> bool:
    """Whether it is an exchange or control flow, before which others run."""
    return OPCODES[instr.opcode].has(Trait.HANDS_STATE) or OPCODES[instr.opcode].has(
        Trait.COLLECTIVE
    )
