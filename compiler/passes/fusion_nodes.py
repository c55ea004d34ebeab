"""What fusion knows about each instruction: is it fused, recomputed, or written to memory.

An instruction of a computation is, for fusion, one of

    FIXED    parameter, tuple, while, array constant ...: never fused; its value lies in memory
    CUSTOM   has a kernel of its own (gather, scatter, sort ...)
    REAL     computed once, in one fusion
    VIRTUAL  recomputed in every fusion that reads it: cheap, and reads no more bytes than it has

A *leaf* of an instruction is a non-virtual one it reads, directly or through virtual ones, with
how it is read: at the same index, once per row (its dimensions are all but the last, repeated
along the last), or in any other way.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import numpy as np

from compiler.analysis.lane_costs import MANY_PARTS, is_dear, lane_ops
from compiler.analysis.scalar_unit import is_scalar_operation
from compiler.analysis.tiled_layout import is_bitcast, is_cheap_regroup
from compiler.hlo.dtypes import PRED
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_any, with_trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.repeated_work import is_better_done_once, is_repeated_turn
from compiler.rewrite.dims import without_ones
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES

MAX_VIRTUAL_OPS = 16
"""VALU operations an element that each reader repeats: less than to store and load it for two
(assumed)."""
MAX_VIRTUAL_LEAVES = 5
"""Arrays that each reader of such a value reads in its place (assumed)."""
_TURNED_USERS = 4
"""From so many readers on a turned image is stored, not turned by each of them (assumed)."""
_LANE_COPIES = 2  # of elements whose lanes are turned: longer than to store them once
_TURNED_ELEMENTS = 1 << 16
_TURNED_ROWS = 64
_TURNING_COST = 8  # of a vreg of a vector
SMALL_ELEMENTS = 1024  # below this, recomputing anything cheap beats another kernel

_FIXED = with_any(Trait.TUPLE_ONLY | Trait.RUNS | Trait.FORWARDS | Trait.GIVEN) | {
    "copy",
    "partition-id",
}
_SHAPE_OPS = with_any(Trait.INDEX_MAP | Trait.SYMBOLIC)
_MOVES = with_trait(Trait.PIECEWISE) - {"dynamic-update-slice"}


class Role(enum.Enum):
    """How fusion treats an instruction (see the module docstring)."""

    FIXED = "fixed"
    CUSTOM = "custom"
    REAL = "real"
    VIRTUAL = "virtual"


class Access(enum.Flag):
    """How a leaf is read."""

    SAME = enum.auto()
    ROW = enum.auto()
    OTHER = enum.auto()


Leaves = dict[HloInstruction, Access]


@dataclass
class FusionNode:
    """Fusion's view of one instruction.

    `op_count` is the work per element, of a real one its own alone; `repeat_count` is that of
    computing it anew, virtual instructions included; `paths` says along how many of them each leaf
    is read.
    """

    instr: HloInstruction
    role: Role
    leaves: Leaves = field(default_factory=dict)
    op_count: int = 0
    repeat_count: int = 0
    has_row_operand: bool = False
    paths: dict[HloInstruction, int] = field(default_factory=dict)


def is_scalar_constant(instr: HloInstruction) -> bool:
    """Whether the instruction is a constant that a kernel can hold as an immediate."""
    literal = instr.attrs.get("literal")
    return instr.opcode == "constant" and isinstance(literal, np.ndarray) and literal.size == 1


def is_index_or_elementwise(instr: HloInstruction) -> bool:
    """Whether an emitter computes the instruction element by element through index maps."""
    if not isinstance(instr.shape, ArrayShape):
        return False
    if instr.opcode in _SHAPE_OPS or instr.opcode in _MOVES or is_scalar_constant(instr):
        return True
    return _is_by_element(instr)


def _is_by_element(instr: HloInstruction) -> bool:
    """Whether each element comes from those at its own index."""
    if instr.opcode == "bitcast-convert":
        return instr.array.dims == instr.operands[0].array.dims
    return OPCODES[instr.opcode].has(Trait.ELEMENTWISE)


def is_variadic_part(instr: HloInstruction) -> bool:
    """Whether this is one result of a variadic reduce."""
    return instr.opcode == "get-tuple-element" and instr.operands[0].opcode == "reduce"


def is_free_reshape(instr: HloInstruction) -> bool:
    """Whether this is a reshape that moves no bytes, outside a fusion a `bitcast`."""
    return instr.opcode == "reshape" and is_bitcast(instr.operands[0].array, instr.array)


def classify(computation: HloComputation, chip: Chip) -> dict[HloInstruction, FusionNode]:
    """Decide the role of every instruction, in one walk from operands to users."""
    hard = _hard_uses(computation)
    starts = _behind_starts(computation)
    nodes: dict[HloInstruction, FusionNode] = {}
    for instr in computation:
        nodes[instr] = node = _classify_one(instr, nodes, chip, is_hard=instr in hard)
        if instr in starts and node.role is Role.VIRTUAL and not _is_start_scalar(instr, nodes):
            node.role = Role.REAL
    return nodes


def start_leaves(
    nodes: dict[HloInstruction, FusionNode],
) -> dict[HloInstruction, frozenset[HloInstruction]]:
    """What each instruction's kernel reads from memory, as scalars, for starts of slices within it."""
    found: dict[HloInstruction, frozenset[HloInstruction]] = {}
    for instr in nodes:
        inner = [found[o] for o in instr.operands if nodes[o].role is Role.VIRTUAL]
        starts = [
            nodes[start].leaves if nodes[start].role is Role.VIRTUAL else (start,)
            for start in _starts(instr)
        ]
        found[instr] = frozenset().union(*inner, *starts)
    return found


