"""Values that a sum would compute anew for each copy of an element: stored, they are computed once.

    reduce(broadcast(exp(a)) * broadcast(exp(b)))

A product of matrices of exponentials (sums of probabilities in logarithms) reads an element of each side
for every row or column of the other. What is cheap enough to be repeated by each reader is then repeated by
each copy. Nothing hides that: what the sum reads is small beside what it goes over. The work of the copies
is weighed against a kernel more, and against writing the value and reading it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.analysis.code_costs import KernelCosts, WindowCosts
from compiler.analysis.kernel_vmem import VREG_TILE_BYTES
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

_SHAPE_OPS = with_any(Trait.INDEX_MAP | Trait.PIECEWISE)
_MOST_VISITED = 64
"""Steps that are looked at from a value to sums, and from a sum back to what it is made of; beyond them
nothing is known, and the value is not stored for it."""
_LARGE_SHARE = 2
"""An array of half as many elements as a sum goes over comes from memory at a rate that hides work."""


def is_copied_into_sum(value: HloInstruction, op_count: int, chip: Chip) -> bool:
    """Whether `value`, of `op_count` operations an element, is cheaper stored than computed for each copy of
    an element that a reduction goes over."""
    if (
        not isinstance(value.shape, ArrayShape)
        or value.array.rank < 2
        or not value.array.element_count
    ):
        return False
    if not OPCODES[value.opcode].has(Trait.ELEMENTWISE):
        return False
    registers = value.array.element_count / (LANES * SUBLANES)
    repeated = op_count / WindowCosts.of(chip).operations
    stored = (
        2 * VREG_TILE_BYTES / chip.hbm_bytes_per_cycle + KernelCosts.of(chip).launch / registers
    )
    return any(
        (copies - 1) * repeated > stored and not _is_fed_from_memory(reduce)
        for reduce, copies in _sums(value)
    )


def _sums(value: HloInstruction) -> Iterator[tuple[HloInstruction, float]]:
    """Reductions that read `value` through operations on elements, and how often one of its elements is
    computed for them.

    One value a row that is repeated along the lanes is computed once for a register of eight rows, and stays
    in registers where a reduction goes along the row.
    """
    pending: list[tuple[HloInstruction, float, bool]] = [(value, 1.0, False)]
    seen = {value}
    for _ in range(_MOST_VISITED):
        if not pending:
            return
        node, copies, is_row = pending.pop()
        for user in node.users:
            if user.opcode == "reduce" and node in user.operands[: len(user.operands) // 2]:
                if not (is_row and node.array.rank - 1 in user.dimensions):
                    yield user, copies
            elif user not in seen and _goes_by_element(user):
                seen.add(user)
                of_rows = _repeats_lanes(user)
                grown = 1.0
                if OPCODES[user.opcode].has(Trait.INDEX_MAP):
                    grown = user.array.element_count / node.array.element_count
                pending.append(
                    (user, copies * (min(grown, LANES) if of_rows else grown), is_row or of_rows)
                )


def _repeats_lanes(node: HloInstruction) -> bool:
    """Whether elements are repeated along the last dimension."""
    return node.opcode == "broadcast" and node.array.rank - 1 not in node.dimensions


def _is_fed_from_memory(reduce: HloInstruction) -> bool:
    """Whether what a sum goes over is made of an array that is about as large."""
    first = reduce.operands[0]
    large = first.array.element_count / _LARGE_SHARE
    pending, seen = [first], {first}
    for _ in range(_MOST_VISITED):
        if not pending:
            return False
        node = pending.pop()
        if not _goes_by_element(node):
            if not _is_made_of_nothing(node):
                return True
            continue
        fresh = [o for o in node.operands if o not in seen and _has(o, large)]
        seen.update(fresh)
        pending += fresh
    return True


def _has(node: HloInstruction, elements: float) -> bool:
    return isinstance(node.shape, ArrayShape) and node.array.element_count >= elements


def _goes_by_element(node: HloInstruction) -> bool:
    if not isinstance(node.shape, ArrayShape):
        return False
    return node.opcode in _SHAPE_OPS or OPCODES[node.opcode].has(Trait.ELEMENTWISE)


def _is_made_of_nothing(node: HloInstruction) -> bool:
    return node.opcode == "constant" or OPCODES[node.opcode].has(Trait.SYMBOLIC)
