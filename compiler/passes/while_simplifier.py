"""While simplifier: what is known about a loop before it runs.

A scalar constant that a loop carries without changing is used directly by its body and
condition. A loop that counts from one constant to another gets its trip count as
``backend_config={"known_trip_count":{"n":"24"}}``, as in XLA.
"""

from __future__ import annotations

import json

import numpy as np

from compiler.analysis.call_graph import control_computations
from compiler.analysis.window_config import read_config
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.rewrite.graph import clone, remove_dead

_MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def simplify_whiles(module: HloModule, context: PassContext) -> bool:
    """Simplify and annotate all loops."""
    for computation in control_computations(module):
        for instr in list(computation):
            if instr.opcode != "while" or instr.operands[0].opcode != "tuple":
                continue
            if _callers(module, instr) == 1:
                context.counts["constants"] += _propagate_constants(instr)
            count = trip_count(instr)
            if count is not None and _annotate(instr, count):
                context.counts["trip counts"] += 1
    return bool(context.counts["constants"] or context.counts["trip counts"])


def _callers(module: HloModule, loop: HloInstruction) -> int:
    """How many instructions call the loop's body."""
    body = loop.attrs["body"]
    return sum(body in i.called_computations() for c in control_computations(module) for i in c)


def _parts(loop: HloInstruction) -> tuple[HloComputation, HloComputation, list[HloInstruction]]:
    condition, body = loop.attrs["condition"], loop.attrs["body"]
    assert isinstance(condition, HloComputation)
    assert isinstance(body, HloComputation)
    return condition, body, loop.operands[0].operands


def _elements(computation: HloComputation, index: int) -> list[HloInstruction]:
    return [
        user
        for user in computation.parameters[0].users
        if user.opcode == "get-tuple-element" and user.attrs["index"] == index
    ]


def _is_invariant(body: HloComputation, index: int) -> bool:
    root = body.root_instruction
    return root.opcode == "tuple" and root.operands[index] in _elements(body, index)


def _propagate_constants(loop: HloInstruction) -> int:
    condition, body, initial = _parts(loop)
    replaced = 0
    for index, value in enumerate(initial):
        if value.opcode != "constant" or value.array.dims or not _is_invariant(body, index):
            continue
        kept = body.root_instruction.operands[index]
        for computation in (condition, body):
            for element in _elements(computation, index):
                users = [u for u in element.users if u is not body.root]
                if not users:
                    continue
                constant = clone(value, computation, ())
                for user in users:
                    user.set_operands([constant if o is element else o for o in user.operands])
                replaced += 1
                if element is not kept:
                    remove_dead(element)
            computation.sort()
    return replaced


def trip_count(loop: HloInstruction) -> int | None:
    """How often the body runs, when a counter goes from a constant by a constant to one."""
    condition, body, initial = _parts(loop)
    test = condition.root_instruction
    if test.opcode != "compare" or body.root_instruction.opcode != "tuple":
        return None
    left, right = test.operands
    direction = str(test.attrs["direction"])
    if _scalar(left) is not None:
        left, right, direction = right, left, _MIRRORED.get(direction, direction)
    bound = _scalar(right)
    if bound is None or left.opcode != "get-tuple-element" or direction not in _MIRRORED:
        return None
    index = left.attrs["index"]
    assert isinstance(index, int)
    start, step = _scalar(initial[index]), _step(body, index)
    if start is None or not step:
        return None
    return _count(start, bound, step, direction)


def _count(start: int, bound: int, step: int, direction: str) -> int | None:
    """Number of values start, start + step, .. for which the comparison with bound holds."""
    if direction in ("GT", "GE"):
        start, bound, step = -start, -bound, -step
    distance = bound - start + (direction in ("LE", "GE"))
    if distance <= 0:
        return 0
    return -(-distance // step) if step > 0 else None


def _step(body: HloComputation, index: int) -> int | None:
    """The constant added to element `index` in each iteration."""
    value = body.root_instruction.operands[index]
    elements = _elements(body, index)
    if value.opcode not in ("add", "subtract"):
        return None
    left, right = value.operands
    if value.opcode == "subtract":
        step = _scalar(right)
        return -step if step is not None and left in elements else None
    if left in elements:
        return _scalar(right)
    return _scalar(left) if right in elements else None


def _scalar(instr: HloInstruction) -> int | None:
    literal = instr.attrs.get("literal")
    is_number = isinstance(literal, np.ndarray) and literal.ndim == 0
    if not is_number or not instr.array.dtype.is_integer:
        return None
    assert isinstance(literal, np.ndarray)
    return int(literal)


def _annotate(loop: HloInstruction, count: int) -> bool:
    """Write the trip count into the backend_config; return whether that is news."""
    config = read_config(loop)
    wanted = {"n": str(count)}
    if config.get("known_trip_count") == wanted:
        return False
    config["known_trip_count"] = wanted
    loop.attrs["backend_config"] = json.dumps(config, separators=(",", ":"))
    return True
