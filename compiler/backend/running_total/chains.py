"""The chains of a block: registers one after the other along the running dimension.

A turn takes some registers of some neighbouring chains, whose own totals are worked out side by side. What
a chain has combined lies in VMEM between turns, a register each (`held`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from compiler.backend.running_total.registers import RegisterTotals
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.ops import Ops
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg, VReg
from tpu_sim.isa.geometry import SUBLANES

_CHAINS = 4
"""Neighbouring chains of a turn, where each goes on."""
_REGISTERS = 16
"""Registers of a turn: what one waits for, others do not."""
_REACH = 1 << 13
"""Rows between the registers of a turn, at most: one address reaches them."""


@dataclass(frozen=True)
class _Axis:
    """So many registers, and the rows from one to the next in the operand, the result and `held`."""

    count: int
    source: int
    result: int
    held: int

    def reaches(self, registers: int) -> bool:
        """Whether one address reaches so many."""
        return registers * max(self.source, self.result) <= _REACH


@dataclass(frozen=True)
class _Rows:
    """Where a register lies in the operand's block, the result's and `held`."""

    source: SReg
    result: SReg
    held: SReg

    def moved(self, b: LloBuilder, axis: _Axis, by: SReg) -> _Rows:
        """`by` registers further along an axis."""
        return _Rows(
            b.sadd(self.source, b.smuli(by, axis.source)),
            b.sadd(self.result, b.smuli(by, axis.result)),
            b.sadd(self.held, b.smuli(by, axis.held)),
        )


class Chains:
    """Emits the chains along dimension `axis` of a block of the operand and one of the result.

    `blocks`: registers of a block by dimension; `held`: the window of what the chains have combined.
    """

    def __init__(
        self,
        builder: LloBuilder,
        totals: RegisterTotals,
        source: VmemArray,
        result: VmemArray,
        held: int,
        blocks: Sequence[int],
        axis: int,
        *,
        is_reverse: bool,
    ) -> None:
        self._builder = builder
        self._ops = Ops(builder)
        self._totals = totals
        self._source, self._result, self._held = source, result, held
        self._is_reverse = is_reverse
        axes = _axes(source, result, blocks, axis)
        self._along = axes.pop(axis)
        *self._outer, self._beside = axes or [_Axis(1, 0, 0, 0)]

    def emit(self, first: int, end: int, elements: SReg | None = None) -> None:
        """All chains, from their `first` register to before `end`, in the order of the total.

        With `elements` a register holds no more than so many.
        """
        if first >= end:
            return
        b, beside = self._builder, self._beside
        together = max(_CHAINS, _REGISTERS // (end - first))
        if not beside.reaches(together):
            together = 1

        def chains(rows: _Rows) -> None:
            groups, rest = divmod(beside.count, together)
            with b.loop(groups, "chains") as group:
                start = rows.moved(b, beside, b.smuli(group, together))
                self._turns(start, together, first, end, elements)
            if rest:
                start = rows.moved(b, beside, b.sconst(groups * together))
                self._turns(start, rest, first, end, elements)

        self._nest(self._outer, _Rows(self._source.base, self._result.base, b.sconst(0)), chains)

    def _nest(self, axes: Sequence[_Axis], rows: _Rows, body: Callable[[_Rows], None]) -> None:
        if not axes:
            body(rows)
            return
        with self._builder.loop(axes[0].count, "chains") as index:
            self._nest(axes[1:], rows.moved(self._builder, axes[0], index), body)

    def _turns(self, rows: _Rows, chains: int, first: int, end: int, elements: SReg | None) -> None:
        """So many neighbouring chains, a turn after the other."""
        b = self._builder
        turn = max(1, _REGISTERS // chains)
        if not self._along.reaches(turn):
            turn = 1
        turns, rest = divmod(end - first, turn)
        with b.loop(turns, "turns") as index:
            self._turn(rows, chains, b.saddi(b.smuli(index, turn), first), turn, elements)
        if rest:
            self._turn(rows, chains, b.sconst(first + turns * turn), rest, elements)

    def _turn(
        self, rows: _Rows, chains: int, first: SReg, count: int, elements: SReg | None
    ) -> None:
        """`count` registers of each chain, from register `first` on."""
        b, ops, beside, along = self._builder, self._ops, self._beside, self._along
        if self._is_reverse:  # the register that lies before the others comes last
            first = b.ssub(b.sconst(along.count - count), first)
        start = rows.moved(b, along, first)
        for chain in range(chains):
            held = ops.emit("vld", self._held, start.held, chain * beside.held, 1)
            for number in range(count):
                place = count - 1 - number if self._is_reverse else number
                read = chain * beside.source + place * along.source
                written = chain * beside.result + place * along.result
                value = ops.emit("vld", self._source.window, start.source, read, 1)
                own = self._totals.within(self._kept(value, elements))
                total = self._totals.combine(held, own)
                ops.emit("vst", self._result.window, start.result, written, 1, total)
                held = self._totals.combine(held, self._totals.end(own))
            ops.emit("vst", self._held, start.held, chain * beside.held, 1, held)

    def _kept(self, value: VReg, elements: SReg | None) -> VReg:
        return value if elements is None else self._totals.kept(value, self._ops.splat(elements))


def _axes(source: VmemArray, result: VmemArray, blocks: Sequence[int], axis: int) -> list[_Axis]:
    """The dimensions of a block, in registers; a chain has one place of `held`."""
    strides = list(zip(_strides(source), _strides(result), strict=True))
    axes: list[_Axis] = []
    held = SUBLANES
    for d in reversed(range(len(blocks))):
        axes.insert(0, _Axis(blocks[d], *strides[d], held if d != axis else 0))
        held *= blocks[d] if d != axis else 1
    return axes


def _strides(array: VmemArray) -> tuple[int, ...]:
    """Rows from one register to the next along each dimension."""
    if array.shape.rank == 1:
        return (SUBLANES,)
    across = SUBLANES * array.col_pitch
    strides, step = [SUBLANES, across], across * array.row_pitch
    for pitch in reversed(array.major_pitch):
        strides.append(step)
        step *= pitch
    return tuple(reversed(strides))
