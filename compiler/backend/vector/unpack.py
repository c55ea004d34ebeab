"""From 32-bit words to elements and back: which part of a word, and the type's conversion."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.analysis.indexing import Expr
from compiler.backend.vector import small_floats
from compiler.backend.vector.index_values import IndexValues
from compiler.backend.vector.ops import Ops, value_class
from compiler.hlo.dtypes import DType
from compiler.llo.ir import VReg


def unpack(ops: Ops, values: IndexValues, word: VReg, part: Expr, dtype: DType) -> int:
    """The elements of `dtype` in part `part` of each word: f32 or s32 lanes, or a mask."""
    kind = value_class(dtype)
    if dtype.bits == 32:
        return word
    if dtype.name == "bf16" and part.is_constant:
        return ops.emit("vunpack.hi.bf16" if part.constant else "vunpack.lo.bf16", word)
    bits = dtype.bits
    if kind == "f" and dtype.name != "bf16":
        above = part * -bits + (32 - bits)
        if part.is_constant:
            top = ops.emit("vshli", word, above.constant) if above.constant else word
        else:
            top = ops.emit("vshl", word, values.vector(above))
        return small_floats.decode_top(ops, top, dtype)
    if dtype.name == "bf16":
        return ops.emit("vshli", ops.emit("vshr", word, values.vector(part * bits)), 16)
    code = _integer(ops, values, word, part, dtype)
    return ops.integer_to_mask(code) if kind == "m" else code


def _integer(ops: Ops, values: IndexValues, word: VReg, part: Expr, dtype: DType) -> VReg:
    """A part of each word as an integer, extended as its type is; in as few shifts as there may be."""
    bits = dtype.bits
    if not part.is_constant:
        return ops.wrap(ops.emit("vshr", word, values.vector(part * bits)), dtype)
    behind = 32 - bits * (part.constant + 1)
    if dtype.is_signed:
        return ops.emit("vsrai", ops.emit("vshli", word, behind) if behind else word, 32 - bits)
    low = ops.emit("vshri", word, bits * part.constant) if part.constant else word
    return ops.wrap(low, dtype) if behind else low


def element_bits(ops: Ops, value: int, dtype: DType) -> VReg:
    """The bits of an element of `dtype` in the low end of each lane (bits above may be set)."""
    kind = value_class(dtype)
    if kind == "m":
        return ops.mask_to_integer(value)
    if kind == "i" or dtype.bits == 32:
        return value
    if dtype.name == "bf16":
        return ops.emit("vpack.bf16", value, value)
    return small_floats.encode(ops, value, dtype)


def pack(ops: Ops, parts: Sequence[int], dtype: DType) -> VReg:
    """Words from the values of each part, lowest bits first."""
    if dtype.bits == 32:
        return element_bits(ops, parts[0], dtype)
    if dtype.name == "bf16":
        return ops.emit("vpack.bf16", parts[0], parts[1])
    codes = [element_bits(ops, part, dtype) for part in parts]
    if dtype.bits == 16:
        return ops.emit("vpack.h16", codes[0], codes[1])
    if dtype.bits == 8:
        return ops.emit("vpack.b8", codes[0], codes[1], codes[2], codes[3])
    mask = (1 << dtype.bits) - 1
    word = ops.emit("vandi", codes[0], mask)
    for number, code in enumerate(codes[1:], 1):
        moved = ops.emit("vshli", ops.emit("vandi", code, mask), number * dtype.bits)
        word = ops.emit("vor", word, moved)
    return word
