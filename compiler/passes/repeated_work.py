"""Work that loads would do for many copies of an element: stored, it is done once.

    dot(concatenate(slices of pad(relu(x * scale + shift))), kernel)     each element in nine taps

A convolution reads an element once for each tap, one of a resized image for each copy, too. The loads run
beside the product, so a product of many columns hides some work; what is left is weighed against writing the
value and reading it again.

Where rows lie otherwise in the product than in what the value is made of (a scan over time of rows by
example), a register is put together of eight: of the stored value once, in the loads for each array.

    dot(reshape(transpose(x * a + shifted(x) * b, {1,0,2})), kernel)

Lanes that are turned for an array which is then repeated, or split into short rows, are turned once
as well (`is_turned_once`). Rows of many arrays that a transpose makes columns of are put together before
(`is_stacked_once`).
"""

from __future__ import annotations

import math

from compiler.analysis.code_costs import GatherCosts
from compiler.analysis.kernel_vmem import VREG_TILE_BYTES
from compiler.analysis.lane_costs import lane_ops
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES
from tpu_sim.isa.instruction import Slot

_SHAPE_OPS = with_any(Trait.INDEX_MAP | Trait.PIECEWISE)
_LEAST_ELEMENTS = 1 << 16
"""Below, a kernel of its own takes longer."""
_SLOTS_TAKEN = 2
"""VALU slots that operations take in a bundle beside a product's loads (measured on v5e: convolutions with
five operations before them take 2.5 cycles a register more)."""
_COLUMNS = 128
"""Of a product that take as long as a register of its left side takes to be loaded and pushed."""
_OF_SEVERAL = 3
"""Times what storing a value takes that one of several readers must save: the others may hold it in a form of
their own, padded or rounded, already."""
_MOST_VISITED = 64
"""Steps back to what a value is made of; of more, no loads are counted."""
_LEAST_COPIES = 4
"""Of an array whose lanes are turned in loads, which takes 43 cycles a register (measured on v5e): each copy
costs more than storing it."""

LEAST_STACKED = 8
"""Rows of arrays that are stacked before they are turned: rows of a register, which is turned whole."""
_MOST_SPLIT = 32
"""Columns of a run of turned lanes: a block of 128 is turned for each run, which takes as long as storing
and reading four registers (assumed)."""


def is_better_done_once(value: HloInstruction, op_count: int, chip: Chip) -> bool:
    """Whether `value`, of `op_count` operations an element, is cheaper stored than computed in the
    loads of a product that reads it."""
    if not isinstance(value.shape, ArrayShape) or value.array.element_count < _LEAST_ELEMENTS:
        return False
    if not op_count or not OPCODES[value.opcode].has(Trait.ELEMENTWISE) or lane_ops(value) == 0:
        return False
    products, has_others = _products(value)
    is_alone = len(products) == 1 and not has_others
    stored = _stored_cycles(chip)
    if (
        is_alone
        and _moves_rows_behind(value)
        and (_loads(value) - 1) * GatherCosts.of(chip).picked > stored
    ):
        return True
    slots = chip.slot_count(Slot.VALU)
    spent = max((_spent_cycles(value, *p, op_count, slots) for p in products), default=0.0)
    return spent > stored * (1 if is_alone else _OF_SEVERAL)


