"""scatter of rows of 32-bit words: eight updates a turn, side by side in the sublanes of a register.

    for each eight updates:
        those that mean the same row bring what they have together, by rotations
        each is combined with its row of the block, which is loaded into all sublanes
        each sublane is stored to its row

All eight rows are loaded before the first is stored. Two of the eight that mean the same row store the
same: what was there with all that is brought. What *together* is, the scatter says: a sum, a maximum,
any operation with an identity. An update that is not for the block brings that identity to some row.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.analysis.indexing import Expr, const, var
from compiler.analysis.scatter_dims import ScatterDims
from compiler.backend.index_scalars import emit_index, row_of_words
from compiler.backend.index_words import IndexWords
from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.index_values import LANE, SUBLANE
from compiler.backend.vector.meeting import brought_together, by_sublanes, neutral_of
from compiler.backend.vector.reducers import reducer_of
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.llo.ir import MReg, SReg, VReg
from tpu_sim.isa.geometry import LANES, SUBLANES

_TOGETHER_TILES = 8
"""Registers of updates in one body."""
_ANY = 0x7FFFFFFF
"""The largest word that is the place of a row; words that are for none lie above, as unsigned numbers."""


class RowGroups:
    """Combines a chunk's updates with their rows of `target`; `origin` numbers its first one.

    `batch`: which batch both are of, where operand and updates have batches.
    """

    def __init__(
        self,
        emitter: VectorEmitter,
        dims: ScatterDims,
        words: IndexWords,
        target: VmemArray,
        origin: Expr,
        batch: Expr | None = None,
    ) -> None:
        self._emitter = emitter
        self._b = emitter.builder
        self._ops = emitter.ops
        self._dims = dims
        self._words = words
        self._target = target
        self._origin = origin
        self._batch = () if batch is None else (batch,)
        self._reducer = reducer_of(dims.scatter)
        self._low = [emit_index(self._b, low, emitter.sregs) for low in target.origin[:-1]]

    def emit(self, first: SReg, begin: SReg, trips: SReg) -> None:
        """The `trips` updates from number `begin` of the chunk on, a multiple of eight; the chunk's
        first one has the number `first`."""
        b = self._b
        self._first, self._end = first, b.sadd(begin, trips)
        groups = b.sshri(b.saddi(trips, SUBLANES - 1), 3)
        start = b.sshri(begin, 3)
        together = max(1, _TOGETHER_TILES // self._target.col_tiles)
        shift = together.bit_length() - 1
        with b.loop_dynamic(b.sshri(groups, shift), "updates") as body:
            at = b.sadd(start, b.sshli(body, shift))
            for number in range(together):
                self._group(b.saddi(at, number))
        if shift:
            done = b.sandi(groups, -together)
            with b.loop_dynamic(b.ssub(groups, done), "updates") as number:
                self._group(b.sadd(b.sadd(start, done), number))

    def _group(self, group: SReg) -> None:
        """Eight updates."""
        b, ops, values = self._b, self._ops, self._emitter.index_values
        sublanes = [ops.compare_integer("eq", ops.sublane(), k) for k in range(SUBLANES)]
        at = b.sshli(group, 3)
        vector = b.sadd(self._first, at)
        places = [self._place(vector, number) for number in range(SUBLANES)]
        word = by_sublanes(ops, [ops.splat(word) for _, word in places])
        last = ops.integer(self._last_word)
        is_there = ops.compare("le", "u32", word, last)
        key = ops.emit("vmin.u32", word, last) if self._is_one_row else ops.emit("vand", word, last)
        if self._dims.vectors % SUBLANES:
            left = ops.splat(b.ssub(self._end, at))
            is_there = ops.both(is_there, ops.compare("lt", "s32", ops.sublane(), left))
        most = max(0, -(-self._dims.vectors // SUBLANES) - 1)
        number = values.bind("updates", 0, most, group)
        lead = self._origin + number * SUBLANES + var(SUBLANE)
        brought = self._brought(lead, key, is_there)
        self._meet_rows([row for row, _ in places], sublanes, brought)

    @property
    def _is_one_row(self) -> bool:
        """Whether the one component of an index vector is the row, in its batch if there is one."""
        return self._target.shape.rank - len(self._dims.operand_batch) == 2

    @property
    def _last_word(self) -> int:
        return self._target.extent[-2] - 1 if self._is_one_row else _ANY

    def _brought(self, lead: Expr, key: VReg, is_there: MReg) -> list[VReg]:
        """Of each column tile, what every update of a register brings to its row."""
        ops, neutral = self._ops, neutral_of(self._ops, self._reducer)
        values = []
        for column in range(self._target.col_tiles):
            index = (*self._batch, lead, const(column * LANES) + var(LANE))
            update = self._emitter.emit(self._dims.updates, index)
            values.append(ops.select(is_there, update, neutral))
        turns = [(0, down) for down in range(1, SUBLANES)]
        return brought_together(ops, self._reducer, key, values, turns)

    def _meet_rows(
        self, rows: Sequence[SReg], sublanes: Sequence[MReg], brought: Sequence[VReg]
    ) -> None:
        ops, target = self._ops, self._target
        made: list[list[VReg]] = []
        for row in rows:
            made.append([])
            for column, new in enumerate(brought):
                old = ops.emit("vld", target.window, row, column * SUBLANES, 0)  # in all sublanes
                state = self._reducer.combine(ops, [old], [new])
                made[-1].append(self._reducer.finish(ops, state)[0])
        for row, sublane, tiles in zip(rows, sublanes, made, strict=True):
            for column, value in enumerate(tiles):
                ops.emit("vst.msk", target.window, row, column * SUBLANES, 0, value, sublane)

    # places

    def _place(self, vector: SReg, ahead: int) -> tuple[SReg, SReg]:
        """The word row of the block that an update goes to, and a word that says the same, but is beyond
        `_last_word` as an unsigned number if the update is for none."""
        b = self._b
        places: list[SReg] = []
        inside: SReg = -1
        key: SReg = 0
        components = {dim: number for number, dim in enumerate(self._dims.index_map)}
        for dim in range(self._target.shape.rank - 1):
            if dim in self._dims.operand_batch:  # a block has one
                places.append(0)
                continue
            start: SReg = 0  # where no index says it
            if dim in components:
                start = self._words.component(vector, components[dim], ahead)
            place = b.ssub(start, self._low[dim])
            last = b.sconst(self._target.extent[dim] - 1)
            places.append(b.sbinary("smin.u32", place, last))
            key = place
            if not self._is_one_row:
                held = b.emit("scmp.le.u32", place, last)
                inside = held if inside < 0 else b.sand(inside, held)
        row = self._word_row(places)
        if not self._is_one_row:
            key = b.ssel(inside, row, b.saddi(row, -_ANY - 1))
        return row, key

    def _word_row(self, places: Sequence[SReg]) -> SReg:
        """The row of VMEM words that holds the first column tile of a row."""
        b, target = self._b, self._target
        *majors, row = places
        linear: SReg = 0
        for place, size in zip(majors, target.major_pitch, strict=True):
            linear = b.sadd(b.smuli(linear, size), place)
        first = b.smuli(linear, target.row_pitch * target.col_pitch * SUBLANES)
        return b.sadd(target.base, b.sadd(first, row_of_words(b, row, target.col_pitch)))
