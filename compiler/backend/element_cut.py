"""How a scatter of single elements goes through a register of updates at a time, and when that pays.

    together   registers (1024 updates each) in one body of the loop, each with tables of its own
    copies     tables of a register: lane l of it adds to table l mod `copies`

Lanes that share a table may mean the same place: what they bring is added up by rotations first. More
tables take more VMEM and time to clear and to add up, fewer take more rotations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis.kernel_vmem import GUARD_ROWS, SUBLANES, VREG_TILE_BYTES, box_vreg_tiles
from compiler.analysis.reducers import widened_kind
from compiler.analysis.scatter_dims import ScatterDims
from compiler.hlo.identities import MONOIDS, identity
from compiler.hlo.ir import HloComputation, HloInstruction
from tpu_sim.isa.chips import Chip

VREG = 1024
"""Updates in a register."""
LANES = 128
_VMEM_SHARE = 0.65
_CHUNK_VREGS = 32
_COPIES = (1024, 128, 64, 32, 16, 8)
_TOGETHER = (4, 2, 1)
_ROTATION_CYCLES = 0.95
"""Of one lane distance: two rotations, a comparison, a selection, an addition."""
_BODY_CYCLES = 60
_TABLE_CYCLES = 1.5
"""To clear a register of a table, and to add it to another one."""
_ROW_CYCLES = 16
"""What an update takes at least that is combined by itself."""


@dataclass(frozen=True)
class ElementCut:
    """See above. `chunk` registers of updates are in VMEM at a time; `cycles` by estimate.

    Updates that replace what was there need neither copies nor rotations: the last one stays.
    """

    chunk: int
    together: int
    copies: int
    cycles: float
    replaces: bool


def replaces(scatter: HloInstruction) -> bool:
    """Whether an update takes the place of what was there."""
    computation = scatter.to_apply
    if not isinstance(computation, HloComputation) or len(computation.parameters) != 2:
        return False
    return computation.root_instruction is computation.parameters[1]


def element_cut(dims: ScatterDims, chip: Chip, *, stays: bool = False) -> ElementCut | None:
    """The cheapest cut of a canonical scatter; None where it is of another kind or does not pay.

    `stays`: operand and result lie in VMEM beside what the kernel has.
    """
    if not _is_of_elements(dims):
        return None
    vregs = -(-dims.vectors // VREG)
    budget = int(chip.vmem_rows * _VMEM_SHARE)
    table = box_vreg_tiles(dims.operand.array, dims.operand.array.dims)
    left = budget - (0 if stays else _held_tables(dims) * (SUBLANES * table + GUARD_ROWS))
    chunk = _chunk(dims, vregs, left // 4)
    if chunk == 0:
        return None
    left -= _chunk_rows(dims, chunk)
    found = list(_cuts(dims, chip, vregs, table, left, chunk))
    best = min(found, key=lambda cut: cut.cycles, default=None)
    if best is None or best.cycles > _ROW_CYCLES * dims.vectors:
        return None
    return best


def _is_of_elements(dims: ScatterDims) -> bool:
    """Whether every update is one element of 32 bits that is combined by a common operation."""
    operand, indices, updates = dims.operand, dims.indices, dims.updates
    dtype = operand.array.dtype
    if len(dims.operands) != 1 or dims.batch_dims != (0,) or dims.operand_batch:
        return False
    if dims.operand_window_dims or dtype.packing != 1 or dtype.is_complex:
        return False
    if indices.opcode != "parameter" or len({operand, indices, updates}) < 3:
        return False
    if replaces(dims.scatter):
        return True
    kind = widened_kind(dims.scatter.to_apply, MONOIDS)
    return kind is not None and identity(kind, dtype) is not None


def _held_tables(dims: ScatterDims) -> int:
    """Windows for the result, and for an operand that comes from HBM."""
    return 2 if dims.operand.opcode == "parameter" else 1


def _chunk_rows(dims: ScatterDims, chunk: int) -> int:
    """VMEM rows of both buffers of the updates and their indices."""
    tiles = chunk if dims.updates.opcode == "parameter" else 0
    tiles += chunk if dims.components == 1 else chunk * 8 * -(-dims.components // SUBLANES)
    return 2 * SUBLANES * tiles + 2 * GUARD_ROWS


def _chunk(dims: ScatterDims, vregs: int, rows: int) -> int:
    """Registers of updates that lie in VMEM together; 0 if not even one fits."""
    chunk = min(_CHUNK_VREGS, vregs)
    while chunk and _chunk_rows(dims, chunk) > rows:
        chunk //= 2
    return chunk


def _cuts(
    dims: ScatterDims, chip: Chip, vregs: int, table: int, left: int, chunk: int
) -> Iterator[ElementCut]:
    store = chip.store_indexed_cycles
    moved = 3.0 * table + dims.vectors * 4 * (1 + dims.components) / chip.hbm_bytes_per_cycle
    if replaces(dims.scatter):
        yield ElementCut(chunk, 1, 1, moved + vregs * (store + _BODY_CYCLES), replaces=True)
        return
    for together in _TOGETHER:
        if together > chunk:
            continue
        for copies in _COPIES:
            tiles = together * copies * table
            if tiles * SUBLANES + together * GUARD_ROWS > left:
                continue
            if tiles * VREG_TILE_BYTES >= 1 << 32:
                continue  # a word's number has 32 bits, with a sign
            rotations = (VREG // copies - 1) * _ROTATION_CYCLES
            chain = store * together + chip.latency("load_indexed") + _BODY_CYCLES
            body = max(chain, together * (chip.load_indexed_cycles / 3 + rotations))
            cycles = moved + vregs / together * body + _TABLE_CYCLES * tiles
            yield ElementCut(chunk // together * together, together, copies, cycles, replaces=False)
