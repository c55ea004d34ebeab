"""Invariant turns: what a loop turns anew each time, without changing it, is turned before the loop.

    body: x, i                              body: x, i, t
      t = f32[3,8,4096] transpose(x)    =>    use(t)
      use(t)

Of f32[8,4096,3] tiles make 42 times its bytes, and every turn of the loop would read them all. Readers that
want `x` as it lies keep it. A turned array is carried where the turns that are saved pay for its being made
and kept, by the costs of `dimension-order`.
"""

from __future__ import annotations

from compiler.analysis.code_costs import OrderCosts
from compiler.analysis.loop_invariants import invariant_elements
from compiler.analysis.tiled_layout import byte_size
from compiler.analysis.trip_count import expected_trips
from compiler.hlo.call_graph import control_computations
from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.control_unsharing import unshare
from compiler.passes.dimension_order.orders import descending, reorder_cycles, transfer_cycles
from compiler.rewrite.graph import emit, remove_dead
from compiler.rewrite.loop_growth import add_state, can_grow
from tpu_sim.isa.chips import Chip

Instr = HloInstruction

_LEAST_GAIN = 2.0
"""How many times the cycles before the loop those in it must be."""
_HBM_SHARE = 32
"""An array larger than this part of the memory is not kept a second time."""


def turn_before_loops(module: HloModule, context: PassContext) -> bool:
    """Move transposes of what loops do not change before them, inner loops first."""
    unshared = unshare(module)
    for computation in control_computations(module):
        for loop in [i for i in computation if i.opcode == "while"]:
            if can_grow(loop):
                context.counts["transposes"] += _move_turns(loop, context.chip)
        computation.sort()
    return bool(unshared or context.counts["transposes"])


def _move_turns(loop: Instr, chip: Chip) -> int:
    moved = 0
    for instr in list(loop.body):
        if instr.opcode == "transpose" and instr.computation is loop.body:
            source = _invariant_source(instr, loop.body)
            if source is not None and _pays(instr, loop, chip):
                _carry(instr, source, loop)
                moved += 1
    if moved:
        loop.body.sort()
    return moved


def _invariant_source(instr: Instr, body: HloComputation) -> Instr | None:
    """The element of the state, the same in every turn, that an array is another view of."""
    while instr.opcode == "transpose" or instr.opcode == "reshape":
        instr = instr.operands[0]
    return instr if instr in invariant_elements(body) else None


def _pays(turn: Instr, loop: Instr, chip: Chip) -> bool:
    """Whether reading the turned array in every turn is cheaper than turning it there."""
    costs, trips = OrderCosts.of(chip), expected_trips(loop)
    source, shape = turn.operands[0].array, turn.array
    if trips is None or byte_size(shape.with_layout(None)) > chip.hbm_bytes / _HBM_SHARE:
        return False
    lying = descending(shape.rank)
    read = transfer_cycles(source, lying, costs)
    read_turned = transfer_cycles(shape, lying, costs)
    turned = reorder_cycles(source, lying, turn.dimensions, costs, is_transposed=True)
    is_in_products = any(user.opcode == "dot" for user in turn.users)
    in_loop = read - read_turned + (0.0 if is_in_products else turned)
    return trips * in_loop > _LEAST_GAIN * (read + turned + read_turned)


def _carry(turn: Instr, source: Instr, loop: Instr) -> None:
    """Give the loop the turned array as one more element of its state."""
    chain = [turn]
    while chain[-1].operands[0] is not source:
        chain.append(chain[-1].operands[0])
    made: Instr = loop.operands[0].operands[source.index]
    for view in reversed(chain):
        made = clone(view, loop.home, [made])
    number: dict[str, object] = {"index": len(loop.operands[0].operands)}
    parameter = loop.body.parameters[0]
    element = emit(turn, "get-tuple-element", turn.array, [parameter], number)
    turn.replace_all_uses_with(element)
    ends = (loop.operands[0], loop.body.root_instruction)
    add_state(loop, made, element)
    for old in (*ends, turn):
        remove_dead(old)
