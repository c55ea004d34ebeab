"""How often a `while` runs, where that follows from its counter: ``for (i = a; i < b; i += c)``.

Scalars of the loop are followed as a loop element plus a constant, through copies, fusions and
tuples. What a value cannot be followed through makes it unknown, and with it the trip count.

Counters wrap around: an u8 that starts at 250 and counts up while it is not 3 runs nine times. The
values for which a condition fails are a run of neighbours on the circle of 2^bits numbers, so a
trip count is the first number of steps that lands there, which a Euclidean algorithm finds exactly.

A trip count that the input claims (``known_trip_count``) serves estimates only; what changes a loop
asks `trip_count`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.analysis.window_config import read_config, write_config
from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape

KEY = "known_trip_count"
UNKNOWN_TRIPS = 10
"""Counted for a loop whose trips depend on data, as `tpuc estimate` does unless told (assumed)."""
_MOST_DIGITS = 20
"""Of a number in a text: any 64-bit count has no more, and Python reads longer ones slowly."""
_MOST_TRIPS = (1 << 31) - 1
"""What a scalar register can count to."""
_SAME = with_trait(Trait.REARRANGES) | {"opt-barrier"}
_SWAPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE", "EQ": "EQ"}


@dataclass(frozen=True)
class _Value:
    """Loop element `element` plus `offset`, wrapped around; `element` -1 for a constant."""

    element: int
    offset: int


_Path = tuple[int, ...]
_Operands = tuple[HloInstruction, ...]
Frames = tuple[_Operands, ...]
"""Operands of the fusions a value lies in, innermost first."""


def expected_trips(loop: HloInstruction) -> int | None:
    """Iterations for an estimate: what the loop's counter says, else what its config claims."""
    found = trip_count(loop)
    if found is not None:
        return min(found, _MOST_TRIPS)
    claim = read_config(loop).get(KEY)
    if claim is None:
        return None
    text = str(claim.get("n")) if isinstance(claim, dict) else str(claim)
    if not text.isascii() or not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise CompileError(f"%{loop.name}: {KEY} wants a number of trips; found {text}", loop.span)
    return min(int(text), _MOST_TRIPS)


def note_trip_count(loop: HloInstruction, count: int) -> bool:
    """Write a trip count into the config, as XLA does; return whether it was not there."""
    config, wanted = read_config(loop), {"n": str(count)}
    if config.get(KEY) == wanted:
        return False
    write_config(loop, {**config, KEY: wanted})
    return True


def trip_count(loop: HloInstruction) -> int | None:
    """Iterations of a ``while`` whose condition compares a counter with a constant.

    None when that is not known, or when it never ends.
    """
    condition, body = loop.condition, loop.body
    root, frames = inside(condition.root_instruction, ())
    if root.opcode == "constant":
        return None if root.literal.all() else 0
    if root.opcode != "compare" or not root.operands[0].array.dtype.is_integer:
        return None
    left, right = (_follow(operand, (), frames) for operand in root.operands)
    direction = root.direction
    if left is None or right is None:
        return None
    left, right = _invariant(left, loop, body), _invariant(right, loop, body)
    if left is None or right is None:
        return None
    if left.element < 0:
        left, right, direction = right, left, _SWAPPED[direction]
    if right.element >= 0:
        return None
    first = _follow_initial(loop, left.element) if left.element >= 0 else 0
    step = _step(body, left.element) if left.element >= 0 else 0
    if first is None or step is None:
        return None
    dtype = root.operands[0].array.dtype
    return count_trips(first + left.offset, right.offset, step, direction, dtype)


def counts_up(loop: HloInstruction, element: int) -> bool:
    """Whether a scalar of a loop's state is the number of the trip, from 0 on."""
    return _follow_initial(loop, element) == 0 and _step(loop.body, element) == 1


def is_counter(body: HloComputation, element: int) -> bool:
    """Whether each turn adds the same number to a scalar of a loop's state."""
    return _step(body, element) is not None


def count_trips(first: int, bound: int, step: int, direction: str, dtype: DType) -> int | None:
    """Iterations of ``for (i = first; i direction bound; i += step)`` in wrapping arithmetic.

    None when the condition never fails.
    """
    size = 1 << dtype.bits
    least = -(size >> 1) if dtype.is_signed else 0
    first, bound = (first - least) % size, (bound - least) % size
    start, length = {
        "LT": (bound, size - bound),
        "LE": (bound + 1, size - bound - 1),
        "GT": (0, bound + 1),
        "GE": (0, bound),
        "NE": (bound, 1),
        "EQ": (bound + 1, size - 1),
    }[direction]  # where the condition fails
    low = (start - first) % size
    if length == 0:
        return None
    if low == 0 or low + length > size:
        return 0  # `first` is among them
    return _first_multiple(step % size, size, low, low + length - 1)


def _first_multiple(step: int, size: int, low: int, high: int) -> int | None:
    """The least k with low <= k * step mod size <= high, for 0 <= low <= high < size."""
    if low == 0:
        return 0
    if step == 0:
        return None
    count = -(-low // step)
    if count * step <= high:
        return count
    # k * step - turns * size is in the range: so is turns * size mod step in its mirror image.
    turns = _first_multiple(size % step, step, -high % step, -low % step)
    return None if turns is None else -(-(low + size * turns) // step)


def _invariant(value: _Value, loop: HloInstruction, body: HloComputation) -> _Value | None:
    """The value, as a constant if its loop element never changes; None if nobody knows."""
    if value.element < 0 or _step(body, value.element) != 0:
        return value
    first = _follow_initial(loop, value.element)
    return None if first is None else _Value(-1, first + value.offset)


def _step(body: HloComputation, element: int) -> int | None:
    """What an iteration adds to a loop element, perhaps by wrapping around."""
    value = _follow(body.root_instruction, (element,), ())
    return value.offset if value is not None and value.element == element else None


def _follow_initial(loop: HloInstruction, element: int) -> int | None:
    """A loop element before the first iteration."""
    value = _follow(loop.operands[0], (element,), ())
    return value.offset if value is not None and value.element < 0 else None


def inside(instr: HloInstruction, frames: Frames) -> tuple[HloInstruction, Frames]:
    """What computes a value: the root of a fusion in its place, copies skipped."""
    while True:
        if instr.opcode == "fusion":
            called = instr.calls
            frames = (tuple(instr.operands), *frames)
            instr = called.root_instruction
        elif instr.opcode in _SAME:
            instr = instr.operands[0]
        elif instr.opcode == "parameter" and frames:
            instr, frames = frames[0][instr.parameter_number], frames[1:]
        else:
            return instr, frames


def _follow(instr: HloInstruction, path: _Path, frames: Frames) -> _Value | None:
    """The scalar integer at `path` of a value."""
    instr, frames = inside(instr, frames)
    match instr.opcode:
        case "get-tuple-element":
            return _follow(instr.operands[0], (instr.index, *path), frames)
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
    literal = instr.literal
    if not isinstance(literal, np.ndarray) or literal.size != 1:
        return None
    return _Value(-1, int(literal.reshape(()))) if instr.array.dtype.is_integer else None


def _sum(instr: HloInstruction, frames: Frames) -> _Value | None:
    a, b = (_follow(operand, (), frames) for operand in instr.operands)
    if a is None or b is None or not instr.array.dtype.is_integer:
        return None
    if instr.opcode == "subtract":
        return _Value(a.element, a.offset - b.offset) if b.element < 0 else None
    if a.element >= 0 and b.element >= 0:
        return None
    return _Value(max(a.element, b.element), a.offset + b.offset)
