"""What a reduction's computation does: which binary operation, and whether it starts neutrally."""

from __future__ import annotations

from compiler.hlo.identities import MONOIDS, is_identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.rewrite.pattern import splat_value

_KINDS = MONOIDS - {"xor"}


def reducer_kind(computation: object, kinds: frozenset[str] = _KINDS) -> str | None:
    """The opcode of a two-parameter computation that is one commutative operation, or None.

    `kinds`: the opcodes that are of interest.
    """
    if not isinstance(computation, HloComputation) or len(computation.parameters) != 2:
        return None
    root = computation.root_instruction
    if root.opcode not in kinds or set(root.operands) != set(computation.parameters):
        return None
    return root.opcode


def has_identity_init(reduce: HloInstruction) -> bool:
    """Whether a one-operand reduce starts from its operation's identity."""
    kind = reducer_kind(reduce.attrs.get("to_apply"))
    value = splat_value(reduce.operands[-1])
    return (
        kind is not None
        and value is not None
        and is_identity(kind, reduce.operands[-1].array.dtype, value)
    )
