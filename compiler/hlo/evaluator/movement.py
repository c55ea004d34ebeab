"""Opcodes that move elements without computing: broadcast, reshape, transpose, slice, pad, ..."""

from __future__ import annotations

import sys

import numpy as np

from compiler.hlo.dtypes import DType, from_numpy
from compiler.hlo.evaluator.context import (
    Array,
    Context,
    Handler,
    Operands,
    Value,
    finish,
    storage_dtype,
    unsupported,
)
from compiler.hlo.evaluator.numerics import cast_exactly_once, from_unsigned_bits, unsigned_bits
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, Shape, TupleShape

assert sys.byteorder == "little", "bitcasts assume XLA's little-endian element order"


def _broadcast(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    if ctx.is_batched:
        return np.asarray(operands[0])
    mapping = instr.dimensions  # in any order
    array = np.asarray(operands[0]).transpose(np.argsort(mapping))
    shape = [1] * instr.array.rank
    for axis, dimension in enumerate(sorted(mapping)):
        shape[dimension] = array.shape[axis]
    return np.broadcast_to(array.reshape(shape), instr.array.dims)


def _reshape(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    if ctx.is_batched:
        return np.asarray(operands[0])
    return np.asarray(operands[0].reshape(instr.array.dims))


def _copy(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    value: Value = operands[0]
    return value if isinstance(value, tuple) else np.asarray(value)


def _transpose(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    return np.asarray(operands[0].transpose(instr.dimensions))


def _slice(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    return np.asarray(operands[0][tuple(slice(*bound) for bound in instr.slice)])


def _reverse(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    return np.flip(operands[0], instr.dimensions)


def _concatenate(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    (axis,) = instr.dimensions
    return np.concatenate(list(operands), axis)


def _pad(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    """Interior padding first, then the edges; a negative edge cuts elements off."""
    array, value = operands
    return pad_array(array, value, instr.padding)


def pad_array(array: Array, value: Array, padding: tuple[tuple[int, int, int], ...]) -> Array:
    """Pad with (low, high, interior) per dimension; low and high may be negative."""
    source: list[slice] = []
    target: list[slice] = []
    dims: list[int] = []
    for extent, (low, high, interior) in zip(array.shape, padding, strict=True):
        step = interior + 1
        dims.append(max(0, low + high + (0 if extent == 0 else (extent - 1) * step + 1)))
        first = max(0, -(low // step)) if low < 0 else 0
        count = max(0, min(extent, (dims[-1] - 1 - low) // step + 1) - first)
        start = low + first * step
        source.append(slice(first, first + count))
        target.append(slice(start, start + count * step, step) if count else slice(0, 0))
    result = np.full(dims, value, array.dtype)
    result[tuple(target)] = array[tuple(source)]
    return result


def _iota(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    dims = instr.array.dims
    axis = instr.iota_dimension
    line = cast_exactly_once(np.arange(dims[axis]), storage_dtype(ctx, instr.array.dtype))
    shape = [extent if i == axis else 1 for i, extent in enumerate(dims)]
    return np.broadcast_to(line.reshape(shape), dims)


def _constant(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    if isinstance(instr.shape, TupleShape):
        return _stored_literal(ctx, instr.attrs["literal"], instr.shape)
    return _stored_literal(ctx, instr.literal, instr.shape)


def _stored_literal(ctx: Context, literal: object, shape: Shape) -> Value:
    if isinstance(shape, TupleShape):
        assert isinstance(literal, tuple)
        pairs = zip(literal, shape.elements, strict=True)
        return tuple(_stored_literal(ctx, part, element) for part, element in pairs)
    assert isinstance(shape, ArrayShape)
    return cast_exactly_once(np.asarray(literal), storage_dtype(ctx, shape.dtype))


def _bitcast_convert(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    result = reinterpret(np.asarray(operands[0]), instr.array.dtype)
    return result if ctx.is_batched else result.reshape(instr.array.dims)


def reinterpret(array: Array, target: DType) -> Array:
    """The same bits as another type; a narrower one adds a minor dimension, a wider drops it."""
    source = from_numpy(array.dtype)
    if source == target:
        return array
    if source.bits == target.bits:
        return from_unsigned_bits(unsigned_bits(array), target)
    if min(source.bits, target.bits) < 8:
        return _reinterpret_packed(array, source, target)
    if source.bits > target.bits:
        return np.ascontiguousarray(array[..., np.newaxis]).view(target.numpy)
    return np.ascontiguousarray(array).view(target.numpy)[..., 0]


def _reinterpret_packed(array: Array, source: DType, target: DType) -> Array:
    """As `reinterpret`, where NumPy stores one of the types a byte per 2 or 4 bits."""
    bits = unsigned_bits(array).astype(np.uint64)
    if source.bits > target.bits:
        shifts = np.arange(0, source.bits, target.bits, dtype=np.uint64)
        mask = np.uint64((1 << target.bits) - 1)
        pieces = (bits[..., np.newaxis] >> shifts) & mask
    else:
        shifts = np.arange(0, target.bits, source.bits, dtype=np.uint64)
        pieces = np.bitwise_or.reduce(bits << shifts, axis=-1)
    holder = np.dtype(f"u{max(1, target.bits // 8)}")
    return from_unsigned_bits(pieces.astype(holder), target)


def _bitcast(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    """The same bytes under another shape: order the elements as the two layouts do."""
    source, target = instr.operands[0].array, instr.array
    major_to_minor = tuple(reversed(source.minor_to_major))
    linear = np.asarray(operands[0]).transpose(major_to_minor)
    if source.dtype != target.dtype:
        together = max(1, target.dtype.bits // source.dtype.bits)
        linear = reinterpret(linear.reshape(-1, together), target.dtype)
    order = tuple(reversed(target.minor_to_major))
    physical = linear.reshape([target.dims[d] for d in order])
    return np.asarray(physical.transpose(np.argsort(order)) if order else physical)


def _get_dimension_size(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    (axis,) = instr.dimensions
    return finish(ctx, instr, np.asarray(operands[0].shape[axis]))


def _set_dimension_size(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    (axis,) = instr.dimensions
    if int(operands[1]) != operands[0].shape[axis]:
        raise unsupported(instr, "dynamic dimensions; make the size static")
    return np.asarray(operands[0])


def _refuse_shuffle(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    raise unsupported(instr, "its meaning is a backend's; use transpose or gather")


MOVEMENT_HANDLERS: dict[str, Handler] = {
    "bitcast": _bitcast,
    "bitcast-convert": _bitcast_convert,
    "broadcast": _broadcast,
    "concatenate": _concatenate,
    "constant": _constant,
    "copy": _copy,
    "dynamic-reshape": _reshape,
    "get-dimension-size": _get_dimension_size,
    "iota": _iota,
    "pad": _pad,
    "reshape": _reshape,
    "reverse": _reverse,
    "set-dimension-size": _set_dimension_size,
    "shuffle": _refuse_shuffle,
    "slice": _slice,
    "transpose": _transpose,
}

KEEPS_WIDE = frozenset(MOVEMENT_HANDLERS) - {"bitcast", "bitcast-convert"}
