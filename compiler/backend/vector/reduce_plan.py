"""How the dimensions of a reduce's operand are gone over, and how values are combined on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from compiler.analysis.indexing import Expr, const
from compiler.analysis.indexing_boxes import Box
from compiler.analysis.indexing_maps import Condition, Index
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.reducers import State
from compiler.backend.vector.stage_cost import stage_packing
from compiler.backend.vector.tile_indices import full_tile
from compiler.backend.vector.tile_loops import TilePoint, TileSpace, places_in_box
from compiler.hlo.ir import HloInstruction

ReducedBox = tuple[tuple[Expr, int], ...]
"""(first index, extent) of each reduced dimension, in ascending order of dimension."""

ACCUMULATORS = 4
"""Running states of one kept tile, so that no combination waits for the one before it."""


@dataclass(frozen=True)
class ReducePlan:
    """The operand's physical view, dimension by dimension kept or reduced.

    `kept_major`/`reduced_major` number operand dims; `row`/`col` say whether these are kept.
    """

    dims: tuple[int, ...]
    reduced_dims: tuple[int, ...]
    kept: TileSpace
    reduced: TileSpace
    keeps_rows: bool
    keeps_cols: bool
    kept_low: tuple[Expr, ...]
    reduced_low: tuple[Expr, ...]
    reduced_extent: tuple[int, ...]

    def index(self, kept: TilePoint, point: TilePoint, part: int, inner: int) -> Index:
        """The operand's logical index at a kept and a reduced tile."""
        kept_places = iter(places_in_box(self.kept, kept, part, self.keeps_rows, self.keeps_cols))
        reduced_places = iter(
            places_in_box(self.reduced, point, inner, not self.keeps_rows, not self.keeps_cols)
        )
        kept_low, reduced_low = iter(self.kept_low), iter(self.reduced_low)
        return tuple(
            next(reduced_low) + next(reduced_places)
            if d in self.reduced_dims
            else next(kept_low) + next(kept_places)
            for d in range(len(self.dims))
        )

    def conditions(self, point: TilePoint, inner: int) -> tuple[Condition, ...]:
        """Where a reduced tile has elements: those of the array, and of this box of it.

        A box of a packed type may end within a tile, whose other rows are the next box's.
        """
        places = places_in_box(
            self.reduced, full_tile(point), inner, not self.keeps_rows, not self.keeps_cols
        )
        found: list[Condition] = []
        boxes = zip(self.reduced_dims, places, self.reduced_low, self.reduced_extent, strict=True)
        for d, place, low, extent in boxes:
            found += [Condition(place, 0, extent - 1), Condition(low + place, 0, self.dims[d] - 1)]
        return tuple(dict.fromkeys(c for c in found if not c.is_always))


def reduce_plan(
    reduces: Sequence[HloInstruction], made: Box, box: ReducedBox | None, emitter: ElementEmitter
) -> ReducePlan:
    """How reduces get a box of their results, of all that they reduce or of a `box` of it.

    They have the same dimensions; elements come as many to a word as the most packed operand has.
    """
    reduce = reduces[0]
    operand = reduce.operands[0]
    dims = operand.array.dims
    reduced_dims = tuple(sorted(reduce.dimensions))
    if box is None:
        box = tuple((const(0), dims[d]) for d in reduced_dims)
    sizes = dict(zip(reduced_dims, (extent for _, extent in box), strict=True))
    kept_dims = [d for d in range(len(dims)) if d not in reduced_dims]
    kept_sizes = dict(zip(kept_dims, made.extent, strict=True))
    operands = [o for one in reduces for o in one.operands[: len(one.operands) // 2]]
    packing = stage_packing(operands, [], emitter.bindings)
    first_tiled = max(0, len(dims) - 2)
    is_vector = len(dims) == 1
    row, col = (-1, 0) if is_vector else (len(dims) - 2, len(dims) - 1)

    def space(of: dict[int, int]) -> TileSpace:
        majors = tuple(of[d] for d in sorted(of) if d < first_tiled)
        if is_vector and col in of:
            return TileSpace(majors, -(-of[col] // 128), min(128, of[col]), packing, True)
        rows = of.get(row, packing if is_vector else 1)
        return TileSpace(majors, rows, of.get(col, 1), packing)

    keeps_rows = row in kept_sizes
    kept = space(kept_sizes)
    if not keeps_rows:
        kept = replace(kept, packing=1, rows=1)
    return ReducePlan(
        dims, reduced_dims, kept, _without_rows(space(sizes), keeps_rows), keeps_rows,
        col in kept_sizes, made.low, tuple(low for low, _ in box),
        tuple(extent for _, extent in box),
    )  # fmt: skip


def _without_rows(space: TileSpace, keeps_rows: bool) -> TileSpace:
    return replace(space, packing=1, rows=1) if keeps_rows else space


class Accumulators:
    """A few running states of one value."""

    def __init__(
        self,
        combine: Callable[[list[State], list[State]], list[State]],
        count: int = ACCUMULATORS,
    ) -> None:
        self._combine = combine
        self._most = count
        self._running: list[list[State]] = []
        self._count = 0

    def add(self, value: list[State]) -> None:
        """Take in one more value."""
        if len(self._running) < self._most:
            self._running.append(value)
        else:
            slot = self._count % self._most
            self._running[slot] = self._combine(self._running[slot], value)
        self._count += 1

    def total(self) -> list[State]:
        """All values combined, pairwise."""
        level = self._running
        while len(level) > 1:
            pairs = [self._combine(a, b) for a, b in zip(level[::2], level[1::2], strict=False)]
            level = pairs + ([level[-1]] if len(level) % 2 else [])
        return level[0]
