"""Laws of reductions of arrays with a tiny dimension: its positions are arrays of their own.

Differences of all pairs of points, ``x[j, d] - x[i, d]`` for d = 0 .. 2, have 3 of 128 lanes in use.
What is computed from broadcasts and never stored has no need of that dimension: for each d it is an
array of i and j, whose columns fill the lanes. A sum over another tiny dimension of such an array, the
two experts of a token, is a sum of arrays, which fuses with what reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.analysis.reducers import has_identity_init, reducer_kind
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op
from compiler.rewrite.rewriter import ANY_ORDER, rule
from tpu_sim.isa.geometry import LANES, SUBLANES

MAX_PEELED = 8  # positions of a last dimension
_FEWEST_COLUMNS = 16  # elements of the dimension that becomes the last
_FEWEST_ELEMENTS = 1 << 14
_MOST_NODES = 24
_FULL_ROW = SUBLANES * LANES
_LEAST_REPEATS = 4
"""Times the elements that are read that a sum over a tiny dimension before the last must have."""


# reduce(f(i, j, d)) over d == f(i, j, 0) + f(i, j, 1) + ..; over j: reduce(f(i, j, 0)), ..
@rule("reduce-of-tiny-rows", Op("reduce"), ANY_ORDER)
def reduce_of_tiny_rows(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Reduce each position of a tiny last dimension by itself, where nothing of it is stored."""
    if len(instr.operands) != 2 or not isinstance(instr.shape, ArrayShape):
        return None
    operand, init = instr.operands
    *outer, size = operand.array.dims or (0,)
    is_tiny = 1 < size <= MAX_PEELED and operand.array.element_count >= _FEWEST_ELEMENTS
    if not is_tiny or not outer or outer[-1] < _FEWEST_COLUMNS or not _is_computed(operand):
        return None
    last = len(outer)
    if last in instr.dimensions:
        return _total_of_positions(instr, last)
    parts = _positions(operand, last)
    attrs = dict(instr.attrs)
    kept = instr.array.dims[:-1]
    sums = [emit(instr, "reduce", instr.array.with_dims(kept), (p, init), attrs) for p in parts]
    columns = [make.reshape(total, (*kept, 1)) for total in sums]
    return emit(instr, "concatenate", instr.array, columns, {"dimensions": (len(kept),)})


