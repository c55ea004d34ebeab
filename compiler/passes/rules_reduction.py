"""Laws of reductions and contractions over nothing, and of reductions in a row."""

from __future__ import annotations

from compiler.analysis.reducers import has_identity_init, reducer_kind
from compiler.hlo.dtypes import PRED
from compiler.hlo.identities import MONOIDS
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.hlo.shape import ArrayShape, TupleShape, leaves
from compiler.rewrite import make
from compiler.rewrite.dims import reshape_groups
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op, X, Y, Z
from compiler.rewrite.rewriter import ANY_ORDER, rule

_IDEMPOTENT = with_trait(Trait.IDEMPOTENT)
_MOST_REDUCED = 4
"""Parts of a concatenation that are reduced each by itself, with a kernel each: queries, keys and values
are three (assumed)."""
_LEAST_REDUCED = 1 << 18
"""Elements of a part on average: of fewer the kernels' launches, 1,000 cycles each on v5e, may take longer
than putting the parts together (assumed)."""


# reduce(empty, init) == init
@rule("reduce-of-nothing", Op("reduce"))
def reduce_of_nothing(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """A reduction over no elements is its initial value everywhere."""
    if len(instr.operands) != 2 or 0 not in instr.operands[0].array.dims:
        return None
    return make.broadcast(instr.operands[1], instr.array.dims, ())


# reduce(x over dims of size 1, start) == start op x; 0.0 + -0.0 is 0.0, what is left is -0.0
@rule("reduce-of-ones", Op("reduce"), ANY_ORDER)
def reduce_of_ones(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Drop the reduced dimensions of size 1; with none left the reduce is one operation or none."""
    if len(instr.operands) != 2 or not isinstance(instr.shape, ArrayShape):
        return None
    operand, init = instr.operands
    if {operand.array.dtype, init.array.dtype} != {instr.array.dtype}:
        return None
    reduced = instr.dimensions
    ones = {d for d in reduced if operand.array.dims[d] == 1}
    if len(ones) == len(reduced):
        return _of_one(instr, make.reshape(operand, instr.array.dims))
    if not ones:
        return None
    kept = [d for d in range(operand.array.rank) if d not in ones]
    smaller = make.reshape(operand, tuple(operand.array.dims[d] for d in kept))
    dims = tuple(kept.index(d) for d in reduced if d not in ones)
    attrs = {**instr.attrs, "dimensions": dims}
    return emit(instr, "reduce", instr.array, (smaller, init), attrs)


def _of_one(reduce: HloInstruction, value: HloInstruction) -> HloInstruction | None:
    """The start value and the one element, combined."""
    if has_identity_init(reduce):
        return value
    kind = reducer_kind(reduce.to_apply, MONOIDS)
    if kind is None or (reduce.array.dtype == PRED and kind in ("add", "multiply")):
        return None
    start = make.broadcast(reduce.operands[1], reduce.array.dims, ())
    return emit(reduce, kind, reduce.array, (start, value))


# max over a of max over b of x == max over a and b of x (likewise min, and, or)
@rule("reduce-of-reduce", Op("reduce"), examples=(Op("reduce", Op("reduce", X, Y), Z),))
def reduce_of_reduce(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Two exact reductions of the same kind in a row are one."""
    if len(instr.operands) != 2 or instr.operands[0].opcode != "reduce":
        return None
    inner = instr.operands[0]
    kind = reducer_kind(instr.to_apply)
    if kind not in _IDEMPOTENT or len(inner.users) != 1:
        return None
    if reducer_kind(inner.to_apply) != kind or not has_identity_init(inner):
        return None
    kept = [d for d in range(inner.operands[0].array.rank) if d not in inner.dimensions]
    dims = tuple(sorted((*inner.dimensions, *(kept[d] for d in instr.dimensions))))
    attrs = {**instr.attrs, "dimensions": dims}
    return emit(instr, "reduce", instr.array, (inner.operands[0], instr.operands[1]), attrs)


# reduce(transpose(x, p), dims) reads x dims p[dims]; what is left is as p orders it
@rule(
    "reduce-of-transpose", Op("reduce"), ANY_ORDER, examples=(Op("reduce", Op("transpose", X), Y),)
)
def reduce_of_transpose(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Reduce where the arrays lie; only what is left of them is in another order."""
    count = len(instr.operands) // 2
    arrays, inits = instr.operands[:count], instr.operands[count:]
    orders = {a.dimensions for a in arrays if a.opcode == "transpose"}
    if len(orders) != 1:
        return None
    (order,) = orders
    sources = [_before_transpose(a, order) for a in arrays]
    found = [s for s in sources if s is not None]
    if len(found) < count:
        return None
    reduced = tuple(sorted(order[d] for d in instr.dimensions))
    kept = [d for d in range(len(order)) if d not in reduced]
    dims = tuple(found[0].array.dims[d] for d in kept)
    left = [order[d] for d in range(len(order)) if d not in instr.dimensions]
    back = tuple(kept.index(d) for d in left)
    attrs: dict[str, object] = {**instr.attrs, "dimensions": reduced}
    if isinstance(instr.shape, ArrayShape):
        total = emit(instr, "reduce", instr.array.with_dims(dims), (*found, *inits), attrs)
        return make.transpose(total, back)
    shapes = tuple(shape.with_dims(dims) for shape in leaves(instr.shape))
    total = emit(instr, "reduce", TupleShape(shapes), (*found, *inits), attrs)
    parts = [
        make.transpose(emit(instr, "get-tuple-element", shape, (total,), {"index": number}), back)
        for number, shape in enumerate(shapes)
    ]
    return emit(instr, "tuple", instr.shape, parts)


def _before_transpose(array: HloInstruction, order: tuple[int, ...]) -> HloInstruction | None:
    """What `array` is a transpose of; positions and splats can be made in any order."""
    dims = [0] * array.array.rank
    for place, d in enumerate(order):
        dims[d] = array.array.dims[place]
    if array.opcode == "transpose":
        return array.operands[0]
    if array.opcode == "iota":
        attrs: dict[str, object] = {"iota_dimension": order[array.iota_dimension]}
        return emit(array, "iota", array.array.with_dims(tuple(dims)), (), attrs)
    if array.opcode == "broadcast" and len(array.dimensions) <= 1:
        mapping = tuple(order[d] for d in array.dimensions)
        return make.broadcast(array.operands[0], tuple(dims), mapping)
    return None


# reduce(reshape(transpose(x))) == reshape(reduce(transpose(x))) if all that is merged is reduced, or kept
@rule(
    "reduce-of-merged-transpose",
    Op("reduce", Op("reshape", Op("transpose", X, name="turn")), Y),
    ANY_ORDER,
)
def reduce_of_merged_transpose(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Reduce what a transpose turns, which then is not turned: heads of features merge in the result.

    Where operations on elements read it merged, it is made for them, and the sum takes their pass.
    """
    turn, reduced = m["turn"], set(instr.dimensions)
    if not isinstance(instr.shape, ArrayShape) or not instr.array.rank:
        return None
    if any(OPCODES[user.opcode].has(Trait.ELEMENTWISE) for user in instr.operands[0].users):
        return None
    inside: list[int] = []
    for old, new in reshape_groups(turn.array.dims, instr.operands[0].array.dims):
        if reduced.isdisjoint(new):
            continue
        if not reduced.issuperset(new):
            return None
        inside += old
    if not inside:
        return None
    kept = tuple(n for d, n in enumerate(turn.array.dims) if d not in inside)
    attrs: dict[str, object] = {**instr.attrs, "dimensions": tuple(inside)}
    total = emit(instr, "reduce", instr.array.with_dims(kept), (turn, instr.operands[1]), attrs)
    return make.reshape(total, instr.array.dims)


# reduce(concatenate(a, b)) over other dimensions == concatenate(reduce(a), reduce(b))
@rule("reduce-of-concatenate", Op("reduce", Op("concatenate"), Y), ANY_ORDER)
def reduce_of_concatenate(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Reduce parts where they lie, each in its own order; only what is left is put together."""
    joined, init = instr.operands
    (dim,) = joined.dimensions
    parts = joined.operands
    if dim in instr.dimensions or len(parts) > _MOST_REDUCED:
        return None
    if joined.array.element_count < len(parts) * _LEAST_REDUCED:
        return None
    place = dim - sum(d < dim for d in instr.dimensions)
    totals = []
    for part in parts:
        dims = tuple(n for d, n in enumerate(part.array.dims) if d not in instr.dimensions)
        shape = instr.array.with_dims(dims)
        totals.append(emit(instr, "reduce", shape, (part, init), dict(instr.attrs)))
    return emit(instr, "concatenate", instr.array, totals, {"dimensions": (place,)})


# dot(x, y) over an empty contraction == 0
@rule("dot-of-nothing", Op("dot"))
def dot_of_nothing(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """A contraction over no elements is zero everywhere."""
    left = instr.operands[0].array.dims
    if 0 not in (left[d] for d in instr.lhs_contracting_dims):
        return None
    return make.splat(instr, instr.array, 0)
