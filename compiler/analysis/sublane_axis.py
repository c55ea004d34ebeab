"""Which dimension of a box lies along the sublanes of the registers that compute it.

In memory that is always the rows. A box of few rows may be computed with eight places of another
dimension along the sublanes, one row of them at a time.

    f32[3,65536]      512 registers of 3 rows, or 3 * 64 of one row of eight column tiles
    f32[4096,2,64]    4096 registers of 2 rows, or 2 * 512 of one row of eight matrices
"""

from __future__ import annotations

import math
from typing import NamedTuple

from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.geometry import LANES, SUBLANES

ROWS = -2
COLUMNS = -1


class SublaneChoice(NamedTuple):
    """A dimension (the number of a major one, `COLUMNS` for tiles of them, or `ROWS`), and the registers
    that a box takes with its places along the sublanes; those beyond the last eight are taken by rows."""

    axis: int
    registers: int


def sublane_choice(majors: tuple[int, ...], words: int, cols: int) -> SublaneChoice:
    """The dimension with which a box takes the fewest registers: `words` are its rows, as many to a word
    as its type packs, in matrices of `cols` columns."""
    col_tiles = -(-cols // LANES)
    matrices = math.prod(majors)
    best = SublaneChoice(ROWS, matrices * -(-words // SUBLANES) * col_tiles)
    if words >= SUBLANES:
        return best
    sizes = {d: (n, n) for d, n in enumerate(majors)} | {COLUMNS: (col_tiles, cols // LANES)}
    for axis, (places, whole) in sizes.items():
        eights = whole // SUBLANES
        taken = eights * words + places - eights * SUBLANES
        count = matrices * col_tiles // places * taken if places else 0
        if eights and count < best.registers:
            best = SublaneChoice(axis, count)
    return best


def box_registers(shape: ArrayShape, extent: tuple[int, ...]) -> int:
    """Registers of words that an operation on the elements of a box takes."""
    packing = shape.dtype.packing
    if shape.rank < 2:
        return -(-math.prod(extent) // (SUBLANES * packing * LANES))
    return sublane_choice(extent[:-2], -(-extent[-2] // packing), extent[-1]).registers
