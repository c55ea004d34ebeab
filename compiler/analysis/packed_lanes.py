"""Rows that lie side by side along the lanes, as written in HLO (the pass `lane-packing`).

    f32[111,111,32,32]  reshape to [111,111,4,8,32], transpose to [111,111,8,4,32], reshape to [111,111,8,128]

Each row of 128 lanes holds 4 rows of 32 features, 8 rows apart.
"""

from __future__ import annotations

from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import Trait, with_any
from tpu_sim.isa.geometry import LANES

_MOVES = with_any(Trait.INDEX_MAP | Trait.PIECEWISE) | {"convert"}


def packed_rows(value: HloInstruction) -> HloInstruction | None:
    """The array in which all readers of `value` find its rows side by side in lanes; else None."""
    apart = _only_user(value, "reshape")
    turned = apart and _only_user(apart, "transpose")
    found = turned and _only_user(turned, "reshape")
    if found is None or turned is None or turned.array.rank < 3:
        return None
    rank = turned.array.rank
    is_swapped = turned.dimensions == (*range(rank - 3), rank - 2, rank - 3, rank - 1)
    narrow = value.array.dims[-1:]
    is_wide = found.array.rank == rank - 1 and found.array.dims[-1] % LANES == 0
    return found if is_swapped and is_wide and turned.array.dims[-1:] == narrow else None


def _only_user(value: HloInstruction, opcode: str) -> HloInstruction | None:
    """The one reader of a value if it is such an operation."""
    users = list(value.users)
    return users[0] if len(users) == 1 and users[0].opcode == opcode else None


def reads_packed(value: HloInstruction) -> bool:
    """Whether `value` is put together of arrays whose rows lie side by side in lanes."""
    while value.opcode in _MOVES and value.operands:
        source = value.operands[0]
        if value.opcode == "reshape" and _splits_lanes(source.array.dims, value.array.dims):
            return True
        value = source
    return False


def _splits_lanes(source: tuple[int, ...], dims: tuple[int, ...]) -> bool:
    """Whether a reshape gives each row of whole lanes another dimension."""
    return (
        0 < len(source) == len(dims) - 1
        and dims[:-2] == source[:-1]
        and source[-1] % LANES == 0
        and dims[-1] % LANES != 0
    )
