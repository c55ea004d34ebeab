"""When two fusions are one kernel: equal structure, shapes, layouts and windows, whatever the names.

Keys are plain nested tuples, compared by value, so a collision cannot merge different kernels.
"""

from __future__ import annotations

import numpy as np

from compiler.hlo.ir import HloComputation, HloInstruction

Key = tuple[object, ...]

_IGNORED = frozenset(
    {"metadata", "frontend_attributes", "sharding", "control-predecessors", "backend_config"}
)


def computation_key(computation: HloComputation) -> Key:
    """The structure of a computation, called computations included."""
    number = {instr: i for i, instr in enumerate(computation)}
    rows = tuple(
        (
            instr.opcode,
            instr.shape,
            tuple(number[o] for o in instr.operands),
            _attributes_key(instr),
        )
        for instr in computation
    )
    return (rows, number[computation.root_instruction])


def _attributes_key(instr: HloInstruction) -> Key:
    return tuple(
        (name, _value_key(value))
        for name, value in sorted(instr.attrs.items())
        if name not in _IGNORED
    )


def _value_key(value: object) -> object:
    if isinstance(value, HloComputation):
        return computation_key(value)
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, tuple):
        return tuple(_value_key(v) for v in value)
    return value
