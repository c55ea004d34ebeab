"""Index vectors in SMEM: whole rows of 128 words brought from HBM as they lie there.

The indices have a canonical form (`compiler.analysis.scatter_dims`): [n], [components, n], either
with a batch dimension before n, or [components] for a single vector. Each component of a block of
vectors is then a row of granules.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from compiler.backend.smem_scratch import SmemScratch
from compiler.backend.transfer import HbmTiling, hbm_tiling
from compiler.hlo.shape import ArrayShape
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES
from tpu_sim.isa.program import HBM, SMEM, DmaDescriptor, DmaDim


@dataclass(frozen=True)
class IndexForm:
    """`components` words a vector; `is_single`: one vector, its words side by side."""

    components: int
    has_batch: bool
    is_single: bool


def words_of(vectors: int, components: int) -> int:
    """SMEM words to reserve for a block of vectors that may start anywhere in a row."""
    return components * _columns(vectors) * LANES


def _columns(vectors: int) -> int:
    return (vectors + LANES - 2) // LANES + 1


def staged_vectors(most: int, components: int, chip: Chip) -> int:
    """How many vectors may be staged at a time: `most`, or as few as half of SMEM holds."""
    rows = chip.smem_words // 2 // (components * LANES) - 2
    return min(most, max(1, rows) * LANES)


def held_vectors(most: int, components: int, words: int) -> int:
    """How many vectors `words` of SMEM hold: `most`, or a power of two of whole rows, one at least."""
    if words_of(most, components) <= words:
        return most
    rows = max(1, words // (components * LANES) - 1)
    return (1 << rows.bit_length() - 1) * LANES


class IndexWords:
    """Stages up to `block` vectors at a time from the array at `argument` into SMEM."""

    def __init__(
        self,
        builder: LloBuilder,
        smem: SmemScratch,
        shape: ArrayShape,
        argument: int,
        form: IndexForm,
        block: int,
    ) -> None:
        self._b = builder
        self._form = form
        self._block = block
        self._shape = shape
        self._argument = argument
        self._tiling = hbm_tiling(shape)
        self._held = min(_total_columns(shape, self._tiling), _columns(block))
        rows = 1 if form.is_single else form.components
        self._base = smem.reserve(rows * self._held * LANES)
        self._flag = builder.flag()
        self._origin: SReg = 0

    def stage(self, first: SReg, batch: SReg) -> None:
        """Bring the vectors from number `first` of a batch on."""
        b = self._b
        last = _total_columns(self._shape, self._tiling) - self._held
        column = b.smin(b.sshri(first, 7), b.sconst(last))
        self._origin = b.sshli(column, 7)
        stride = 1 if self._shape.rank < 2 else self._tiling.granules
        chunks = (DmaDim(self._held, stride, LANES),) if self._held > 1 else ()
        descriptor = b.descriptor(DmaDescriptor(HBM, SMEM, LANES, chunks))
        address = b.sadd(b.argument(self._argument), b.smuli(column, stride))
        rows = 1 if self._form.is_single else self._form.components
        for component in range(rows):
            source = b.sadd(address, self._row(component, batch))
            target = b.sconst(self._base + component * self._held * LANES)
            b.emit("dma.start", descriptor, source, target, self._flag, 0, 0, 0)
        b.emit("dma.wait", self._flag, 0)
        b.new_block()

    @contextmanager
    def parts(
        self, first: SReg, begin: SReg, count: SReg, most: int, batch: SReg
    ) -> Iterator[tuple[SReg, SReg]]:
        """Stages vectors ``first + begin`` on, a block at a time: (begin, count) of each in turn.

        There are `most` at most: one block that holds them needs no loop. Else a block is a power of two.
        """
        b = self._b
        if most <= self._block:
            self.stage(first, batch)
            yield begin, count
            return
        blocks = b.sshri(b.saddi(count, self._block - 1), self._block.bit_length() - 1)
        with b.loop_dynamic(blocks, "staged") as number:
            done = b.smuli(number, self._block)
            start = b.sadd(begin, done)
            self.stage(b.sadd(first, start), batch)
            yield start, b.smin(b.sconst(self._block), b.ssub(count, done))

    def _row(self, component: int, batch: SReg) -> SReg:
        """Granules from the array's start to the row of a component of a batch."""
        b, tiling = self._b, self._tiling
        has_rows = self._form.components > 1 and not self._form.is_single
        if not self._form.has_batch:
            return b.sconst(_granule(tiling, component)) if has_rows else 0
        tile_rows = tiling.granules
        tile = b.sshri(batch, tile_rows.bit_length() - 1)
        row = b.sadd(b.smuli(tile, tiling.row_stride), b.sandi(batch, tile_rows - 1))
        if not has_rows:
            return row
        return b.saddi(row, component * tiling.major_strides()[0])

    def component(self, number: SReg, component: int, ahead: int = 0) -> SReg:
        """A sreg with one component of the vector `ahead` of that number (of the batch)."""
        b = self._b
        if self._form.is_single:
            return b.emit("sld", 0, self._base + component)
        place = b.ssub(number, self._origin)
        return b.emit("sld", place, self._base + component * self._held * LANES + ahead)


def _granule(tiling: HbmTiling, row: int) -> int:
    tile, inner = divmod(row, tiling.granules)
    return tile * tiling.row_stride + inner


def _total_columns(shape: ArrayShape, tiling: HbmTiling) -> int:
    return tiling.row_tiles if shape.rank < 2 else tiling.col_tiles
