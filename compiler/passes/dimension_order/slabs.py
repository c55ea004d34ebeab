"""Slices and updates at places that are known when the program runs: cycles for the tiles they touch.

    update f32[8000,16,32] by f32[1,16,32]     in order (0,1,2)     2 tiles, whole ones
                                               in order (1,2,0)    64 tiles, one lane of each

A loop that stacks a result a step touches one such slab a step, not the whole array.
"""

from __future__ import annotations

from compiler.analysis.code_costs import OrderCosts
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.dimension_order.arrays import HANDED_ON
from compiler.passes.dimension_order.orders import (
    Dims,
    Order,
    descending,
    physical,
    transfer_cycles,
    vregs,
)
from tpu_sim.isa.geometry import LANES, SUBLANES

Instr = HloInstruction


def is_in_place(instr: Instr) -> bool:
    """Whether an update likely changes what a loop carries, or another update, where that lies."""
    if instr.opcode != "dynamic-update-slice":
        return False
    operand = instr.operands[0]
    computation = instr.computation
    if operand.opcode == "parameter" and computation and computation.module:
        return computation is not computation.module.entry
    return operand.opcode in HANDED_ON or is_in_place(operand)


def slab_cycles(instr: Instr, order: Order, costs: OrderCosts) -> float:
    """Cycles to take a dynamic slice, or to put an update in its place, all lying in an order."""
    whole, slab = _sizes(instr, order)
    registers = vregs(slab)
    cycles = 1.0
    if slab[-1:] != whole[-1:]:
        cycles += costs.slab_lane
    elif slab[-2:-1] != whole[-2:-1]:
        cycles += costs.slab_row
    return registers * cycles


def slab_transfer_cycles(instr: Instr, order: Order, costs: OrderCosts) -> float:
    """Cycles to read or write the tiles that such a slice or update touches."""
    whole, slab = _sizes(instr, order)
    touched = list(slab)
    for place, tile in ((-1, LANES), (-2, SUBLANES)):
        if len(slab) >= -place and slab[place] != whole[place]:
            touched[place] = min(-(-slab[place] // tile) * tile, whole[place])
    shape = instr.array.with_dims(tuple(touched))
    return transfer_cycles(shape, descending(shape.rank), costs)


def _sizes(instr: Instr, order: Order) -> tuple[Dims, Dims]:
    """The sizes of the whole array and of what is taken of it, or changed, as they lie."""
    whole: ArrayShape = instr.operands[0].array
    is_update = instr.opcode == "dynamic-update-slice"
    slab = instr.operands[1].array if is_update else instr.array
    return physical(whole.dims, order), physical(slab.dims, order)