# reduce(f(i, d, j)) over d == f(i, 0, j) + f(i, 1, j) + ..
@rule("reduce-of-tiny-middle", Op("reduce"), ANY_ORDER)
def reduce_of_tiny_middle(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Add up the positions of a tiny dimension before the last, where nothing of it is stored."""
    if len(instr.operands) != 2 or not isinstance(instr.shape, ArrayShape):
        return None
    operand = instr.operands[0]
    dims = operand.array.dims
    tiny = [d for d in instr.dimensions if d < len(dims) - 1 and 1 < dims[d] <= MAX_PEELED]
    if not tiny or operand.array.element_count < _FEWEST_ELEMENTS or not _is_computed(operand):
        return None
    if _LEAST_REPEATS * _repeated_elements(operand) > instr.array.element_count:
        return None  # products of small matrices: what is read is as large as what is made
    return _total_of_positions(instr, tiny[0])


# reduce(x[r, n]) over r == x[0] + x[1] + ..
@rule("reduce-of-few-rows", Op("reduce"), ANY_ORDER)
def reduce_of_few_rows(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Add up the rows of an array that has too few for its tiles.

    A tile of three rows is added up across sublanes of which five hold nothing. Rows that are looked at
    one by one fill the registers, and the sum is an operation on elements, which fuses with what reads it.
    """
    if len(instr.operands) != 2 or not isinstance(instr.shape, ArrayShape):
        return None
    dims = instr.operands[0].array.dims
    rows = len(dims) - 2
    if instr.dimensions != (rows,) or not 1 < dims[rows] < SUBLANES or dims[-1] < _FULL_ROW:
        return None
    operand = instr.operands[0]
    return _total(instr, lambda: [_row(operand, rows, place) for place in range(dims[rows])])


def _row(node: HloInstruction, dim: int, place: int) -> HloInstruction:
    """One position of a dimension, without it."""
    bounds = tuple(
        (place, place + 1, 1) if d == dim else (0, n, 1) for d, n in enumerate(node.array.dims)
    )
    return make.reshape(make.slice_(node, bounds), _without(node, dim))


def _total_of_positions(instr: HloInstruction, dim: int) -> HloInstruction | None:
    """A reduction over `dim`, and perhaps others, with the positions of `dim` added up one by one."""
    total = _total(instr, lambda: _positions(instr.operands[0], dim))
    if total is None or len(instr.dimensions) == 1:
        return total
    left = tuple(d - (d > dim) for d in instr.dimensions if d != dim)
    attrs = {**instr.attrs, "dimensions": left}
    return emit(instr, "reduce", instr.array, (total, instr.operands[1]), attrs)


def _total(
    reduce: HloInstruction, parts: Callable[[], Sequence[HloInstruction]]
) -> HloInstruction | None:
    """Arrays combined as a reduction does it; None where it starts from anything else, or does more."""
    kind = reducer_kind(reduce.to_apply)
    if kind is None or not has_identity_init(reduce):
        return None
    total, *others = parts()
    for part in others:
        total = emit(reduce, kind, total.array, (total, part))
    return total


def _positions(node: HloInstruction, dim: int) -> list[HloInstruction]:
    """The node at each position of a dimension, without it."""
    return [_peeled(node, dim, place, {}) for place in range(node.array.dims[dim])]


def _repeated_elements(root: HloInstruction) -> int:
    """Elements of the arrays that broadcasts repeat, of which an array is computed."""
    pending, seen, total = [root], {root}, 0
    while pending:
        node = pending.pop()
        if node.opcode == "broadcast":
            total += node.operands[0].array.element_count
            continue
        fresh = [o for o in node.operands if o not in seen]
        seen.update(fresh)
        pending += fresh
    return total


def _is_computed(root: HloInstruction) -> bool:
    """Whether an array is computed from broadcasts alone, in few operations."""
    pending, seen = [root], {root}
    while pending:
        node = pending.pop()
        if OPCODES[node.opcode].has(Trait.SYMBOLIC):
            continue
        is_elementwise = OPCODES[node.opcode].has(Trait.ELEMENTWISE) and bool(node.operands)
        if not is_elementwise or any(o.array.dims != node.array.dims for o in node.operands):
            return False
        fresh = [o for o in node.operands if o not in seen]
        seen.update(fresh)
        pending += fresh
    return 1 < len(seen) <= _MOST_NODES


def _peeled(
    node: HloInstruction, dim: int, place: int, known: dict[HloInstruction, HloInstruction]
) -> HloInstruction:
    """The node at one position of a dimension, without that dimension."""
    if node not in known:
        if node.opcode == "broadcast":
            known[node] = _peeled_broadcast(node, dim, place)
        elif node.opcode == "iota":
            known[node] = _peeled_iota(node, dim, place)
        else:
            operands = [_peeled(operand, dim, place, known) for operand in node.operands]
            known[node] = make.elementwise(node, operands, _without(node, dim))
    return known[node]


def _without(node: HloInstruction, dim: int) -> tuple[int, ...]:
    return tuple(n for d, n in enumerate(node.array.dims) if d != dim)


def _peeled_broadcast(node: HloInstruction, dim: int, place: int) -> HloInstruction:
    operand, mapping = node.operands[0], node.dimensions
    if dim in mapping:
        at = mapping.index(dim)
        bounds = [(0, n, 1) for n in operand.array.dims]
        bounds[at] = (place, place + 1, 1)
        operand = make.reshape(make.slice_(operand, tuple(bounds)), _without(operand, at))
    mapping = tuple(d - (d > dim) for d in mapping if d != dim)
    return make.broadcast(operand, _without(node, dim), mapping)


def _peeled_iota(node: HloInstruction, dim: int, place: int) -> HloInstruction:
    shape = node.array.with_dims(_without(node, dim))
    counted = node.iota_dimension
    if counted == dim:
        return make.splat(node, shape, place)
    return emit(
        node, "iota", shape, (), {**node.attrs, "iota_dimension": counted - (counted > dim)}
    )
