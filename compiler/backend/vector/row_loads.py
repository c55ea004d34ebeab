"""Loads of eight word rows into the sublanes of a vreg, rows being a base plus known offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.analysis.indexing import Expr, variables
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import SUBLANE, IndexValues
from compiler.backend.vector.ops import Ops
from compiler.llo.ir import VReg

SUBLANES = 8


@dataclass(frozen=True)
class _Run:
    """Sublanes first..last-1 read word rows start + stride * (sublane - first)."""

    first: int
    last: int
    start: int
    stride: int

    def at(self, sublane: int) -> int:
        return self.start + self.stride * (sublane - self.first)


def sublane_count(word_row: Expr) -> int:
    """How many sublanes matter: the range of the sublane variable, 8 where it does not occur."""
    return max((v.high + 1 for v in variables(word_row) if v.name == "s"), default=SUBLANES)


def _runs(rows: npt.NDArray[np.int64]) -> list[_Run]:
    """Cut the offsets into as few affine runs as going left to right finds."""
    runs: list[_Run] = []
    first = 0
    while first < len(rows):
        last = first + 1
        stride = int(rows[last] - rows[first]) if last < len(rows) else 0
        while last < len(rows) and rows[last] - rows[last - 1] == stride:
            last += 1
        stride = stride if last - first > 1 else 0
        runs.append(_Run(first, last, int(rows[first]), stride))
        first = last
    return runs


class RowLoader:
    """Emits row loads."""

    def __init__(self, ops: Ops, values: IndexValues) -> None:
        self._ops = ops
        self._values = values

    def cost(self, array: VmemArray, base: Expr, rows: npt.NDArray[np.int64]) -> int:
        """Instructions that `load` emits."""
        count = 0
        for run in _runs(rows):
            whole = run.stride == 0 or self._is_inside(array, base, run) or _is_tile(base, run)
            split = _seam(base, run) is not None
            count += 1 if whole else 4 if split else 2 * (run.last - run.first)
        return count

    def load(self, array: VmemArray, base: Expr, rows: npt.NDArray[np.int64]) -> VReg:
        """Sublane i gets word row base + rows[i] (of the buffer); sublanes past `rows` anything."""
        first, *others = _runs(rows)
        result = self._load_run(array, base, first)
        for run in others:
            piece = self._load_run(array, base, run)
            result = self._ops.select(self._from_sublane(run.first), piece, result)
        return result

    def _from_sublane(self, first: int) -> int:
        return self._ops.compare_integer("ge", self._ops.sublane(), first)

    def _load_run(self, array: VmemArray, base: Expr, run: _Run) -> VReg:
        start = base + run.at(0)
        if self._is_inside(array, base, run):
            return self.strided(array, start, run.stride)
        if run.stride == 0:
            return self.strided(array, self._values.clamped(start, array.word_rows - 1), 0)
        if _is_tile(base, run):
            return self.strided(array, self._values.clamped(start, array.word_rows - 8), 1)
        seam = _seam(base, run)
        if seam is not None:
            return self._across_seam(array, start, seam)
        rows = [base + run.at(k) for k in range(run.first, run.last)]
        return self.by_sublane(array, rows, run.first)

    def _is_inside(self, array: VmemArray, base: Expr, run: _Run) -> bool:
        """Whether a load of all 8 sublanes provably stays in the buffer (and what may be read)."""
        low, high = base.range()
        ends = (run.at(0), run.at(SUBLANES - 1))
        limit = array.word_rows + array.guard
        fits = abs(run.stride) < 1 << 15
        return fits and low + min(ends) >= 0 and high + max(ends) < limit

    def _across_seam(self, array: VmemArray, start: Expr, seam: int) -> VReg:
        """Eight consecutive word rows of one column of a single-column array, tile by tile.

        Both tiles are loaded aligned (a tile that is not there is not needed), then rotated.
        """
        ops = self._ops
        top = array.word_rows - 8
        pieces = []
        for tile in (start - seam, start - seam + SUBLANES):
            whole = self.strided(array, self._values.clamped(tile, top), 1)
            pieces.append(ops.emit("vrot.slane", whole, 0, (-seam) % SUBLANES))
        return ops.select(self._from_sublane(SUBLANES - seam), pieces[1], pieces[0])

    def strided(self, array: VmemArray, start: Expr, stride: int) -> VReg:
        """One ``vld`` at a word row of the buffer."""
        row, offset = self._values.row_address(array.base, start)
        return self._ops.emit("vld", array.window, row, offset, stride)

    def by_sublane(self, array: VmemArray, rows: Sequence[Expr], first: int = 0) -> VReg:
        """Sublane first+i gets word row rows[i], limited to the buffer."""
        result = -1
        for number, row in enumerate(rows):
            inside = self._values.clamped(row, array.word_rows - 1)
            piece = self.strided(array, inside, 0)
            if result < 0:
                result = piece
            else:
                result = self._ops.select(self._from_sublane(first + number), piece, result)
        return result


def _is_tile(base: Expr, run: _Run) -> bool:
    """Whether the run reads one aligned tile, sublane by sublane."""
    phase = (base + run.at(0)) % SUBLANES
    return run.stride == 1 and phase.is_constant and phase.constant == 0


def _seam(base: Expr, run: _Run) -> int | None:
    """The known offset into a tile of a run of consecutive rows of at least three."""
    phase = (base + run.at(0)) % SUBLANES
    if run.stride != 1 or not phase.is_constant or run.last - run.first < 3:
        return None
    return phase.constant


__all__ = ["SUBLANE", "RowLoader", "sublane_count"]
