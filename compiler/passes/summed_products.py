"""Summed products: what a loop adds up of small products is one large product behind it.

    sum = sum + dot(a, b)     ->     as = dynamic-update-slice(as, a, i), bs likewise;
                                     sum = sum + dot(as, bs), over the trips too

The gradient of a recurrent network's weights is such a sum: each step multiplies the few rows of its batch,
for which the matrix units load and the vector unit adds the whole matrix. What the loop reads of a stack
is not stacked again: the stack is an operand of the large product, and the other one is stacked in its order.

A sum stays in the loop where stacking takes longer than adding, by an estimate in cycles, or much of HBM.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.analysis.code_costs import SumCosts
from compiler.analysis.loop_invariants import state_reads
from compiler.analysis.tiled_layout import byte_size
from compiler.analysis.trip_count import trip_count
from compiler.hlo.call_graph import control_computations
from compiler.hlo.dtypes import F32, S32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import Shape, TupleShape
from compiler.passes.context import PassContext
from compiler.passes.loop_state import drop_unused
from compiler.passes.stacked_view import is_only_caller
from compiler.passes.trip_order import Order, order_of, trip_counter
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.loop_growth import add_state, can_grow
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES

Instr = HloInstruction

_ARRANGES = with_trait(Trait.REARRANGES) - {"broadcast"}  # each element goes to one place
_HBM_SHARE = 16  # of HBM that the stacks of a loop may take


@dataclass(frozen=True)
class _Term:
    """A product of a sum, and how its elements are arranged until they are added, the first step first."""

    dot: Instr
    arranged: tuple[Instr, ...]


@dataclass(frozen=True)
class _Sum:
    """Element `index` of a loop's state, to which each trip adds `terms`."""

    index: int
    terms: tuple[_Term, ...]


@dataclass
class _Loop:
    """A loop whose trips are counted, and what is stacked in it already."""

    loop: Instr
    counter: Instr
    trips: int
    made: dict[tuple[Instr, Order], int] = field(default_factory=dict)
    """Elements of the state that are new stacks, by what they stack and where trips write."""


def sum_products_once(module: HloModule, context: PassContext) -> bool:
    """Move the sums of products out of all loops whose trips are counted, where that pays."""
    for computation in control_computations(module):
        for loop in [i for i in computation if i.opcode == "while"]:
            found = _counted(loop)
            if found is not None and is_only_caller(module, loop):
                context.counts["sums"] += _move(found, context.chip)
    return bool(context.counts["sums"])


def _counted(loop: Instr) -> _Loop | None:
    """A loop whose state is read element by element and that has a counter of its trips."""
    if not can_grow(loop):
        return None
    trips = trip_count(loop)
    if trips is None or trips < 2:
        return None
    counter = trip_counter(loop)
    return None if counter is None else _Loop(loop, counter, trips)


def _move(counted: _Loop, chip: Chip) -> int:
    loop, moved = counted.loop, 0
    for index in range(len(loop.operands[0].operands)):
        found = _sum(loop, index)
        if found is not None and _pays(counted, found, chip):
            _rewrite(counted, found)
            moved += 1
    if moved:
        drop_unused(loop)
        loop.body.sort()
        loop.home.sort()
    return moved


# What is found.


def _sum(loop: Instr, index: int) -> _Sum | None:
    body, value = loop.body, loop.body.root_instruction.operands[index]
    held = state_reads(body, index)
    if value.opcode != "add" or value.array.dtype is not F32 or len(held) != 1:
        return None
    if body.root_instruction.operands.count(value) != 1 or state_reads(loop.condition, index):
        return None
    addends = _addends(value, body.root_instruction)
    if addends is None or addends.count(held[0]) != 1 or len(held[0].users) != 1:
        return None
    terms = [_term(addend) for addend in addends if addend is not held[0]]
    whole = tuple(term for term in terms if term is not None)
    return _Sum(index, whole) if len(whole) == len(terms) else None


def _addends(value: Instr, user: Instr) -> list[Instr] | None:
    """What a tree of additions adds up, none of whose sums anything else reads; None if something does."""
    if value.opcode != "add":
        return [value]
    if list(value.users) != [user]:
        return None
    left, right = (_addends(operand, value) for operand in value.operands)
    return None if left is None or right is None else left + right


def _term(value: Instr) -> _Term | None:
    arranged: list[Instr] = []
    while value.opcode in _ARRANGES and len(value.users) == 1:
        arranged.insert(0, value)
        value = value.operands[0]
    if value.opcode != "dot" or len(value.users) != 1 or value.array.dtype is not F32:
        return None
    return _Term(value, tuple(arranged))


def _order(counted: _Loop, term: _Term) -> Order:
    """In which order the trips lie along the stacks of a product: as in one that is there already."""
    for operand in term.dot.operands:
        found = _source(counted, operand)
        if found is not None:
            return found[1]
    return Order(forward=True)