def _spent_cycles(
    value: HloInstruction, dot: HloInstruction, side: int, op_count: int, slots: int
) -> float:
    """To compute a register of `value` for all copies that a product loads, less what the product hides."""
    copies, columns = _read(value, dot, side)
    hidden = -(-columns // _COLUMNS) - 1
    return copies * max(op_count * _SLOTS_TAKEN / slots - hidden, 0)


def _stored_cycles(chip: Chip) -> int:
    """To write a register and read it again, at HBM's rate."""
    return math.ceil(2 * VREG_TILE_BYTES / chip.hbm_bytes_per_cycle)


def is_turned_once(instr: HloInstruction) -> bool:
    """Whether an array whose lanes are turned is cheaper turned once and stored than in each load."""
    if instr.opcode != "transpose" or instr.array.element_count < _LEAST_ELEMENTS:
        return False
    before, after = instr.operands[0].array.dims, instr.array.dims
    if instr.dimensions[-1] == len(after) - 1 or 1 in (before[-1], after[-1]):
        return False
    return _is_repeated(instr) or _is_split(instr)


def is_stacked_once(instr: HloInstruction) -> bool:
    """Whether `instr` stacks rows of many arrays, and all that reads it turns them: each column would come
    out of the transpose units by itself."""
    if instr.opcode != "concatenate" or instr.array.element_count < _LEAST_ELEMENTS:
        return False
    rank = instr.array.rank
    is_stack = instr.dimensions == (rank - 2,) and len(instr.operands) >= LEAST_STACKED
    return (
        is_stack
        and instr.array.dims[-2] == len(instr.operands)
        and bool(instr.users)
        and all(u.opcode == "transpose" and u.dimensions[-1] == rank - 2 for u in instr.users)
    )


def _is_split(instr: HloInstruction) -> bool:
    """Whether what were the lanes is split into short runs, each of which is read by itself: a block goes
    through the transpose unit for few of its 128 columns, or each element is looked up."""
    dims = instr.array.dims
    if len(dims) < 2 or dims[-1] < LANES or instr.dimensions[-2] != len(dims) - 1:
        return False
    return any(
        user.opcode == "reshape"
        and user.array.dims[-1] == dims[-1]
        and user.array.rank > len(dims)
        and 1 < user.array.dims[-2] <= _MOST_SPLIT
        for user in instr.users
    )


def _is_repeated(instr: HloInstruction) -> bool:
    """Whether an array is repeated along dimensions that are not its rows', as the scores of a group of
    heads are for each head."""
    return any(
        user.opcode == "broadcast"
        and user.dimensions[-2:] == (user.array.rank - 2, user.array.rank - 1)
        and user.array.element_count >= _LEAST_COPIES * instr.array.element_count
        for user in instr.users
    )


def _read(value: HloInstruction, dot: HloInstruction, side: int) -> tuple[float, int]:
    """How many copies of an element a product that reads `value` loads on a side, and how many columns
    its other side has."""
    operand, other = dot.operands[side], dot.operands[1 - side]
    copies = _copies(operand, value, {}) / value.array.element_count
    batch, contracted = (
        (dot.lhs_batch_dims, dot.lhs_contracting_dims),
        (dot.rhs_batch_dims, dot.rhs_contracting_dims),
    )[side]
    shared = math.prod(operand.array.dims[d] for d in (*batch, *contracted))
    return copies, other.array.element_count // max(shared, 1)


def _products(value: HloInstruction) -> tuple[list[tuple[HloInstruction, int]], bool]:
    """The products that read `value` through shape operations alone, and on which side; and whether
    anything else reads it."""
    pending, seen, has_others = [value], {value}, False
    products: dict[tuple[HloInstruction, int], None] = {}
    while pending:
        node = pending.pop()
        for user in node.users:
            if user.opcode == "dot":
                sides = (side for side in (0, 1) if user.operands[side] is node)
                products.update(dict.fromkeys((user, side) for side in sides))
            elif user.opcode not in _SHAPE_OPS and user.opcode != "convert":
                has_others = True
            elif user not in seen:
                seen.add(user)
                pending.append(user)
    return list(products), has_others


def _moves_rows_behind(value: HloInstruction) -> bool:
    """Whether a transpose between the value and its product moves rows."""
    pending, seen = list(value.users), set(value.users)
    while pending:
        node = pending.pop()
        if node.opcode == "transpose":
            dims = node.operands[0].array.dims
            order = [d for d in node.dimensions if dims[d] != 1]
            if order[-2:] != sorted(order)[-2:]:
                return True
        if node.opcode in _SHAPE_OPS or node.opcode == "convert":
            fresh = [u for u in node.users if u not in seen]
            seen.update(fresh)
            pending += fresh
    return False


def _loads(value: HloInstruction) -> int:
    """Places of large arrays that an element of the value is computed of."""
    least = value.array.element_count // 2
    found: set[tuple[HloInstruction, ...]] = set()
    pending: list[tuple[HloInstruction, ...]] = [(value,)]
    for _ in range(_MOST_VISITED):
        if not pending:
            return len(found)
        node, *path = pending.pop()
        if OPCODES[node.opcode].has(Trait.SYMBOLIC):
            continue
        is_elementwise = OPCODES[node.opcode].has(Trait.ELEMENTWISE)
        large = [
            o
            for o in node.operands
            if isinstance(o.shape, ArrayShape) and o.array.element_count >= least
        ]
        if not is_elementwise and node.opcode not in _SHAPE_OPS:
            found.add((node, *path))
            continue
        way = path if is_elementwise else [node, *path]
        pending += [(operand, *way) for operand in large]
    return 1


def _copies(
    node: HloInstruction, value: HloInstruction, found: dict[HloInstruction, float]
) -> float:
    """Elements of `value`, copies counted, that an array made of it by shape operations holds."""
    if node is value:
        return float(value.array.element_count)
    if node not in found:
        found[node] = 0.0
        if node.opcode in _SHAPE_OPS or node.opcode == "convert":
            parts = [_copies(o, value, found) for o in node.operands]
            total = sum(parts)
            if OPCODES[node.opcode].has(Trait.INDEX_MAP):
                total *= node.array.element_count / node.operands[0].array.element_count
            found[node] = total
    return found[node]
