"""Compare and exchange: pairs of elements that lie in vregs, of one array or of several.

An element is a vreg of each array; the first arrays are the keys, in their order, signed words. Of two
elements that are equal in all keys nothing is exchanged.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.backend.vector.ops import Ops
from compiler.llo.ir import MReg, VReg

Element = list[VReg]
"""A vreg of each array, keys first."""


class Exchanger:
    """Emits exchanges of elements whose first `keys` arrays are compared."""

    def __init__(self, ops: Ops, keys: int) -> None:
        self._ops = ops
        self._keys = keys

    def ordered(self, a: Element, b: Element) -> tuple[Element, Element]:
        """The lesser and the greater of two, lane by lane."""
        ops = self._ops
        low, high = ops.emit("vmin.s32", a[0], b[0]), ops.emit("vmax.s32", a[0], b[0])
        if len(a) == 1:
            return [low], [high]
        swaps = self._is_less(b, a)
        lows = [ops.emit("vsel", swaps, y, x) for x, y in zip(a[1:], b[1:], strict=True)]
        highs = [ops.emit("vsel", swaps, x, y) for x, y in zip(a[1:], b[1:], strict=True)]
        return [low, *lows], [high, *highs]

    def across(self, a: Element, partner: VReg, is_upper: MReg) -> Element:
        """What each lane keeps: the lesser of its element and that of lane `partner`, or the greater."""
        ops = self._ops
        others = [ops.emit("vperm.lane", word, partner) for word in a]
        if len(a) == 1:
            low = ops.emit("vmin.s32", a[0], others[0])
            return [ops.emit("vsel", is_upper, ops.emit("vmax.s32", a[0], others[0]), low)]
        takes = ops.emit("mxor", self._is_less(others, a), is_upper)
        return [ops.emit("vsel", takes, y, x) for x, y in zip(a, others, strict=True)]

    def _is_less(self, a: Sequence[VReg], b: Sequence[VReg]) -> MReg:
        ops = self._ops
        last = self._keys - 1
        less = ops.emit("vcmp.lt.s32", a[last], b[last])
        for key in reversed(range(last)):
            is_tie = ops.emit("vcmp.eq.s32", a[key], b[key])
            is_before = ops.emit("vcmp.lt.s32", a[key], b[key])
            less = ops.emit("mor", is_before, ops.emit("mand", is_tie, less))
        return less
