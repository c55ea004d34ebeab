"""A dot's elementwise users as the epilogue of its matmul stage.

What a root stage would load from scratch, compute and store is computed from the popped registers
instead, between the matmuls, where vector slots are free. That needs every path from the roots to
the dot to keep the index, and roots that lie over the dot's box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from compiler.analysis.indexing import Expr, Var, const, delinearize, linearize, ranged, var
from compiler.analysis.indexing_boxes import leaf_indices
from compiler.analysis.indexing_maps import Index, operand_indices
from compiler.backend.dot import Affine, Epilogue, ResultTile
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.chain_stage import Chain, ChainBlocks
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.index_values import LANE, SUBLANE
from compiler.backend.vector.ops import value_class
from compiler.backend.vector.small_floats import settle
from compiler.backend.vector.stage_cost import operation_count, stage_packing
from compiler.backend.vector.stores import Storer
from compiler.backend.vector.tile_indices import point_index
from compiler.backend.vector.tile_loops import TilePoint, TileSpace, tile_space
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.llo.ir import SReg, VReg
from tpu_sim.isa.geometry import LANES

_PACKING = 2
_MOST_OPS = 48
"""Longer epilogues than this leave the MXU waiting: better a stage of their own."""


def fused_epilogue(
    emitter: ElementEmitter,
    dot: HloInstruction,
    roots: Sequence[tuple[HloInstruction, VmemArray]],
    out: VmemArray,
) -> Epilogue | None:
    """The epilogue that computes `roots` into their windows, or None if they need more than it.

    `out` is the dot's whole box (f32).
    """
    nodes = [node for node, _ in roots]
    targets = [array for _, array in roots]
    if not roots or not all(_fits(node, target, out) for node, target in roots):
        return None
    if stage_packing(nodes, targets, emitter.bindings) > _PACKING:
        return None
    space = tile_space(out, _PACKING)
    index = point_index(out, space, _sample(space), 0)
    if not _keeps_index(emitter, dot, nodes, index):
        return None
    ops = operation_count(nodes, {**emitter.bindings, dot: out})
    if ops > _MOST_OPS:
        return None
    body = _FusedRoots(emitter, dot, roots, out, space)
    return Epilogue(body.finish, ops)


def fused_chain(
    emitter: ElementEmitter, dot: HloInstruction, chain: Chain, out: VmemArray
) -> Epilogue | None:
    """The epilogue that computes a chain of rows of `dot`, block by block, or None if it needs more.

    `out` is the dot's whole box (f32); the epilogue wants all columns of a row.
    """
    rows = chain.rows
    is_box = (rows.low, rows.extent) == (out.origin[:-1], out.extent[:-1])
    if rows.packing > _PACKING or not is_box:
        return None
    chain = replace(chain, rows=replace(rows, packing=_PACKING))
    space = tile_space(out, _PACKING)
    index = point_index(out, space, _sample(space), 0)
    ops = operation_count(chain.nodes, {**emitter.bindings, dot: out})
    if ops > _MOST_OPS or not _chain_keeps_index(emitter, dot, chain, index):
        return None
    emitter.bind_starts(chain.nodes)
    body = _FusedRows(emitter, dot, chain, out, space)
    return Epilogue(body.finish, ops, out.col_tiles)


def _chain_keeps_index(
    emitter: ElementEmitter, dot: HloInstruction, chain: Chain, index: Index
) -> bool:
    """Whether all that is computed at `index` reads the dot there."""
    stop = {dot, *emitter.bindings, *emitter.scalars}
    stop.update(node for node, _ in chain.members)
    starts = [node.operands[0] for node, _ in chain.members if node.opcode == "reduce"]
    starts += [node for node, _ in (*chain.members, *chain.results) if node.opcode != "reduce"]
    for node in starts:
        reads = leaf_indices(node, index, stop - {node}).get(dot, ())
        if any(at != index for at in reads):
            return False
    return True


def _fits(node: HloInstruction, target: VmemArray, out: VmemArray) -> bool:
    """Whether a root's window is the dot's box, in whole column tiles, of the node's class."""
    return (
        target.shape.rank == out.shape.rank >= 2
        and target.shape.dims == out.shape.dims
        and target.origin == out.origin
        and target.extent == out.extent
        and not target.replicated
        and target.cols % LANES == 0
        and value_class(node.array.dtype) == value_class(target.shape.dtype)
    )


def _sample(space: TileSpace) -> TilePoint:
    """Any tile at all."""
    majors = tuple(ranged(f"major{d}", size) for d, size in enumerate(space.majors))
    row, col = ranged("row", space.row_tiles), ranged("col", space.col_tiles)
    return TilePoint(majors, row, col, var(SUBLANE), var(LANE))


