"""Popped results: added up over the K slices, accumulated, stored in natural row order.

A packed lhs tile of 16 rows pops its 8 even rows, then its 8 odd rows. In f32 tiles of 8 rows the
even rows lie at stride 2, in two tiles: a strided store for each, masked to its four sublanes. With
one column of tiles the two are adjacent and one strided store does. When the output ends in the
upper tile, even and odd rows are put in order first. Sums over K that are not finished wait in the
output's two tiles as they were popped, which takes half the stores and loads.

An *epilogue* takes the finished sums instead of the store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

from compiler.backend.dot.plan import ProductRegion
from compiler.backend.dot.tiles import TILE_ROWS, TileCursor, TileGrid
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import MReg, SReg, VReg

_HALF_SUBLANES = 4


@dataclass(frozen=True)
class Arithmetic:
    """The instructions that multiply a pass and that add its results."""

    matmul: str
    add: str


FLOATS = Arithmetic("vmatmul.bf16", "vadd.f32")


def integer_arithmetic(dtype: str) -> Arithmetic:
    """That of a pass of 8-bit integers."""
    return Arithmetic(f"vmatmul.{dtype}", "vadd.s32")


@dataclass(frozen=True)
class Accumulate:
    """Whether results are added to what the output holds: always, or if sreg `when` is not 0.

    `when` -1 means never. `clears_nans`: a NaN that the output holds counts as 0.
    """

    always: bool = False
    when: SReg = -1
    clears_nans: bool = False


@dataclass(frozen=True)
class Affine:
    """``sreg * factor + offset`` for sreg = 0 .. count-1; a constant if count is 1."""

    sreg: SReg
    factor: int
    offset: int
    count: int = 1


@dataclass(frozen=True)
class ResultTile:
    """16 rows by 128 columns of the output: numbers of its row tile (of 16) and column tile.

    `has_lower`: its rows 8..15 belong to the output too. `batch`: the number of its matrix.
    """

    row_tile: Affine
    col_tile: Affine
    has_lower: bool
    batch: Affine


@dataclass(frozen=True)
class Epilogue:
    """What to do with a finished tile, given its even and its odd rows; about `ops` vector
    operations for each of the two.

    `columns`: where not 0, the tiles of a row, so many, have to come one after another in one block.
    """

    emit: Callable[[ResultTile, VReg, VReg], None]
    ops: int
    columns: int = 0


@dataclass(frozen=True)
class StepPlace:
    """Which step is popped: `offset` steps after the output pointer, and `number` in its pass.

    `is_first_k`: its pass starts a sum over K; None if that is not known while emitting (then the
    output was cleared). `is_last_k`: the sum is then complete. `starts`, `ends`: whether its pass
    is the first and the last of those whose sum is carried in vregs through this block.
    """

    offset: int
    number: Affine
    is_first_k: bool | None
    is_last_k: bool
    starts: bool = True
    ends: bool = True


class ResultWriter:
    """Pops one step's results and writes them to the output tiles."""

    def __init__(
        self,
        b: LloBuilder,
        region: ProductRegion,
        out: TileGrid,
        accumulate: Accumulate,
        epilogue: Epilogue | None,
        arithmetic: Arithmetic,
        first_batch: int = 0,
    ) -> None:
        self._b = b
        self._first_batch = first_batch
        self._add = arithmetic.add
        self._region = region
        self._out = out
        self._memory = ResultMemory(b, out)
        self._accumulate = accumulate
        self._epilogue = epilogue
        self._carried: dict[tuple[int, int, int, int], tuple[VReg, VReg]] = {}

    def clear_where_unknown(self) -> None:
        """Zero the region's output tiles, or the NaNs in them, for code that cannot tell the first
        pass of a sum."""
        keeps = self._accumulate.always or self._accumulate.when >= 0
        if keeps and not self._accumulate.clears_nans:
            return
        region, out, b = self._region, self._out, self._b
        rows = min(2 * region.m_tiles, out.row_tiles - 2 * region.m0)
        with (
            b.loop(region.batches, "clear-batches", parallel=True) as batch,
            b.loop(rows, "clear-rows", parallel=True) as index,
        ):
            moved = b.sadd(b.smuli(batch, out.matrix_rows), b.smuli(index, out.row(1, 0)))
            pointer = b.saddi(b.sadd(out.base, moved), out.row(2 * region.m0, region.n0))
            with b.loop(region.n_tiles, "clear-columns", parallel=True) as column:
                at = b.sadd(pointer, b.smuli(column, TILE_ROWS))
                value = b.emit("vmovi", 0)
                if keeps:
                    value = self._without_nans(b.emit("vld", out.window, at, 0, 1))
                b.emit("vst", out.window, at, 0, 1, value)
        b.new_block()

    @property
    def step_rows(self) -> int:
        """Output rows (of VMEM) from one step to the next."""
        return self._out.row(2 * self._region.mw, 0)

    def pops(self, pointer: SReg, place: StepPlace, at: TileCursor) -> None:
        """Drain a step of the pass under cursor `at`."""
        region = self._region
        for bu, mu, nu in product(range(region.bw), range(region.mw), range(region.nw)):
            sums = self._sums(bu, mu, nu)
            tile = self._tile(place.number, bu, mu, nu, at)
            row = place.offset * self.step_rows + self._out.row(2 * mu, nu)
            row += bu * self._out.matrix_rows
            key = (place.offset, bu, mu, nu)
            if place.starts:
                sums = self._accumulated(sums, pointer, row, place, at, tile.has_lower)
            else:
                sums = self._added(self._carried[key], sums)
            if not place.ends:
                self._carried[key] = sums
            elif self._epilogue is not None and place.is_last_k:
                self._epilogue.emit(tile, *sums)
            elif place.is_last_k or place.is_first_k is None:
                self._memory.store(*sums, pointer, row, tile.has_lower)
            else:
                self._memory.store_unfinished(*sums, pointer, row, tile.has_lower)

    def _added(self, a: tuple[VReg, VReg], c: tuple[VReg, VReg]) -> tuple[VReg, VReg]:
        b = self._b
        return b.emit(self._add, a[0], c[0]), b.emit(self._add, a[1], c[1])

    def _tile(self, number: Affine, bu: int, mu: int, nu: int, at: TileCursor) -> ResultTile:
        region = self._region
        row_tile = Affine(
            number.sreg,
            number.factor * region.mw,
            region.m0 + number.offset * region.mw + mu,
            number.count,
        )
        col_tile = Affine(at.n_group, region.nw, region.n0 + nu, region.n_groups)
        groups = region.batches // region.bw
        batch = Affine(at.group, region.bw, self._first_batch + bu, groups)
        is_inner = number.sreg != 0  # a looped step is never the last
        has_lower = is_inner or 2 * row_tile.offset + 1 < self._out.row_tiles
        return ResultTile(row_tile, col_tile, has_lower, batch)

    def _sums(self, bu: int, mu: int, nu: int) -> tuple[VReg, VReg]:
        """Even and odd rows of one tile: the sum over the units that share its columns."""
        region = self._region
        even: list[VReg] = []
        odd: list[VReg] = []
        for ku in range(region.kw):
            unit = region.unit(bu, mu, ku, nu)
            even.append(self._b.emit("vpop.mrf", unit))
            odd.append(self._b.emit("vpop.mrf", unit))
        return self._tree_sum(even), self._tree_sum(odd)

    def _tree_sum(self, values: list[VReg]) -> VReg:
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=False)
            added = [self._b.emit(self._add, a, c) for a, c in pairs]
            values = added + values[len(added) * 2 :]
        return values[0]

    def _accumulated(
        self, sums: tuple[VReg, VReg], pointer: SReg, row: int, place: StepPlace, at: TileCursor,
        has_lower: bool,
    ) -> tuple[VReg, VReg]:  # fmt: skip
        """Sums with what the output holds of them, if it does."""
        b, when = self._b, self._accumulate.when
        is_certain = self._accumulate.always
        if place.is_first_k and not is_certain and when < 0:
            return sums
        if place.is_first_k is False:
            old = self._memory.load_unfinished(pointer, row, has_lower)
            return self._added(old, sums)
        old = self._memory.load(pointer, row, has_lower)
        if not is_certain and when >= 0:
            is_later = when if place.is_first_k else b.sor(at.k_group, when)
            zero = b.emit("vmovi", 0)
            mask = b.emit("vcmp.ne.s32", b.emit("vsplat", is_later), zero)
            old = (b.emit("vsel", mask, old[0], zero), b.emit("vsel", mask, old[1], zero))
        if place.is_first_k and self._accumulate.clears_nans:
            old = (self._without_nans(old[0]), self._without_nans(old[1]))
        return self._added(old, sums)

    def _without_nans(self, value: VReg) -> VReg:
        b = self._b
        is_number = b.emit("vcmp.eq.f32", value, value)
        return b.emit("vsel", is_number, value, b.emit("vmovi", 0))


