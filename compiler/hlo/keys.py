"""Equal keys for what is equal, whatever the names; and a fingerprint that sees every edit.

Keys are plain nested tuples, compared by value, so a collision cannot merge what differs.
"""

from __future__ import annotations

import numpy as np

from compiler.hlo.ir import HloComputation, HloInstruction

Key = tuple[object, ...]

NOTES = frozenset({"metadata", "frontend_attributes"})
"""Attributes that say nothing of what is computed."""
_PLACES = NOTES | {"sharding", "control-predecessors", "backend_config"}
"""Nor do these of how a kernel computes it."""


def computation_key(computation: HloComputation, ignored: frozenset[str] = _PLACES) -> Key:
    """What a computation computes: its instructions in order, called computations included."""
    number = {instr: i for i, instr in enumerate(computation)}
    rows = [
        (instruction_key(instr, ignored), tuple([number[o] for o in instr.operands]))
        for instr in computation
    ]
    return (tuple(rows), number[computation.root_instruction])


def instruction_key(instr: HloInstruction, ignored: frozenset[str] = NOTES) -> Key:
    """What an instruction is apart from its operands: opcode, shape, attributes."""
    if not instr.attrs:
        return (instr.opcode, instr.shape, ())
    attrs = [
        (name, _value_key(value, ignored))
        for name, value in sorted(instr.attrs.items())
        if name not in ignored
    ]
    return (instr.opcode, instr.shape, tuple(attrs))


def _value_key(value: object, ignored: frozenset[str]) -> object:
    if isinstance(value, HloComputation):
        return computation_key(value, ignored)
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, tuple):
        return tuple(_value_key(v, ignored) for v in value)
    return value


def computation_hash(computation: HloComputation) -> int:
    """Tells within this process whether a pass changed anything, names and order included."""
    seen: dict[int, int] = {}
    rows: list[object] = [computation.name, computation.root]
    append = rows.append
    for instr in computation.instructions:
        shape_id = id(instr.shape)
        shape_hash = seen.get(shape_id)
        if shape_hash is None:
            shape_hash = seen[shape_id] = hash(instr.shape)
        append((instr.name, instr.opcode, shape_hash, *instr.operands))
        if instr.attrs:
            append(_attrs_hash(instr.attrs, seen))
    return hash(tuple(rows))


def _attrs_hash(attrs: dict[str, object], seen: dict[int, int]) -> int:
    rows: list[object] = []
    for name, value in attrs.items():
        if type(value) is int or type(value) is str:
            rows.append((name, value))
            continue
        value_id = id(value)
        found = seen.get(value_id)
        if found is None:
            found = seen[value_id] = _value_hash(value)
        rows.append((name, found))
    return hash(tuple(rows))


def _value_hash(value: object) -> int:
    if isinstance(value, np.ndarray):
        return hash((value.dtype, value.shape, value.tobytes()))
    if isinstance(value, tuple) and any(isinstance(v, np.ndarray | tuple) for v in value):
        return hash(tuple(_value_hash(v) for v in value))
    return hash(value)
