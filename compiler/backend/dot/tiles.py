"""Where tiles lie: immediates and cursor addresses of lhs, weight and output tiles."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.backend.dot.plan import ProductRegion
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg

TILE_ROWS = 8
"""VMEM rows of a vreg."""


@dataclass(frozen=True)
class TileGrid:
    """Tiles of a matrix in a window: tile (r, c) starts at row ``(r * col_tiles + c) * 8``.

    Further matrices of the same size may follow; `is_repeated`: this one stands for all of them.
    """

    window: int
    base: SReg
    row_tiles: int
    col_tiles: int
    is_repeated: bool = False

    def row(self, r: int, c: int) -> int:
        """First row of a tile, from the base."""
        return (r * self.col_tiles + c) * TILE_ROWS

    @property
    def matrix_rows(self) -> int:
        """Rows from one matrix to the next."""
        return 0 if self.is_repeated else self.row(self.row_tiles, 0)


@dataclass(frozen=True)
class WeightGrid:
    """The right side: [K/16][N/128] tiles, or transposed [N/16][K/128]. A block of 128x128 weights
    takes `pushes` tiles one below the other."""

    tiles: TileGrid
    transposed: bool
    pushes: int

    def row(self, k: int, n: int, push: int) -> int:
        """First row of the tile that push number `push` of block (k, n) takes."""
        if self.transposed:
            return self.tiles.row(n * 8 + push, k)
        return self.tiles.row(k * 8 + push, n)


class TileCursor:
    """Walks (k group, n group, matrices), k fastest, and keeps the address of what it points at.

    Within a block the position is in fresh sregs; `load` and `save` carry it over blocks in
    variables. After the last position it is back at the first. With `static_k` the k group is a
    number known while emitting: loop bodies must then advance by multiples of the k groups.
    """

    def __init__(
        self,
        b: LloBuilder,
        region: ProductRegion,
        base: SReg,
        rows: tuple[int, int, int],
        static_k: bool,
    ) -> None:
        self._b = b
        self._k_groups, self._n_groups = region.k_groups, region.n_groups
        self._groups = region.batches // region.bw
        self._k_rows, self._n_rows, matrix_rows = rows
        self._group_rows = matrix_rows * region.bw
        self._base = base
        self._k_number = 0 if static_k or region.k_groups == 1 else -1
        self._k: SReg = 0
        self._n: SReg = 0
        self._group: SReg = 0
        self.address = base
        self._variables: tuple[SReg, ...] | None = None

    @property
    def k_group(self) -> SReg:
        """The current k group."""
        return self._b.sconst(self._k_number) if self._k_number >= 0 else self._k

    @property
    def n_group(self) -> SReg:
        """The current group of output columns."""
        return self._n

    @property
    def group(self) -> SReg:
        """The current group of matrices."""
        return self._group

    @property
    def is_first_k(self) -> bool | None:
        """Whether this is the first k group; None if that is not known while emitting."""
        return None if self._k_number < 0 else self._k_number == 0

    @property
    def is_last_k(self) -> bool:
        """Whether this is known to be the last k group."""
        return self._k_number == self._k_groups - 1

    def load(self) -> None:
        """At a block's start: take the position from the variables."""
        assert self._variables is not None, "load before save"
        self._k, self._n, self._group, self.address = self._variables

    def save(self) -> None:
        """At a block's end: leave the position in the variables."""
        b = self._b
        values = (self._k, self._n, self._group, self.address)
        if self._variables is None:
            self._variables = tuple(b.variable(sreg=value) for value in values)
            return
        for variable, value in zip(self._variables, values, strict=True):
            if variable != value:
                b.assign(variable, value)

    def advance(self) -> None:
        """On to the next pass."""
        b = self._b
        if self._k_number >= 0:
            self._k_number = (self._k_number + 1) % self._k_groups
            k_rows = b.sconst(self._k_number * self._k_rows)
            carry = b.sconst(int(self._k_number == 0))
        else:
            self._k, carry = self._step(self._k, self._k_groups, b.sconst(1))
            k_rows = b.smuli(self._k, self._k_rows)
        self._n, carry = self._step(self._n, self._n_groups, carry)
        offset = b.sadd(b.smuli(self._n, self._n_rows), k_rows)
        if self._groups > 1:
            self._group, _ = self._step(self._group, self._groups, carry)
            offset = b.sadd(offset, b.smuli(self._group, self._group_rows))
        self.address = b.sadd(self._base, offset)

    def _step(self, value: SReg, groups: int, carry: SReg) -> tuple[SReg, SReg]:
        """(value + carry) mod groups, and the new carry."""
        b = self._b
        if groups == 1:
            return 0, carry
        if b.constant(carry) == 0:
            return value, carry
        bumped = b.sadd(value, carry)
        wrapped = b.scmp("eq", "s32", bumped, b.sconst(groups))
        return b.ssel(wrapped, b.sconst(0), bumped), wrapped


def lhs_cursor(b: LloBuilder, region: ProductRegion, lhs: TileGrid, static_k: bool) -> TileCursor:
    """Address of tile (m0, current k) of the left side."""
    base = b.saddi(lhs.base, lhs.row(region.m0, region.k0))
    return TileCursor(b, region, base, (region.kw * TILE_ROWS, 0, lhs.matrix_rows), static_k)


def weight_cursor(
    b: LloBuilder, region: ProductRegion, weights: WeightGrid, static_k: bool
) -> TileCursor:
    """Address of the current weight block's first tile."""
    base = b.saddi(weights.tiles.base, weights.row(region.k0, region.n0, 0))
    next_k, next_n = weights.row(region.kw, 0, 0), weights.row(0, region.nw, 0)
    return TileCursor(b, region, base, (next_k, next_n, weights.tiles.matrix_rows), static_k)


def output_cursor(
    b: LloBuilder, region: ProductRegion, out: TileGrid, static_k: bool
) -> TileCursor:
    """Address of output tile (m0, current n)."""
    base = b.saddi(out.base, out.row(2 * region.m0, region.n0))
    return TileCursor(b, region, base, (0, region.nw * TILE_ROWS, out.matrix_rows), static_k)
