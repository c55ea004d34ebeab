"""Products of products in an order that costs more than another: ``(a @ b) @ c`` for ``a @ (b @ c)``.

XLA keeps the order that the model states, as another rounds otherwise; so it is for advice alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from compiler.hlo.ir import HloInstruction

_SCALES = frozenset({"multiply", "divide"})
"""By one number they can be put before or behind a product."""
_SAME_PLACES = frozenset({"bitcast", "convert", "copy"})
"""They leave elements where they are, if dimensions stay."""


@dataclass(frozen=True)
class ProductOrder:
    """A product of a product, and what it takes: multiply-adds of both as stated, and in the other order.

    `inner` is the first product, and `call` the instruction of the kernel that it lies in.
    """

    inner: HloInstruction
    call: HloInstruction
    stated: int
    other: int

    @property
    def saving(self) -> int:
        """Multiply-adds that the other order has not."""
        return self.stated - self.other


@dataclass(frozen=True)
class _Side:
    """An operand of a product: whose elements these are; which dimensions are contracted, which batched.

    `call` is the kernel's instruction that `node` lies in, if it lies in one.
    """

    node: HloInstruction
    contracted: frozenset[int]
    batch: frozenset[int]
    call: HloInstruction | None

    def at(
        self, node: HloInstruction, call: HloInstruction | None, dims: Sequence[int] = ()
    ) -> _Side:
        """The same of the instruction before; `dims` are its own for those here, if they differ."""
        if not dims:
            return _Side(node, self.contracted, self.batch, call)
        contracted, batch = (frozenset(dims[d] for d in s) for s in (self.contracted, self.batch))
        return _Side(node, contracted, batch, call)


def cheaper_order(call: HloInstruction, outer: HloInstruction) -> ProductOrder | None:
    """The order in which a product of a kernel is cheaper, if one of its operands is a product for it alone;
    `call` is the kernel's instruction."""
    if outer.opcode != "dot":
        return None
    left, right = outer.operands
    sides = (
        _Side(left, frozenset(outer.lhs_contracting_dims), frozenset(outer.lhs_batch_dims), call),
        _Side(right, frozenset(outer.rhs_contracting_dims), frozenset(outer.rhs_batch_dims), call),
    )
    orders = [
        order
        for start, other in zip(sides, reversed(sides), strict=True)
        if (side := _product_behind(start)) is not None
        and (order := _order(side, _free(other))) is not None
    ]
    return max(orders, key=lambda order: order.saving, default=None)


def _free(side: _Side) -> int:
    """The elements that an operand has for each of those that are contracted, and each of the batch."""
    taken = side.contracted | side.batch
    return math.prod(size for dim, size in enumerate(side.node.array.dims) if dim not in taken)


def _order(side: _Side, columns: int) -> ProductOrder | None:
    """What it costs as stated and otherwise, if all that is contracted comes from one factor of `side`'s
    product, which has `columns` elements of the outer product's other operand for each."""
    dims, inner = side.node.array.dims, side.node
    batched = len(inner.lhs_batch_dims)
    if side.batch != frozenset(range(batched)):
        return None
    of_left = len(inner.operands[0].array.dims) - len(inner.lhs_contracting_dims)
    parts = frozenset(range(batched, of_left)), frozenset(range(of_left, len(dims)))
    used = [part for part in parts if side.contracted <= part]
    if len(used) != 1:  # of both factors; or of one number, where the order is all the same
        return None
    batch, depth = math.prod(dims[:batched]), _depth(inner)
    contracted = math.prod(dims[d] for d in side.contracted)
    staying = math.prod(dims[d] for d in used[0] - side.contracted)
    kept = math.prod(dims[d] for part in parts if part is not used[0] for d in part)
    stated = batch * kept * staying * contracted * (depth + columns)
    other = batch * depth * staying * columns * (contracted + kept)
    if other >= stated or side.call is None:
        return None
    return ProductOrder(inner, side.call, stated, other)


def _depth(dot: HloInstruction) -> int:
    """What a number of a product is summed over."""
    dims = dot.operands[0].array.dims
    return math.prod(dims[d] for d in dot.lhs_contracting_dims)


def _product_behind(side: _Side) -> _Side | None:
    """The product that makes an operand, behind what may as well be done elsewhere; None: no product does, or
    others read it, too."""
    before = _read_once(side)
    while before is not None and before.node.opcode != "dot":
        before = _before(before)
    return before


def _before(side: _Side) -> _Side | None:
    node, call = side.node, side.call
    if node.opcode == "parameter":
        if call is None or call.opcode != "fusion" or node.computation is not call.calls:
            return None  # an argument, or the state of a loop
        return _read_once(side.at(call.operands[node.parameter_number], None))
    if node.opcode == "fusion":
        return side.at(node.calls.root_instruction, node)
    if node.opcode == "get-tuple-element" and node.operands[0].opcode == "fusion":
        kernel = node.operands[0]
        root = kernel.calls.root_instruction
        parts = root.operands if root.opcode == "tuple" else ()
        return _read_once(side.at(parts[node.index], kernel)) if parts else None
    if node.opcode in _SAME_PLACES and node.operands[0].array.dims == node.array.dims:
        return _read_once(side.at(node.operands[0], call))
    if node.opcode == "transpose":
        return _read_once(side.at(node.operands[0], call, node.dimensions))
    if node.opcode in _SCALES:
        others = [o for o in node.operands if not _is_number(o)]
        return _read_once(side.at(others[0], call)) if len(others) == 1 else None
    return None


def _is_number(node: HloInstruction) -> bool:
    """Whether it is one number in each place."""
    return node.opcode == "broadcast" and not node.operands[0].array.rank


def _read_once(side: _Side) -> _Side | None:
    return side if sum(side.node.users.values()) == 1 else None
