"""What a kernel is for, however it does it: the bytes it must move, the operations on elements.

The *least* bytes are those of what the kernel reads and of what it makes, each once and without
padding. Of an operand that is only sliced or gathered from, that is what is taken; of one that is
updated in place, what changes. Bytes a kernel moves beyond that are windows read again, padding
of tiles, and rows around those wanted: `tpuc.report` shows the quotient as its amplification.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.float_signs import is_only_rounded
from compiler.analysis.lane_costs import lane_ops
from compiler.analysis.tiled_layout import memory_space
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.hlo.shape import ArrayShape, leaves
from tpu_sim.isa.program import HBM

_TAKEN_FROM = with_trait(Trait.TAKES_PART)
_UPDATED = {"dynamic-update-slice": 1, "scatter": 2}
"""Operations whose first operand may be updated in place, and the operand that has the update."""


@dataclass(frozen=True)
class KernelWork:
    """Operations on one element each, dear ones weighted, and bytes."""

    element_ops: int
    least_bytes: int


def kernel_work(instr: HloInstruction, in_place: tuple[tuple[int, int], ...]) -> KernelWork:
    """The work of a fusion or copy; `in_place` pairs result leaves and operand leaves."""
    called = instr.attrs.get("calls")
    if not isinstance(called, HloComputation):
        moved = [leaf for o in (*instr.operands, instr) for leaf in leaves(o.shape)]
        return KernelWork(0, sum(map(_size, moved)))
    root = called.root_instruction
    is_tuple = root.opcode == "tuple"  # else one operation makes all results
    roots = tuple(root.operands) if is_tuple else (root,)
    updated = {operand for _, operand in in_place} if root.opcode in _UPDATED else set()
    read = sum(
        _taken(parameter, is_updated=number in updated)
        for number, parameter in enumerate(called.parameters)
        if not _is_on_chip(instr.operands[number].shape)
    )
    made = sum(
        _made(node, is_in_place=bool(updated))
        for node, shape in zip(
            roots, leaves(instr.shape) if is_tuple else (instr.shape,), strict=True
        )
        if not _is_on_chip(shape)
    )
    return KernelWork(sum(map(operations, called)), read + made)


def _is_on_chip(shape: object) -> bool:
    """Whether a value lies in SMEM or VMEM, which costs HBM nothing."""
    return isinstance(shape, ArrayShape) and memory_space(shape) != HBM


def _size(shape: ArrayShape) -> int:
    return 0 if _is_on_chip(shape) else shape.byte_count


def _sizes(node: HloInstruction) -> int:
    return sum(map(_size, leaves(node.shape)))


def _taken(parameter: HloInstruction, *, is_updated: bool) -> int:
    """Bytes of a parameter that somebody needs."""
    whole, parts = _sizes(parameter), 0
    for user in parameter.users:
        places = [i for i, operand in enumerate(user.operands) if operand is parameter]
        if places != [0]:
            return whole
        if user.opcode in _TAKEN_FROM:
            parts += _sizes(user)
        elif not (is_updated and user.opcode in _UPDATED):
            return whole
    return min(whole, parts)


def _made(root: HloInstruction, *, is_in_place: bool) -> int:
    """Bytes of a result that change; a scatter also reads what it combines with."""
    if not is_in_place or root.opcode not in _UPDATED:
        return _sizes(root)
    update = _sizes(root.operands[_UPDATED[root.opcode]])
    return min(_sizes(root), update) * (2 if root.opcode == "scatter" else 1)


def operations(node: HloInstruction) -> int:
    """Operations of a node; those of a reduction are one for each element it takes.

    Of a division by values that each serve many elements, the reciprocals are made once.
    """
    if OPCODES[node.opcode].has(Trait.REDUCTION):
        return sum(shape.element_count for shape in leaves(node.operands[0].shape))
    if node.opcode == "scatter":
        return sum(shape.element_count for shape in leaves(node.operands[-1].shape))
    info = OPCODES.get(node.opcode)
    if info is None or not info.has(Trait.ELEMENTWISE) or not isinstance(node.shape, ArrayShape):
        return 0
    if node.opcode == "divide" and is_only_rounded(node) and node.operands[1].opcode == "broadcast":
        divisors = node.operands[1].operands[0].array.element_count
        return node.shape.element_count + (lane_ops(node) - 1) * divisors
    return lane_ops(node) * node.shape.element_count
