"""Where tiles lie: addresses of lhs, weight and output tiles, as immediates and cursor addresses."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.backend.dot.plan import Region
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg

TILE_ROWS = 8
"""VMEM rows of a vreg."""


@dataclass(frozen=True)
class TileGrid:
    """Tiles of a matrix in a window: tile (r, c) starts at row ``(r * col_tiles + c) * 8``."""

    window: int
    base: SReg
    row_tiles: int
    col_tiles: int

    def row(self, r: int, c: int) -> int:
        """First row of a tile, from the base."""
        return (r * self.col_tiles + c) * TILE_ROWS


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


class Cursor:
    """Walks (k group, n group), k fastest, and keeps the address of the tiles it points at.

    Within a block the position is in fresh sregs; `load` and `save` carry it over blocks in
    variables. After the last position it is back at the first.
    """

    def __init__(
        self, b: LloBuilder, region: Region, base: SReg, k_rows: int, n_rows: int
    ) -> None:
        self._b = b
        self._groups = (region.k_groups, region.n_groups)
        self._rows = (k_rows, n_rows)
        self._base = base
        self._k = self._n = 0
        self.address = base
        self._variables: tuple[SReg, SReg, SReg] | None = None

    @property
    def k_group(self) -> SReg:
        """The current k group."""
        return self._k

    def load(self) -> None:
        """At a block's start: take the position from the variables."""
        assert self._variables is not None, "load before save"
        self._k, self._n, self.address = self._variables

    def save(self) -> None:
        """At a block's end: leave the position in the variables."""
        b = self._b
        if self._variables is None:
            self._variables = (
                b.variable(sreg=self._k), b.variable(sreg=self._n), b.variable(sreg=self.address),
            )  # fmt: skip
            return
        for variable, value in zip(
            self._variables, (self._k, self._n, self.address), strict=True
        ):
            if variable != value:
                b.assign(variable, value)

    def advance(self) -> None:
        """On to the next pass."""
        b = self._b
        carry = b.sconst(1)
        self._k, carry = self._step(self._k, self._groups[0], carry)
        self._n, _ = self._step(self._n, self._groups[1], carry)
        offset = b.sadd(b.smuli(self._k, self._rows[0]), b.smuli(self._n, self._rows[1]))
        self.address = b.sadd(self._base, offset)

    def _step(self, value: SReg, groups: int, carry: SReg) -> tuple[SReg, SReg]:
        """(value + carry) mod groups, and the new carry."""
        b = self._b
        if groups == 1:
            return 0, carry
        bumped = b.sadd(value, carry)
        wrapped = b.scmp("eq", "s32", bumped, b.sconst(groups))
        return b.ssel(wrapped, b.sconst(0), bumped), wrapped


def lhs_cursor(b: LloBuilder, region: Region, lhs: TileGrid) -> Cursor:
    """Address of tile (m0, current k) of the left side."""
    base = b.saddi(lhs.base, lhs.row(region.m0, region.k0))
    return Cursor(b, region, base, region.kw * TILE_ROWS, 0)


def weight_cursor(b: LloBuilder, region: Region, weights: WeightGrid) -> Cursor:
    """Address of the current weight block's first tile."""
    base = b.saddi(weights.tiles.base, weights.row(region.k0, region.n0, 0))
    k_rows = weights.row(region.kw, 0, 0)
    n_rows = weights.row(0, region.nw, 0)
    return Cursor(b, region, base, k_rows, n_rows)


def output_cursor(b: LloBuilder, region: Region, out: TileGrid) -> Cursor:
    """Address of output tile (m0, current n)."""
    base = b.saddi(out.base, out.row(2 * region.m0, region.n0))
    return Cursor(b, region, base, 0, region.nw * TILE_ROWS)
