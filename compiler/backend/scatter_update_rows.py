"""The rows of one update of a scatter, combined into the blocks that its kernel holds in VMEM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from compiler.analysis.indexing import Expr
from compiler.analysis.scatter_dims import ScatterDims
from compiler.analysis.windows import GridDim
from compiler.backend.index_scalars import emit_index
from compiler.backend.row_update import RowUpdate
from compiler.backend.scatter_cut import ScatterCut
from compiler.backend.slice_parts import SliceParts, step_origin
from compiler.backend.tile_update import TileUpdate, can_update_tiles
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.reducers import reducer_of
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg


@dataclass(frozen=True)
class OneUpdate:
    """One update of a scatter, and the blocks in VMEM that it is combined into.

    `starts` is where it lies in the operand, along the dimensions that index vectors name; `lead` where
    it lies among the updates.
    """

    emitter: VectorEmitter
    targets: Sequence[VmemArray]
    starts: dict[int, SReg]
    lead: tuple[Expr, ...]


class UpdateRows:
    """Goes over the step's piece of an update, row by row or a matrix at a time."""

    def __init__(
        self,
        builder: LloBuilder,
        dims: ScatterDims,
        cut: ScatterCut,
        grid: tuple[GridDim, ...],
        parts: SliceParts,
    ) -> None:
        self.builder = builder
        self.dims = dims
        self.cut = cut
        self.grid = grid
        self.parts = parts

    def emit(self, update: OneUpdate, when: SReg = -1) -> None:
        """Combine the rows of the step's piece of an update, by tiles where they are all there.

        With `when` there is one row or matrix, which stays as it is where that is 0.
        """
        rank = self.dims.operand.array.rank
        if self.has_whole_matrices(update.targets):
            with self._row_loops(update.emitter, rank - 2) as offsets:
                self._one_matrix(update, offsets, when)
            return
        with self._row_loops(update.emitter, rank - 1) as offsets:
            self._one_row(update, offsets, when)

    @contextmanager
    def _row_loops(self, emitter: VectorEmitter, rank: int) -> Iterator[dict[int, Expr]]:
        """Loops over the rows (or matrices) of a part; yields the position in the update along each
        of the first `rank` dimensions of the operand."""
        with self.parts.row_loops(emitter, rank) as inner:
            yield {dim: self.parts.origin[dim] + offset for dim, offset in inner.items()}

    def has_whole_matrices(self, targets: Sequence[VmemArray]) -> bool:
        """Whether updates extend over the whole of the last two dimensions, and so do blocks."""
        dims = self.dims.operand.array.dims
        if len(dims) < 2 or not can_update_tiles([t.shape.dtype for t in targets]):
            return False
        is_whole = self.cut.parts[-2:] == dims[-2:]
        return is_whole and all(t.extent[-2:] == dims[-2:] for t in targets)

    def _one_matrix(self, update: OneUpdate, offsets: dict[int, Expr], when: SReg) -> None:
        """Combine a matrix of an update into the block, if it lies there."""
        places = self._local_places(update, offsets)
        inside, _ = self._row_is_held([*places[0], 0], update.targets[0])
        windows = self.dims.operand_window_dims
        rank = self.dims.operand.array.rank
        with ExitStack() as scope:
            when, places = self._guarded(scope, inside, when, places)
            matrix = TileUpdate(
                update.emitter, reducer_of(self.dims.scatter), update.targets, places, when
            )
            matrix.emit(
                self.dims.all_updates,
                lambda row, col: (
                    *update.lead,
                    *({**offsets, rank - 2: row, rank - 1: col}[dim] for dim in windows),
                ),
            )

    def _guarded(
        self, scope: ExitStack, inside: SReg, when: SReg, places: list[list[SReg]]
    ) -> tuple[SReg, list[list[SReg]]]:
        """What follows happens only `inside`: by a branch, or with `when` by a mask, at the first
        places where there is nothing to do."""
        b = self.builder
        if when >= 0:
            when = b.sand(when, inside)
            places = [
                [at if b.constant(at) == 0 else b.ssel(when, at, 0) for at in where]
                for where in places
            ]
        elif b.constant(inside) != 1:
            scope.enter_context(b.if_(inside))
        return when, places

    def _local_places(self, update: OneUpdate, offsets: dict[int, Expr]) -> list[list[SReg]]:
        """Per target, where positions `offsets` of an update lie in the box along the dimensions."""
        b, emitter = self.builder, update.emitter
        absolute = [
            b.sadd(update.starts.get(dim, 0), emit_index(b, offset, emitter.sregs))
            for dim, offset in offsets.items()
        ]
        return [
            [
                b.ssub(place, emit_index(b, low, emitter.sregs))
                for place, low in zip(absolute, target.origin, strict=False)
            ]
            for target in update.targets
        ]

    def _one_row(self, update: OneUpdate, offsets: dict[int, Expr], when: SReg) -> None:
        """Combine one row of an update into the block, if it lies there."""
        last = self.dims.operand.array.rank - 1
        column = step_origin(self.grid, f"p{last}")
        places = self._local_places(update, {**offsets, last: column})
        inside, is_cut = self._row_is_held(places[0], update.targets[0])
        with ExitStack() as scope:
            when, places = self._guarded(scope, inside, when, places)
            width, whole = self.cut.pieces[last], self.dims.window_size(last)
            row = RowUpdate(
                update.emitter, reducer_of(self.dims.scatter), update.targets, places, when
            )
            row.emit(
                self.dims.all_updates,
                lambda lane: self._update_index(update.lead, offsets, column + lane),
                width,
                beyond=(column, whole) if whole % width else None,
                is_cut=is_cut,
            )

    def _row_is_held(self, places: Sequence[SReg], target: VmemArray) -> tuple[SReg, bool]:
        """Whether a row lies in the block (but for its columns), and whether columns are cut."""
        b = self.builder
        inside = b.sconst(1)
        if self.cut.blocks is None:
            return inside, False
        for dim, place in enumerate(places[:-1]):
            if self.grid[dim].steps > 1 and not (dim == 0 and self.dims.operand_batch):
                extent = b.sconst(target.extent[dim])
                inside = b.sand(inside, b.emit("scmp.lt.u32", place, extent))
        return inside, self.grid[len(places) - 1].steps > 1

    def _update_index(
        self, lead: tuple[Expr, ...], offsets: dict[int, Expr], lane: Expr
    ) -> tuple[Expr, ...]:
        """The index in the updates of position `lane` of a row."""
        last = self.dims.operand.array.rank - 1
        windows = self.dims.operand_window_dims
        return (*lead, *(lane if dim == last else offsets[dim] for dim in windows))
