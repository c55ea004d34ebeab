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
elementwise operations, pads, slices, windows, sums, other convolutions, and what loops carry, which has one
order inside and outside. Transposes stand where a region ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.algebraic_simplifier import simplify_algebra
from compiler.passes.context import PassContext
from compiler.passes.dimension_order.arrays import HANDED_ON, Arrays
from compiler.passes.dimension_order.dots import Form
from compiler.passes.dimension_order.forms import (
    carried,
    fused_form,
    is_fused,
    plain,
)
from compiler.passes.dimension_order.orders import Order, descending
from compiler.passes.dimension_order.rewriter import OrderRewriter
from compiler.passes.image_order import ImageOrder, has_few_positions, image_order

Instr = HloInstruction
_INSIDE = ImageOrder(batch_inside=True)


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
        self._arrays = Arrays(module)
        self.computations = self._arrays.computations
        self.orders: dict[int, Order] = {}
        self._pending: list[int] = []
        for computation in self.computations:
            for instr in computation:
                if instr.opcode == "convolution" and _wants_order(instr):
                    self._give(instr.operands[0], _INSIDE.image(instr.dim_labels))
                    self._give(instr, _INSIDE.result(instr.dim_labels))
        while self._pending:
            home = self._pending.pop()
            for instr, index in self._arrays.members[home]:
                self._spread(instr, index, self.orders[home])

    def order(self, instr: Instr, index: int = 0) -> Order:
        """The order of an array, empty for what is none."""
        shape = instr.shape.elements[index] if isinstance(instr.shape, TupleShape) else instr.shape
        if not isinstance(shape, ArrayShape):
            return ()
        return self.orders.get(self._arrays.home(instr, index), descending(shape.rank))

    def form(self, instr: Instr) -> Form:
        """How an operation takes its operands and gives its result."""
        if not _may_move(instr):
            return plain(instr)
        orders = [self.order(o) for o in instr.operands]
        return fused_form(instr, orders, self.order(instr))

    def _give(self, instr: Instr, order: Order, index: int = 0) -> None:
        """Let an array lie so, unless it has an order or cannot have one."""
        home = self._arrays.home(instr, index)
        if home in self.orders or home in self._arrays.fixed or order == descending(len(order)):
            return
        makers = (i for i, _ in self._arrays.members[home] if i.opcode not in HANDED_ON)
        if all(map(_may_move, makers)):
            self.orders[home] = order
            self._pending.append(home)

    def _spread(self, instr: Instr, index: int, order: Order) -> None:
        if isinstance(instr.shape, TupleShape):
            if instr.opcode == "tuple":
                self._give(instr.operands[index], order)
            return
        for user in list(instr.users):
            for slot, operand in enumerate(user.operands):
                if operand is not instr:
                    continue
                if user.opcode == "tuple":
                    self._give(user, order, slot)
                    continue
                given = _result_order(user, slot, order)
                if given is not None:
                    self._give(user, given)
        if instr.opcode not in HANDED_ON:
            for operand, taken in _operand_orders(instr, order):
                self._give(operand, taken)


def _may_move(instr: Instr) -> bool:
    """Whether an operation makes one array, in other orders than the descending one."""
    return isinstance(instr.shape, ArrayShape) and instr.opcode != "dot" and is_fused(instr)


def _result_order(user: Instr, slot: int, order: Order) -> Order | None:
    """The order a result has best where the operand in `slot` lies in `order`; None: no matter."""
    if not _may_move(user):
        return None
    if user.opcode == "convolution":
        labels = user.dim_labels
        is_ours = slot == 0 and _keeps_order(user) and order == _INSIDE.image(labels)
        return _INSIDE.result(labels) if is_ours else None
    if user.opcode == "reshape":
        return carried(user.operands[0].array.dims, user.array.dims, order)
    rank = user.array.rank
    lies = [descending(o.array.rank) for o in user.operands]
    lies[slot] = order
    taken = fused_form(user, lies, order if len(order) == rank else descending(rank))
    return taken.result if taken.operands[slot] == order else None


def _operand_orders(instr: Instr, order: Order) -> Iterator[tuple[Instr, Order]]:
    """The operands that best lie so where the result lies in `order`."""
    if instr.opcode == "convolution":
        labels = instr.dim_labels
        if _keeps_order(instr) and order == _INSIDE.result(labels):
            yield instr.operands[0], _INSIDE.image(labels)
    elif instr.opcode == "transpose":
        yield instr.operands[0], tuple(instr.dimensions[d] for d in order)
    elif instr.opcode == "reshape":
        taken = carried(instr.array.dims, instr.operands[0].array.dims, order)
        if taken is not None:
            yield instr.operands[0], taken
    else:
        ranks = [o.array.rank for o in instr.operands]
        lies = [order if rank == len(order) else descending(rank) for rank in ranks]
        found = fused_form(instr, lies, order)
        if found.result == order:
            yield from zip(instr.operands, found.operands, strict=True)


def _keeps_order(convolution: Instr) -> bool:
    """Whether a convolution is as cheap with the batch inside, where its image lies so."""
    is_pointwise = all(d.size == 1 for d in convolution.window.dims)
    return is_pointwise or _wants_order(convolution)


def _wants_order(convolution: Instr) -> bool:
    """Whether a convolution is cheaper with the batch inside; a kernel's gradient has no such wish."""
    return not has_few_positions(convolution) and image_order(convolution).batch_inside
