"""Transforms of few points without butterflies: every point is a sum over all values.

The values t and n - t meet the same cosine and opposite sines, so cosines multiply their sum and
sines their difference. Eight points u of the first half lie in the sublanes; the same sums give the
points n - u. That is more arithmetic than a convolution by butterflies, but one trip through HBM.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.backend.column_blocks import ColumnPart
from compiler.backend.fourier.stage_loops import Roots
from compiler.backend.vector.ops import Ops
from compiler.hlo.fourier import direct_group
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg, VReg
from tpu_sim.isa.geometry import SUBLANES


class DirectSums:
    """Emits transforms of n points; `sign` is that of the exponent, `scale` multiplies results."""

    def __init__(self, builder: LloBuilder, roots: Roots, n: int, sign: int, scale: float) -> None:
        self._builder = builder
        self._ops = Ops(builder)
        self._roots = roots
        self._n = n
        self._sign = sign
        self._scale = scale

    def emit(
        self, units: int, unit_rows: int, source: Sequence[ColumnPart], target: Sequence[ColumnPart]
    ) -> None:
        """All units, from one block to another."""
        b, n = self._builder, self._n
        with b.loop(units, "sums", parallel=True) as unit:
            first = b.smuli(unit, unit_rows)
            with b.loop(direct_group(n) // SUBLANES, "sums") as group:
                self._points(source, target, first, b.smuli(group, SUBLANES))
            self._first_point(source, target, first)
        b.new_block()

    def _points(
        self, source: Sequence[ColumnPart], target: Sequence[ColumnPart], first: SReg, group: SReg
    ) -> None:
        """Points 1 + group .. 8 + group, and their mirror images."""
        b, n = self._builder, self._n
        even = [self._load(part, first, 0) for part in source]
        odd: list[VReg | None] = [None for _ in source]
        for t in range(1, n // 2 + 1):
            cosine, sine = (self._root(t, number, group) for number in (0, 1))
            for number, part in enumerate(source):
                total, difference = self._folded(part, first, t)
                even[number] = self._ops.fma(total, cosine, even[number])
                if difference is not None:
                    odd[number] = self._plus(odd[number], difference, sine)
        crossed = [value if value is not None else self._ops.real(0) for value in odd]
        below = b.ssub(b.sadd(first, b.sconst(n - 1)), group)
        above = b.saddi(b.sadd(first, group), 1)
        for row, step, sign in ((below, -1, -self._sign), (above, 1, self._sign)):
            for place, word in zip(target, self._turned(even, crossed, sign), strict=False):
                base = b.sadd(place.base, row)
                self._ops.emit("vst", place.window, base, 0, step, self._scaled(word))

    def _first_point(
        self, source: Sequence[ColumnPart], target: Sequence[ColumnPart], first: SReg
    ) -> None:
        """The sum of all values, one row for all sublanes."""
        ops, b = self._ops, self._builder
        words = []
        for part in source:
            total = self._load(part, first, 0)
            for t in range(1, self._n // 2 + 1):
                total = ops.add(total, self._folded(part, first, t)[0])
            words.append(total)
        words += [ops.real(0)] * (len(target) - len(words))
        mask = ops.emit("vcmp.lt.s32", ops.sublane(), ops.integer(1))
        for place, word in zip(target, words, strict=False):
            base = b.sadd(place.base, first)
            ops.emit("vst.msk", place.window, base, 0, 1, self._scaled(word), mask)

    def _scaled(self, word: VReg) -> VReg:
        return word if self._scale == 1 else self._ops.mul_real(word, self._scale)

    def _load(self, part: ColumnPart, first: SReg, t: int) -> VReg:
        """Value t in all sublanes."""
        base = self._builder.sadd(part.base, first)
        return self._ops.emit("vld", part.window, base, t, 0)

    def _root(self, t: int, number: int, group: SReg) -> VReg:
        """Cosines (0) or sines (1) of eight points."""
        row = ((t - 1) * 2 + number) * direct_group(self._n)
        return self._ops.emit("vld", self._roots.window, group, row, 1)

    def _folded(self, part: ColumnPart, first: SReg, t: int) -> tuple[VReg, VReg | None]:
        """Sum and difference of the values t and n - t; a value that is its own mirror image."""
        here, ops = self._load(part, first, t), self._ops
        if 2 * t == self._n:
            return here, None
        there = self._load(part, first, self._n - t)
        return ops.add(here, there), ops.sub(here, there)

    def _plus(self, held: VReg | None, value: VReg, weight: VReg) -> VReg:
        ops = self._ops
        return ops.mul(value, weight) if held is None else ops.fma(value, weight, held)

    def _turned(self, even: Sequence[VReg], odd: Sequence[VReg], sign: int) -> tuple[VReg, VReg]:
        """``even + sign i odd``."""
        ops = self._ops
        if len(even) == 1:
            return even[0], odd[0] if sign > 0 else ops.negate(odd[0])
        add, sub = (ops.add, ops.sub) if sign > 0 else (ops.sub, ops.add)
        return sub(even[0], odd[1]), add(even[1], odd[0])
