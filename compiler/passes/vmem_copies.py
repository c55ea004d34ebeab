"""Copies of what loops read and leave as it is, so that it may stay in VMEM for all iterations.

    copy = f32[650,2600]{1,0:T(8,128)S(1)} copy(weights)
    state = (..., f32[650,2600]{1,0:T(8,128)S(1)}) tuple(..., copy)
    loop = (...) while(state), ...

A copy is made for every such array that is no part of a loop that is a kernel of its own. VMEM residency
takes those away that do not stay.
"""

from __future__ import annotations

from collections.abc import Collection

from compiler.analysis.aliasing import hands_on
from compiler.analysis.tiled_layout import byte_size, memory_space
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape
from compiler.rewrite.graph import emit
from tpu_sim.isa.program import HBM

_LEAST_BYTES = 1 << 16
_SHARE = 2
"""A copied array takes at most this part of VMEM."""


def copy_invariants(
    module: HloModule, vmem_bytes: int, own_loops: Collection[HloInstruction]
) -> list[HloInstruction]:
    """Insert the copies, each before its loop's state; none for `own_loops`."""
    found: list[HloInstruction] = []
    for computation in control_computations(module):
        for loop in [i for i in computation if i.opcode == "while"]:
            state = loop.operands[0]
            is_own = state.opcode == "tuple" and list(state.users) == [loop]
            if is_own and loop not in own_loops:
                found += _of_loop(computation, loop, state, vmem_bytes)
    return found


def _of_loop(
    computation: HloComputation, loop: HloInstruction, state: HloInstruction, vmem_bytes: int
) -> list[HloInstruction]:
    copies: dict[HloInstruction, HloInstruction] = {}
    for leaf, value in enumerate(state.operands):
        if value in copies or not _is_worth_it(value, vmem_bytes) or not hands_on(loop, leaf):
            continue
        if sum(operand is value for operand in state.operands) == 1:
            copies[value] = emit(value, "copy", value.shape, (value,))
            state.set_operand(leaf, copies[value])
    made = list(copies.values())
    if made:
        _put_before(computation, made, state)
    return made


def _is_worth_it(value: HloInstruction, vmem_bytes: int) -> bool:
    shape = value.shape
    if not isinstance(shape, ArrayShape) or memory_space(shape) != HBM or shape.dtype.bits > 32:
        return False
    return _LEAST_BYTES <= byte_size(shape) <= vmem_bytes // _SHARE


def _put_before(
    computation: HloComputation, made: list[HloInstruction], user: HloInstruction
) -> None:
    """Schedule new instructions just before the one that reads them."""
    order = [i for i in computation if i not in made]
    at = order.index(user)
    computation.instructions = dict.fromkeys([*order[:at], *made, *order[at:]])
