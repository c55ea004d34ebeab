"""Fresh virtual registers of a kernel: names that no operation of it uses."""

from __future__ import annotations

from compiler.llo.ir import LloBlock, LloKernel
from compiler.llo.op_table import OpInfo
from tpu_sim.isa.control_flow import Loop, walk


class RegisterNames:
    """The highest name of each register file ("v", "m", "s"), and names above it."""

    def __init__(self, kernel: LloKernel, table: dict[str, OpInfo]) -> None:
        highest = self._highest = {"v": -1, "m": -1, "s": 0}
        for node in walk(kernel.body):
            if isinstance(node, Loop):
                highest["s"] = max(highest["s"], node.index)
            elif isinstance(node, LloBlock):
                for instr in node.ops:
                    letter = table[instr.row.name].defines
                    if letter and instr.operands[0] > highest[letter]:
                        highest[letter] = instr.operands[0]

    def fresh(self, letter: str) -> int:
        """A name not in use."""
        self._highest[letter] += 1
        return self._highest[letter]
