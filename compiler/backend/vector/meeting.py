"""What crosses the sublanes and lanes of registers: eight registers into one, and positions that have
the same key bring what they have together, by rotations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compiler.backend.vector.ops import Ops
from compiler.backend.vector.reducers import Reducer
from compiler.llo.ir import MReg, VReg

_PARTIAL = 4
"""Sums of rotated registers that are under way at once."""


def neutral_of(ops: Ops, reducer: Reducer) -> VReg:
    """What changes nothing: for a sum of floats the zero that keeps the other one's sign."""
    is_sum = reducer.monoid == "add" and reducer.dtypes[0].is_float
    return ops.integer(-(1 << 31) if is_sum else reducer.identity_bits())


def brought_together(
    ops: Ops,
    reducer: Reducer,
    key: VReg,
    values: Sequence[VReg],
    turns: Iterable[tuple[int, int]],
) -> list[VReg]:
    """Of each of `values` (registers of 32-bit words), at every position: its own word combined with
    those that lie `turns` (lanes, sublanes) away and have the same key."""
    neutral = neutral_of(ops, reducer)
    sums = [[value] for value in values]
    for count, turn in enumerate(turns, start=1):
        same = ops.compare("eq", "s32", key, _turned(ops, key, turn))
        for value, partial in zip(values, sums, strict=True):
            _meet(ops, reducer, partial, count, same, _turned(ops, value, turn), neutral)
    return [_total(ops, reducer, partial) for partial in sums]


def by_sublanes(ops: Ops, values: Sequence[VReg]) -> VReg:
    """Sublane k of the k-th of eight registers, side by side."""
    made = list(values)
    for bit in (1, 2, 4):
        is_odd = ops.compare_integer("ne", ops.emit("vandi", ops.sublane(), bit), 0)
        made = [ops.select(is_odd, b, a) for a, b in zip(made[::2], made[1::2], strict=True)]
    return made[0]


def _turned(ops: Ops, value: VReg, turn: tuple[int, int]) -> VReg:
    lanes, sublanes = turn
    value = ops.emit("vrot.lane", value, 0, lanes) if lanes else value
    return ops.emit("vrot.slane", value, 0, sublanes) if sublanes else value


def _meet(
    ops: Ops,
    reducer: Reducer,
    partial: list[VReg],
    count: int,
    same: MReg,
    brought: VReg,
    neutral: VReg,
) -> None:
    meets = ops.select(same, brought, neutral)
    if count < _PARTIAL:
        partial.append(meets)
        return
    place = count % _PARTIAL
    partial[place] = reducer.combine(ops, [partial[place]], [meets])[0]


def _total(ops: Ops, reducer: Reducer, partial: list[VReg]) -> VReg:
    while len(partial) > 1:
        last = partial.pop()
        partial[0] = reducer.combine(ops, [partial[0]], [last])[0]
    return partial[0]
