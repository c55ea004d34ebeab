"""Activation order: what convolutions read and make lies with the batch next to the features, everywhere.

    x = f32[32,56,56,64] convolution(a, k), dim_labels=b01f_01io->b01f
    y = f32[32,56,56,64] maximum(x, z)

becomes

    x = f32[56,56,32,64] convolution(a, k), dim_labels=01bf_01io->01bf
    y = f32[56,56,32,64] maximum(x, z)

A window's taps then begin at whole tiles and rows of all positions merge (`image_order`). Were it so only
inside of each convolution, every one would turn its image and its result: half of an array is read for a few
of its rows, as the batch lies outside in one and along the sublanes in the other. So the order spreads from
convolutions that want it to what is computed of their arrays and to what these are computed of: through
elementwise operations, pads, slices, windows, sums, other convolutions. Transposes stand where a region ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.algebraic_simplifier import simplify_algebra
from compiler.passes.context import PassContext
from compiler.passes.dimension_order.arrays import HANDED_ON
from compiler.passes.dimension_order.forms import (
    Form,
    carried,
    form,
    is_elementwise,
    is_movable,
    plain,
)
from compiler.passes.dimension_order.orders import Order, descending
from compiler.passes.dimension_order.rewriter import OrderRewriter
from compiler.passes.image_order import ImageOrder, image_order

Instr = HloInstruction
_INSIDE = ImageOrder(batch_inside=True)
_AS_IT_LIES = frozenset({"slice", "reverse", "pad", "reduce-window", "dynamic-slice"})
"""Operations that give their result in the order of their first operand."""
_ALIKE = {"concatenate": None, "dynamic-update-slice": 2, "select-and-scatter": 2}
"""Operations whose first operands, so many or all, lie as the result does."""


def order_activations(module: HloModule, context: PassContext) -> bool:
    """Choose the order of arrays around convolutions, and rewrite into it."""
    orders = ActivationOrders(module)
    if not orders.orders:
        return False
    context.counts["arrays"] += len(orders.orders)
    context.counts["instructions"] += OrderRewriter(orders).run()
    simplify_algebra(module, context)
    return True


class ActivationOrders:
    """The order of each array that has another one than HLO lists its dimensions in."""

    def __init__(self, module: HloModule) -> None:
        self.module = module
        self.computations = control_computations(module)
        self.orders: dict[Instr, Order] = {}
        self._pending: list[Instr] = []
        for computation in self.computations:
            for instr in computation:
                if instr.opcode == "convolution" and image_order(instr).batch_inside:
                    self._give(instr.operands[0], _INSIDE.image(instr.dim_labels))
                    self._give(instr, _INSIDE.result(instr.dim_labels))
        while self._pending:
            self._spread(self._pending.pop())

    def order(self, instr: Instr, index: int = 0) -> Order:
        """The order of an array, empty for what is none; those in tuples are descending."""
        shape = instr.shape.elements[index] if isinstance(instr.shape, TupleShape) else instr.shape
        rank = shape.rank if isinstance(shape, ArrayShape) else 0
        return self.orders.get(instr, descending(rank))

    def form(self, instr: Instr) -> Form:
        """How an operation takes its operands and gives its result."""
        if not isinstance(instr.shape, ArrayShape):
            return plain(instr)
        orders = [self.order(o) for o in instr.operands]
        return form(instr, orders, self.order(instr))

    def _give(self, instr: Instr, order: Order) -> None:
        """Let an array lie so, unless it has an order or cannot have one."""
        if instr in self.orders or instr.opcode in HANDED_ON or not is_movable(instr):
            return
        if isinstance(instr.shape, ArrayShape) and order != descending(instr.array.rank):
            self.orders[instr] = order
            self._pending.append(instr)

    def _spread(self, instr: Instr) -> None:
        order = self.orders[instr]
        for user in list(instr.users):
            for slot, operand in enumerate(user.operands):
                given = _result_order(user, slot, order) if operand is instr else None
                if given is not None:
                    self._give(user, given)
        for operand, taken in _operand_orders(instr, order):
            self._give(operand, taken)


def _result_order(user: Instr, slot: int, order: Order) -> Order | None:
    """The order a result has best where the operand in `slot` lies in `order`; None: no matter."""
    if not isinstance(user.shape, ArrayShape) or not is_movable(user):
        return None
    if is_elementwise(user):
        return order if user.operands[slot].array.rank == user.array.rank else None
    if user.opcode in _ALIKE:
        return order if slot in _alike(user) else None
    if slot:
        return None
    if user.opcode in _AS_IT_LIES:
        return order
    if user.opcode == "convolution":
        labels = user.dim_labels
        is_ours = _keeps_order(user) and order == _INSIDE.image(labels)
        return _INSIDE.result(labels) if is_ours else None
    if user.opcode == "reshape":
        return carried(user.operands[0].array.dims, user.array.dims, order)
    if user.opcode in ("transpose", "reduce"):
        orders = [order, *(() for _ in user.operands[1:])]
        return form(user, orders, descending(user.array.rank)).result
    return None


def _operand_orders(instr: Instr, order: Order) -> Iterator[tuple[Instr, Order]]:
    """The operands that best lie so where the result lies in `order`."""
    if is_elementwise(instr):
        yield from ((o, order) for o in instr.operands if o.array.rank == instr.array.rank)
    elif instr.opcode in _ALIKE:
        yield from ((instr.operands[slot], order) for slot in _alike(instr))
    elif instr.opcode in _AS_IT_LIES:
        yield instr.operands[0], order
    elif instr.opcode == "transpose":
        yield instr.operands[0], tuple(instr.dimensions[d] for d in order)
    elif instr.opcode == "reshape":
        taken = carried(instr.array.dims, instr.operands[0].array.dims, order)
        if taken is not None:
            yield instr.operands[0], taken
    elif instr.opcode == "convolution":
        labels = instr.dim_labels
        if _keeps_order(instr) and order == _INSIDE.result(labels):
            yield instr.operands[0], _INSIDE.image(labels)


def _alike(instr: Instr) -> range:
    return range(_ALIKE[instr.opcode] or len(instr.operands))


def _keeps_order(convolution: Instr) -> bool:
    """Whether a convolution is as cheap with the batch inside, where its image lies so."""
    is_pointwise = all(d.size == 1 for d in convolution.window.dims)
    return is_pointwise or image_order(convolution).batch_inside
