"""Starts of loops that nothing reads: stacks of which the loop writes every slab before anything looks at it.

    ys = f32[1000,8,256] broadcast(0)
    while ... ys = dynamic-update-slice(ys, y, i, 0, 0)    for i = 0 .. 999, or 999 .. 0

What the loop hands on is what it wrote, whatever was there: the start has a place, and no kernel makes it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compiler.analysis.fusion_body import fusion_body
from compiler.analysis.loop_stacks import written_window
from compiler.analysis.trip_count import Frames, counts_up, inside, trip_count
from compiler.analysis.value_range import type_range
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape

_MOST_TRIPS = 1 << 20
"""Of a loop whose places are worked out, one by one."""

Numbers = npt.NDArray[np.int64]


def is_unread(value: HloInstruction) -> bool:
    """Whether nothing reads what an instruction that could be left out makes, but loops that overwrite it."""
    if value.opcode == "fusion":
        if fusion_body(value).carried or not isinstance(value.shape, ArrayShape):
            return False
    elif value.opcode != "copy":
        return False
    is_result = value.computation is not None and value.computation.root is value
    return not is_result and bool(value.users) and all(_overwrites(u, value) for u in value.users)


def _overwrites(user: HloInstruction, value: HloInstruction) -> bool:
    if user.opcode == "copy":
        return is_unread(user)
    if user.opcode != "tuple" or any(loop.opcode != "while" for loop in user.users):
        return False
    places = [n for n, o in enumerate(user.operands) if o is value]
    return bool(user.users) and all(is_overwritten(loop, n) for loop in user.users for n in places)


def is_overwritten(loop: HloInstruction, index: int) -> bool:
    """Whether a loop writes every slab of element `index` of its state, and reads nothing of it."""
    condition, body = loop.condition, loop.body
    root = body.root_instruction
    if root.opcode != "tuple" or index >= len(root.operands):
        return False
    states = (condition.parameters[0], body.parameters[0])
    if any(u.opcode != "get-tuple-element" for state in states for u in state.users):
        return False
    if any(u.index == index for u in condition.parameters[0].users):
        return False
    held = [u for u in body.parameters[0].users if u.index == index]
    writer = root.operands[index]
    if len(held) != 1 or list(held[0].users) != [writer] or writer.opcode != "fusion":
        return False
    if list(writer.users) != [root] or root.operands.count(writer) != 1:
        return False
    return _writes_all(loop, writer, held[0])


def _writes_all(loop: HloInstruction, writer: HloInstruction, whole: HloInstruction) -> bool:
    window = written_window(writer)
    if window is None or writer.operands.count(whole) != 1:
        return False
    if writer.operands[window.node.parameter_number] is not whole:
        return False
    count, *rest = whole.array.dims
    trips = trip_count(loop)
    if window.extent != (1, *rest) or trips is None or not count <= trips <= _MOST_TRIPS:
        return False
    start = writer.calls.root_instruction.operands[2]
    numbers = np.arange(trips, dtype=np.int64)
    places = _places(start, (tuple(writer.operands),), loop, numbers)
    if places is None:
        return False
    return len(np.unique(np.clip(places, 0, count - 1))) == count


def _places(
    value: HloInstruction, frames: Frames, loop: HloInstruction, numbers: Numbers
) -> Numbers | None:
    """A scalar of the body in all trips, which `numbers` count; None if nobody knows."""
    value, frames = inside(value, frames)
    if not isinstance(value.shape, ArrayShape) or not value.array.dtype.is_integer:
        return None
    if value.opcode == "get-tuple-element":
        is_state = value.operands[0] is loop.body.parameters[0]
        return numbers if is_state and counts_up(loop, value.index) else None
    if value.opcode == "constant":
        return np.full_like(numbers, int(value.literal.reshape(())))
    if value.opcode == "add" or value.opcode == "subtract":
        left, right = (_places(o, frames, loop, numbers) for o in value.operands)
        if left is None or right is None:
            return None
        made = left + right if value.opcode == "add" else left - right
        return made if _fits(made, value) else None
    return None


def _fits(made: Numbers, value: HloInstruction) -> bool:
    """Whether nothing wraps around."""
    least, most = type_range(value.array.dtype)
    return bool(least <= made.min() and made.max() <= most)
