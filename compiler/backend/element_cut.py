"""How a scatter of single elements goes through a register of updates at a time, and when that pays.

    together   registers (1024 updates each) in one body of the loop, each with tables of its own
    copies     tables of a register: lane l of it adds to table l mod `copies`

Updates that lie along their numbers (`[window .., n]`) are registers of 8 elements of 128 updates each:
those of different sublanes never mean the same place.

Lanes that share a table may mean the same place: what they bring is added up by rotations first. More
tables take more VMEM and time to clear and to add up, fewer take more rotations.

    part       elements of the operand's first dimension whose result is made at a time

Each part goes through all updates and takes those that are its own. Where the first dimension is one of
the windows' it takes these rows of the updates only. Parts divide the dimension's tiles: none is made twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis import vmem_shares
from compiler.analysis.code_costs import ElementCosts
from compiler.analysis.kernel_vmem import GUARD_ROWS, VREG_TILE_BYTES, box_vreg_tiles
from compiler.analysis.scatter_dims import (
    ScatterDims,
    combines_elements,
    has_numbers_last,
    replaces,
)
from compiler.backend.narrow_rows import NarrowRows, narrow_rows
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES
from tpu_sim.isa.instruction import Slot

VREG = 1024
"""Updates in a register."""
_CHUNK_VREGS = 32
"""Registers of updates that are in VMEM at a time: 32 Ki words, so that their transfers are long
(assumed)."""
_COPIES = (1024, 128, 64, 32, 16, 8, 4, 2, 1)
"""Of a part of the result, so that updates of one register do not meet: up to one for each of its
places."""
_TOGETHER = (4, 2, 1)
"""Registers of updates whose latencies overlap; with more, tables leave no room for copies
(assumed)."""


@dataclass(frozen=True)
class ElementCut:
    """See above. Updates of `chunk` * 1024 index vectors are in VMEM at a time; `cycles` by estimate.

    Updates that replace what was there need neither copies nor rotations: the last one stays.
    """

    chunk: int
    together: int
    copies: int
    part: int
    cycles: float
    replaces: bool


def element_cut(dims: ScatterDims, chip: Chip, *, stays: bool = False) -> ElementCut | None:
    """The cheapest cut of a canonical scatter; None where it is of another kind or does not pay.

    `stays`: operand and result lie in VMEM beside what the kernel has.
    """
    if not _is_of_elements(dims):
        return None
    found = list(_cuts(dims, chip, stays=stays))
    best = min(found, key=lambda cut: cut.cycles, default=None)
    is_alone = best is not None and bool(dims.window_dims)  # no other kernel takes this form
    if best is None or (best.cycles > ElementCosts.of(chip).alone * dims.vectors and not is_alone):
        return None
    return best


def fits_by_elements(dims: ScatterDims, chip: Chip) -> bool:
    """Whether VMEM has room for a cut of a scatter whose updates lie along their numbers."""
    return _is_of_elements(dims) and next(_cuts(dims, chip, stays=False), None) is not None


def part_unit(dims: ScatterDims) -> int:
    """Elements of the operand's first dimension, which it is cut along, in a tile of the operand or,
    where updates extend along it alone, of theirs."""
    of_operand = {1: VREG, 2: SUBLANES}.get(dims.operand.array.rank, 1)
    return max(of_operand, SUBLANES) if dims.operand_window_dims == (0,) else of_operand


def is_cut_by_windows(dims: ScatterDims) -> bool:
    """Whether the operand's first dimension is the first one of the updates."""
    return bool(dims.window_dims) and dims.operand_window_dims[0] == 0


