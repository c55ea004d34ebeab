"""Keys of instructions and computations: equal for equal meaning, whatever the names."""

from __future__ import annotations

import numpy as np

from compiler.hlo.ir import HloComputation, HloInstruction

_IGNORED = frozenset({"metadata", "frontend_attributes"})


def attribute_key(value: object) -> object:
    """A hashable stand-in for an attribute value (arrays by content, computations by name)."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, HloComputation):
        return ("computation", value.name)
    if isinstance(value, tuple):
        return tuple(attribute_key(v) for v in value)
    return value


def local_key(instr: HloInstruction) -> tuple[object, ...]:
    """What an instruction is apart from its operands: opcode, shape, attributes."""
    if not instr.attrs:
        return (instr.opcode, instr.shape)
    attrs = tuple(
        (name, attribute_key(value))
        for name, value in sorted(instr.attrs.items())
        if name not in _IGNORED
    )
    return (instr.opcode, instr.shape, attrs)


def body_key(computation: HloComputation) -> tuple[object, ...]:
    """What a computation computes, as a value: its instructions in order, operands by position."""
    number = {instr: i for i, instr in enumerate(computation)}
    rows = tuple(
        (local_key(instr), tuple(number[o] for o in instr.operands)) for instr in computation
    )
    return (rows, number[computation.root_instruction])
