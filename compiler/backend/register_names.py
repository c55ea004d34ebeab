"""Fresh virtual registers of a kernel: names that no operation of it uses."""

from __future__ import annotations

from compiler.backend.op_table import OpInfo
from compiler.llo.ir import LloBlock, LloIf, LloKernel, LloLoop, LloNode, LloWhile


class RegisterNames:
    """The highest name of each register file ("v", "m", "s"), and names above it."""

    def __init__(self, kernel: LloKernel, table: dict[str, OpInfo]) -> None:
        self._highest = {"v": -1, "m": -1, "s": 0}
        self._skip(kernel.body, table)

    def fresh(self, letter: str) -> int:
        """A name not in use."""
        self._highest[letter] += 1
        return self._highest[letter]

    def _skip(self, body: list[LloNode], table: dict[str, OpInfo]) -> None:
        for node in body:
            match node:
                case LloBlock():
                    for instr in node.ops:
                        letter = table[instr.row.name].defines
                        if letter and instr.operands[0] > self._highest[letter]:
                            self._highest[letter] = instr.operands[0]
                case LloLoop():
                    self._highest["s"] = max(self._highest["s"], node.index)
                    self._skip(node.body, table)
                case LloIf():
                    self._skip(node.then, table)
                    self._skip(node.orelse, table)
                case LloWhile():
                    self._skip(node.test, table)
                    self._skip(node.body, table)
