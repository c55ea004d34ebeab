"""Start values that count once, for reduces whose computation is no one opcode.

A kernel begins its partial results with the start value and fills what its tiles leave over with
it. That is right when the start combined with itself is the start again, as it is for every
identity and for computations that choose one of their sides. Elsewhere each partial result says
whether it has taken in any element, and the start is combined once, with what they came to.
"""

from __future__ import annotations

from compiler.analysis.reducers import is_idempotent_start, widened_kind
from compiler.hlo.dtypes import PRED
from compiler.hlo.identities import MONOIDS, identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import ArrayShape, TupleShape, leaves
from compiler.rewrite.emitter import Emitter, result_of

Instr = HloInstruction


def started_once(reduce: Instr) -> Instr | None:
    """The reduce with a flag beside its operands; None where its start may be met many times."""
    computation = reduce.to_apply
    count = len(reduce.operands) // 2
    if _has_identity(reduce, computation) or is_idempotent_start(reduce):
        return None
    e = Emitter.at(reduce)
    shapes = leaves(reduce.shape)
    dims, types = shapes[0].dims, [shape.dtype for shape in shapes]
    operands = [e.cast(o, t) for o, t in zip(reduce.operands[:count], types, strict=True)]
    present = e.full(PRED, operands[0].array.dims, value=True)
    nothing = [e.constant(PRED, value=False), *(e.constant(t, 0) for t in types)]
    found = e.instruction(
        "reduce",
        [present, *operands, *nothing],
        {"dimensions": reduce.dimensions, "to_apply": _flagged(e, computation)},
        TupleShape((ArrayShape(PRED, dims), *shapes)),
    )
    totals = [e.get_tuple_element(found, n + 1) for n in range(count)]
    starts = [e.broadcast(start, dims) for start in reduce.operands[count:]]
    return result_of(e, reduce, e.apply(computation, [*starts, *totals]))


def _has_identity(reduce: Instr, computation: HloComputation) -> bool:
    """Whether kernels know what changes nothing: the start value is combined at the end then."""
    if len(reduce.operands) != 2:
        return False
    kind = widened_kind(computation, MONOIDS)
    return kind is not None and identity(kind, reduce.operands[0].array.dtype) is not None


def _flagged(e: Emitter, computation: HloComputation) -> HloComputation:
    """The computation on values that say first whether they have taken in any element."""
    count = len(computation.parameters) // 2
    inner = e.beside("flagged")
    types = [PRED, *(parameter.array.dtype for parameter in computation.parameters[:count])]
    left, right = ([inner.parameter(ArrayShape(t, ())) for t in types] for _ in range(2))
    made = inner.apply(computation, [*left[1:], *right[1:]])
    sides = [inner.select(left[0], a, b) for a, b in zip(left[1:], right[1:], strict=True)]
    has_both = inner.binary("and", left[0], right[0])
    chosen = [inner.select(has_both, m, s) for m, s in zip(made, sides, strict=True)]
    return inner.build(inner.tuple([inner.binary("or", left[0], right[0]), *chosen]))
