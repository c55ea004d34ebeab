"""Laws that leave fewer transposes: where one turns back what another turned, and where two turn alike.

``transpose(f(transpose(x), y)) == f(x, transpose(y))`` when the transposes undo each other. Rounding, masks
and scales stand between them in gradients of products: an array that both would turn stays as it lies, and
what is turned instead is small before it is broadcast.

``f(transpose(x, p), transpose(y, p)) == transpose(f(x, y), p)``: what two arrays give is turned, not
both of them.
"""

from __future__ import annotations

from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import is_elementwise
from compiler.passes.rules_motion import ELEMENTWISE
from compiler.rewrite import make
from compiler.rewrite.dims import Dims
from compiler.rewrite.pattern import Match, Op, Splat, X, Y
from compiler.rewrite.rewriter import rule
from tpu_sim.isa.geometry import LANES

_DEPTH = 6
"""Of elementwise operations that are looked through."""
_LEAST_REPEATED = 2
"""How often what is turned instead must be broadcast."""


# transpose(f(transpose(x, p), broadcast(y)), q) == f(x, transpose(broadcast(y), q)) when p undoes q;
# f(transpose(x, r), ..) when lanes stay where they were
@rule(
    "transpose-turned-back",
    Op("transpose", Op(ELEMENTWISE, name="inner")),
    examples=(
        Op("transpose", Op(ELEMENTWISE, Op("transpose", X))),
        Op("transpose", Op(ELEMENTWISE, Op("transpose", X), Op("broadcast", Y))),
        Op("transpose", Op(ELEMENTWISE, Op("transpose", X), Splat())),
    ),
)
def transpose_turned_back(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Compute on the array as it lay before the first transpose."""
    inner, order = m["inner"], instr.dimensions
    if not inner.array.dims:
        return None
    if _undone(inner, order, _DEPTH, is_alone=not _may_repeat(instr)) is not True:
        return None
    return _turned(inner, order)


def _may_repeat(instr: HloInstruction) -> bool:
    """Whether what others read as well may be computed again for `instr`: arithmetic reads it, and rows fill
    their lanes. Short rows would have been turned for that."""
    is_read = all(is_elementwise(user) or user.opcode == "reduce" for user in instr.users)
    return bool(instr.users) and is_read and instr.array.dims[-1] >= LANES


# f(transpose(x, p), transpose(y, p)) == transpose(f(x, y), p)
@rule(
    "turned-together",
    Op(ELEMENTWISE, Op(("transpose", "slice")), Op(("transpose", "slice"))),
    examples=(
        Op(ELEMENTWISE, Op("transpose", X), Op("transpose", Y)),
        Op(ELEMENTWISE, Op("slice", Op("transpose", X)), Op("transpose", Y)),
    ),
)
def turned_together(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Turn lanes once. On one side at least nobody else reads what is turned: there a transpose is gone
    for the one behind."""
    orders = {_lane_turn(o) for o in instr.operands}
    is_read_here_alone = any(_has_one_reader(o) for o in instr.operands)
    if len(orders) != 1 or not is_read_here_alone or len(instr.users) > 1:
        return None
    (order,) = orders
    if order is None:
        return None
    sources = [_before_turn(o) for o in instr.operands]
    inside = make.elementwise(instr, sources, sources[0].array.dims)
    return make.transpose(inside, order)


def _has_one_reader(operand: HloInstruction) -> bool:
    """Whether a transpose, or a slice of one, is read by one instruction, and so is what it slices."""
    chain = (operand, *operand.operands) if operand.opcode == "slice" else (operand,)
    return all(len(link.users) == 1 for link in chain)


def _lane_turn(operand: HloInstruction) -> Dims | None:
    """The order of a transpose that moves lanes, perhaps of which a slice is taken that has the first ones
    of the source; None if it is none."""
    turn = operand.operands[0] if operand.opcode == "slice" else operand
    if turn.opcode != "transpose" or turn.array.rank < 2:
        return None
    order, last = turn.dimensions, turn.array.rank - 1
    if order[-1] == last:
        return None
    if operand is not turn:
        start, _, stride = operand.slice[order.index(last)]
        if start or stride != 1:
            return None
    return order


def _before_turn(operand: HloInstruction) -> HloInstruction:
    """What a transpose turns, with the slice that was taken of it."""
    if operand.opcode == "transpose":
        return operand.operands[0]
    turn = operand.operands[0]
    bounds = tuple(operand.slice[turn.dimensions.index(d)] for d in range(turn.array.rank))
    return make.slice_(turn.operands[0], bounds)


def _undone(instr: HloInstruction, order: Dims, depth: int, *, is_alone: bool) -> bool | None:
    """Whether a transpose within is undone by one of `order` behind, or its lanes at least; None where
    another array would have to be turned.

    With `is_alone` nothing else may read what lies between, since it would be computed again: a product reads
    an array in either order as it is. What is made of positions and repeated numbers alone may always be.
    """
    if instr.opcode == "transpose":
        composed = tuple(instr.dimensions[d] for d in order)
        last = len(order) - 1
        is_undone = composed == tuple(range(len(order)))
        return True if is_undone or (composed[last] == last != order[last]) else None
    if instr.opcode == "iota":
        return False
    if instr.opcode == "broadcast":
        few = _LEAST_REPEATED * instr.operands[0].array.element_count <= instr.array.element_count
        return False if few else None
    if not is_elementwise(instr) or not depth:
        return None
    found = [
        _undone(o, order, depth - 1, is_alone=is_alone) for o in instr.operands if o.array.dims
    ]
    if None in found or (any(found) and is_alone and len(instr.users) > 1):
        return None
    return any(found)


def _turned(instr: HloInstruction, order: Dims) -> HloInstruction:
    """``transpose(instr, order)``, computed of what `instr` is made of."""
    if instr.opcode == "transpose":
        return make.transpose(instr.operands[0], tuple(instr.dimensions[d] for d in order))
    if not is_elementwise(instr):
        return make.transpose(instr, order)
    operands = [_turned(o, order) if o.array.dims else o for o in instr.operands]
    return make.elementwise(instr, operands, tuple(instr.array.dims[d] for d in order))
