"""Loads of eight word rows into the sublanes of a vreg, rows being a base plus known offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from compiler.analysis.indexing import Expr, Var, const, variables
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import IndexValues
from compiler.backend.vector.ops import Ops
from compiler.llo.ir import VReg
from tpu_sim.isa.geometry import SUBLANES


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
    return _sublanes_of(variables(word_row))


@lru_cache(maxsize=4096)
def _sublanes_of(found: frozenset[Var]) -> int:
    return max((v.high + 1 for v in found if v.name == "s"), default=SUBLANES)


@lru_cache(maxsize=4096)
def _runs(rows: tuple[int, ...]) -> list[_Run]:
    """Cut the offsets into as few affine runs as going left to right finds."""
    runs: list[_Run] = []
    first = 0
    while first < len(rows):
        last = first + 1
        stride = rows[last] - rows[first] if last < len(rows) else 0
        while last < len(rows) and rows[last] - rows[last - 1] == stride:
            last += 1
        stride = stride if last - first > 1 else 0
        runs.append(_Run(first, last, rows[first], stride))
        first = last
    return runs


class RowLoader:
    """Emits row loads."""

    def __init__(self, ops: Ops, values: IndexValues) -> None:
        self._ops = ops
        self._values = values

    def cost(self, array: VmemArray, base: Expr, rows: tuple[int, ...]) -> int:
        """Instructions that `load` emits."""
        return sum(self._run_cost(array, base, run) for run in _runs(rows))

    def _run_cost(self, array: VmemArray, base: Expr, run: _Run) -> int:
        if run.stride == 0 or self._is_inside(array, base, run) or _is_tile(base, run):
            return 1
        return 3 if _slack(array, base, run) is not None else 2 * (run.last - run.first)

    def load(self, array: VmemArray, base: Expr, rows: tuple[int, ...]) -> VReg:
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
        limits = _slack(array, base, run)
        if limits is not None:
            return self._rotated(array, start, run.stride, *limits)
        rows = [base + run.at(k) for k in range(run.first, run.last)]
        return self.by_sublane(array, rows, run.first)

    def _is_inside(self, array: VmemArray, base: Expr, run: _Run) -> bool:
        """Whether a load of all 8 sublanes provably stays in the buffer (and what may be read)."""
        low, high = base.range()
        ends = (run.at(0), run.at(SUBLANES - 1))
        limit = array.word_rows + array.guard
        fits = abs(run.stride) < 1 << 15
        return fits and low + min(ends) >= 0 and high + max(ends) < limit

    def _rotated(
        self, array: VmemArray, start: Expr, stride: int, lowest: int, highest: int
    ) -> VReg:
        """Rows start + stride*s, of which some may lie outside the buffer and are not needed.

        The load is moved inside by a whole number of sublanes and its result rotated back.
        """
        builder = self._ops.builder
        wanted = self._values.scalar(start)
        moved = wanted
        if start.low < lowest:
            moved = builder.smax(moved, builder.sconst(lowest))
        if start.high > highest:
            moved = builder.smin(moved, builder.sconst(highest))
        row = self._values.bind("moved", lowest, highest, moved)
        word = self.strided(array, row, stride)
        amount = builder.ssrai(builder.ssub(moved, wanted), stride.bit_length() - 1)
        return self._ops.emit("vrot.slane", word, amount, 0)

    def strided(self, array: VmemArray, start: Expr, stride: int) -> VReg:
        """One ``vld`` at a word row of the buffer; of a single row of padding, the last before it."""
        if stride == 0 and start.is_constant:
            start = const(_filled_row(array, start.constant))
        last = start.range()[1] + max(stride, 0) * (SUBLANES - 1)
        if array.guard and last >= array.word_rows:
            self._ops.builder.needs_rows(array.window, array.word_rows, array.guard)
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


def _filled_row(array: VmemArray, row: int) -> int:
    """The word row, or for one of padding, which nothing may have stored to, the last before it."""
    row = max(0, min(row, array.word_rows - 1))
    filled = -(-array.rows // array.packing)
    tile = row // (SUBLANES * array.col_pitch) % array.row_pitch
    return row - max(0, tile * SUBLANES + row % SUBLANES - (filled - 1))


def _is_tile(base: Expr, run: _Run) -> bool:
    """Whether the run reads one aligned tile, sublane by sublane."""
    phase = (base + run.at(0)) % SUBLANES
    return run.stride == 1 and phase.is_constant and phase.constant == 0


def _slack(array: VmemArray, base: Expr, run: _Run) -> tuple[int, int] | None:
    """Least and greatest row, of the phase the run has, at which all 8 sublanes are inside."""
    if run.stride not in (1, 2, 4) or run.last - run.first < 3:
        return None
    phase = (base + run.at(0)) % run.stride
    highest = array.word_rows - 1 - run.stride * (SUBLANES - 1)
    if not phase.is_constant:
        return None
    highest -= (highest - phase.constant) % run.stride
    return (phase.constant, highest) if highest >= phase.constant else None