def _starts(instr: HloInstruction) -> list[HloInstruction]:
    """The start indices of a dynamic-slice or dynamic-update-slice."""
    first = {"dynamic-slice": 1, "dynamic-update-slice": 2}.get(instr.opcode)
    return [] if first is None else instr.operands[first:]


def _behind_starts(computation: HloComputation) -> set[HloInstruction]:
    """The start indices, and the fusible instructions that they are computed from."""
    found: set[HloInstruction] = set()
    for instr in reversed(list(computation)):
        found.update(_starts(instr))
        if instr in found and is_fusible(instr):
            found.update(instr.operands)
    return found


def _is_start_scalar(instr: HloInstruction, nodes: dict[HloInstruction, FusionNode]) -> bool:
    """Whether a kernel's scalar code can compute what a start index is made of (or read it)."""
    if is_free_reshape(instr):  # a kernel's scalar code reads no arrays
        return not instr.operands[0].array.dims and _is_placed(instr.operands[0], nodes)
    if instr.opcode == "constant":
        return True
    return is_scalar_operation(instr) and all(
        o.array.dtype.bits == 32
        or o.array.dtype == PRED
        or (nodes[o].role is Role.VIRTUAL and not is_free_reshape(o))
        for o in instr.operands
    )


def _hard_uses(computation: HloComputation) -> set[HloInstruction]:
    """The instructions whose value must lie in memory for a user that is no fusion."""
    hard: set[HloInstruction] = {computation.root_instruction}
    for instr in reversed(list(computation)):
        if instr in hard and is_free_reshape(instr):
            hard.add(instr.operands[0])
        if is_fusible(instr):
            continue
        for operand in _stored_operands(instr):
            hard.add(operand)
            if is_free_reshape(operand):
                hard.add(operand.operands[0])
    return hard


def _stored_operands(instr: HloInstruction) -> list[HloInstruction]:
    """The operands that an unfusible instruction reads from memory.

    A scatter's kernel fills its blocks by itself where it scatters into one repeated constant.
    """
    if instr.opcode != "scatter":
        return instr.operands
    targets = len(instr.operands) // 2
    return [o for n, o in enumerate(instr.operands) if n >= targets or not _is_filled(o)]


def _is_filled(instr: HloInstruction) -> bool:
    return instr.opcode == "broadcast" and is_scalar_constant(instr.operands[0])


def is_fusible(instr: HloInstruction) -> bool:
    """Whether the instruction may stand in a fusion with others."""
    return (
        is_index_or_elementwise(instr)
        or OPCODES[instr.opcode].has(Trait.STAGE)
        or is_variadic_part(instr)
    )


