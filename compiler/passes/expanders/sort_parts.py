"""Parts of a sort that fit VMEM, each of which is sorted by a loop that is one kernel.

Stages of a merge network over arrays in HBM read and write all of them, each time. So what is
larger than VMEM is taken apart first:

    rows, or columns, that are sorted for themselves: some of them at a time
    one long row: chunks of it are sorted; then, for pairs of chunks, of pairs, ..
        the stages whose partners lie in different chunks, over all of it in HBM
        what is left of the merge, chunk by chunk
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.analysis.tiled_layout import byte_size, tile_rows
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.passes.fusion_decision import MAX_OPERANDS, MAX_OUTPUTS
from compiler.rewrite.emitter import Emitter
from tpu_sim.isa.geometry import LANES

Instr = HloInstruction
MAX_UNROLLED_STAGES = 21  # those of 64 elements
MAX_UNROLLED_ARRAYS = MAX_OUTPUTS - 1
"""A stage's kernel has them as results, and the mask. What comes as the result of none is left
for a kernel of all stages, which works out each of them anew wherever the next reads it."""
MAX_LOOPED_ARRAYS = MAX_OPERANDS
"""A loop of more is no kernel: its stages are cut into kernels, some for each array."""


@dataclass(frozen=True)
class SortStage:
    """One stage: partners are ``i ^ distance``, or mirrored in blocks of ``2 * distance``."""

    distance: int
    is_mirror: bool


def merge_stages(length: int) -> list[SortStage]:
    """The stages that sort `length` elements (a power of two) both halves of which are sorted."""
    found = [SortStage(length // 2, is_mirror=True)]
    distance = length // 4
    while distance:
        found.append(SortStage(distance, is_mirror=False))
        distance //= 2
    return found


def stages(length: int) -> list[SortStage]:
    """All stages that sort `length` (a power of two) elements."""
    lengths = (1 << bit for bit in range(1, length.bit_length()))
    return [stage for half in lengths for stage in merge_stages(half)]


def partner(e: Emitter, value: Instr, axis: int, stage: SortStage) -> Instr:
    """What each element of a stage is compared with."""
    j, box = stage.distance, value.array.dims
    major, length, minor = box[:axis], box[axis], box[axis + 1 :]
    if stage.is_mirror and 2 * j == length:
        return e.reverse(value, (axis,))
    inside = (2 * j,) if stage.is_mirror else (2, j)
    split = (*major, length // (2 * j), *inside, *minor)
    return e.reshape(e.reverse(e.reshape(value, split), (axis + 1,)), box)


def is_unrolled(stages: int, arrays: int) -> bool:
    """Whether stages of whole arrays stand one after another, not in a loop."""
    is_short = stages <= MAX_UNROLLED_STAGES and arrays <= MAX_UNROLLED_ARRAYS
    return is_short or stages <= 1  # a single one is worked out once


Run = Callable[[Emitter, list[Instr], int, list[SortStage], Instr | None], list[Instr]]
"""Runs stages along an axis of a part, which begins at a place of it (None: at its start)."""
Part = Callable[[Emitter, Instr, list[Instr]], list[Instr]]


class SortParts:
    """The order in which parts of one sort's box are sorted.

    `axis` is the sorted dimension, `room` what a part may take in bytes.
    """

    def __init__(self, axis: int, room: int, run: Run) -> None:
        self.axis = axis
        self.room = room
        self.run = run

    def sorted(self, e: Emitter, state: list[Instr]) -> list[Instr]:
        """The arrays of `state`, sorted along the axis."""
        dims = state[0].array.dims
        plan = stages(dims[self.axis])
        if len(plan) <= MAX_UNROLLED_STAGES or self._fits(state, dims):
            return self.run(e, state, self.axis, plan, None)
        for other, granule in self._others(state):
            size = self._largest(state, other, granule)
            if size:
                return self._by_parts(
                    e, state, other, size, lambda b, _, part: self.sorted(b, part)
                )
        if self.axis:
            return self._by_parts(e, state, 0, 1, self._single)
        return self._merged(e, state)

    def _single(self, e: Emitter, _: Instr, state: list[Instr]) -> list[Instr]:
        """One row, without the dimension that counts rows."""
        dims = state[0].array.dims
        rows = [e.reshape(value, dims[1:]) for value in state]
        made = SortParts(self.axis - 1, self.room, self.run).sorted(e, rows)
        return [e.reshape(value, dims) for value in made]

    def _others(self, state: list[Instr]) -> list[tuple[int, int]]:
        """Dimensions that are not sorted, with what parts of them should be multiples of."""
        dims = state[0].array.dims
        others: list[tuple[int, int]] = []
        if self.axis:
            rows = max(tile_rows(value.array.dtype, dims[0]) for value in state)
            others.append((0, rows if len(dims) == 2 else 1))
        if self.axis + 1 < len(dims):
            others.append((len(dims) - 1, LANES))
        return [(other, granule) for other, granule in others if dims[other] > granule]

    def _largest(self, state: list[Instr], other: int, granule: int) -> int:
        """The size of equal parts of a dimension that fit; 0 where none does."""
        dims = state[0].array.dims
        count = 2
        while True:
            size = -(-dims[other] // (count * granule)) * granule
            if self._fits(state, _resized(dims, other, size)):
                return size
            if size == granule:
                return 0
            count += 1

    def _merged(self, e: Emitter, state: list[Instr]) -> list[Instr]:
        dims = state[0].array.dims
        length = chunk = dims[self.axis]
        while chunk > 2 and not self._fits(state, _resized(dims, self.axis, chunk)):
            chunk //= 2
        state = self._chunks(e, state, chunk, stages(chunk))
        block = 2 * chunk
        while block <= length:
            plan = merge_stages(block)
            far = [stage for stage in plan if stage.distance >= chunk]
            for stage in far:
                state = self.run(e, state, self.axis, [stage], None)
            state = self._chunks(e, state, chunk, plan[len(far) :])
            block *= 2
        return state

    def _chunks(
        self, e: Emitter, state: list[Instr], chunk: int, plan: list[SortStage]
    ) -> list[Instr]:
        def part(b: Emitter, first: Instr, values: list[Instr]) -> list[Instr]:
            return self.run(b, values, self.axis, plan, first)

        return self._by_parts(e, state, self.axis, chunk, part)

    def _by_parts(
        self, e: Emitter, state: list[Instr], dim: int, size: int, part: Part
    ) -> list[Instr]:
        """Parts of a dimension one after another, in place.

        The last one begins earlier where the size does not divide: what is sorted stays so.
        """
        dims = state[0].array.dims

        def step(b: Emitter, i: Instr, values: list[Instr]) -> list[Instr]:
            zero = b.constant(S32, 0)
            starts = [zero] * len(dims)
            starts[dim] = b.multiply(i, b.constant(S32, size))
            box = _resized(dims, dim, size)
            taken = [b.dynamic_slice(value, starts, box) for value in values]
            made = part(b, starts[dim], taken)
            return [
                b.dynamic_update_slice(value, new, starts)
                for value, new in zip(values, made, strict=True)
            ]

        return e.loop(-(-dims[dim] // size), state, step)

    def _fits(self, state: list[Instr], dims: tuple[int, ...]) -> bool:
        return sum(byte_size(value.array.with_dims(dims)) for value in state) <= self.room


def _resized(dims: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*dims[:dim], size, *dims[dim + 1 :])
