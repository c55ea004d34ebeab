"""How often a `while` runs, where that follows from its counter: ``for (i = a; i < b; i += c)``.

Scalars of the loop are followed as a loop element plus a constant, through copies, fusions and
tuples. What a value cannot be followed through makes it unknown, and with it the trip count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import ArrayShape

_SAME = frozenset({"copy", "bitcast", "reshape", "optimization-barrier"})
_SWAPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE", "EQ": "EQ"}


@dataclass(frozen=True)
class _Value:
    """Loop element `element` plus `offset`; `element` -1 for a constant."""

    element: int
    offset: int


_Path = tuple[int, ...]
_Operands = tuple[HloInstruction, ...]
_Frames = tuple[_Operands, ...]
"""Operands of the fusions a value lies in, innermost first."""


def trip_count(loop: HloInstruction) -> int | None:
    """Iterations of a ``while`` whose condition compares a counter with a constant, else None."""
    condition, body = loop.attrs["condition"], loop.attrs["body"]
    assert isinstance(condition, HloComputation) and isinstance(body, HloComputation)
    root, frames = _inside(condition.root_instruction, ())
    if root.opcode != "compare":
        return None
    left, right = (_follow(operand, (), frames) for operand in root.operands)
    direction = str(root.attrs["direction"])
    if left is None or right is None:
        return None
    left, right = _invariant(left, loop, body), _invariant(right, loop, body)
    if left is None or right is None or (left.element < 0) == (right.element < 0):
        return None
    if left.element < 0:
        left, right, direction = right, left, _SWAPPED[direction]
    first = _follow_initial(loop, left.element)
    step = _step(body, left.element)
    if first is None or step is None:
        return None
    dtype = root.operands[0].array.dtype
    least = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    most = least + (1 << dtype.bits) - 1
    return _count(first + left.offset, right.offset, step, direction, most, least)


def _count(first: int, bound: int, step: int, direction: str, most: int, least: int) -> int | None:
    """Iterations of ``for (i = first; i direction bound; i += step)`` without wrapping around."""
    if direction in ("GT", "GE"):
        first, bound, step, most = -first, -bound, -step, -least
        direction = _SWAPPED[direction]
    distance = bound - first + (direction == "LE")
    if direction == "NE":
        exact = step != 0 and distance % step == 0 and distance // step >= 0
        return distance // step if exact else None
    if direction == "EQ" or (step <= 0 and distance > 0):
        return None
    count = max(0, math.ceil(distance / step)) if distance > 0 else 0
    return count if first + count * step <= most else None


def _invariant(value: _Value, loop: HloInstruction, body: HloComputation) -> _Value | None:
    """The value, as a constant if its loop element never changes; None if nobody knows."""
    if value.element < 0 or _step(body, value.element) != 0:
        return value
    first = _follow_initial(loop, value.element)
    return None if first is None else _Value(-1, first + value.offset)


def _step(body: HloComputation, element: int) -> int | None:
    """What an iteration adds to a loop element."""
    value = _follow(body.root_instruction, (element,), ())
    return value.offset if value is not None and value.element == element else None


def _follow_initial(loop: HloInstruction, element: int) -> int | None:
    """A loop element before the first iteration."""
    value = _follow(loop.operands[0], (element,), ())
    return value.offset if value is not None and value.element < 0 else None


def _inside(instr: HloInstruction, frames: _Frames) -> tuple[HloInstruction, _Frames]:
    """What computes a value: the root of a fusion in its place, copies skipped."""
    while True:
        if instr.opcode == "fusion":
            called = instr.attrs["calls"]
            assert isinstance(called, HloComputation)
            frames = (tuple(instr.operands), *frames)
            instr = called.root_instruction
        elif instr.opcode in _SAME:
            instr = instr.operands[0]
        elif instr.opcode == "parameter" and frames:
            number = instr.attrs["parameter_number"]
            assert isinstance(number, int)
            instr, frames = frames[0][number], frames[1:]
        else:
            return instr, frames


def _follow(instr: HloInstruction, path: _Path, frames: _Frames) -> _Value | None:
    """The scalar integer at `path` of a value."""
    instr, frames = _inside(instr, frames)
    match instr.opcode:
        case "get-tuple-element":
            index = instr.attrs["index"]
            assert isinstance(index, int)
            return _follow(instr.operands[0], (index, *path), frames)
        case "tuple" if path:
            return _follow(instr.operands[path[0]], path[1:], frames)
        case "parameter" if len(path) == 1 and _is_loop_state(instr):
            return _Value(path[0], 0)
        case "constant" if not path:
            return _constant(instr)
        case "add" | "subtract" if not path:
            return _sum(instr, frames)
    return None


def _is_loop_state(parameter: HloInstruction) -> bool:
    """A parameter of the condition or the body, not of the module: an entry is never looped."""
    return not isinstance(parameter.shape, ArrayShape)


def _constant(instr: HloInstruction) -> _Value | None:
    literal = instr.attrs["literal"]
    if not isinstance(literal, np.ndarray) or literal.size != 1:
        return None
    return _Value(-1, int(literal.reshape(()))) if literal.dtype.kind in "iu" else None


def _sum(instr: HloInstruction, frames: _Frames) -> _Value | None:
    a, b = (_follow(operand, (), frames) for operand in instr.operands)
    if a is None or b is None or not instr.array.dtype.is_integer:
        return None
    if instr.opcode == "subtract":
        return _Value(a.element, a.offset - b.offset) if b.element < 0 else None
    if a.element >= 0 and b.element >= 0:
        return None
    return _Value(max(a.element, b.element), a.offset + b.offset)
