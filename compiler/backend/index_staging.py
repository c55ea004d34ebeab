"""Index vectors on their way to the scalar unit: from a window to consecutive SMEM words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from compiler.analysis.indexing import Expr, const
from compiler.analysis.kernel_vmem import held_rows
from compiler.backend.smem_scratch import SmemScratch
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from compiler.rewrite.free_nodes import free_nodes
from tpu_sim.isa.geometry import SUBLANES
from tpu_sim.isa.program import SMEM, VMEM, DmaDescriptor

_ZERO = const(0)
VREG_WORDS = 1024


class IndexStaging:
    """Puts the components of index vectors into SMEM, vector after vector.

    `count` vectors of `components` words go to SMEM words `base` .. Where all components have the same
    `last` value, they are brought into 0..last on the way (`is_clamped`). Up to `beyond` vectors after the
    last one may be read: they are clamped like the others.
    """

    def __init__(
        self,
        builder: LloBuilder,
        indices: HloInstruction,
        vector_dim: int,
        count: int,
        smem: SmemScratch,
        last: Sequence[int] = (),
        beyond: int = SUBLANES - 1,
    ) -> None:
        self.builder = builder
        self.indices = indices
        self.vector_dim = vector_dim
        dims = indices.array.dims
        self.components = dims[vector_dim] if vector_dim < len(dims) else 1
        words, padded = count * self.components, (count + beyond) * self.components
        is_held = padded <= -(-words // VREG_WORDS) * VREG_WORDS
        self.is_clamped = len(set(last)) == 1 and (is_held or count % (beyond + 1) == 0)
        self._last = last[0] if self.is_clamped else 0
        self.words = padded if self.is_clamped and is_held else words
        self.base = smem.reserve(padded)
        self._shape = ArrayShape(S32, (math.prod(dims),))
        self._window = builder.window(
            f"staged.{indices.name}", held_rows(self._shape, (self.words,))
        )
        self._flag = builder.flag()

    def emit(self, emitter: VectorEmitter, first: Expr = _ZERO) -> None:
        """Stage the vectors from number `first` on (a multiple of a vreg's 1024 words)."""
        b = self.builder
        target = VmemArray(
            self._shape,
            self._window,
            0,
            (first * self.components,),
            (self.words,),
            guard=GUARD_ROWS,
        )
        last = self._last if self.is_clamped else None
        with flattened(self.indices, self.vector_dim, last) as flat:
            emitter.emit_stage([flat], [target])
        b.new_block()
        descriptor = b.descriptor(DmaDescriptor(VMEM, SMEM, self.words, (), self._window))
        b.emit("dma.start", descriptor, 0, b.sconst(self.base), self._flag, 0, 0, 0)
        b.emit("dma.wait", self._flag, 0)
        b.new_block()

    def component(self, number: SReg, component: int, ahead: int = 0) -> SReg:
        """An sreg with one component of the vector `ahead` of the number in sreg `number`."""
        b = self.builder
        place = self.base + component + ahead * self.components
        return b.emit("sld", b.smuli(number, self.components), place)


@contextmanager
def flattened(
    indices: HloInstruction, vector_dim: int, last: int | None
) -> Iterator[HloInstruction]:
    """A node with all components of all index vectors in one row, component fastest, as s32; brought
    into 0..last unless that is None."""
    node, dims, dtype = indices, indices.array.dims, indices.array.dtype
    with free_nodes(indices.name) as nodes:
        if vector_dim < len(dims) - 1:
            order = (*(d for d in range(len(dims)) if d != vector_dim), vector_dim)
            turned = tuple(dims[d] for d in order)
            node = nodes.make("transpose", dtype, turned, node, dimensions=order)
        if len(dims) != 1:
            node = nodes.make("reshape", dtype, (math.prod(dims),), node)
        if dtype != S32:
            node = nodes.make("convert", S32, node.array.dims, node)
        if last is not None:
            flat = node.array.dims
            node = nodes.make("maximum", S32, flat, node, nodes.splat(S32, flat, 0))
            node = nodes.make("minimum", S32, flat, node, nodes.splat(S32, flat, last))
        yield node
