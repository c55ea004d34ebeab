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
_MOST_ROUNDS = 3
"""Blocks of small matrices for each unit in a loop body: more code takes long to schedule (assumed)."""


def matrices_at_once(count: int, usual: int, most: int, units: int) -> int:
    """How many of `count` matrices of one block a body has: as many as let few units wait for the others,
    where they divide what there is; else the usual number. A body has room for `most` of them."""
    steps = [n for n in range(1, min(most, _MOST_ROUNDS * units) + 1) if count % n == 0]
    best = min(steps, key=lambda n: (-(-n // units) / n, n), default=usual)
    return max(best, usual)


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
