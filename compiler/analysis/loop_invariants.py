"""Where a loop's state is read, and which of its elements no turn changes."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.hlo.ir import HloComputation, HloInstruction


def element_reads(value: HloInstruction, index: int) -> list[HloInstruction]:
    """Where an element of a tuple is read."""
    return [u for u in value.users if u.opcode == "get-tuple-element" and u.index == index]


def state_reads(computation: HloComputation, index: int) -> list[HloInstruction]:
    """Where a loop's body or condition reads an element of the state."""
    return element_reads(computation.parameters[0], index)


def is_invariant(body: HloComputation, index: int) -> bool:
    """Whether every turn hands an element on as it found it."""
    root = body.root_instruction
    return root.opcode == "tuple" and root.operands[index] in state_reads(body, index)


def invariant_elements(body: HloComputation) -> Iterator[HloInstruction]:
    """Where a body reads what no turn changes."""
    for user in body.parameters[0].users:
        if user.opcode == "get-tuple-element" and is_invariant(body, user.index):
            yield user
