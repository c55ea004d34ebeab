"""Popped results: added up over the K slices, accumulated, stored in natural row order.

A packed lhs tile of 16 rows pops its 8 even rows, then its 8 odd rows. In f32 tiles of 8 rows the
even rows lie at stride 2, in two tiles: a strided store for each, masked to its four sublanes. With
one column of tiles the two are adjacent and one strided store does.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.backend.dot.plan import Region
from compiler.backend.dot.tiles import TILE_ROWS, TileGrid
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import MReg, SReg, VReg

_HALF_SUBLANES = 4


@dataclass(frozen=True)
class Accumulate:
    """Whether results are added to what the output holds: always, or if sreg `when` is not 0.

    `when` -1 means never.
    """

    always: bool = False
    when: SReg = -1


class ResultWriter:
    """Pops one step's results and writes them to the output tiles."""

    def __init__(
        self, b: LloBuilder, region: Region, out: TileGrid, accumulate: Accumulate
    ) -> None:
        self._b = b
        self._region = region
        self._out = out
        self._accumulate = accumulate

    @property
    def step_rows(self) -> int:
        """Output rows (of VMEM) from one step to the next."""
        return self._out.row(2 * self._region.mw, 0)

    def pops(self, pointer: SReg, offset: int, step: int, k_group: SReg) -> None:
        """Drain a step. Its tiles start `offset` steps after `pointer`; `step` is its number in the
        pass if it may be the last, else -1."""
        region = self._region
        for mu in range(region.mw):
            for nu in range(region.nw):
                even, odd = self._sums(mu, nu)
                row = offset * self.step_rows + self._out.row(2 * mu, nu)
                has_lower = step < 0 or self._has_lower_tile(step * region.mw + mu)
                for value, first in ((even, row), (odd, row + 1)):
                    self._accumulate_and_store(value, pointer, first, has_lower, k_group)

    def _has_lower_tile(self, m_tile: int) -> bool:
        """Whether the output has rows 8..15 of a 16-row tile."""
        return 2 * (self._region.m0 + m_tile) + 1 < self._out.row_tiles

    def _sums(self, mu: int, nu: int) -> tuple[VReg, VReg]:
        """Even and odd rows of one tile: the sum over the units that share its columns."""
        region = self._region
        even: list[VReg] = []
        odd: list[VReg] = []
        for ku in range(region.kw):
            unit = region.unit(mu, ku, nu)
            even.append(self._b.emit("vpop.mrf", unit))
            odd.append(self._b.emit("vpop.mrf", unit))
        return self._tree_sum(even), self._tree_sum(odd)

    def _tree_sum(self, values: list[VReg]) -> VReg:
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=False)
            added = [self._b.emit("vadd.f32", a, c) for a, c in pairs]
            values = added + values[len(added) * 2 :]
        return values[0]

    def _accumulate_and_store(
        self, value: VReg, pointer: SReg, row: int, has_lower: bool, k_group: SReg
    ) -> None:
        old = self._old_value(pointer, row, has_lower, k_group)
        if old is not None:
            value = self._b.emit("vadd.f32", old, value)
        self._store(value, pointer, row, has_lower)

    def _old_value(
        self, pointer: SReg, row: int, has_lower: bool, k_group: SReg
    ) -> VReg | None:
        """What to add a result to: the output so far, or zero if this is the first of its sum."""
        b = self._b
        if self._accumulate.always:
            return self._load(pointer, row, has_lower)
        is_later = k_group
        if self._accumulate.when >= 0:
            is_later = b.sor(k_group, self._accumulate.when)
        known = b.constant(is_later)
        if known is not None:
            return self._load(pointer, row, has_lower) if known else None
        zero = b.emit("vmovi", 0)
        mask = b.emit("vcmp.ne.s32", b.emit("vsplat", is_later), zero)
        return b.emit("vsel", mask, self._load(pointer, row, has_lower), zero)

    def _upper_sublanes(self) -> MReg:
        b = self._b
        return b.emit("vcmp.lt.s32", b.emit("vsublane"), b.emit("vmovi", _HALF_SUBLANES))

    def _lower_sublanes(self) -> MReg:
        b = self._b
        return b.emit("vcmp.ge.s32", b.emit("vsublane"), b.emit("vmovi", _HALF_SUBLANES))

    @property
    def _is_adjacent(self) -> bool:
        return self._out.col_tiles == 1

    def _lower_row(self, row: int) -> int:
        """Where sublane 0 would go for sublanes 4..7 to meet the tile below."""
        return row + self._out.row(1, 0) - TILE_ROWS

    def _load(self, pointer: SReg, row: int, has_lower: bool) -> VReg:
        b, window = self._b, self._out.window
        upper = b.emit("vld", window, pointer, row, 2)
        if self._is_adjacent or not has_lower:
            return upper
        lower = b.emit("vld", window, pointer, self._lower_row(row), 2)
        return b.emit("vsel", self._upper_sublanes(), upper, lower)

    def _store(self, value: VReg, pointer: SReg, row: int, has_lower: bool) -> None:
        b, window = self._b, self._out.window
        if self._is_adjacent and has_lower:
            b.emit("vst", window, pointer, row, 2, value)
            return
        b.emit("vst.msk", window, pointer, row, 2, value, self._upper_sublanes())
        if has_lower:
            lower = self._lower_row(row)
            b.emit("vst.msk", window, pointer, lower, 2, value, self._lower_sublanes())
