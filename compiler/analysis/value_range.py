"""Bounds of an integer value that follow from how it is made.

Arithmetic wraps around, so what may leave its type's range has the whole range. Nothing is said of
floating-point numbers and predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape
from compiler.rewrite.pattern import splat_value

Range = tuple[int, int]
"""Least and most, both included."""

_MOVES = with_trait(Trait.INDEX_MAP)
_MOST_DEPTH = 8  # operations that arithmetic is followed through; each may have two operands


def type_range(dtype: DType) -> Range:
    """The numbers of an integer type."""
    if dtype.is_signed:
        return -(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1
    return 0, (1 << dtype.bits) - 1


def value_range(instr: HloInstruction, depth: int = _MOST_DEPTH) -> Range | None:
    """The bounds of an integer array's elements; None for other types, and for no elements.

    Further up than `depth` operations nothing is known.
    """
    if not instr.array.dtype.is_integer:
        return None
    while instr.opcode in _MOVES:
        instr = instr.operands[0]
    everything = type_range(instr.array.dtype)
    found = _made_range(instr, depth) if depth else None
    return everything if found is None or not _holds(everything, found) else found


def _holds(outer: Range, inner: Range) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _made_range(instr: HloInstruction, depth: int) -> Range | None:
    """Bounds before anything wraps around; None when they are those of the type."""
    match instr.opcode:
        case "iota":
            return 0, max(instr.array.dims[instr.iota_dimension] - 1, 0)
        case "constant":
            literal = instr.literal
            return (int(literal.min()), int(literal.max())) if literal.size else None
        case "clamp":
            return _clamp_range(instr, depth)
        case "convert":
            source = instr.operands[0]
            return (0, 1) if source.array.dtype.kind == "pred" else value_range(source, depth - 1)
        case "select":
            return _joined(instr.operands[1:], depth)
        case "concatenate":
            return _joined(instr.operands, depth)
        case "gather" | "dynamic-slice":  # starts are clamped, so nothing else is read
            return value_range(instr.operands[0], depth - 1)
        case "reduce" if isinstance(instr.shape, ArrayShape):
            return _chosen_range(instr, 0, depth)
        case "get-tuple-element":
            return _element_range(instr.operands[0], instr.index, depth)
    return _arithmetic_range(instr, depth)


def _element_range(made: HloInstruction, number: int, depth: int) -> Range | None:
    """Bounds of an array of a tuple: what a sort or a search for the best only moves about."""
    match made.opcode:
        case "topk" if number == 1:
            return 0, max(made.operands[0].array.dims[-1] - 1, 0)
        case "sort":
            return value_range(made.operands[number], depth - 1)
        case "reduce":
            return _chosen_range(made, number, depth)
    return None


def _chosen_range(reduce: HloInstruction, number: int, depth: int) -> Range | None:
    """Bounds of a reduction that keeps one of what it is given, as one for the place of the greatest does."""
    count = len(reduce.operands) // 2
    root = reduce.to_apply.root_instruction
    chosen = root.operands[number] if root.opcode == "tuple" else root
    parameters = [number, number + count]
    if not _is_one_of(chosen, parameters):
        return None
    return _joined([reduce.operands[n] for n in parameters], depth)


def _is_one_of(value: HloInstruction, parameters: Sequence[int]) -> bool:
    """Whether a scalar is always equal to one of these parameters."""
    if value.opcode == "parameter":
        return value.parameter_number in parameters
    if value.opcode != "select":
        return False
    return all(_is_one_of(way, parameters) for way in value.operands[1:])


def _clamp_range(instr: HloInstruction, depth: int) -> Range | None:
    """``min(max(x, low), high)``: where low is above high, that is high."""
    least, x, most = instr.operands
    low, high, inside = splat_value(least), splat_value(most), value_range(x, depth - 1)
    if low is None or high is None or inside is None:
        return None
    bottom, top = (min(max(value, int(low)), int(high)) for value in inside)
    return bottom, top


def _joined(operands: Sequence[HloInstruction], depth: int) -> Range | None:
    """Bounds of what is one of the operands."""
    found = [value_range(o, depth - 1) for o in operands]
    known = [bounds for bounds in found if bounds is not None]
    if len(known) < len(found):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def _arithmetic_range(instr: HloInstruction, depth: int) -> Range | None:
    """Bounds of a sum, product, quotient or the like of two bounded values."""
    bounds = _OF_TWO.get(instr.opcode)
    if bounds is None:
        return None
    left, right = (value_range(operand, depth - 1) for operand in instr.operands)
    return None if left is None or right is None else bounds(left, right)


def _product(x: Range, y: Range) -> Range:
    corners = [a * b for a in x for b in y]
    return min(corners), max(corners)


def _quotient(x: Range, y: Range) -> Range | None:
    """Rounded towards zero, by what is positive and the same for all."""
    if y[0] < 1 or y[0] != y[1]:
        return None
    low, high = (abs(a) // y[0] * (1 if a > 0 else -1) for a in x)
    return low, high


def _remainder(x: Range, y: Range) -> Range | None:
    """With the sign of the dividend, by what is positive."""
    most = y[1] - 1
    return None if y[0] < 1 else (max(min(x[0], 0), -most), min(max(x[1], 0), most))


def _common_bits(x: Range, y: Range) -> Range | None:
    mosts = [high for low, high in (x, y) if low >= 0]
    return (0, min(mosts)) if mosts else None


_OF_TWO: dict[str, Callable[[Range, Range], Range | None]] = {
    "add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "subtract": lambda x, y: (x[0] - y[1], x[1] - y[0]),
    "multiply": _product,
    "maximum": lambda x, y: (max(x[0], y[0]), max(x[1], y[1])),
    "minimum": lambda x, y: (min(x[0], y[0]), min(x[1], y[1])),
    "divide": _quotient,
    "remainder": _remainder,
    "and": _common_bits,
}
