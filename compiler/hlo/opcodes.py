"""The opcode table: every opcode of XLA's HLO, and the few that passes make.

An opcode is declared once, in its family's file in `compiler.hlo.ops`: arity, shape rule, traits and
attributes. Parser, printer, verifier, builder and shape inference read the declaration; the evaluator
has a handler of each. Passes ask for traits (`OPCODES[op].has(Trait.ELEMENTWISE)`).
"""

from __future__ import annotations

from compiler.hlo.ir import HloInstruction
from compiler.hlo.ops import (
    collective,
    contraction,
    control,
    elementwise,
    indexing,
    movement,
    reduction,
)
from compiler.hlo.ops.declaration import Op as Op
from compiler.hlo.ops.declaration import Trait as Trait

_FAMILIES = (elementwise, movement, indexing, contraction, reduction, control, collective)

OPCODES: dict[str, Op] = {op.name: op for family in _FAMILIES for op in family.OPS}


def with_trait(trait: Trait) -> frozenset[str]:
    """The names of all opcodes that have the given traits."""
    return frozenset(op.name for op in OPCODES.values() if op.has(trait))


def with_any(traits: Trait) -> frozenset[str]:
    """The names of all opcodes that have one of the given traits."""
    return frozenset(op.name for op in OPCODES.values() if op.traits & traits)


def is_elementwise(instr: HloInstruction) -> bool:
    """Whether the instruction computes each element from the same element of its operands."""
    return OPCODES[instr.opcode].has(Trait.ELEMENTWISE)


ELEMENTWISE_UNARY = frozenset(n for n in with_trait(Trait.ELEMENTWISE) if OPCODES[n].arity == 1)
ELEMENTWISE_BINARY = frozenset(n for n in with_trait(Trait.ELEMENTWISE) if OPCODES[n].arity == 2)