def _keeps_index(
    emitter: ElementEmitter, dot: HloInstruction, nodes: Sequence[HloInstruction], index: Index
) -> bool:
    """Whether `nodes` at `index` read the dot at `index`, and nothing that is not there yet."""
    pending: list[tuple[HloInstruction, Index]] = [(node, index) for node in nodes]
    seen: set[tuple[HloInstruction, Index]] = set()
    reads_dot = False
    while pending:
        node, at = pending.pop()
        if (node, at) in seen:
            continue
        seen.add((node, at))
        if node is dot:
            if at != index:
                return False
            reads_dot = True
        elif node in emitter.bindings or node in emitter.scalars or not node.operands:
            continue
        elif node.opcode == "get-tuple-element" or OPCODES[node.opcode].has(Trait.STAGE):
            return False
        else:
            try:
                accesses = operand_indices(node, at)
            except UnsupportedError:
                return False
            pending += [(node.operands[a.operand], a.index) for a in accesses]
    return reads_dot


class _FusedTiles:
    """What all epilogues do with a tile of the dot: say which elements its registers hold."""

    def __init__(
        self, emitter: ElementEmitter, dot: HloInstruction, out: VmemArray, space: TileSpace
    ) -> None:
        self.emitter = emitter
        self.dot = dot
        self.out = out
        self.space = space
        self._block: object = None
        self._bound: dict[tuple[str, SReg, int], Expr] = {}

    def _point(self, tile: ResultTile) -> TilePoint:
        """Where a tile is."""
        row, col = self._place("row", tile.row_tile), self._place("col", tile.col_tile)
        batch = self._place("batch", tile.batch)
        majors = delinearize(batch, self.out.majors) if self.out.majors else ()
        return TilePoint(majors, row, col, self._sublane(row), var(LANE))

    def _preset(self, point: TilePoint, even: VReg, odd: VReg) -> list[Index]:
        """Let the emitter know the dot at a tile; the indices of its even and its odd rows."""
        emitter = self.emitter
        indices = [point_index(self.out, self.space, point, part) for part in range(_PACKING)]
        for index, value in zip(indices, (even, odd), strict=True):
            rounded = settle(emitter.ops, value, self.dot.array.dtype)
            emitter.preset(self.dot, index, rounded)
        return indices

    def _place(self, prefix: str, number: Affine) -> Expr:
        """A tile number as an expression; its sreg has one variable in a block."""
        if number.count == 1:
            return const(number.offset)
        if self.emitter.builder.block is not self._block:
            self._block = self.emitter.builder.block
            self._bound.clear()
        key = (prefix, number.sreg, number.count)
        if key not in self._bound:
            self._bound[key] = self.emitter.index_values.bind(
                prefix, 0, number.count - 1, number.sreg
            )
        return self._bound[key] * number.factor + number.offset

    def _sublane(self, row: Expr) -> Expr:
        """The sublane variable, with the range that matters in this row tile."""
        left = self.out.rows - 8 * _PACKING * row.constant
        if not row.is_constant or left >= 8 * _PACKING:
            return var(SUBLANE)
        high = -(-left // _PACKING) - 1
        return var(Var("s", 0, high))


class _FusedRows(_FusedTiles):
    """Computes a block of a chain's rows when the last of its tiles has come."""

    def __init__(
        self,
        emitter: ElementEmitter,
        dot: HloInstruction,
        chain: Chain,
        out: VmemArray,
        space: TileSpace,
    ) -> None:
        super().__init__(emitter, dot, out, space)
        self.blocks = ChainBlocks(emitter, chain)
        self._seen = 0

    def finish(self, tile: ResultTile, even: VReg, odd: VReg) -> None:
        """The callback of `Epilogue`: tiles of a row come from the left."""
        column = self.blocks.columns[self._seen]
        point = replace(self._point(tile), col_tile=column.col_tile, lane=column.lane)
        self._preset(point, even, odd)
        self._seen += 1
        if self._seen == len(self.blocks.columns):
            self._seen = 0
            outer = self.emitter.builder.source
            first = self.blocks.columns[0]
            self.blocks.block(replace(point, col_tile=first.col_tile, lane=first.lane))
            self.emitter.builder.source = outer


class _FusedRoots(_FusedTiles):
    """Computes all roots for one tile of the dot."""

    def __init__(
        self,
        emitter: ElementEmitter,
        dot: HloInstruction,
        roots: Sequence[tuple[HloInstruction, VmemArray]],
        out: VmemArray,
        space: TileSpace,
    ) -> None:
        super().__init__(emitter, dot, out, space)
        self.roots = roots
        self.storer = Storer(emitter.ops, emitter.index_values)

    def finish(self, tile: ResultTile, even: VReg, odd: VReg) -> None:
        """The callback of `Epilogue`."""
        emitter = self.emitter
        point = self._point(tile)
        indices = self._preset(point, even, odd)
        outer = emitter.builder.source
        for node, target in self.roots:
            parts = [emitter.emit(node, index) for index in indices]
            emitter.builder.source = node.name
            major = linearize(point.majors, target.major_pitch)
            self.storer.store(target, major, point.row_tile, point.col_tile, parts)
        emitter.builder.source = outer