def _parts(dims: ScatterDims, *, stays: bool) -> Iterator[int]:
    size, unit = dims.operand.array.dims[0], part_unit(dims)
    yield size
    tiles = -(-size // unit)
    for count in range(tiles // 2, 0, -1):
        if tiles % count == 0 and not stays:
            yield count * unit


def _is_of_elements(dims: ScatterDims) -> bool:
    """Whether updates are single elements, or lie along their numbers, and may go by elements."""
    if dims.indices.opcode != "parameter" or not combines_elements(dims):
        return False
    if has_numbers_last(dims):
        return True
    is_single = dims.batch_dims == (0,) and not dims.operand_window_dims
    return is_single and len({dims.operand, dims.indices, dims.updates}) == 3


def register_rows(dims: ScatterDims) -> int:
    """Registers of updates that one row of lanes of index vectors takes; 0 where a register holds
    1024 single elements."""
    *majors, rows = (dims.updates.array.dims[d] for d in dims.window_dims or (0,))
    return math.prod(majors) * -(-rows // SUBLANES) if dims.window_dims else 0


def shared_rows(dims: ScatterDims) -> NarrowRows | None:
    """How updates of few rows share registers, where the operand has as few: rows of its tables' tiles that
    would be empty are those of other updates."""
    d = dims
    if not d.window_dims or d.operand.array.rank < 2:
        return None
    are_rows = d.operand_window_dims[-1] == d.operand.array.rank - 2
    narrow = narrow_rows(max(d.operand.array.dims[-2], d.updates.array.dims[-2]))
    tiles = -(-d.vectors // LANES)
    if narrow is None or not are_rows or tiles < narrow.tiles * max(_TOGETHER):
        return None
    return narrow


def _held_tables(dims: ScatterDims) -> int:
    """Windows for the result, and for an operand that comes from HBM."""
    return 2 if dims.operand.opcode == "parameter" else 1


def _chunk_rows(dims: ScatterDims, chunk: int) -> int:
    """VMEM rows of both buffers of the updates and their indices."""
    tiles = chunk * _registers(dims) if dims.updates.opcode == "parameter" else 0
    tiles += chunk if dims.components == 1 else chunk * 8 * -(-dims.components // SUBLANES)
    return 2 * SUBLANES * tiles + 2 * GUARD_ROWS


def _registers(dims: ScatterDims) -> int:
    """Of the updates of 1024 index vectors."""
    return max(1, SUBLANES * register_rows(dims))


def _chunk(dims: ScatterDims, vregs: int, rows: int) -> int:
    """Registers of index vectors whose updates lie in VMEM together; 0 if not even one fits."""
    chunk = min(max(1, _CHUNK_VREGS // _registers(dims)), vregs)
    while chunk and _chunk_rows(dims, chunk) > rows:
        chunk //= 2
    return chunk


def _cuts(dims: ScatterDims, chip: Chip, *, stays: bool) -> Iterator[ElementCut]:
    for part in _parts(dims, stays=stays):
        size = dims.operand.array.dims[0]
        tiles = box_vreg_tiles(dims.operand.array, (part, *dims.operand.array.dims[1:]))
        buffers = 0 if stays else _held_tables(dims) * (1 if part == size else 2)
        left = int(chip.vmem_rows * vmem_shares.SCATTERED_ELEMENTS) - buffers * (
            SUBLANES * tiles + GUARD_ROWS
        )
        chunk = _chunk(dims, -(-dims.vectors // VREG), left // 4)
        if chunk:
            left -= _chunk_rows(dims, chunk)
            yield from _cuts_of(dims, chip, part, tiles, left, chunk)


def _cuts_of(
    dims: ScatterDims, chip: Chip, part: int, table: int, left: int, chunk: int
) -> Iterator[ElementCut]:
    """With parts whose table has `table` registers, and `left` rows of VMEM for all tables."""
    store, costs = chip.store_indexed_cycles, ElementCosts.of(chip)
    load = chip.load_indexed_cycles / chip.slot_count(Slot.LOAD)
    vregs = -(-dims.vectors // VREG)
    parts = -(-dims.operand.array.dims[0] // part)
    narrow = None if replaces(dims.scatter) else shared_rows(dims)
    of_vectors = _registers(dims) // (1 if narrow is None else narrow.tiles)
    registers = vregs * of_vectors * (1 if is_cut_by_windows(dims) else parts)
    moved = 3.0 * table * parts
    moved += 4 * dims.vectors * dims.components * parts / chip.hbm_bytes_per_cycle
    moved += registers * VREG_TILE_BYTES / chip.hbm_bytes_per_cycle
    lanes = LANES if dims.window_dims else VREG  # that may mean the same place
    if replaces(dims.scatter):
        cycles = moved + registers * (store + costs.body)
        if left >= 0:
            yield ElementCut(chunk, 1, 1, part, cycles, replaces=True)
        return
    for together in _TOGETHER:
        if together > chunk * (of_vectors if narrow is None else SUBLANES // narrow.tiles):
            continue
        for copies in _COPIES:
            tiles = together * copies * table
            if copies > lanes:
                continue
            if tiles * SUBLANES + together * GUARD_ROWS > left:
                continue
            if tiles * VREG_TILE_BYTES >= 1 << 32:
                continue  # a word's number has 32 bits, with a sign
            one = costs.lane_rotation if dims.window_dims else costs.rotation
            rotations = (lanes // copies - 1) * one
            chain = store * together + chip.latency("load_indexed") + costs.body
            body = max(chain, together * (load + rotations))
            cycles = moved + registers / together * body + costs.table * tiles * parts
            whole = chunk if dims.window_dims else chunk // together * together
            yield ElementCut(whole, together, copies, part, cycles, replaces=False)
