"""Arrays whose rows are put together of others': fusion stores them where readers would each turn them."""

from __future__ import annotations

from compiler.analysis.lane_costs import MANY_PARTS
from compiler.analysis.tiled_layout import is_cheap_regroup
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.fusion_roles import (
    SHAPE_OPS,
    FusionNode,
    Role,
    is_by_element,
    is_free_reshape,
    is_index_or_elementwise,
)
from compiler.rewrite.dims import without_ones
from tpu_sim.isa.geometry import LANES

_TURNED_USERS = 4
"""From so many readers on a turned image is stored, not turned by each of them (assumed)."""
_LANE_COPIES = 2  # of elements whose lanes are turned: longer than to store them once
_TURNED_ELEMENTS = 1 << 16
"""Of smaller ones readers turn what they need (assumed)."""
_TURNED_ROWS = 64
"""Over so many rows a turned vector is repeated before it is stored (assumed)."""


def is_turned_image(instr: HloInstruction, nodes: dict[HloInstruction, FusionNode]) -> bool:
    """Whether an array with its rows moved elsewhere, or made of many parts, is read in several
    places: each would move them.

    The padded image of a convolution is, one that was gathered in blocks, and one whose lanes are turned
    for a transpose that picks rows (`turn_splitting`).
    """
    if is_first_turn(instr):
        return True
    users = len(instr.users)
    sliced = sum(user.array.element_count for user in instr.users if user.opcode == "slice")
    is_sliced = sliced >= _TURNED_USERS * instr.array.element_count
    is_overlapping = sliced >= _LANE_COPIES * instr.array.element_count
    if users < 2 or instr.array.element_count < _TURNED_ELEMENTS:
        return False
    while instr.opcode in SHAPE_OPS or instr.opcode in ("pad", "convert"):
        is_repeated = users >= _TURNED_USERS or (is_overlapping and _turns_lanes(instr))
        if is_repeated and _moves_rows(instr):
            return True
        if not instr.operands or nodes[instr.operands[0]].role is not Role.VIRTUAL:
            return False
        instr = instr.operands[0]
    if instr.opcode == "concatenate":
        return len(instr.operands) >= MANY_PARTS or is_sliced
    return users >= _TURNED_USERS and _is_of_turned_rows(instr, nodes)


def _turns_lanes(instr: HloInstruction) -> bool:
    """Whether another dimension comes to lie along the lanes."""
    return instr.opcode == "transpose" and instr.dimensions[-1:] != (instr.array.rank - 1,)


def is_first_turn(instr: HloInstruction) -> bool:
    """Whether lanes are turned here for a transpose that picks rows."""
    return instr.opcode == "transpose" and any(u.opcode == "transpose" for u in instr.users)


def _is_of_turned_rows(instr: HloInstruction, nodes: dict[HloInstruction, FusionNode]) -> bool:
    """Whether an elementwise operation's kernel would move rows of an operand elsewhere."""
    seen: dict[HloInstruction, None] = {instr: None}
    pending = [instr]
    while pending:
        node = pending.pop()
        if _moves_rows(node):
            return True
        is_followed = node.opcode == "transpose" or is_by_element(node)
        for operand in node.operands if is_followed else ():
            is_large = operand.array.element_count >= _TURNED_ELEMENTS
            if operand not in seen and is_large and nodes[operand].role is Role.VIRTUAL:
                seen[operand] = None
                pending.append(operand)
    return False


def is_turned_vector(node: FusionNode) -> bool:
    """Whether a column of a matrix becomes a vector that is repeated over many rows.

    Its elements lie one a row of lanes, and in the vector side by side: it is turned once.
    """
    instr = node.instr
    if instr.opcode != "reshape" or instr.operands[0].array.dims[-1:] != (1,):
        return False
    dims = instr.array.dims
    if len(dims) != 1 or dims[0] < LANES:
        return False
    pending, rows = list(instr.users), 0
    seen: set[HloInstruction] = set()
    while pending:
        user = pending.pop()
        if user in seen or not isinstance(user.shape, ArrayShape):
            continue
        seen.add(user)
        if user.opcode == "broadcast" and user.dimensions == (user.array.rank - 1,):
            rows = max(rows, user.array.element_count // dims[0])
        elif OPCODES[user.opcode].has(Trait.ELEMENTWISE) and user.array.dims == dims:
            pending += user.users
    return rows >= _TURNED_ROWS


def is_spread_group(instr: HloInstruction) -> bool:
    """Whether values of groups, one for each feature of a group, are repeated over many rows.

    Which value a lane has is found by looking it up, once and not for every row.
    """
    if instr.opcode != "reshape" or instr.operands[0].opcode != "broadcast":
        return False
    inner = instr.operands[0]
    spread = inner.array.rank - 1 not in inner.dimensions and inner.array.dims[-1] > 1
    if not spread or inner.array.dims[-1] % LANES == 0 or not inner.operands[0].array.dims:
        return False
    return any(
        user.opcode == "broadcast"
        and user.array.element_count >= _TURNED_ROWS * instr.array.element_count
        for user in instr.users
    )


def is_repeated_regroup(instr: HloInstruction, nodes: dict[HloInstruction, FusionNode]) -> bool:
    """Whether an array whose rows are put together of parts of other rows is repeated, as the relative
    positions of attention are for each example: they are put together once."""
    if not is_index_or_elementwise(instr):
        return False
    elements = instr.array.element_count
    if elements < _TURNED_ELEMENTS or not any(
        user.opcode == "broadcast" and user.array.element_count >= 2 * elements
        for user in instr.users
    ):
        return False
    while instr.opcode in SHAPE_OPS or instr.opcode in ("pad", "convert"):
        if not instr.operands:
            return False
        if _moves_rows(instr) and instr.opcode == "reshape":
            return not is_cheap_regroup(instr.operands[0].array, instr.array.dims)
        instr = instr.operands[0]
        if nodes[instr].role is not Role.VIRTUAL:
            return False
    return False


def _moves_rows(instr: HloInstruction) -> bool:
    """Whether each register of the result is put together of rows of several: another dimension becomes
    one of the last two, or rows become parts of longer or shorter ones."""
    rank = instr.array.rank
    if instr.opcode == "transpose":
        return instr.dimensions[-2:] != tuple(range(rank - 2, rank))
    if instr.opcode != "reshape" or is_free_reshape(instr):
        return False
    before, after = (without_ones(i.array.dims) for i in (instr.operands[0], instr))
    return before[-1:] != after[-1:]