def _source(counted: _Loop, value: Instr) -> tuple[int, Order] | None:
    """The element of the state, which the loop leaves as it is, of which `value` is slice after slice."""
    if value.opcode != "reshape" or value.operands[0].opcode != "dynamic-slice":
        return None
    piece = value.operands[0]
    whole, start, *_ = piece.operands
    dims = whole.array.dims
    if value.array.dims != dims[1:] or piece.array.dims != (1, *dims[1:]):
        return None
    body = counted.loop.body
    if whole.opcode != "get-tuple-element" or whole.operands[0] is not body.parameters[0]:
        return None
    if body.root_instruction.operands[whole.index] is not whole or dims[0] != counted.trips:
        return None
    order = order_of(start, counted.counter, counted.trips)
    return None if order is None else (whole.index, order)


# What it costs.


def _pays(counted: _Loop, found: _Sum, chip: Chip) -> bool:
    """Whether the loop takes longer to add up the products than to stack what they are made of."""
    stacked: set[tuple[Instr, Order]] = set()
    costs, adding = SumCosts.of(chip), 0.0
    for term in found.terms:
        order = _order(counted, term)
        shape = term.dot.array.with_layout(None)
        registers = byte_size(shape) // (SUBLANES * LANES * F32.bits // 8)
        adding += costs.product + costs.register * registers
        stacked |= {(o, order) for o in term.dot.operands if not _lies(counted, o, order)}
    new = stacked - set(counted.made)
    slabs = sum(byte_size(value.array.with_layout(None)) for value, _ in new)
    held = sum(byte_size(value.array.with_layout(None)) for value, _ in {*counted.made, *new})
    if held * counted.trips > chip.hbm_bytes // _HBM_SHARE:
        return False
    return 2 * slabs / chip.hbm_bytes_per_cycle + costs.slab * len(new) < adding


def _lies(counted: _Loop, value: Instr, order: Order) -> bool:
    found = _source(counted, value)
    return found is not None and found[1] == order


# The change.


def _rewrite(counted: _Loop, found: _Sum) -> None:
    loop, index = counted.loop, found.index
    results = [u for u in loop.users if u.index == index]
    total = loop.operands[0].operands[index]
    for term in found.terms:
        order = _order(counted, term)
        stacks = [_stack(counted, operand, order) for operand in term.dot.operands]
        value = _large(loop, term, stacks)
        total = emit(loop, "add", value.array, (total, value))
    for result in results:
        result.replace_all_uses_with(total)
    body = loop.body
    root, held = body.root_instruction, state_reads(body, index)[0]
    root.set_operands([held if i == index else o for i, o in enumerate(root.operands)])


def _stack(counted: _Loop, value: Instr, order: Order) -> Instr:
    """The stack of a value of the body, as it is behind the loop."""
    loop = counted.loop
    source = _source(counted, value)
    if source is not None and source[1] == order:
        return loop.operands[0].operands[source[0]]
    key = (value, order)
    if key not in counted.made:
        counted.made[key] = _carried(counted, value, order)
    place = counted.made[key]
    return emit(loop, "get-tuple-element", _parts(loop)[place], (loop,), {"index": place})


def _carried(counted: _Loop, value: Instr, order: Order) -> int:
    """A new element of the state in which each trip writes its `value`."""
    loop, body = counted.loop, counted.loop.body
    shape = value.array.with_layout(None).with_dims((counted.trips, *value.array.dims))
    place, root = len(_parts(loop)), body.root_instruction
    held = emit(value, "get-tuple-element", shape, (body.parameters[0],), {"index": place})
    zero = make.constant(value, S32, 0)
    starts = [order.place(counted.counter, counted.trips), *[zero] * value.array.rank]
    piece = make.reshape(value, (1, *value.array.dims))
    store = emit(value, "dynamic-update-slice", shape, (held, piece, *starts))
    add_state(loop, make.splat(loop, shape, 0), store)
    body.remove(root)
    return place


def _parts(loop: Instr) -> tuple[Shape, ...]:
    assert isinstance(loop.shape, TupleShape)
    return loop.shape.elements


def _large(loop: Instr, term: _Term, stacks: list[Instr]) -> Instr:
    """The product of a term over all trips, arranged as the sum is."""
    dot = term.dot
    attrs = dict(dot.attrs)
    attrs["lhs_contracting_dims"] = (0, *_behind(dot.lhs_contracting_dims))
    attrs["rhs_contracting_dims"] = (0, *_behind(dot.rhs_contracting_dims))
    if dot.lhs_batch_dims:
        attrs["lhs_batch_dims"] = _behind(dot.lhs_batch_dims)
        attrs["rhs_batch_dims"] = _behind(dot.rhs_batch_dims)
    value = emit(loop, "dot", dot.array.with_layout(None), stacks, attrs)
    for step in term.arranged:
        value = emit(loop, step.opcode, step.array.with_layout(None), (value,), dict(step.attrs))
    return value


def _behind(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Dimensions of a slice, as the stack numbers them."""
    return tuple(dim + 1 for dim in dims)
