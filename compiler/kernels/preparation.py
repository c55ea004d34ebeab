"""What a prepared dot operand is computed as: HLO nodes for a vector stage, taken away after it.

bf16_parts      x = hi + mid + lo by truncation to 8 significant bits; where hi is not finite the
                others are 0
integer_pairs   8-bit integers as pairs along K: pair p holds element p in its low byte and element
                p + `pair_depth` in the high one, 0 beyond K: whole vregs apart, so that neither
                needs to be moved
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from compiler.analysis.dot_parts import pair_depth
from compiler.hlo.dtypes import F32, PRED, S32, U8, U32
from compiler.hlo.ir import HloInstruction
from compiler.rewrite.free_nodes import FreeNodes, free_nodes

_HIGH_HALF = 0xFFFF0000
_BYTE_BITS = 8


@contextmanager
def bf16_parts(node: HloInstruction, count: int) -> Iterator[list[HloInstruction]]:
    """`count` nodes with values exact in bf16 that add up to `node`, largest first.

    One part is the node itself: the store rounds it.
    """
    if count == 1:
        yield [node]
        return
    dims = node.array.dims
    with free_nodes(node.name) as nodes:
        value = node if node.array.dtype == F32 else nodes.make("convert", F32, dims, node)
        parts = [_truncated(nodes, value)]
        rest = nodes.make("subtract", F32, dims, value, parts[0])
        # the rest of an infinity or NaN is NaN
        finite = nodes.make("compare", PRED, dims, rest, rest, direction="EQ")
        rest = nodes.make("select", F32, dims, finite, rest, nodes.splat(F32, dims, 0))
        for _ in range(count - 1):
            parts.append(_truncated(nodes, rest))
            rest = nodes.make("subtract", F32, dims, rest, parts[-1])
        yield parts


def _truncated(nodes: FreeNodes, value: HloInstruction) -> HloInstruction:
    """`value` without its low 16 bits."""
    dims = value.array.dims
    bits = nodes.make("bitcast-convert", U32, dims, value)
    high = nodes.make("and", U32, dims, bits, nodes.splat(U32, dims, _HIGH_HALF))
    return nodes.make("bitcast-convert", F32, dims, high)


@contextmanager
def integer_pairs(node: HloInstruction, axis: int) -> Iterator[HloInstruction]:
    """The pairs along dimension `axis` of `node`, in the low 16 bits of s32."""
    size = node.array.dims[axis]
    depth = pair_depth(size)
    with free_nodes(node.name) as nodes:
        pair = _elements(nodes, node, axis, 0, min(size, depth))
        dims = pair.array.dims
        if node.array.dtype != U8:  # the high byte's sign does not matter: the store drops it
            byte = nodes.splat(S32, dims, (1 << _BYTE_BITS) - 1)
            pair = nodes.make("and", S32, dims, pair, byte)
        if size > depth:
            high = _elements(nodes, node, axis, depth, size)
            bits = nodes.splat(S32, dims, _BYTE_BITS)
            pair = nodes.make(
                "or", S32, dims, pair, nodes.make("shift-left", S32, dims, high, bits)
            )
        yield pair


def _elements(
    nodes: FreeNodes, node: HloInstruction, axis: int, start: int, limit: int
) -> HloInstruction:
    """Elements `start` to `limit` along the axis in s32, zeros up to as many as there are pairs."""
    dims = node.array.dims
    depth = pair_depth(dims[axis])
    value = nodes.make("convert", S32, dims, node)
    if (start, limit) != (0, dims[axis]):
        ranges = tuple(
            (start, limit, 1) if d == axis else (0, size, 1) for d, size in enumerate(dims)
        )
        shorter = (*dims[:axis], limit - start, *dims[axis + 1 :])
        value = nodes.make("slice", S32, shorter, value, slice=ranges)
    if limit - start < depth:
        padding = tuple(
            (0, depth - (limit - start) if d == axis else 0, 0) for d in range(len(dims))
        )
        padded = (*dims[:axis], depth, *dims[axis + 1 :])
        value = nodes.make("pad", S32, padded, value, nodes.scalar(S32, 0), padding=padding)
    return value