class ResultMemory:
    """Loads and stores even and odd rows of 16 in f32 tiles of 8 rows.

    `row` is where the upper tile starts, from the pointer.
    """

    def __init__(self, b: LloBuilder, out: TileGrid) -> None:
        self._b = b
        self._out = out

    def load(self, pointer: SReg, row: int, has_lower: bool) -> tuple[VReg, VReg]:
        """Even and odd rows."""
        if has_lower:
            return self._load_strided(pointer, row), self._load_strided(pointer, row + 1)
        natural = self._b.emit("vld", self._out.window, pointer, row, 1)
        doubled = self._b.emit("vshli", self._b.emit("vsublane"), 1)
        even = self._b.emit("vperm.slane", natural, doubled)
        odd = self._b.emit("vperm.slane", natural, self._b.emit("vaddi.s32", doubled, 1))
        return even, odd

    def store(self, even: VReg, odd: VReg, pointer: SReg, row: int, has_lower: bool) -> None:
        """Write even and odd rows."""
        if has_lower:
            self._store_strided(even, pointer, row)
            self._store_strided(odd, pointer, row + 1)
            return
        b = self._b
        sublane = b.emit("vsublane")
        half = b.emit("vshri", sublane, 1)
        is_even = b.emit("vcmp.eq.s32", b.emit("vandi", sublane, 1), b.emit("vmovi", 0))
        moved = [b.emit("vperm.slane", value, half) for value in (even, odd)]
        natural = b.emit("vsel", is_even, moved[0], moved[1])
        b.emit("vst", self._out.window, pointer, row, 1, natural)

    def load_unfinished(self, pointer: SReg, row: int, has_lower: bool) -> tuple[VReg, VReg]:
        """What `store_unfinished` left."""
        if not has_lower:
            return self.load(pointer, row, has_lower)
        b, window = self._b, self._out.window
        even = b.emit("vld", window, pointer, row, 1)
        return even, b.emit("vld", window, pointer, row + self._out.row(1, 0), 1)

    def store_unfinished(
        self, even: VReg, odd: VReg, pointer: SReg, row: int, has_lower: bool
    ) -> None:
        """Keep even rows in the upper tile and odd rows in the lower one."""
        if not has_lower:
            self.store(even, odd, pointer, row, has_lower)
            return
        self._b.emit("vst", self._out.window, pointer, row, 1, even)
        self._b.emit("vst", self._out.window, pointer, row + self._out.row(1, 0), 1, odd)

    @property
    def _is_adjacent(self) -> bool:
        return self._out.col_tiles == 1

    def _lower_row(self, row: int) -> int:
        """Where sublane 0 would go for sublanes 4..7 to meet the tile below."""
        return row + self._out.row(1, 0) - TILE_ROWS

    def _half_sublanes(self, predicate: str) -> MReg:
        b = self._b
        limit = b.emit("vmovi", _HALF_SUBLANES)
        return b.emit(f"vcmp.{predicate}.s32", b.emit("vsublane"), limit)

    def _load_strided(self, pointer: SReg, row: int) -> VReg:
        b, window = self._b, self._out.window
        upper = b.emit("vld", window, pointer, row, 2)
        if self._is_adjacent:
            return upper
        lower = b.emit("vld", window, pointer, self._lower_row(row), 2)
        return b.emit("vsel", self._half_sublanes("lt"), upper, lower)

    def _store_strided(self, value: VReg, pointer: SReg, row: int) -> None:
        b, window = self._b, self._out.window
        if self._is_adjacent:
            b.emit("vst", window, pointer, row, 2, value)
            return
        lower = self._lower_row(row)
        b.emit("vst.msk", window, pointer, row, 2, value, self._half_sublanes("lt"))
        b.emit("vst.msk", window, pointer, lower, 2, value, self._half_sublanes("ge"))
