"""Shapes of opcodes that make, copy and rearrange arrays."""

from __future__ import annotations

from compiler.hlo.dtypes import S32
from compiler.hlo.ops.declaration import DIMENSIONS, AttributeRow, Op, variadic, words
from compiler.hlo.ops.declaration import Trait as T
from compiler.hlo.ops.inference import (
    Inference,
    declared,
    dims_text,
    first_operand,
    plain,
)
from compiler.hlo.shape import ArrayShape, Shape, leaves


def _bitcast(q: Inference) -> Shape:
    result = q.declared_shape()
    found = sum(a.element_count * a.dtype.bits for a in leaves(result))
    want = sum(a.element_count * a.dtype.bits for a in leaves(q.shapes[0]))
    q.require(found == want, f"operand has {want} bits, the result {found}")
    return result


def _bitcast_convert(q: Inference) -> Shape:
    operand = q.array(0)
    dtype = q.declared_array().dtype
    q.require(operand.dtype.is_complex == dtype.is_complex, "cannot mix complex and real types")
    source, target = operand.dtype.bits, dtype.bits
    if source == target:
        return plain(dtype, operand.dims)
    q.require(
        max(source, target) % min(source, target) == 0,
        f"{source} bits and {target} bits: neither is a multiple of the other",
    )
    if source > target:
        return plain(dtype, (*operand.dims, source // target))
    ratio = target // source
    if operand.dims[-1:] != (ratio,):
        q.fail(f"operand is {dims_text(operand)}, want a last dimension of {ratio}")
    return plain(dtype, operand.dims[:-1])


def _broadcast(q: Inference) -> Shape:
    operand, result = q.array(0), q.declared_array()
    dims = q.dims_in_range("dimensions", result.rank)
    q.require(len(dims) == operand.rank, f"dimensions names {len(dims)}, want {operand.rank}")
    for i, dim in enumerate(dims):
        if operand.dims[i] != result.dims[dim]:
            q.fail(
                f"operand dimension {i} has size {operand.dims[i]}, "
                f"result dimension {dim} has {result.dims[dim]}"
            )
    return plain(operand.dtype, result.dims)


def _concatenate(q: Inference) -> Shape:
    operands = q.arrays()
    first = operands[0]
    dims = q.dims_in_range("dimensions", first.rank)
    q.require(len(dims) == 1, "want exactly one dimension")
    dim = dims[0]
    for other in operands[1:]:
        q.same_dtype(first, other)
        rest = (other.dims[:dim], other.dims[dim + 1 :])
        if rest != (first.dims[:dim], first.dims[dim + 1 :]):
            q.fail(f"operands {dims_text(first)} and {dims_text(other)} differ outside of {dim}")
    total = sum(operand.dims[dim] for operand in operands)
    return plain(first.dtype, (*first.dims[:dim], total, *first.dims[dim + 1 :]))


def _get_dimension_size(q: Inference) -> Shape:
    dims = q.dims_in_range("dimensions", q.array(0).rank)
    q.require(len(dims) == 1, "want exactly one dimension")
    return plain(S32, ())


def _iota(q: Inference) -> Shape:
    result = q.declared_array()
    dim = q.integer("iota_dimension", 0)
    q.require(0 <= dim < result.rank, f"iota_dimension={dim}, want one of {result.rank}")
    return result


def _pad(q: Inference) -> Shape:
    operand, value = q.array(0), q.array(1)
    q.same_dtype(operand, value)
    q.require(value.rank == 0, f"padding value is {dims_text(value)}, want a scalar")
    padding = q.attrs.get("padding")
    if not (isinstance(padding, tuple) and len(padding) == operand.rank):
        q.fail(f"want padding=low_high_interior for each of {operand.rank} dimensions")
    sizes = []
    for size, (low, high, interior) in zip(operand.dims, padding, strict=True):
        q.require(interior >= 0, f"interior padding is {interior}, want at least 0")
        padded = low + size + max(size - 1, 0) * interior + high
        q.require(padded >= 0, f"padding {low}_{high}_{interior} removes more than there is")
        sizes.append(padded)
    return plain(operand.dtype, sizes)


def _reshape(q: Inference) -> Shape:
    operand, result = q.array(0), q.declared_array()
    if operand.element_count != result.element_count:
        q.fail(
            f"{dims_text(operand)} has {operand.element_count} elements, "
            f"{dims_text(result)} has {result.element_count}"
        )
    return plain(operand.dtype, result.dims)


def _dynamic_reshape(q: Inference) -> Shape:
    result = q.declared_array()
    q.require(len(q.shapes) == 1 + result.rank, "want one size operand for each dimension")
    return plain(q.array(0).dtype, result.dims)


def _reverse(q: Inference) -> Shape:
    q.dims_in_range("dimensions", q.array(0).rank)
    return q.array(0)


def _set_dimension_size(q: Inference) -> Shape:
    operand = q.array(0)
    dims = q.dims_in_range("dimensions", operand.rank)
    q.require(len(dims) == 1, "want exactly one dimension")
    q.require(q.array(1).rank == 0, "the size operand must be a scalar")
    before = operand.dynamic or (False,) * operand.rank
    dynamic = tuple(flag or i == dims[0] for i, flag in enumerate(before))
    return ArrayShape(operand.dtype, operand.dims, None, dynamic)


def _slice(q: Inference) -> Shape:
    operand = q.array(0)
    ranges = q.attrs.get("slice")
    if not (isinstance(ranges, tuple) and len(ranges) == operand.rank):
        q.fail(f"want slice={{[start:limit:stride], ...}} for {operand.rank} dimensions")
    sizes = []
    for size, (start, limit, stride) in zip(operand.dims, ranges, strict=True):
        if not (0 <= start <= limit <= size and stride >= 1):
            q.fail(f"[{start}:{limit}:{stride}] is not inside a dimension of size {size}")
        sizes.append((limit - start + stride - 1) // stride)
    return plain(operand.dtype, sizes)


def _transpose(q: Inference) -> Shape:
    operand = q.array(0)
    perm = q.dims_in_range("dimensions", operand.rank)
    q.require(len(perm) == operand.rank, f"want a permutation of {operand.rank} dimensions")
    return plain(operand.dtype, [operand.dims[d] for d in perm])


OPS = (
    Op("bitcast", 1, _bitcast, T.DATA_MOVEMENT | T.FORWARDS),
    Op("bitcast-convert", 1, _bitcast_convert, T.ROUNDED),
    Op(
        "broadcast",
        1,
        _broadcast,
        T.DATA_MOVEMENT | T.SYMBOLIC | T.REARRANGES | T.INDEX_MAP,
        DIMENSIONS,
    ),
    variadic("concatenate", 1, _concatenate, T.DATA_MOVEMENT | T.PIECEWISE, DIMENSIONS),
    Op("constant", 0, declared, T.GIVEN, (), ("literal",)),
    Op("copy", 1, first_operand, T.KERNEL | T.DATA_MOVEMENT | T.REARRANGES),
    variadic("dynamic-reshape", 1, _dynamic_reshape, T.DATA_MOVEMENT),
    Op("get-dimension-size", 1, _get_dimension_size, T.NONE, DIMENSIONS),
    Op("iota", 0, _iota, T.SYMBOLIC, words("iota_dimension")),
    Op("pad", 2, _pad, T.DATA_MOVEMENT | T.PIECEWISE, words("padding")),
    Op("parameter", 0, declared, T.GIVEN | T.CARRIES, words("parameter_replication")),
    Op(
        "reshape",
        1,
        _reshape,
        T.DATA_MOVEMENT | T.REARRANGES | T.INDEX_MAP,
        (AttributeRow("inferred_dimension", omitted=-1),),
    ),
    Op("reverse", 1, _reverse, T.DATA_MOVEMENT | T.REARRANGES | T.INDEX_MAP, DIMENSIONS),
    Op("set-dimension-size", 2, _set_dimension_size, T.DATA_MOVEMENT, DIMENSIONS),
    Op("shuffle", 1, first_operand, T.DATA_MOVEMENT | T.UNREAD),
    Op("slice", 1, _slice, T.DATA_MOVEMENT | T.TAKES_PART | T.INDEX_MAP, words("slice")),
    Op("transpose", 1, _transpose, T.DATA_MOVEMENT | T.REARRANGES | T.INDEX_MAP, DIMENSIONS),
)
