"""The dimension numbers of a scatter, and the form that kernels take them in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from compiler.analysis.reducers import widened_kind
from compiler.hlo.dtypes import S32
from compiler.hlo.identities import MONOIDS, identity
from compiler.hlo.ir import HloComputation, HloInstruction

SORTED = "indices_are_sorted"
_FEW_LANES = 4
"""Elements of an update below which a row takes longer than its elements by address."""
_MANY = 1 << 17
"""Elements of updates of which it matters how they lie."""


@dataclass(frozen=True)
class ScatterDims:
    """A scatter's dimension numbers, and its operands, indices and updates.

    Operands have the same dimensions, and so have the updates.
    """

    scatter: HloInstruction
    operands: tuple[HloInstruction, ...]
    indices: HloInstruction
    all_updates: tuple[HloInstruction, ...]
    window_dims: tuple[int, ...]  # of the updates
    inserted: tuple[int, ...]
    index_map: tuple[int, ...]
    operand_batch: tuple[int, ...]
    indices_batch: tuple[int, ...]
    vector_dim: int

    @property
    def is_sorted(self) -> bool:
        """Whether index vectors come in ascending order, by words of one component; only what the pass
        `sorted-scatters` has sorted says so."""
        return bool(self.scatter.attrs.get(SORTED))

    @property
    def operand(self) -> HloInstruction:
        """The first operand, for its dimensions."""
        return self.operands[0]

    @property
    def updates(self) -> HloInstruction:
        """The first updates, for their dimensions."""
        return self.all_updates[0]

    @property
    def batch_dims(self) -> tuple[int, ...]:
        """Dimensions of the updates that number the index vectors."""
        return tuple(d for d in range(self.updates.array.rank) if d not in self.window_dims)

    @property
    def operand_window_dims(self) -> tuple[int, ...]:
        """Operand dimensions that an update extends over, in order."""
        gone = self.inserted + self.operand_batch
        return tuple(d for d in range(self.operand.array.rank) if d not in gone)

    def window_size(self, dim: int) -> int:
        """Extent of an update along an operand dimension."""
        if dim not in self.operand_window_dims:
            return 1
        number = self.operand_window_dims.index(dim)
        return self.updates.array.dims[self.window_dims[number]]

    @property
    def components(self) -> int:
        """Words of an index vector."""
        return len(self.index_map)

    @property
    def vectors(self) -> int:
        """Number of index vectors, of one batch where there is a batch dimension."""
        dims = [self.updates.array.dims[d] for d in self.batch_dims]
        return math.prod(dims[1:] if self.operand_batch else dims)

    @property
    def batches(self) -> int:
        """Size of the batch dimension of operand, indices and updates; 1 without."""
        return self.operand.array.dims[0] if self.operand_batch else 1


def scatter_dims(scatter: HloInstruction) -> ScatterDims:
    """Read the dimension numbers of a scatter."""
    count = len(scatter.operands) // 2
    return ScatterDims(
        scatter,
        tuple(scatter.operands[:count]),
        scatter.operands[count],
        tuple(scatter.operands[count + 1 :]),
        scatter.update_window_dims,
        scatter.inserted_window_dims,
        scatter.scatter_dims_to_operand_dims,
        scatter.input_batching_dims,
        scatter.scatter_indices_batching_dims,
        scatter.index_vector_dim,
    )


def is_canonical(d: ScatterDims) -> bool:
    """Whether the numbers of index vectors come first, flat, and their components before them.

    updates   [window ..]         indices [components]                one update
              [n, window ..]              [n] or [components, n]
              [b, n, window ..]           [b, n] or [components, b, n]  operand [b, .., .., ..]
    """
    lead = 2 if d.operand_batch else len(d.batch_dims)
    indices = d.indices.array
    if (lead > 1 and not can_stay_batched(d)) or len(d.batch_dims) != lead:
        return False
    if d.batch_dims != tuple(range(lead)) or indices.dtype != S32 or not d.operand.array.rank:
        return False
    if d.operand_batch and d.indices_batch != (indices.rank - lead,):
        return False  # the batch is numbered second
    if not lead:
        return indices.rank == 1 and d.vector_dim == 0 and d.components > 0
    is_scalar = indices.rank == lead and d.vector_dim == lead and d.components == 1
    return is_scalar or (indices.rank == lead + 1 and d.vector_dim == 0 and d.components > 1)


def has_numbers_last(d: ScatterDims) -> bool:
    """Whether the numbers of index vectors come last, flat: updates `[window .., n]`.

    A kernel takes such a scatter if it combines elements (`combines_elements`).
    """
    rank = d.updates.array.rank
    return bool(d.window_dims) and d.batch_dims == (rank - 1,)


def combines_elements(d: ScatterDims) -> bool:
    """Whether every element of an update goes to a place of its own, found by the index vector alone,
    where it is combined by a common operation on 32 bits or replaces what was there."""
    return len(d.batch_dims) == 1 and not d.operand_batch and _combines(d)


def _combines(d: ScatterDims) -> bool:
    dtype = d.operand.array.dtype
    if len(d.operands) != 1:
        return False
    if dtype.packing != 1 or dtype.is_complex or set(d.index_map) & set(d.operand_window_dims):
        return False
    if replaces(d.scatter):
        return True
    kind = widened_kind(d.scatter.to_apply, MONOIDS)
    return kind is not None and identity(kind, dtype) is not None


def replaces(scatter: HloInstruction) -> bool:
    """Whether an update takes the place of what was there."""
    computation = scatter.to_apply
    if not isinstance(computation, HloComputation) or len(computation.parameters) != 2:
        return False
    return computation.root_instruction is computation.parameters[1]


def combines_rows(d: ScatterDims) -> bool:
    """Whether every update is a whole row, found by the index vector, to which it is added, or with
    which it is combined by another common operation on 32 bits; of its own batch where there are batches."""
    rank = d.operand.array.rank
    lead = (0, 1) if d.operand_batch == (0,) else (0,)
    if rank < 2 or d.batch_dims != lead or d.operand_window_dims != (rank - 1,):
        return False
    is_whole = d.window_size(rank - 1) == d.operand.array.dims[-1]
    return is_whole and _combines(d) and not replaces(d.scatter)


def can_stay_batched(d: ScatterDims) -> bool:
    """Whether a kernel goes through each batch's own updates: one batch dimension, the first of
    the operand, and not among the tiled ones of operand and updates; and a batch has several updates, as
    those of other batches are not on their way meanwhile."""
    is_first = d.operand_batch == (0,) and d.operand.array.rank >= 3
    if is_first and d.vectors == 1:
        return False
    return is_first and bool(d.window_dims) and d.components > 0 and not _are_few_lanes(d)


def _are_few_lanes(d: ScatterDims) -> bool:
    """Whether updates that go by elements, as no batch's do, take less than rows that are mostly padding."""
    width = math.prod(d.updates.array.dims[w] for w in d.window_dims)
    return width <= _FEW_LANES and d.updates.array.element_count >= _MANY and _combines(d)
