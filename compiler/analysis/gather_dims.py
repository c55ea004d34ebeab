"""The dimension numbers of a gather, and what its size asks of a kernel."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from compiler.analysis.indexing import const
from compiler.analysis.indexing_maps import Index
from compiler.analysis.kernel_vmem import VREG_TILE_BYTES, box_vreg_tiles
from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction


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
    return GatherDims(
        gather,
        gather.operands[0],
        gather.operands[1],
        gather.offset_dims,
        gather.collapsed_slice_dims,
        gather.start_index_map,
        gather.operand_batching_dims,
        gather.start_indices_batching_dims,
        gather.index_vector_dim,
        gather.slice_sizes,
    )


STAGED_WORDS = 131072
"""Most index words that a kernel of rows brings to the scalar unit at once."""
HELD_SHARE = 0.6  # of VMEM that a resident operand, or indices that are staged whole, may take
_BYTES_AN_ELEMENT = 25_000  # that HBM moves while one element is sent for
_MOST_PADDING = 4  # times its elements that an array of indices may take
_LEAST_PADDED = 1 << 20  # bytes; below, another kernel takes longer
_ROW_SHARE = 0.05  # and a row tile of packed rows


def is_flat(d: GatherDims) -> bool:
    """Whether slices are numbered by one first dimension, and indices are a row a component.

    result [n, window ..]     indices [n] or [components, n]
    """
    indices = d.indices.array
    if d.batch_dims != (0,) or d.operand_batch or indices.dtype != S32 or not d.start_map:
        return False
    if len(d.start_map) == 1:
        return indices.rank == 1 and d.vector_dim == 1
    return indices.rank == 2 and d.vector_dim == 0


def has_rows(d: GatherDims) -> bool:
    """Whether slices are whole rows or whole trailing matrices."""
    operand, result = d.operand.array, d.gather.array
    indexed = len(d.start_map) + len(d.operand_batch)
    if sorted(d.start_map + d.operand_batch) != list(range(indexed)):
        return False
    if not 0 < indexed < operand.rank or set(d.collapsed) != set(d.start_map):
        return False
    is_whole = d.slice_sizes[indexed:] == operand.dims[indexed:]
    trailing = tuple(range(result.rank - (operand.rank - indexed), result.rank))
    if not is_whole or d.offset_dims != trailing:
        return False
    return indexed < operand.rank - 1 or result.rank >= 2


class Memories(Protocol):
    """What the choice of a gather asks of a chip."""

    @property
    def vmem_bytes(self) -> int:
        """Vector memory."""

    @property
    def smem_words(self) -> int:
        """Memory of the scalar unit."""


def is_large(d: GatherDims, chip: Memories) -> bool:
    """Whether slices are sent for part by part: the operand is too large to lie in VMEM, or much
    larger than what is read of it; of rows, the indices too large for VMEM or SMEM."""
    if has_rows(d):
        indices = d.indices.array
        words = math.prod(d.gather.array.dims[i] for i in d.batch_dims) * len(d.start_map)
        whole = VREG_TILE_BYTES * box_vreg_tiles(indices, indices.dims) + 4 * words
        held = max(2 * byte_size(indices.with_layout(None)), whole)
        is_staged = words <= min(STAGED_WORDS, chip.smem_words // 2)
        is_held = held <= HELD_SHARE * chip.vmem_bytes
        return not is_staged or not is_held or is_wide(d, chip.vmem_bytes)
    size = VREG_TILE_BYTES * box_vreg_tiles(d.operand.array, d.operand.array.dims)
    is_held = size <= HELD_SHARE * chip.vmem_bytes
    return not is_held or size > _BYTES_AN_ELEMENT * d.gather.array.element_count


def is_padded(d: GatherDims) -> bool:
    """Whether the indices, and single elements that they name, lie among much padding."""
    arrays = [d.indices.array]
    if all(size == 1 for size in d.slice_sizes):
        arrays.append(d.gather.array)
    size = sum(byte_size(a.with_layout(None)) for a in arrays)
    return size >= max(_LEAST_PADDED, _MOST_PADDING * sum(a.byte_count for a in arrays))


def is_wide(d: GatherDims, vmem_bytes: int) -> bool:
    """Whether some rows of a packed type, which are put together in VMEM, do not fit.

    Whole matrices are never put together: each is a piece of its own.
    """
    array = d.operand.array
    if len(d.start_map) + len(d.operand_batch) < array.rank - 1 and has_rows(d):
        return False
    row_bytes = 8 * array.dtype.packing * -(-array.dims[-1] // 128) * 512
    return array.dtype.packing > 1 and row_bytes > _ROW_SHARE * vmem_bytes
