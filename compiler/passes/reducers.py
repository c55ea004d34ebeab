"""What a reduction's computation does: which binary operation, and its identity element."""

from __future__ import annotations

import numpy as np

from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.rewrite.pattern import splat_value

_KINDS = frozenset({"add", "multiply", "maximum", "minimum", "and", "or"})


def reducer_kind(computation: object) -> str | None:
    """The opcode of a two-parameter computation that is one commutative operation, or None."""
    if not isinstance(computation, HloComputation) or len(computation.parameters) != 2:
        return None
    root = computation.root_instruction
    if root.opcode not in _KINDS or set(root.operands) != set(computation.parameters):
        return None
    return root.opcode


def is_identity(kind: str, dtype: DType, value: np.generic) -> bool:
    """Whether ``op(value, x) == x`` for every x of the type (0.0 counts for floating add)."""
    match kind:
        case "add" | "or":
            return bool(value == 0)
        case "multiply":
            return bool(value == 1)
        case "and":
            return bool(value) if dtype.kind == "pred" else bool(value == -1)
    return bool(value == extreme(kind, dtype))


def extreme(kind: str, dtype: DType) -> float | int:
    """The identity of maximum or minimum: the least or greatest value of the type."""
    sign = -1 if kind == "maximum" else 1
    if dtype.is_float:
        return sign * _greatest(dtype)
    if dtype.kind == "pred":
        return 0 if kind == "maximum" else 1
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    high = (1 << (dtype.bits - dtype.is_signed)) - 1
    return low if kind == "maximum" else high


def _greatest(dtype: DType) -> float:
    """Infinity, or the greatest value of a float type without one (8-bit "fn" types and such)."""
    with np.errstate(all="ignore"):
        infinity = float(np.asarray(np.inf).astype(dtype.numpy))
    if infinity == np.inf:
        return infinity
    codes = np.arange(1 << dtype.bits, dtype=np.uint8)
    return float(np.nanmax(codes.view(dtype.numpy).astype(np.float32)))


def has_identity_init(reduce: HloInstruction) -> bool:
    """Whether a one-operand reduce starts from its operation's identity."""
    kind = reducer_kind(reduce.attrs.get("to_apply"))
    value = splat_value(reduce.operands[-1])
    return (
        kind is not None
        and value is not None
        and is_identity(kind, reduce.operands[-1].array.dtype, value)
    )
