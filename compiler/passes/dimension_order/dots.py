"""In which orders dots take their operands: small ones in lanes, and those of many rows and few features.

A dot of many small matrices is computed as products and sums of registers when its result lies along one of
their dimensions (`is_in_lanes`). A product of many rows with few features fills the lanes with one dimension
of the rows, and the matrix unit multiplies from the other side:

    rows lie    [h, w, n, k] x [k, f]     gives [h, w, n, f]      features along the lanes
                [f, k] x [h, w, k, n]     gives [h, w, f, n]      for each h and w
                [f, k] x [h, w, n, k]     gives [h, w, f, n]      rows that have their features last stay so

A sum over rows (the gradient of such weights) takes both sides in either order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.analysis.code_costs import OrderCosts
from compiler.hlo.dtypes import F32
from compiler.hlo.ir import HloInstruction
from compiler.passes.dimension_order.orders import Order, descending, physical, vregs
from compiler.passes.dot_canonicalizer import DotSide, dot_sides, is_narrow, row_sides
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from tpu_sim.isa.geometry import LANES, SUBLANES

Instr = HloInstruction
_MOST_PRODUCTS = 1 << 13
"""Products of a small matrix with another, where a dot may be computed in lanes."""
_MOST_CONTRACTED = 32
_MOST_OF_WEIGHTS = 32
"""Elements of the smaller side of a product of rows, up to which it is computed in lanes."""


@dataclass(frozen=True)
class Form:
    """The order of each operand (empty for scalars), and of every array that comes out."""

    operands: tuple[Order, ...]
    result: Order


def is_in_lanes(dot: Instr, wanted: Order) -> bool:
    """Whether a dot is computed as products and sums of vregs: its result lies along many rows."""
    return wanted != descending(len(wanted)) and may_be_in_lanes(dot)


def may_be_in_lanes(dot: Instr) -> bool:
    """Whether a dot is small enough to be products and sums, in some order."""
    dtypes = (dot.array.dtype, *(o.array.dtype for o in dot.operands))
    if not all(d.is_float and d.bits <= F32.bits for d in dtypes) or 0 in dot.array.dims:
        return False
    left, right = dot_sides(dot)
    k = left.size(left.contracting)
    products = k * left.size(left.free) * right.size(right.free)
    batch = left.size(left.batch)
    m, n = left.size(left.free), right.size(right.free)
    if not left.batch and k * min(m, n) > _MOST_OF_WEIGHTS:
        return False
    widest = max(batch, m, n)
    return 0 < k <= _MOST_CONTRACTED and products * batch <= widest * _MOST_PRODUCTS


def dot_places(dot: Instr) -> tuple[dict[int, int], dict[int, int]]:
    """For both operands: which dimension of the result each dimension becomes."""
    left, right = dot_sides(dot)
    lead = len(left.batch)
    first = {d: i for i, d in enumerate((*left.batch, *left.free))}
    second = {d: i for i, d in enumerate(right.batch)}
    second |= {d: lead + len(left.free) + i for i, d in enumerate(right.free)}
    return first, second


def is_row_dot(dot: Instr) -> bool:
    """Whether a dot is of many rows and few features, each in one dimension."""
    left, right = dot_sides(dot)
    if not is_narrow(dot):
        return False
    kept = row_sides(left, right)
    if not kept:
        return len(left.free) == len(right.free) == 1
    small = right if kept[0] is left else left
    return len(left.contracting) == len(small.free) == 1


def row_form(dot: Instr, orders: Sequence[Order], wanted: Order) -> Form:
    """The form of such a dot whose operands lie in `orders` and whose result shall be `wanted`."""
    left, right = sides = dot_sides(dot)
    kept = row_sides(left, right)
    if not kept:
        return Form(_summed_orders(sides, orders), descending(2))
    number = sides.index(kept[0])
    places = dot_places(dot)[number]
    source = {place: d for d, place in places.items()}
    rows = [d for d in wanted if d in source]
    (feature,) = (d for d in wanted if d not in source)
    (k,) = kept[0].contracting
    taken = [descending(o.array.rank) for o in dot.operands]
    is_last = feature == wanted[-1] or orders[number][-1] == k
    taken[number] = _beside([source[d] for d in rows], k, is_last=is_last)
    return Form(tuple(taken), _beside(rows, feature, is_last=wanted[-1] == feature))


def _beside(rows: Sequence[int], feature: int, *, is_last: bool) -> Order:
    """Rows with the features last, or before the last dimension of the rows."""
    return (*rows, feature) if is_last else (*rows[:-1], feature, rows[-1])


def _summed_orders(sides: tuple[DotSide, DotSide], orders: Sequence[Order]) -> tuple[Order, ...]:
    """Both sides with their rows in one order, that of the larger one; features where they lie."""
    larger = max((0, 1), key=lambda n: sides[n].operand.array.element_count)
    rows = [
        sides[larger].contracting.index(d) for d in orders[larger] if d in sides[larger].contracting
    ]
    taken = []
    for side, order in zip(sides, orders, strict=True):
        own = [side.contracting[n] for n in rows]
        taken.append(_beside(own, side.free[0], is_last=order[-1] != own[-1]))
    return tuple(taken)


def row_cycles(dot: Instr, taken: Form, costs: OrderCosts) -> float:
    """Cycles of such a dot in a form."""
    left, right = sides = dot_sides(dot)
    k, m, n = left.size(left.contracting), left.size(left.free), right.size(right.free)
    kept = row_sides(left, right)
    if not kept:
        turned = [
            vregs(physical(s.operand.array.dims, o))
            for s, o in zip(sides, taken.operands, strict=True)
            if o[-1] not in s.contracting
        ]
        turning = costs.turn * min(turned) if len(turned) == 2 else 0.0
        blocks = -(-min(m, n) // SUBLANES) * -(-k // LANES) * -(-max(m, n) // LANES)
        return turning + costs.weights_pass * blocks
    few = min(m, n)
    rows = max(m, n)
    depth = -(-k // LANES)
    result = taken.result
    if kept[0].free and result[-1] in _row_places(dot, kept[0]):
        columns = dot.array.dims[result[-1]]
        matrices = rows // columns * -(-columns // LANES)
        passes = costs.weights_pass * depth * -(-few // SUBLANES)
        pushes = costs.push * (-(-k // SUBLANES) + -(-few // SUBLANES))
        return matrices * (passes + pushes)
    return costs.weights_pass * -(-rows // SUBLANES) * depth * -(-few // LANES)


def _row_places(dot: Instr, side: DotSide) -> set[int]:
    return set(dot_places(dot)[dot_sides(dot).index(side)].values())


def row_product(dot: Instr, operands: Sequence[Instr], taken: Form) -> Instr:
    """Such a dot anew, of operands that lie as `taken`."""
    left, right = sides = dot_sides(dot)
    attrs = {name: value for name, value in dot.attrs.items() if not name.endswith("_dims")}
    kept = row_sides(left, right)
    if not kept:
        larger = max((0, 1), key=lambda n: sides[n].operand.array.element_count)
        lies = taken.operands[larger]
        rows = [sides[larger].contracting.index(d) for d in lies if d in sides[larger].contracting]
        for name, side, order in zip(("lhs", "rhs"), sides, taken.operands, strict=True):
            summed = tuple(order.index(side.contracting[n]) for n in rows)
            attrs[f"{name}_contracting_dims"] = summed
        return emit(dot, "dot", dot.array, operands, attrs, dot.name)
    number = sides.index(kept[0])
    large, weights = operands[number], operands[1 - number]
    (k,) = sides[1 - number].contracting
    shape = dot.array.with_dims(physical(dot.array.dims, taken.result))
    rank = large.array.rank
    has_features_last = taken.operands[number][-1] == kept[0].contracting[0]
    if has_features_last and taken.result[-1] not in _row_places(dot, kept[0]):
        attrs |= {"lhs_contracting_dims": (rank - 1,), "rhs_contracting_dims": (k,)}
        return emit(dot, "dot", shape, (large, weights), attrs, dot.name)
    turned = make.transpose(weights, (1 - k, k))
    lead = tuple(range(rank - 2))
    # A loop's result that lies in another order has its new shape only when all is rewritten.
    lies = physical(kept[0].operand.array.dims, taken.operands[number])
    dims = (*lies[:-2], *turned.array.dims)
    streamed = make.broadcast(turned, dims, (rank - 2, rank - 1)) if lead else turned
    if lead:
        attrs |= {"lhs_batch_dims": lead, "rhs_batch_dims": lead}
    along = rank - 1 if has_features_last else rank - 2
    attrs |= {"lhs_contracting_dims": (rank - 1,), "rhs_contracting_dims": (along,)}
    return emit(dot, "dot", shape, (streamed, large), attrs, dot.name)
