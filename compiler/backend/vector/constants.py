"""Constants inside a fusion: scalars, and arrays of one value, as immediates."""

from __future__ import annotations

import numpy as np

from compiler.backend.vector.ops import Ops, value_class
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction


def uniform_constant(node: HloInstruction) -> int | float | bool | None:
    """The value of a constant all of whose elements are equal (bit for bit), else None."""
    if node.opcode == "broadcast":
        return uniform_constant(node.operands[0])
    if node.opcode != "constant":
        return None
    literal = np.asarray(node.literal)
    flat = literal.reshape(-1)
    if not flat.size or flat.tobytes() != flat[:1].tobytes() * flat.size:
        return None
    first = flat[0]
    if literal.dtype == np.bool_:
        return bool(first)
    if value_class(node.array.dtype) == "f":
        return float(first)
    return int(first)


def emit_constant(ops: Ops, node: HloInstruction) -> int:
    """The register of a constant; UnsupportedError if its elements differ and it is not bound."""
    value = uniform_constant(node)
    if value is None:
        message = (
            f"%{node.name}: a constant with different elements inside a fusion;"
            " make it an operand of the fusion"
        )
        raise UnsupportedError(message, node.span)
    if isinstance(value, bool):
        return ops.flag(value)
    if isinstance(value, float):
        return ops.real(value)
    return ops.integer(value - (1 << 32) if value >= 1 << 31 else value)
