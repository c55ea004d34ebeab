"""Bounds of an integer value that follow from how it is made.

Arithmetic wraps around, so what may leave its type's range has the whole range. Nothing is said of
floating-point numbers and predicates.
"""

from __future__ import annotations

from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import Trait, with_trait
from compiler.rewrite.pattern import splat_value

Range = tuple[int, int]
"""Least and most, both included."""

_MOVES = with_trait(Trait.INDEX_MAP)


def type_range(dtype: DType) -> Range:
    """The numbers of an integer type."""
    if dtype.is_signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def value_range(instr: HloInstruction) -> Range | None:
    """The bounds of an integer array's elements; None for other types, and for no elements."""
    if not instr.array.dtype.is_integer:
        return None
    while instr.opcode in _MOVES:
        instr = instr.operands[0]
    everything = type_range(instr.array.dtype)
    found = _made_range(instr)
    return everything if found is None or not _holds(everything, found) else found


def _holds(outer: Range, inner: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _made_range(instr: HloInstruction) -> Range | None:
    """Bounds before anything wraps around; None when they are those of the type."""
    match instr.opcode:
        case "iota":
            return 0, max(instr.array.dims[instr.iota_dimension] - 1, 0)
        case "constant":
            literal = instr.literal
            return (int(literal.min()), int(literal.max())) if literal.size else None
        case "clamp":
            return _clamp_range(instr)
        case "convert":
            source = instr.operands[0]
            return (0, 1) if source.array.dtype.kind == "pred" else value_range(source)
    return None


def _clamp_range(instr: HloInstruction) -> Range | None:
    """``min(max(x, low), high)``: where low is above high, that is high."""
    least, x, most = instr.operands
    low, high, inside = splat_value(least), splat_value(most), value_range(x)
    if low is None or high is None or inside is None:
        return None
    bottom, top = (min(max(value, int(low)), int(high)) for value in inside)
    return bottom, top
