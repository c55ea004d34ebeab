"""When each buffer holds a value that is still needed, in positions of the running program.

The program is laid out once, a loop's condition and body between the loop's start and end:

    entry:  a   b   while-start   [condition] [body]   while-end   c

A buffer is live from the first position that writes it to the last that reads it. Loop state
is one buffer, so it is live throughout; what a body makes for itself lives inside the body.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.aliasing import Slot, SlotSets, leaf_count
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_trait

_NO_ACCESS = with_trait(Trait.FORWARDS) | {"parameter"}


@dataclass
class LiveRange:
    """Positions [start, end], both included."""

    start: int
    end: int

    def extend(self, position: int) -> None:
        """Include a position."""
        self.start = min(self.start, position)
        self.end = max(self.end, position)


class Liveness:
    """Live ranges of the buffers (sets of slots) of a scheduled module.

    `positions` are those at which each instruction runs, what it calls included.
    """

    def __init__(self, module: HloModule, sets: SlotSets) -> None:
        self._sets = sets
        self.ranges: dict[Slot, LiveRange] = {}
        self.positions: dict[HloInstruction, LiveRange] = {}
        self.length = 0
        self._walk(module.entry)
        self._touch(module.entry.root_instruction, self.length)
        for parameter in module.entry.parameters:
            self._touch(parameter, 0)
            self._touch(parameter, self.length)

    def _walk(self, computation: HloComputation) -> None:
        for instr in computation:
            start = self.length
            self.length += 1
            self.positions[instr] = LiveRange(start, start)
            if OPCODES[instr.opcode].has(Trait.HANDS_STATE):
                self._touch_all(instr, start)
                for callee in instr.called_computations():
                    self._walk(callee)
                    self._touch(callee.root_instruction, self.length)
                self.length += 1
                self._touch_all(instr, self.length - 1)
                self.positions[instr].extend(self.length - 1)
            elif instr.opcode not in _NO_ACCESS:
                self._touch_all(instr, start)
            elif instr.opcode == "parameter" and computation.module is not None:
                self._touch(instr, start)

    def _touch_all(self, instr: HloInstruction, position: int) -> None:
        self._touch(instr, position)
        for operand in instr.operands:
            self._touch(operand, position)

    def _touch(self, instr: HloInstruction, position: int) -> None:
        for leaf in range(leaf_count(instr.shape)):
            slot = self._sets.find((instr, leaf))
            if slot in self.ranges:
                self.ranges[slot].extend(position)
            else:
                self.ranges[slot] = LiveRange(position, position)
