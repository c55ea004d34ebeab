"""HLO nodes outside any computation: what a stage computes of a node, made for it, taken away after."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape


class FreeNodes:
    """Makes nodes that are called `name`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._made: list[HloInstruction] = []

    def make(
        self,
        opcode: str,
        dtype: DType,
        dims: tuple[int, ...],
        *operands: HloInstruction,
        **attrs: object,
    ) -> HloInstruction:
        """A node of that shape."""
        node = HloInstruction(opcode, self._name, ArrayShape(dtype, dims), operands, attrs)
        self._made.append(node)
        return node

    def scalar(self, dtype: DType, value: int) -> HloInstruction:
        """A scalar constant."""
        return self.make("constant", dtype, (), literal=np.asarray(value, dtype.numpy))

    def splat(self, dtype: DType, dims: tuple[int, ...], value: int) -> HloInstruction:
        """A scalar constant, broadcast to the dims."""
        return self.make("broadcast", dtype, dims, self.scalar(dtype, value), dimensions=())

    def remove(self) -> None:
        """Take the nodes out of their operands' use lists."""
        for node in reversed(self._made):
            node.set_operands(())


@contextmanager
def free_nodes(name: str) -> Iterator[FreeNodes]:
    """A maker whose nodes are gone afterwards."""
    nodes = FreeNodes(name)
    yield nodes
    nodes.remove()
