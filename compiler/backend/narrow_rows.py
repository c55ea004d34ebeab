"""Registers that several column tiles of an array of few rows share.

A tile of f32[3,n] has values in three of its eight sublanes. An indexed load or store holds its slot for as
long (128 cycles on v5e) however many elements matter. So it takes the rows of several tiles at a time:

    sublane   0  1  2  3  4  5  6  7
    row       0  1  2  -  0  1  2  -
    tile      0  0  0  0  1  1  1  1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.analysis.indexing import Expr, var
from compiler.analysis.tiled_layout import next_power_of_two
from compiler.backend.vector.index_values import SUBLANE
from compiler.backend.vector.ops import Ops
from compiler.llo.ir import VReg
from tpu_sim.isa.geometry import SUBLANES


@dataclass(frozen=True)
class NarrowRows:
    """How many `tiles` share a register, each with `rows` of its sublanes, a power of two."""

    rows: int
    tiles: int

    @property
    def row(self) -> Expr:
        """The row of each sublane in its tile."""
        return var(SUBLANE) % self.rows

    @property
    def tile(self) -> Expr:
        """Which of the tiles each sublane is of."""
        return var(SUBLANE) // self.rows

    def joined(self, ops: Ops, values: Sequence[VReg]) -> VReg:
        """One register of those of all tiles, each of which has every row it is asked for at its sublanes."""
        return self._chosen(ops, list(values))

    def stacked(self, ops: Ops, values: Sequence[VReg]) -> VReg:
        """One register of those of all tiles, each of which has its rows in the first sublanes."""
        return self._chosen(
            ops, [self._turned(ops, v, number * self.rows) for number, v in enumerate(values)]
        )

    def apart(self, ops: Ops, value: VReg) -> list[VReg]:
        """For each tile a register with its rows in the first sublanes; what the others hold is undefined."""
        return [
            self._turned(ops, value, SUBLANES - number * self.rows) for number in range(self.tiles)
        ]

    def total(self, ops: Ops, value: VReg, combine: Callable[[VReg, VReg], VReg]) -> VReg:
        """What all tiles have in a row, combined, in the first sublanes."""
        reach = SUBLANES // 2
        while reach >= self.rows:
            value = combine(value, self._turned(ops, value, reach))
            reach //= 2
        return value

    def _chosen(self, ops: Ops, values: list[VReg]) -> VReg:
        found = values[0]
        for number, value in enumerate(values[1:], start=1):
            is_later = ops.compare_integer("ge", ops.sublane(), number * self.rows)
            found = ops.select(is_later, value, found)
        return found

    def _turned(self, ops: Ops, value: VReg, by: int) -> VReg:
        return ops.emit("vrot.slane", value, 0, by % SUBLANES) if by % SUBLANES else value


def narrow_rows(rows: int) -> NarrowRows | None:
    """How tiles of so many rows of 32-bit numbers share a register; None where only one fits."""
    held = next_power_of_two(rows)
    return NarrowRows(held, SUBLANES // held) if 2 * held <= SUBLANES else None
