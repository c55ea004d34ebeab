"""What is read with its rows along the lanes, which whole blocks through the transpose units serve best."""

from __future__ import annotations

from compiler.analysis.indexing_boxes import leaf_indices
from compiler.analysis.indexing_maps import Index
from compiler.backend.vector.addresses import physical_index
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.transposes import transposed_index
from compiler.hlo.ir import HloInstruction
from tpu_sim.isa.geometry import SUBLANES, UNIT_DIM

LEAST_TRANSPOSED = 2
"""Vregs of a transposed block for which the transpose takes less than indexed loads."""


def block_row_tiles(packing: int) -> int:
    """Row tiles of a stage that a transposed block has."""
    return UNIT_DIM // (SUBLANES * packing)


def reads_transposed(emitter: ElementEmitter, node: HloInstruction, index: Index) -> bool:
    """Whether some leaf that a node's elements at `index` need is read with rows along the lanes."""
    leaves = leaf_indices(node, index, frozenset(emitter.bindings) | frozenset(emitter.scalars))
    return any(
        transposed_index(emitter.bindings[leaf], *physical_index(emitter.bindings[leaf], at))
        for leaf, indices in leaves.items()
        if leaf in emitter.bindings
        for at in indices
    )
