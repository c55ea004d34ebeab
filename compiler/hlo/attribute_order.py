"""In which order XLA prints the attributes of each opcode, and what it leaves out or fills in.

The order is part of the text form: two tools that agree on it can compare texts byte for byte.
`printed_attributes` gives what is printed for one instruction, in that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from compiler.hlo.attributes import RawText
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.shape import ArrayShape, Shape
from compiler.hlo.shape_text import parse_shape, print_shape, with_default_layouts

COMMON = ("sharding", "frontend_attributes", "control-predecessors", "statistics",
          "result_accuracy", "origin", "metadata", "backend_config")  # fmt: skip
"""What any instruction may have, in the order in which it follows the opcode's own attributes."""

_OF_ANY = frozenset((*COMMON, "parameter_number", "parameter_replication")) - {"result_accuracy"}

KNOWN_NAMES = frozenset(row.name for op in OPCODES.values() for row in op.attrs) | {
    "result_accuracy"
}
"""Every attribute that XLA reads of some opcode."""


@cache
def allowed_names(opcode: str) -> frozenset[str]:
    """The attributes that XLA reads of an opcode."""
    op = OPCODES[opcode]
    return _OF_ANY.union(op.unprinted, (row.name for row in op.attrs))


_BETWEEN_PARENTHESES = ("parameter_number", "literal")


def own_attributes(instr: HloInstruction) -> Iterator[tuple[str, object]]:
    """The opcode's own attributes as XLA prints them: its order, its defaults."""
    rows = OPCODES[instr.opcode].attrs
    for row in rows:
        value = instr.attrs.get(row.name, row.filled)
        if value is None and row.name == "outfeed_shape" and instr.operands:
            value = RawText(print_shape(with_default_layouts(instr.operands[0].shape)))
        if value is not None and value != row.omitted and not _is_default(instr, row.name, value):
            yield row.name, _completed(instr, row.name, value)
    if instr.opcode == "custom-call" and isinstance(instr.attrs.get("to_apply"), HloComputation):
        yield "called_computations", (instr.attrs["to_apply"],)
    known = {row.name for row in rows}
    for name, value in instr.attrs.items():  # names that XLA does not know, set by passes
        if name not in known and name not in COMMON and not _is_hidden(instr, name):
            yield name, value


def _is_hidden(instr: HloInstruction, name: str) -> bool:
    """What the text may say but XLA does not keep, and what stands between the parentheses."""
    if name == "literal":
        return instr.opcode == "constant"
    return (
        name in _BETWEEN_PARENTHESES
        or name in ("mode", "constrain_layout", "use_global_device_ids")
        or (instr.opcode == "custom-call" and name == "to_apply")
        or (instr.opcode in ("async-update", "async-done"))
        or (instr.opcode == "ragged-all-to-all" and name == "dimensions")
    )


def _is_default(instr: HloInstruction, name: str, value: object) -> bool:
    """Whether the value says what the instruction's operands or other attributes say already."""
    if name == "type" and instr.opcode == "compare":
        return value == _comparison_type(instr.operands[0].shape) if instr.operands else False
    if name == "operand_precision":
        return isinstance(value, tuple) and all(word == "default" for word in value)
    if name == "algorithm":
        return value == "unset"
    if name == "async_execution_thread":
        return value == "main"
    return False


def _comparison_type(shape: Shape) -> str:
    if not isinstance(shape, ArrayShape):
        return ""
    if shape.dtype.is_float or shape.dtype.is_complex:
        return "FLOAT"
    return "SIGNED" if shape.dtype.is_signed else "UNSIGNED"


def _completed(instr: HloInstruction, name: str, value: object) -> object:
    """XLA gives a map the dimensions of its result, whatever the text says."""
    if instr.opcode == "map" and name == "dimensions" and isinstance(instr.shape, ArrayShape):
        return tuple(range(instr.shape.rank))
    if name == "outfeed_shape" and isinstance(value, RawText):
        return RawText(print_shape(with_default_layouts(parse_shape(value.text))))
    if name == "operand_layout_constraints" and isinstance(value, tuple):
        return tuple(with_default_layouts(shape) for shape in value)
    return value
