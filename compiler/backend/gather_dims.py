"""The dimension numbers of a gather."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.indexing import const
from compiler.analysis.indexing_maps import Index
from compiler.hlo.ir import HloInstruction
from compiler.rewrite.make import dims_attr


@dataclass(frozen=True)
class GatherDims:
    """A gather's dimension numbers, and its operand and indices."""

    gather: HloInstruction
    operand: HloInstruction
    indices: HloInstruction
    offset_dims: tuple[int, ...]
    collapsed: tuple[int, ...]
    start_map: tuple[int, ...]
    operand_batch: tuple[int, ...]
    indices_batch: tuple[int, ...]
    vector_dim: int
    slice_sizes: tuple[int, ...]

    @property
    def batch_dims(self) -> tuple[int, ...]:
        """Result dimensions that number the slices."""
        return tuple(d for d in range(self.gather.array.rank) if d not in self.offset_dims)

    @property
    def window_dims(self) -> tuple[int, ...]:
        """Operand dimensions that the offset dimensions run over, in order."""
        gone = self.collapsed + self.operand_batch
        return tuple(d for d in range(self.operand.array.rank) if d not in gone)

    def start_index(self, batch: Index, component: int) -> Index:
        """Where component `component` of the start index of a slice lies."""
        index = list(batch)
        if self.vector_dim < self.indices.array.rank:
            index.insert(self.vector_dim, const(component))
        return tuple(index)


def gather_dims(gather: HloInstruction) -> GatherDims:
    """Read the dimension numbers of a gather."""
    vector_dim = gather.attrs["index_vector_dim"]
    assert isinstance(vector_dim, int)
    return GatherDims(
        gather,
        gather.operands[0],
        gather.operands[1],
        dims_attr(gather, "offset_dims"),
        dims_attr(gather, "collapsed_slice_dims"),
        dims_attr(gather, "start_index_map"),
        dims_attr(gather, "operand_batching_dims"),
        dims_attr(gather, "start_indices_batching_dims"),
        vector_dim,
        dims_attr(gather, "slice_sizes"),
    )
