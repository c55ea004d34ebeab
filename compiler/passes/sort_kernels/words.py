"""Elements of at most 32 bits as signed words and back, and words in the order of what they stand for."""

from __future__ import annotations

from compiler.hlo.dtypes import BF16, BY_NAME, F16, F32, PRED, S32, U32, DType
from compiler.hlo.ir import HloInstruction
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction


def has_words(dtype: DType) -> bool:
    """Whether `to_words` takes elements of a type."""
    if dtype.is_float:
        return dtype.bits in (8, 16, 32)
    return dtype == PRED or (dtype.is_integer and dtype.bits <= S32.bits)


def is_ordered(dtype: DType) -> bool:
    """Whether `ordered` takes elements of a type."""
    return dtype in (F32, BF16, F16) if dtype.is_float else has_words(dtype)


def to_words(e: Emitter, value: Instr) -> Instr:
    """The bits of each element in a word."""
    dtype = value.array.dtype
    if dtype.bits == S32.bits:
        return value if dtype == S32 else e.bitcast_convert(value, S32)
    return e.cast(e.bitcast_convert(value, _bits(dtype)) if dtype.is_float else value, S32)


def of_words(e: Emitter, words: Instr, dtype: DType) -> Instr:
    """The elements of a type that have these words."""
    if dtype.bits == S32.bits:
        return words if dtype == S32 else e.bitcast_convert(words, dtype)
    if dtype.is_float:
        return e.bitcast_convert(e.cast(words, _bits(dtype)), dtype)
    return e.cast(words, dtype)


def ordered(e: Emitter, value: Instr) -> Instr:
    """Words that ascend with the elements, floats in their total order."""
    return _turned(e, to_words(e, value), value.array.dtype)


def of_ordered(e: Emitter, words: Instr, dtype: DType) -> Instr:
    """The elements that have these words."""
    return of_words(e, _turned(e, words, dtype), dtype)


def _turned(e: Emitter, words: Instr, dtype: DType) -> Instr:
    """Bits in an order of words, and back: negative floats fall, the sign bit of others counts."""
    if dtype == U32:
        return e.binary("xor", words, e.like(words, -1 << 31))
    if not dtype.is_float:
        return words
    sign = e.binary("shift-right-arithmetic", words, e.like(words, S32.bits - 1))
    rest = e.and_(sign, e.like(words, (1 << (dtype.bits - 1)) - 1))
    return e.binary("xor", words, rest)


def _bits(dtype: DType) -> DType:
    return BY_NAME[f"s{dtype.bits}"]