def _classify_one(
    instr: HloInstruction, nodes: dict[HloInstruction, FusionNode], chip: Chip, *, is_hard: bool
) -> FusionNode:
    if is_hard and is_scalar_constant(instr):
        return FusionNode(instr, Role.FIXED)  # it stays; kernels have immediates of their own
    if is_variadic_part(instr):
        return FusionNode(instr, Role.REAL, {instr.operands[0]: Access.SAME})
    if not is_fusible(instr):
        node = FusionNode(instr, Role.FIXED if instr.opcode in _FIXED else Role.CUSTOM)
        node.leaves = dict.fromkeys(_stored_operands(instr), Access.OTHER)
        return node
    node = _gather_leaves(instr, nodes)
    if OPCODES[instr.opcode].has(Trait.STAGE) or (is_hard and not is_free_reshape(instr)):
        node.role = Role.REAL
    elif is_hard:
        node.role = Role.VIRTUAL if _is_placed(instr.operands[0], nodes) else Role.REAL
    elif (
        _is_cheap_to_repeat(node)
        and not _is_better_stored(node, nodes)
        and not is_turned_image(instr, nodes)
        and not _is_turned_vector(node)
        and not _is_spread_group(instr)
        and not _is_repeated_regroup(instr, nodes)
        and not is_repeated_turn(instr)
        and not is_better_done_once(instr, node.op_count, chip)
    ):
        node.role = Role.VIRTUAL
    if node.role is Role.REAL:
        is_turned = _is_turned_vector(node) or _is_repeated_regroup(instr, nodes)
        is_turned |= is_repeated_turn(instr)
        node.repeat_count = node.op_count
        node.op_count = _TURNING_COST if is_turned else lane_ops(instr)
    return node


def _is_placed(instr: HloInstruction, nodes: dict[HloInstruction, FusionNode]) -> bool:
    """Whether the value lies in memory anyway (perhaps under another shape)."""
    while is_free_reshape(instr) and nodes[instr].role is Role.VIRTUAL:
        instr = instr.operands[0]
    return nodes[instr].role is not Role.VIRTUAL


def _gather_leaves(instr: HloInstruction, nodes: dict[HloInstruction, FusionNode]) -> FusionNode:
    node = FusionNode(instr, Role.REAL, op_count=lane_ops(instr) if instr.opcode != "reduce" else 1)
    if not OPCODES[instr.opcode].has(Trait.STAGE) and _is_row_broadcast(instr):
        node.has_row_operand = True
    for operand in instr.operands:
        inner = nodes[operand]
        access = _operand_access(instr, operand)
        if inner.role is not Role.VIRTUAL:
            node.leaves[operand] = node.leaves.get(operand, access) | access
            node.paths[operand] = node.paths.get(operand, 0) + 1
            continue
        node.op_count += inner.op_count
        node.has_row_operand |= inner.has_row_operand and instr.opcode != "reduce"
        for leaf, how in inner.leaves.items():
            combined = _compose(how, access)
            node.leaves[leaf] = node.leaves.get(leaf, combined) | combined
            node.paths[leaf] = node.paths.get(leaf, 0) + inner.paths.get(leaf, 1)
    return node


def _is_row_broadcast(instr: HloInstruction) -> bool:
    """Whether this repeats an array along the minor dimension."""
    if instr.opcode != "broadcast" or not instr.operands[0].array.dims:
        return False
    return instr.array.rank - 1 not in instr.dimensions


def _operand_access(instr: HloInstruction, operand: HloInstruction) -> Access:
    if OPCODES[instr.opcode].has(Trait.ELEMENTWISE) or instr.opcode == "bitcast-convert":
        same = operand.array.dims == instr.array.dims
        return Access.SAME if same else Access.OTHER
    if instr.opcode == "reduce":
        return Access.SAME
    if instr.opcode == "broadcast":
        rows = tuple(range(instr.array.rank - 1))
        if instr.dimensions == rows and operand.array.dims == instr.array.dims[:-1]:
            return Access.ROW if rows else Access.OTHER
    return Access.OTHER


