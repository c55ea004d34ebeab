"""In which orders of dimensions an operation can take its operands and give its result.

An elementwise operation takes all in the order of its result; a slice or a reduce gives what it
takes. Dots have forms where they are small or of few features (`dots.py`). Gathers and scatters take
any order in which slices have the minor dimension whole (`indexed.py`). What has no form of its own (a
sort, a large dot on the matrix unit, a custom call) wants all descending.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from compiler.analysis.code_costs import OrderCosts
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.dimension_order.dots import (
    Form,
    dot_places,
    is_in_lanes,
    is_row_dot,
    may_be_in_lanes,
    row_form,
)
from compiler.passes.dimension_order.indexed import (
    indexed_orders,
    indexed_ties,
    is_indexed,
)
from compiler.passes.dimension_order.orders import Dims, Order, descending, restricted
from compiler.passes.dot_canonicalizer import dot_sides
from compiler.rewrite.dims import reshape_groups
from tpu_sim.isa.geometry import LANES, SUBLANES

Instr = HloInstruction
End = tuple[int, int]
"""A dimension of an operand (its number), or of the result (-1)."""
RESULT = -1


def is_elementwise(instr: Instr) -> bool:
    """Whether elements come from the same elements of operands of the result's dimensions."""
    if instr.opcode in ("bitcast-convert", "copy"):
        return instr.operands[0].array.dims == instr.array.dims
    return OPCODES[instr.opcode].has(Trait.ELEMENTWISE)


def result_shape(instr: Instr) -> ArrayShape:
    """The array an operation gives, or the first of several of the same dimensions."""
    shape = instr.shape.elements[0] if isinstance(instr.shape, TupleShape) else instr.shape
    assert isinstance(shape, ArrayShape)
    return shape


def form(instr: Instr, orders: Sequence[Order], wanted: Order, costs: OrderCosts) -> Form:
    """The form of an operation whose operands lie in `orders` and whose result shall be `wanted`."""
    if is_indexed(instr):
        found = indexed_orders(instr, tuple(orders), wanted, costs)
        return plain(instr) if found is None else Form(*found)
    return fused_form(instr, orders, wanted)


def fused_form(instr: Instr, orders: Sequence[Order], wanted: Order) -> Form:
    """The same of an operation that is no gather or scatter: those that `is_fused`, others are plain."""
    if is_elementwise(instr):
        return Form(tuple(wanted if o.array.rank else () for o in instr.operands), wanted)
    if instr.opcode in _FORMS:
        return _FORMS[instr.opcode](instr, tuple(orders), wanted)
    return plain(instr)


def plain(instr: Instr) -> Form:
    """Everything descending."""
    taken = tuple(
        descending(o.shape.rank) if isinstance(o.shape, ArrayShape) else () for o in instr.operands
    )
    return Form(taken, descending(result_shape(instr).rank))


