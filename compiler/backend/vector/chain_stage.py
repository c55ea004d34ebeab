"""Row chains: reductions of rows and what is computed of them, a block of whole rows at a time.

All column tiles of a block are in one body. A reduction's value is known to the emitter at the
block's rows once it is folded, and what several members compute is remembered, so that nothing goes
through VMEM but what the chain reads, its results and what it leaves for other stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from compiler.analysis.indexing import Expr, linearize, ranged, var
from compiler.analysis.indexing_boxes import leaf_indices
from compiler.analysis.indexing_maps import Index
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.index_values import LANE, SUBLANE
from compiler.backend.vector.long_sums import long_sums, run_side_by_side
from compiler.backend.vector.ops import value_class
from compiler.backend.vector.probe import inner_point, probe_emitter, work
from compiler.backend.vector.reduce_stage import RowReduction
from compiler.backend.vector.row_periods import period_of_rows
from compiler.backend.vector.row_splits import row_factors, row_variable, split_rows
from compiler.backend.vector.small_floats import round_to, settle
from compiler.backend.vector.stage import BoxStage, emit_tile
from compiler.backend.vector.stores import Storer
from compiler.backend.vector.tile_loops import TileLoops, TilePoint, TileSpace, tile_points
from compiler.hlo.ir import HloInstruction

_BODY_OPS = 1600
"""Operations to aim at in a body: a block of rows waits for two folds, so several must be under way."""


@dataclass(frozen=True)
class ChainRows:
    """The rows of a chain: `low` and `extent` of all dimensions of its elements but the last, which
    has `cols` elements; `packing` phases of a row."""

    low: tuple[Expr, ...]
    extent: tuple[int, ...]
    cols: int
    packing: int

    @property
    def space(self) -> TileSpace:
        """The blocks of rows, as tiles of one column."""
        return TileSpace(self.extent[:-1], self.extent[-1], 128, self.packing)

    @property
    def columns(self) -> list[TilePoint]:
        """The column tiles of a block."""
        return list(tile_points(TileSpace((), 1, self.cols, 1)))

    def index(self, point: TilePoint, part: int) -> Index:
        """The index of a block's rows of one phase."""
        row = point.row_tile * (8 * self.packing) + point.sublane * self.packing + part
        places = (*point.majors, row)
        return tuple([low + place for low, place in zip(self.low, places, strict=True)])


@dataclass(frozen=True)
class Chain:
    """A chain over `rows`: its `members`, in their order, with where each is left for others, if it
    is, and its `results` with where each goes."""

    rows: ChainRows
    members: tuple[tuple[HloInstruction, VmemArray | None], ...]
    results: tuple[tuple[HloInstruction, VmemArray], ...]

    @property
    def nodes(self) -> list[HloInstruction]:
        """All that is computed."""
        return [*(node for node, _ in self.members), *(node for node, _ in self.results)]


def emit_chain_stage(emitter: ElementEmitter, chain: Chain) -> None:
    """See `VectorEmitter.emit_chain_stage`."""
    emitter.bind_starts(chain.nodes)
    rows = chain.rows
    indices = _read_indices(emitter, rows, chain.nodes)
    factors = row_factors(rows.space, indices)
    probe = ChainBlocks(probe_emitter(emitter), chain)
    space, body = split_rows(rows.space, factors, probe.block)
    point = inner_point(probe.emitter, space)
    cost = work(probe.emitter, lambda: body(point))
    loops = TileLoops(emitter.builder, emitter.sregs)
    blocks = ChainBlocks(emitter, chain)

    def block_of(other: ElementEmitter) -> Callable[[TilePoint], None]:
        return ChainBlocks(other, chain).block

    found = period_of_rows(emitter, rows.space, indices, cost.issue_cycles, block_of)
    sums = long_sums(emitter, chain.nodes)
    if found is None and sums:
        tile = (factors, cost.operations, blocks.wanted, blocks.block)
        run_side_by_side(emitter, sums, rows.space, *tile, len(blocks.columns), _BODY_OPS)
    elif found is None:
        space, body = split_rows(rows.space, factors, blocks.block)
        loops.run(space, cost.operations, body, _BODY_OPS)
    else:
        found.run(loops, rows.space, _BODY_OPS, blocks.block)
    emitter.builder.new_block()


