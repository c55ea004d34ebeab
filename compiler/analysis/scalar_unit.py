"""Which HLO operations on single values the scalar unit has instructions for."""

from __future__ import annotations

from collections.abc import Iterable

from compiler.hlo.dtypes import F32, PRED, DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape, leaves

_INT_BINARY = {
    "add": "sadd.s32",
    "subtract": "ssub.s32",
    "multiply": "smul.s32",
    "and": "sand",
    "or": "sor",
    "xor": "sxor",
    "shift-left": "sshl",
    "shift-right-arithmetic": "ssra",
    "shift-right-logical": "sshr",
}
_SIGNED_BINARY = {
    "divide": "sdiv.s32", "remainder": "srem.s32", "maximum": "smax.s32", "minimum": "smin.s32",
}  # fmt: skip
_UNSIGNED_BINARY = {
    "divide": "sdiv.u32", "remainder": "srem.u32", "maximum": "smax.u32", "minimum": "smin.u32",
}  # fmt: skip
_PRED_BINARY = {
    "add": "sor", "multiply": "sand", "maximum": "sor", "minimum": "sand",
    "and": "sand", "or": "sor", "xor": "sxor",
}  # fmt: skip
_FLOAT_BINARY = {
    "add": "sadd.f32",
    "subtract": "ssub.f32",
    "multiply": "smul.f32",
    "divide": "sdiv.f32",
    "maximum": "smax.f32",
    "minimum": "smin.f32",
}
SAME_VALUE = with_trait(Trait.REARRANGES) | {"bitcast", "reduce-precision"}
_UNARY = frozenset({"negate", "abs", "not", "sign", "convert", "bitcast-convert", "is-finite"})
_OTHERS = frozenset({"constant", "compare", "select", "clamp", "parameter", "tuple"})


def binary_row(opcode: str, dtype: DType) -> str | None:
    """The scalar instruction of a binary opcode on a dtype, or None when there is none."""
    if dtype == F32:
        return _FLOAT_BINARY.get(opcode)
    if dtype == PRED:
        return _PRED_BINARY.get(opcode)
    if not dtype.is_integer:
        return None
    if opcode in _INT_BINARY:
        return _INT_BINARY[opcode]
    return (_SIGNED_BINARY if dtype.is_signed else _UNSIGNED_BINARY).get(opcode)


def runs_on_scalar_unit(nodes: Iterable[HloInstruction]) -> bool:
    """Whether every node is a rank-0 computation that the scalar unit has instructions for."""
    return all(is_scalar_operation(node) for node in nodes)


def is_scalar_operation(node: HloInstruction) -> bool:
    """Whether all of the node's operands and results are rank 0 and the scalar unit computes it."""
    shapes = [*leaves(node.shape), *(s for o in node.operands for s in leaves(o.shape))]
    if any(s.dims or not _has_scalar_form(s.dtype) for s in shapes):
        return False
    if node.opcode == "bitcast-convert":
        return node.array.dtype.bits == node.operands[0].array.dtype.bits == 32
    if node.opcode in ("shift-left", "shift-right-arithmetic", "shift-right-logical"):
        return node.array.dtype.bits == 32
    if node.opcode == "reduce-precision":
        return node.attrs.get("exponent_bits") == 8 and node.attrs.get("mantissa_bits") == 23
    if node.opcode in SAME_VALUE or node.opcode in _UNARY or node.opcode in _OTHERS:
        return True
    return (
        isinstance(node.shape, ArrayShape) and binary_row(node.opcode, node.array.dtype) is not None
    )


def _has_scalar_form(dtype: DType) -> bool:
    return dtype in (F32, PRED) or (dtype.is_integer and dtype.bits <= 32)
