"""Conversions between element types in lanes."""

from __future__ import annotations

from compiler.backend.vector import small_floats
from compiler.backend.vector.ops import Ops, value_class
from compiler.hlo.dtypes import DType


def emit_convert(ops: Ops, value: int, source: DType, target: DType) -> int:
    """HLO's convert: round to nearest even, integers wrap, floats to integers saturate (NaN 0)."""
    if source == target:
        return value
    kinds = value_class(source) + value_class(target)
    match kinds:
        case "ff":
            return small_floats.round_to(ops, value, target)
        case "fi":
            return _float_to_integer(ops, value, target)
        case "if":
            return _integer_to_float(ops, value, source, target)
        case "ii":
            return ops.wrap(value, target)
        case "mi":
            return ops.mask_to_integer(value)
        case "mf":
            return ops.select(value, ops.real(1.0), ops.real(0.0))
        case "im":
            return ops.integer_to_mask(value)
        case _:  # "fm"
            return ops.compare_real("ne", value, 0.0)


def _float_to_integer(ops: Ops, value: int, target: DType) -> int:
    if target.bits == 32:
        return ops.emit("vcvt.s32.f32" if target.is_signed else "vcvt.u32.f32", value)
    whole = ops.emit("vcvt.s32.f32", value)
    low = -(1 << (target.bits - 1)) if target.is_signed else 0
    high = (1 << (target.bits - target.is_signed)) - 1
    raised = ops.emit("vmax.s32", whole, ops.integer(low))
    return ops.emit("vmin.s32", raised, ops.integer(high))


def _integer_to_float(ops: Ops, value: int, source: DType, target: DType) -> int:
    is_wide_unsigned = source.bits == 32 and not source.is_signed
    real = ops.emit("vcvt.f32.u32" if is_wide_unsigned else "vcvt.f32.s32", value)
    fits = source.bits < 24 if target.name == "f32" else False
    return real if fits else small_floats.round_to(ops, real, target)


def emit_bitcast(ops: Ops, value: int, source: DType, target: DType) -> int:
    """The same bits as another type of the same width."""
    kinds = value_class(source) + value_class(target)
    if source == target or (source.bits == 32 and "m" not in kinds):
        return value
    bits = _bits_of(ops, value, source)
    if value_class(target) == "m":
        return ops.integer_to_mask(bits)
    if value_class(target) == "i":
        return ops.wrap(bits, target)
    if target.name == "bf16":
        return ops.emit("vshli", bits, 16)
    return small_floats.decode(ops, bits, target)


def _bits_of(ops: Ops, value: int, source: DType) -> int:
    """Zero-extended bits of an element."""
    if value_class(source) == "m":
        return ops.mask_to_integer(value)
    if value_class(source) == "i":
        return ops.unsigned(value, source)
    if source.name == "bf16":
        return ops.emit("vshri", small_floats.round_to(ops, value, source), 16)
    return small_floats.encode(ops, value, source)