def _compose(inner: Access, outer: Access) -> Access:
    """How a leaf is read through two steps."""
    if outer is Access.SAME:
        return inner
    return Access.ROW if inner is Access.SAME and outer is Access.ROW else Access.OTHER


def _is_element_to_start_from(node: FusionNode) -> bool:
    """Whether a reduce starts from this element of an array; a kernel repeats only whole scalars."""
    instr = node.instr
    is_start = any(
        user.opcode == "reduce" and instr in user.operands[len(user.operands) // 2 :]
        for user in instr.users
    )
    return is_start and any(
        isinstance(leaf.shape, ArrayShape) and leaf.shape.dims for leaf in node.leaves
    )


def _is_cheap_to_repeat(node: FusionNode) -> bool:
    """Whether recomputing in every user costs neither much work nor more bytes than reading."""
    instr = node.instr
    if instr.opcode == "constant" or OPCODES[instr.opcode].has(Trait.SYMBOLIC):
        return True
    if not instr.array.dims:
        is_simple = node.op_count <= MAX_VIRTUAL_OPS and instr.opcode != "dynamic-slice"
        return is_simple and not _is_element_to_start_from(node)
    if len(node.leaves) > MAX_VIRTUAL_LEAVES or node.op_count > MAX_VIRTUAL_OPS:
        return False
    if node.has_row_operand and Access.SAME in _accesses(node):
        return False  # it belongs to the kernel that makes the value per row
    if is_dear(instr) and instr.array.element_count > SMALL_ELEMENTS:
        return False
    return read_bytes(node) <= 1.05 * instr.array.byte_count


def _accesses(node: FusionNode) -> Access:
    """All ways in which any leaf is read."""
    found = Access(0)
    for leaf, access in node.leaves.items():
        if isinstance(leaf.shape, ArrayShape) and leaf.array.dims:
            found |= access
    return found


def read_bytes(node: FusionNode) -> int:
    """Bytes that computing all of the instruction reads from its leaves."""
    count = node.instr.array.element_count
    total = 0
    for leaf in node.leaves:
        if isinstance(leaf.shape, ArrayShape):
            elements = min(count, leaf.array.element_count)
            total += elements * leaf.array.dtype.bits // 8
    return total


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
    while instr.opcode in _SHAPE_OPS or instr.opcode in ("pad", "convert"):
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
        is_followed = node.opcode == "transpose" or _is_by_element(node)
        for operand in node.operands if is_followed else ():
            is_large = operand.array.element_count >= _TURNED_ELEMENTS
            if operand not in seen and is_large and nodes[operand].role is Role.VIRTUAL:
                seen[operand] = None
                pending.append(operand)
    return False


def _is_turned_vector(node: FusionNode) -> bool:
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
    while pending:
        user = pending.pop()
        if not isinstance(user.shape, ArrayShape):
            continue
        if user.opcode == "broadcast" and user.dimensions == (user.array.rank - 1,):
            rows = max(rows, user.array.element_count // dims[0])
        elif OPCODES[user.opcode].has(Trait.ELEMENTWISE) and user.array.dims == dims:
            pending += user.users
    return rows >= _TURNED_ROWS


def _is_spread_group(instr: HloInstruction) -> bool:
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


def _is_repeated_regroup(instr: HloInstruction, nodes: dict[HloInstruction, FusionNode]) -> bool:
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
    while instr.opcode in _SHAPE_OPS or instr.opcode in ("pad", "convert"):
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


def _is_better_stored(node: FusionNode, nodes: dict[HloInstruction, FusionNode]) -> bool:
    """Whether an elementwise result should be stored in place of the one value it is made of.

    True when that value is REAL, no one else reads it and the result is no wider: then the
    result is computed where the value is, and the value is never written.
    """
    big = [leaf for leaf, how in node.leaves.items() if how is Access.SAME]
    if len(big) != 1 or not node.instr.array.dims:
        return False
    leaf = big[0]
    if nodes[leaf].role is not Role.REAL or len(leaf.users) != 1:
        return False
    return node.instr.array.dtype.bits <= leaf.array.dtype.bits
