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

from compiler.analysis.element_access import is_element_access
from compiler.analysis.lane_costs import is_dear, lane_ops
from compiler.analysis.scalar_unit import is_scalar_operation
from compiler.hlo.dtypes import PRED
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import ArrayShape
from compiler.passes.fusion_roles import (
    Access,
    FusionNode,
    Role,
    is_free_reshape,
    is_index_or_elementwise,
    is_scalar_constant,
    is_variadic_part,
)
from compiler.passes.repeated_work import is_better_done_once, is_stacked_once, is_turned_once
from compiler.passes.summed_copies import is_copied_into_sum
from compiler.passes.turned_images import (
    is_repeated_regroup,
    is_spread_group,
    is_turned_image,
    is_turned_vector,
)
from tpu_sim.isa.chips import Chip

MAX_VIRTUAL_OPS = 16
"""VALU operations an element that each reader repeats: less than to store and load it for two
(assumed)."""
MAX_VIRTUAL_LEAVES = 5
"""Arrays that each reader of such a value reads in its place (assumed)."""
_TURNING_COST = 8  # of a vreg of a vector
SMALL_ELEMENTS = 1024  # below this, recomputing anything cheap beats another kernel

_FIXED = with_any(Trait.TUPLE_ONLY | Trait.RUNS | Trait.FORWARDS | Trait.GIVEN) | {
    "copy",
    "partition-id",
}


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
        is_fixed = instr.opcode in _FIXED or is_element_access(instr)
        node = FusionNode(instr, Role.FIXED if is_fixed else Role.CUSTOM)
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
        and not is_turned_vector(node)
        and not is_spread_group(instr)
        and not is_repeated_regroup(instr, nodes)
        and not is_turned_once(instr)
        and not is_stacked_once(instr)
        and not is_better_done_once(instr, node.op_count, chip)
        and not is_copied_into_sum(instr, node.op_count, chip)
    ):
        node.role = Role.VIRTUAL
    if node.role is Role.REAL:
        is_turned = is_turned_vector(node) or is_repeated_regroup(instr, nodes)
        is_turned |= is_turned_once(instr) or is_stacked_once(instr)
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
