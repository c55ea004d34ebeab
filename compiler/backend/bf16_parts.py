"""A dot operand as bf16 parts: nodes that a vector stage can compute.

x = hi + mid + lo by truncation to 8 significant bits; where hi is not finite the others are 0.
The nodes are HLO like any other, made for the stage and taken away after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from compiler.hlo.dtypes import F32, PRED, U32, DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape

_HIGH_HALF = 0xFFFF0000
_ATTRS: dict[str, dict[str, object]] = {
    "broadcast": {"dimensions": ()},
    "compare": {"direction": "EQ"},
}


@contextmanager
def bf16_parts(node: HloInstruction, count: int) -> Iterator[list[HloInstruction]]:
    """`count` nodes with values exact in bf16 that add up to `node`, largest first.

    One part is the node itself: the store rounds it.
    """
    if count == 1:
        yield [node]
        return
    maker = _Maker(node.array.dims, node.name)
    value = node if node.array.dtype == F32 else maker.make("convert", F32, node)
    parts = [maker.truncated(value)]
    rest = maker.make("subtract", F32, value, parts[0])
    finite = maker.make("compare", PRED, rest, rest)  # the rest of an infinity or NaN is NaN
    rest = maker.make("select", F32, finite, rest, maker.constant(F32, 0))
    for _ in range(count - 1):
        parts.append(maker.truncated(rest))
        rest = maker.make("subtract", F32, rest, parts[-1])
    yield parts
    maker.remove()


class _Maker:
    """Makes nodes outside any computation."""

    def __init__(self, dims: tuple[int, ...], name: str) -> None:
        self._dims = dims
        self._name = name
        self._made: list[HloInstruction] = []

    def make(self, opcode: str, dtype: DType, *operands: HloInstruction) -> HloInstruction:
        """An elementwise node over the dims."""
        shape = ArrayShape(dtype, self._dims)
        attrs = _ATTRS.get(opcode, {})
        return self._add(HloInstruction(opcode, self._name, shape, operands, attrs))

    def constant(self, dtype: DType, value: int) -> HloInstruction:
        """A scalar constant, broadcast to the dims."""
        literal = np.asarray(value, dtype.numpy)
        scalar = HloInstruction(
            "constant", self._name, ArrayShape(dtype, ()), (), {"literal": literal}
        )
        return self.make("broadcast", dtype, self._add(scalar))

    def truncated(self, value: HloInstruction) -> HloInstruction:
        """`value` without its low 16 bits."""
        bits = self.make("bitcast-convert", U32, value)
        high = self.make("and", U32, bits, self.constant(U32, _HIGH_HALF))
        return self.make("bitcast-convert", F32, high)

    def remove(self) -> None:
        """Take the nodes out of their operands' use lists."""
        for node in reversed(self._made):
            node.set_operands(())

    def _add(self, node: HloInstruction) -> HloInstruction:
        self._made.append(node)
        return node
