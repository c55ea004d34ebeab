"""How a scatter is cut to fit VMEM: always possible, for tiles are the least that any part takes.

    chunk     index vectors a grid step goes through, with their updates
    pieces    the part of each update that a step has (all of it, unless one update is too large)
    blocks    resident: the block of the operand that lies in VMEM while all updates pass by;
              streamed: none, the tiles around each update come and go by DMA
    parts     streamed: the part of a piece whose tiles come and go together
    group     streamed: updates whose tiles come and go together
    by_rows   resident: eight rows are combined at once

Resident blocks cost one pass over the updates each, streamed updates a round trip to HBM each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis import vmem_shares
from compiler.analysis.code_costs import ScatterCosts
from compiler.analysis.indexing_boxes import tile_units
from compiler.analysis.kernel_vmem import GUARD_ROWS, box_vreg_tiles
from compiler.analysis.scatter_dims import ScatterDims, combines_rows
from compiler.analysis.tiled_layout import byte_size
from compiler.backend.index_words import words_of
from compiler.diagnostics import KernelLimitError
from compiler.hlo.ir import HloInstruction
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

Dims = tuple[int, ...]
_UPDATE_SHARES = (0.5, 0.25, 0.1)  # of that, for updates
_MAX_STAGED_WORDS = 65536
_ROW_TILES = 8
"""Registers across of rows that go eight at a time."""
_GROUPS = (16, 8, 4, 2)
"""Index vectors whose rows are fetched together, the most that fit: their latencies overlap
(assumed)."""
_TRANSFERS = 2  # of an update: its tiles come and go


@dataclass(frozen=True)
class ScatterCut:
    """See above. `chunk` counts vectors, the others elements per operand dimension (1 where an
    update has none)."""

    chunk: int
    pieces: Dims
    blocks: Dims | None
    parts: Dims
    group: int = 1
    by_rows: bool = False


class ScatterCutter:
    """Finds the cut of one scatter; `in_place`: the result lies where the operand does.

    `stays`: operand and result lie in VMEM, so that every block of them does.
    """

    def __init__(
        self,
        dims: ScatterDims,
        chip: Chip,
        *,
        in_place: bool,
        smem_words: int,
        stays: bool = False,
    ) -> None:
        self.stays = stays
        self.dims = dims
        self.chip = chip
        self.in_place = in_place
        self.smem_words = min(_MAX_STAGED_WORDS, smem_words // 2)
        self.budget = int(chip.vmem_rows * vmem_shares.LARGE_BLOCKS)
        self.rank = dims.operand.array.rank
        self.windows = tuple(dims.window_size(d) for d in range(self.rank))

    def cut(self) -> ScatterCut:
        """The cut that is cheapest by estimate."""
        return self.best()[1]

    def best(self) -> tuple[float, ScatterCut]:
        """The cycles of the cheapest cut by estimate, and the cut."""
        may_stream = not self.stays and all(o.opcode == "parameter" for o in self.dims.operands)
        resident = [(self._resident_cycles(c, c.blocks), c) for c in self._resident() if c.blocks]
        cycles, best = min(resident, key=lambda item: item[0], default=(math.inf, None))
        if best is not None and not may_stream:
            return cycles, best
        if self.stays:
            raise KernelLimitError(
                f"%{self.dims.scatter.name}: no block of it fits beside what stays"
            )
        chunk, pieces = self._update_part(_UPDATE_SHARES[0])
        left = self.budget - self._update_rows(chunk, pieces)
        parts = self._streamed_part(pieces, left)
        group = self._group(parts, left)
        streamed = self._streamed_cycles(pieces, group)
        if best is not None and cycles <= streamed:
            return cycles, best
        return streamed, ScatterCut(chunk, pieces, None, parts, group)

    def _resident(self) -> Iterator[ScatterCut]:
        """Cuts with blocks that stay: the less VMEM updates take, the fewer blocks there are."""
        seen: set[tuple[int, Dims]] = set()
        for share in _UPDATE_SHARES:
            part = self._update_part(share)
            if part not in seen:
                seen.add(part)
                chunk, pieces = part
                blocks = self._blocks(self.budget - self._update_rows(chunk, pieces))
                by_rows = self._is_by_rows(pieces, blocks)
                yield ScatterCut(chunk, pieces, blocks, pieces, by_rows=by_rows)

    def _is_by_rows(self, pieces: Dims, blocks: Dims | None) -> bool:
        """Whether a block's rows are combined eight at a time."""
        if blocks is None or pieces != self.windows or not combines_rows(self.dims):
            return False
        is_whole = blocks[-1] == self.dims.operand.array.dims[-1]
        return is_whole and blocks[-1] <= _ROW_TILES * LANES

    # updates

    @property
    def lead(self) -> int:
        """How many dimensions of the updates come before the window's."""
        return len(self.dims.batch_dims)

    def _update_extent(self, chunk: int, pieces: Dims) -> Dims:
        lead = (1, chunk)[2 - self.lead :] if self.lead else ()
        return (*lead, *(pieces[d] for d in self.dims.operand_window_dims))

    def _update_rows(self, chunk: int, pieces: Dims) -> int:
        """VMEM rows of both buffers of the updates."""
        extent = self._update_extent(chunk, pieces)
        return sum(
            2 * SUBLANES * box_vreg_tiles(u.array, extent) + GUARD_ROWS for u in self._parameters()
        )

    def _parameters(self) -> list[HloInstruction]:
        return [u for u in self.dims.all_updates if u.opcode == "parameter"]

    def update_units(self) -> Dims:
        """The multiples that parts of the updates keep to."""
        units = [tile_units(u.array) for u in self.dims.all_updates]
        return tuple(max(sizes) for sizes in zip(*units, strict=True))

    def _update_part(self, share: float) -> tuple[int, Dims]:
        """The largest chunk whose updates take up to `share` of VMEM; of less than one update
        where that is too large."""
        limit = self.budget * share
        chunk, unit = self._most_vectors(), self._chunk_unit()
        pieces = self.windows
        while chunk > unit and self._update_rows(chunk, pieces) > limit:
            chunk = max(unit, chunk // 2 // unit * unit)
        units = self.update_units()
        for dim in range(self.rank):
            unit = units[self._update_dim(dim)] if dim in self.dims.operand_window_dims else 1
            while self._update_rows(chunk, pieces) > limit and pieces[dim] > unit:
                piece = smaller(-(-pieces[dim] // unit), -(-self.windows[dim] // unit)) * unit
                pieces = (*pieces[:dim], piece, *pieces[dim + 1 :])
        return chunk, pieces

    def _update_dim(self, dim: int) -> int:
        return self.lead + self.dims.operand_window_dims.index(dim)

    def _chunk_unit(self) -> int:
        return self.update_units()[self.lead - 1] if self.lead else 1

    def _most_vectors(self) -> int:
        """Vectors whose indices fit SMEM: all, or whole tiles of them."""
        count, components = self.dims.vectors, self.dims.components
        unit = self._chunk_unit()
        most = self.smem_words // components - 2 * LANES
        if count <= most or words_of(count, components) <= self.smem_words:
            return count
        return max(unit, most // unit * unit)

    # resident blocks of the operand

    def operand_units(self) -> Dims:
        """The largest vreg tiles of any operand."""
        units = [tile_units(operand.array) for operand in self.dims.operands]
        return tuple(max(sizes) for sizes in zip(*units, strict=True))

    def _blocks(self, left: int) -> Dims | None:
        """Blocks of the operands that fit `left` rows; None if tiles of two sizes must be cut."""
        dims, units = self.dims.operand.array.dims, self.operand_units()
        totals = [-(-n // u) for n, u in zip(dims, units, strict=True)]
        counts = list(totals)
        if self.dims.operand_batch:
            counts[0] = 1
        if self._block_rows(counts, totals) <= left:
            return self._extent(counts)
        if len({operand.array.dtype.packing for operand in self.dims.operands}) > 1:
            return None
        for dim in range(self.rank):
            while counts[dim] > 1 and self._block_rows(counts, totals) > left:
                counts[dim] = self._fewer(counts[dim], totals[dim])
        return self._extent(counts) if self._block_rows(counts, totals) <= left else None

    def _fewer(self, count: int, total: int) -> int:
        """The next smaller number of tiles: a divisor where blocks may not overlap."""
        return smaller(count, total) if self.in_place else -(-count // 2)

    def _extent(self, counts: list[int]) -> Dims:
        sides = zip(self.dims.operand.array.dims, self.operand_units(), counts, strict=True)
        return tuple(min(size, unit * count) for size, unit, count in sides)

    def _block_rows(self, counts: list[int], totals: list[int]) -> int:
        """VMEM rows of a block of every operand and result, with the next block's if there is one."""
        if self.stays:
            return 0
        slots = 1 if counts == totals else 2
        extent = self._extent(counts)
        return sum(
            slots * _windows_of(o) * SUBLANES * box_vreg_tiles(o.array, extent) + 2 * GUARD_ROWS
            for o in self.dims.operands
        )

    def _resident_cycles(self, cut: ScatterCut, blocks: Dims) -> float:
        """Every block sees all updates: their transfer, and a look at each."""
        sides = zip(self.dims.operand.array.dims, blocks, strict=True)
        passes = math.prod(-(-size // block) for size, block in sides)
        passes = passes // self.dims.batches or 1
        parts = math.prod(-(-n // p) for n, p in zip(self.windows, cut.pieces, strict=True))
        steps = parts * -(-self.dims.vectors // cut.chunk) * self.dims.batches
        moved = sum(byte_size(u.array) for u in self._parameters())
        moved = moved if steps > 1 else 0  # else they stay
        costs = ScatterCosts.of(self.chip)
        one = costs.skipped + costs.component * self.dims.components
        if cut.by_rows:
            tiles = -(-blocks[-1] // LANES)
            one = costs.row * self.dims.components + costs.row_tile * (tiles - 1)
        look = self._updates() * parts * one
        if cut.by_rows and self.dims.is_sorted:  # a block looks at chunks that have some for it
            look *= min(1.0, cut.chunk / self.dims.vectors + 1 / passes)
        wait = steps * self.chip.dma_latency_cycles if steps > 1 else 0
        return self._copy_cycles() + passes * (
            look + max(wait, moved / self.chip.hbm_bytes_per_cycle)
        )

    def _copy_cycles(self) -> float:
        moved = sum(_windows_of(o) * byte_size(o.array) for o in self.dims.operands)
        return moved / self.chip.hbm_bytes_per_cycle

    def _updates(self) -> int:
        return self.dims.vectors * self.dims.batches

    # streamed

    def _streamed_part(self, pieces: Dims, left: int) -> Dims:
        """The largest part of a piece whose tiles fit `left` rows."""
        parts = pieces
        for dim in range(self.rank - 1):
            while self._around_rows(parts) > left and parts[dim] > 1:
                parts = (*parts[:dim], smaller(parts[dim], pieces[dim]), *parts[dim + 1 :])
        return parts

    def held_around(self, operand: HloInstruction, parts: Dims) -> Dims:
        """Elements per dimension of the tiles around a part of an update, wherever it lies."""
        sides = zip(operand.array.dims, tile_units(operand.array), parts, strict=True)
        return tuple(around(size, unit, piece) for size, unit, piece in sides)

    def _around_rows(self, parts: Dims) -> int:
        return sum(
            SUBLANES * box_vreg_tiles(o.array, self.held_around(o, parts)) + GUARD_ROWS
            for o in self.dims.operands
        )

    def _group(self, parts: Dims, left: int) -> int:
        """Updates whose tiles are in VMEM at once: their boxes must be the same or apart."""
        if parts != self.windows or self.dims.vectors == 1:
            return 1
        if len({operand.array.dtype.packing for operand in self.dims.operands}) > 1:
            return 1
        for operand in self.dims.operands:
            held = self.held_around(operand, parts)
            sides = zip(operand.array.dims, held, parts, strict=True)
            if any(part > 1 and extent < size for size, extent, part in sides):
                return 1
        fits = (
            n for n in _GROUPS if n <= self.dims.vectors and n * self._around_rows(parts) <= left
        )
        return next(fits, 1)

    def _streamed_cycles(self, pieces: Dims, group: int) -> float:
        copied = 0.0 if self.in_place else self._copy_cycles()
        parts = math.prod(-(-n // p) for n, p in zip(self.windows, pieces, strict=True))
        around = self._around_rows(pieces) * 2 * 512 / self.chip.hbm_bytes_per_cycle
        trip = _TRANSFERS * (self.chip.dma_latency_cycles + self.chip.dma_wait_cycles)
        one = trip / group + ScatterCosts.of(self.chip).update + around
        return copied + self._updates() * parts * one


def _windows_of(operand: HloInstruction) -> int:
    """An operand that the kernel makes itself has a window for the result alone."""
    return 2 if operand.opcode == "parameter" else 1


def around(size: int, unit: int, piece: int) -> int:
    """Elements of the most tiles that `piece` elements touch, all of a dimension of fewer."""
    if unit == 1:
        return piece
    tiles = (piece + unit - 2) // unit + 1
    return size if tiles * unit >= size else tiles * unit


def smaller(count: int, total: int) -> int:
    """The largest divisor of `total` of at most half of `count`."""
    return max(n for n in range(1, max(1, count // 2) + 1) if total % n == 0)