def _read_indices(
    emitter: ElementEmitter, rows: ChainRows, nodes: Sequence[HloInstruction]
) -> list[Expr]:
    """The indices at which a chain reads what lies in VMEM, by the variable of its row tile."""
    space = rows.space
    majors = tuple(ranged(f"m{d}", n) for d, n in enumerate(space.majors))
    point = TilePoint(majors, row_variable(space), ranged("ct", 1), var(SUBLANE), var(LANE))
    row = rows.index(point, 0)
    element = (*row, ranged("chain", rows.cols))
    stop = frozenset(emitter.bindings) | frozenset(emitter.scalars)
    found: list[Expr] = []
    for node in nodes:
        at = row if node.opcode == "reduce" else element
        for indices in leaf_indices(node, at, stop).values():
            found += [expr for index in indices for expr in index]
    return found


class ChainBlocks:
    """Emits blocks of a chain. `columns` are the column tiles of each, in order."""

    def __init__(self, emitter: ElementEmitter, chain: Chain) -> None:
        rows = self.rows = chain.rows
        self._chain = chain
        self.emitter = emitter
        self.columns = rows.columns
        self._storer = Storer(emitter.ops, emitter.index_values)
        self._members = [
            (node, target, self._reduction(node) if node.opcode == "reduce" else None)
            for node, target in chain.members
        ]
        self._results = self._stage(chain.results)

    def _stage(self, pairs: Sequence[tuple[HloInstruction, VmemArray]]) -> BoxStage:
        nodes, targets = tuple(n for n, _ in pairs), tuple(t for _, t in pairs)
        return BoxStage(nodes, targets, self.rows.space)

    def _reduction(self, node: HloInstruction) -> RowReduction:
        rows = self.rows
        return RowReduction(self.emitter, node, rows.low, rows.extent, rows.packing)

    def block(self, point: TilePoint) -> None:
        """All that is computed of a block of rows."""
        for node, target, reduction in self._members:
            self.emitter.builder.source = node.name
            if reduction is not None:
                self._reduce(node, target, reduction, point)
            elif target is not None:
                for column in self.columns:
                    self._tile(self._stage([(node, target)]), point, column)
        if self._results.nodes:
            for column in self.columns:
                self._tile(self._results, point, column)

    def wanted(self, point: TilePoint) -> Iterator[tuple[HloInstruction, Index]]:
        """What a block of rows computes at each of its elements, with the index."""
        nodes = [n for n in self._chain.nodes if n.opcode != "reduce"]
        nodes += [n.operands[0] for n in self._chain.nodes if n.opcode == "reduce"]
        for column in self.columns:
            for part in range(self.rows.packing):
                at = (*self.rows.index(point, part), column.col_tile * 128 + column.lane)
                yield from ((node, at) for node in nodes)

    def _tile(self, stage: BoxStage, point: TilePoint, column: TilePoint) -> None:
        emit_tile(self.emitter, stage, replace(point, col_tile=column.col_tile, lane=column.lane))

    def _reduce(
        self,
        node: HloInstruction,
        target: VmemArray | None,
        reduction: RowReduction,
        point: TilePoint,
    ) -> None:
        is_left = target is not None
        parts = [self._settled(node, value, is_left) for value in reduction.rows(point)]
        for part, value in enumerate(parts):
            self.emitter.preset(node, self.rows.index(point, part), value)
        if target is not None:
            major = linearize(point.majors, target.major_pitch)
            self._storer.store(target, major, point.row_tile, point.col_tile, parts)

    def _settled(self, node: HloInstruction, value: int, is_left: bool) -> int:
        """A sum, which lies in 32 bits, as a value of the node's type.

        What is also left in memory is rounded here too: where the greatest of equal values is
        looked for, all who read a sum must see the same.
        """
        dtype = node.array.dtype
        if is_left and dtype.name == "bf16":
            return round_to(self.emitter.ops, value, dtype)
        if value_class(dtype) == "m":
            return self.emitter.ops.integer_to_mask(value)
        return settle(self.emitter.ops, value, dtype) if dtype.is_float else value