def _created(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    return Form((), wanted)


def _broadcast(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    mapping = instr.dimensions
    return Form(
        (tuple(sorted(range(len(mapping)), key=lambda i: wanted.index(mapping[i]))),), wanted
    )


def _transpose(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    permutation = instr.dimensions
    return Form(orders, tuple(permutation.index(d) for d in orders[0]))


def _reduce(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    count = len(instr.operands) // 2
    reduced = instr.dimensions
    first = orders[0]
    kept = [d for d in range(len(first)) if d not in reduced]
    if isinstance(instr.shape, TupleShape) and restricted(first, kept) != wanted:
        first = (*reduced, *(kept[i] for i in wanted))  # its results are one tuple
    return Form((first,) * count + ((),) * count, restricted(first, kept))


def _as_it_lies(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    return Form((orders[0], *((),) * (len(orders) - 1)), orders[0])


def _concatenate(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    return Form((wanted,) * len(orders), wanted)


def _update(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    return Form((wanted, wanted, *((),) * (len(orders) - 2)), wanted)


def _convolution(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    return Form(orders, wanted)  # its labels say which dimension is which


def _reduce_window(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    count = len(instr.operands) // 2
    return Form((wanted,) * count + ((),) * count, wanted)


def _running_total(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    return Form((wanted,), wanted)


def _reshape(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    source, target = instr.operands[0].array.dims, instr.array.dims
    given = carried(source, target, orders[0])
    if given == wanted:
        return Form(orders, wanted)
    taken = carried(target, source, wanted)
    if taken is not None:
        return Form((taken,), wanted)
    return plain(instr) if given is None else Form(orders, given)


def carried(source: Dims, target: Dims, order: Order) -> Order | None:
    """The order of reshaped dimensions, where those that are merged or split lie side by side."""
    if 0 in source:
        return None
    place = {d: i for i, d in enumerate(d for d in order if source[d] != 1)}
    parts: list[tuple[int, Dims]] = []
    for old, new in reshape_groups(source, target):
        large = [d for d in old if source[d] != 1]
        places = [place[d] for d in large]
        if places and places != list(range(places[0], places[0] + len(places))):
            return None
        parts.append((places[0] if places else -1, new))
    return tuple(d for _, new in sorted(parts, key=lambda p: p[0]) for d in new)


def across_reshape(source: Dims, target: Dims, minor: int, order: Order) -> Order:
    """An order of reshaped dimensions with those last that the `minor` one of the source is part of, or
    consists of."""
    (found,) = (new for old, new in reshape_groups(source, target) if minor in old)
    return tuple(sorted(order, key=lambda d: d in found and target[d] != 1))


def _dot(instr: Instr, orders: tuple[Order, ...], wanted: Order) -> Form:
    if not is_in_lanes(instr, wanted):
        return row_form(instr, orders, wanted) if is_row_dot(instr) else plain(instr)
    taken = []
    for side, kept in zip(dot_sides(instr), dot_places(instr), strict=True):
        rest = sorted(kept, key=lambda d: wanted.index(kept[d]))
        taken.append((*side.contracting, *rest))
    return Form(tuple(taken), wanted)


_FORMS = {
    "iota": _created,
    "constant": _created,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reduce": _reduce,
    "slice": _as_it_lies,
    "reverse": _as_it_lies,
    "pad": _as_it_lies,
    "dynamic-slice": _as_it_lies,
    "concatenate": _concatenate,
    "dynamic-update-slice": _update,
    "reshape": _reshape,
    "dot": _dot,
    "convolution": _convolution,
    "reduce-window": _reduce_window,
    "running-total": _running_total,
    "select-and-scatter": _update,
}
"""Operations with a form of their own; the others are `plain`."""


def is_movable(instr: Instr) -> bool:
    """Whether an operation has a form other than the plain one."""
    if instr.opcode == "dot":
        return may_be_in_lanes(instr) or is_row_dot(instr)
    return is_fused(instr) or is_indexed(instr) or _is_alone(instr)


def _is_alone(instr: Instr) -> bool:
    """Whether an operation has a kernel of its own, which takes its array in any order."""
    return instr.opcode == "running-total"


def is_fused(instr: Instr) -> bool:
    """Whether an operation is likely a part of a kernel with those beside it; a small dot is, in lanes."""
    return (instr.opcode in _FORMS and not _is_alone(instr)) or is_elementwise(instr)


def ties(instr: Instr) -> Iterator[tuple[End, End]]:
    """Pairs of dimensions that are best moved together."""
    if instr.opcode == "broadcast":
        yield from (((0, i), (RESULT, d)) for i, d in enumerate(instr.dimensions))
    elif instr.opcode == "transpose":
        yield from (((0, p), (RESULT, i)) for i, p in enumerate(instr.dimensions))
    elif instr.opcode == "reduce":
        yield from _reduce_ties(instr)
    elif instr.opcode == "reshape":
        for old, new in reshape_groups(instr.operands[0].array.dims, instr.array.dims):
            if len(old) == len(new) == 1:
                yield (0, old[0]), (RESULT, new[0])
    elif instr.opcode == "dot":
        if may_be_in_lanes(instr) or is_row_dot(instr):
            yield from _dot_ties(instr)
    elif is_indexed(instr):
        yield from indexed_ties(instr)
    elif is_fused(instr) or _is_alone(instr):
        rank = result_shape(instr).rank
        for slot, operand in enumerate(instr.operands):
            if operand.array.rank == rank and (is_elementwise(instr) or slot in _data_slots(instr)):
                yield from (((slot, d), (RESULT, d)) for d in range(rank))


def _data_slots(instr: Instr) -> range:
    if instr.opcode == "concatenate":
        return range(len(instr.operands))
    return range(2 if instr.opcode == "dynamic-update-slice" else 1)


def _reduce_ties(instr: Instr) -> Iterator[tuple[End, End]]:
    reduced = instr.dimensions
    kept = [d for d in range(instr.operands[0].array.rank) if d not in reduced]
    for slot in range(len(instr.operands) // 2):
        yield from (((0, d), (slot, d)) for d in range(instr.operands[0].array.rank) if slot)
    yield from (((0, d), (RESULT, i)) for i, d in enumerate(kept))


def _dot_ties(dot: Instr) -> Iterator[tuple[End, End]]:
    for slot, places in enumerate(dot_places(dot)):
        yield from (((slot, d), (RESULT, place)) for d, place in places.items())
    left, right = dot_sides(dot)
    yield from (((0, a), (1, b)) for a, b in zip(left.contracting, right.contracting, strict=True))


def lane_cut_cycles(instr: Instr, taken: Form, costs: OrderCosts) -> float:
    """What a register of a slice or a pad costs more, for it moves along the lanes."""
    if instr.opcode == "slice":
        cuts, dense = instr.slice, 1
    elif instr.opcode == "pad":
        cuts, dense = instr.padding, 0
    else:
        return 0.0
    first, _, step = cuts[taken.result[-1]]
    if step != dense:
        return costs.lane_step
    is_shifted = len(cuts) > 1 and cuts[taken.result[-2]][0] % SUBLANES != 0
    return is_shifted * costs.row_shift + (costs.lane_shift if first % LANES else 0.0)
