"""A dot operand of 8-bit integers as pairs along K: nodes that a vector stage can compute.

Pair p holds element p in its low byte and element p + `pair_depth` in the high one, 0 beyond K: whole
vregs apart, so that neither needs to be moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from compiler.analysis.dot_parts import pair_depth
from compiler.hlo.dtypes import S32, U8
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape

_BYTE_BITS = 8


@contextmanager
def integer_pairs(node: HloInstruction, axis: int) -> Iterator[HloInstruction]:
    """The pairs along dimension `axis` of `node`, in the low 16 bits of s32."""
    maker = _Maker(node, axis)
    size = node.array.dims[axis]
    depth = pair_depth(size)
    pair = maker.part(0, min(size, depth), depth)
    if node.array.dtype != U8:  # the high byte's sign does not matter: the store drops it
        pair = maker.binary("and", pair, (1 << _BYTE_BITS) - 1)
    if size > depth:
        moved = maker.binary("shift-left", maker.part(depth, size, depth), _BYTE_BITS)
        pair = maker.elementwise("or", pair, moved)
    yield pair
    maker.remove()


class _Maker:
    """Makes s32 nodes outside any computation."""

    def __init__(self, node: HloInstruction, axis: int) -> None:
        self._node = node
        self._axis = axis
        self._made: list[HloInstruction] = []

    def part(self, start: int, limit: int, depth: int) -> HloInstruction:
        """Elements `start` to `limit` along the axis in s32, zeros up to `depth` of them."""
        dims = self._node.array.dims
        value = self._make("convert", dims, (self._node,), {})
        if (start, limit) != (0, dims[self._axis]):
            ranges = [(0, size, 1) for size in dims]
            ranges[self._axis] = (start, limit, 1)
            shorter = self._resized(limit - start)
            value = self._make("slice", shorter, (value,), {"slice": tuple(ranges)})
        if limit - start < depth:
            padding = [(0, 0, 0)] * len(dims)
            padding[self._axis] = (0, depth - (limit - start), 0)
            operands = (value, self._scalar(0))
            value = self._make("pad", self._resized(depth), operands, {"padding": tuple(padding)})
        return value

    def binary(self, opcode: str, value: HloInstruction, number: int) -> HloInstruction:
        """An operation with a constant."""
        scalar = self._scalar(number)
        constant = self._make("broadcast", value.array.dims, (scalar,), {"dimensions": ()})
        return self.elementwise(opcode, value, constant)

    def elementwise(self, opcode: str, *operands: HloInstruction) -> HloInstruction:
        """A node over the operands' dims."""
        return self._make(opcode, operands[0].array.dims, operands, {})

    def remove(self) -> None:
        """Take the nodes out of their operands' use lists."""
        for made in reversed(self._made):
            made.set_operands(())

    def _resized(self, size: int) -> tuple[int, ...]:
        dims = self._node.array.dims
        return (*dims[: self._axis], size, *dims[self._axis + 1 :])

    def _scalar(self, number: int) -> HloInstruction:
        return self._make("constant", (), (), {"literal": np.asarray(number, np.int32)})

    def _make(
        self,
        opcode: str,
        dims: tuple[int, ...],
        operands: tuple[HloInstruction, ...],
        attrs: dict[str, object],
    ) -> HloInstruction:
        made = HloInstruction(opcode, self._node.name, ArrayShape(S32, dims), operands, attrs)
        self._made.append(made)
        return made
