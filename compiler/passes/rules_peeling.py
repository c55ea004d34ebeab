"""A law of reductions whose last dimension is tiny: its positions are arrays of their own.

Differences of all pairs of points, ``x[j, d] - x[i, d]`` for d = 0 .. 2, have 3 of 128 lanes in use.
What is computed from broadcasts and never stored has no need of that dimension: for each d it is an
array of i and j, whose columns fill the lanes.
"""

from __future__ import annotations

from compiler.analysis.reducers import has_identity_init, reducer_kind
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op
from compiler.rewrite.rewriter import ANY_ORDER, rule

MAX_PEELED = 8  # positions of a last dimension
_FEWEST_COLUMNS = 16  # elements of the dimension that becomes the last
_FEWEST_ELEMENTS = 1 << 14
_MOST_NODES = 24


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
    last, reduced = len(outer), instr.dimensions
    kind = reducer_kind(instr.to_apply)
    if last in reduced and (kind is None or not has_identity_init(instr)):
        return None
    peeled: list[dict[HloInstruction, HloInstruction]] = [{} for _ in range(size)]
    parts = [_peeled(operand, place, known) for place, known in enumerate(peeled)]
    attrs = {**instr.attrs, "dimensions": tuple(d for d in reduced if d != last)}
    if last in reduced:
        assert kind is not None
        total = parts[0]
        for part in parts[1:]:
            total = emit(instr, kind, total.array, (total, part))
        if len(reduced) == 1:
            return total
        return emit(instr, "reduce", instr.array, (total, init), attrs)
    kept = instr.array.dims[:-1]
    sums = [emit(instr, "reduce", instr.array.with_dims(kept), (p, init), attrs) for p in parts]
    columns = [make.reshape(total, (*kept, 1)) for total in sums]
    return emit(instr, "concatenate", instr.array, columns, {"dimensions": (len(kept),)})


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
    node: HloInstruction, place: int, known: dict[HloInstruction, HloInstruction]
) -> HloInstruction:
    """The node at one position of its last dimension, without that dimension."""
    if node not in known:
        dims = node.array.dims[:-1]
        if node.opcode == "broadcast":
            known[node] = _peeled_broadcast(node, place)
        elif node.opcode == "iota":
            known[node] = _peeled_iota(node, place)
        else:
            operands = [_peeled(operand, place, known) for operand in node.operands]
            known[node] = make.elementwise(node, operands, dims)
    return known[node]


def _peeled_broadcast(node: HloInstruction, place: int) -> HloInstruction:
    operand, mapping = node.operands[0], node.dimensions
    *dims, _ = node.array.dims
    if len(dims) in mapping:
        at = mapping.index(len(dims))
        bounds = [(0, n, 1) for n in operand.array.dims]
        bounds[at] = (place, place + 1, 1)
        kept = tuple(n for d, n in enumerate(operand.array.dims) if d != at)
        operand = make.reshape(make.slice_(operand, tuple(bounds)), kept)
        mapping = tuple(d for d in mapping if d != len(dims))
    return make.broadcast(operand, tuple(dims), mapping)


def _peeled_iota(node: HloInstruction, place: int) -> HloInstruction:
    shape = node.array.with_dims(node.array.dims[:-1])
    if node.iota_dimension == shape.rank:
        return make.splat(node, shape, place)
    return emit(node, "iota", shape, (), node.attrs)
