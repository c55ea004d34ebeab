"""reduce, reduce-window, scatter, sort and map of pairs: the same with more operands."""

from __future__ import annotations

from compiler.hlo.identities import identity, is_identity
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.pair_types.elementwise_rules import JOINT_KINDS, Rule, broadcast, combine
from compiler.passes.pair_types.scope import Scope, assembled, kept_attrs, unpacked
from compiler.passes.pair_types.separation import groups_of, separated
from compiler.passes.pair_types.values import Pair, Value, lowered
from compiler.passes.pair_types.wide import constant_pair
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import splat_value

Instr = HloInstruction


def _reduce(scope: Scope, instr: Instr) -> Value:
    """reduce and reduce-window: operands, then initial values."""
    half = len(instr.operands) // 2
    operands = scope.spread(instr.operands[:half])
    dims = _result_dims(instr)
    identity = _identity(scope, instr)
    if identity is None:
        return _in_groups(instr, operands, [], scope.spread(instr.operands[half:]), dims)
    total = _in_groups(instr, operands, [], list(identity.parts), dims)
    assert isinstance(total, Pair)
    start = scope.pair(instr.operands[1])
    e = Emitter.at(instr)
    return combine(e, scope.kinds[instr.to_apply], broadcast(e, start, dims), total)


def _identity(scope: Scope, instr: Instr) -> Pair | None:
    """The operation's identity, if it is known and the reduction starts from something else.

    A joint reduction of several operands uses its initial values any number of times.
    """
    kind = scope.kinds.get(instr.to_apply)
    if kind not in JOINT_KINDS or len(instr.operands) != 2 or instr.opcode != "reduce":
        return None
    dtype = instr.array.dtype
    if dtype.is_complex and kind == "add":
        return None
    value = splat_value(instr.operands[1])
    if value is not None and is_identity(kind, dtype, value):
        return None
    number = 1 if dtype.is_complex else identity(kind, dtype)
    return None if number is None else constant_pair(Emitter.at(instr), dtype, int(number), ())


def _scatter(scope: Scope, instr: Instr) -> Value:
    """Operands, indices, updates."""
    half = len(instr.operands) // 2
    operands = scope.spread(instr.operands[:half])
    updates = scope.spread(instr.operands[half + 1 :])
    index = scope.index(instr.operands[half])
    return _in_groups(instr, operands, [index], updates, _result_dims(instr))


def _result_dims(instr: Instr) -> tuple[int, ...]:
    shape = instr.shape
    first = shape.elements[0] if isinstance(shape, TupleShape) else shape
    assert isinstance(first, ArrayShape)
    return first.dims


def _in_groups(
    instr: Instr,
    before: list[Instr],
    between: list[Instr],
    after: list[Instr],
    dims: tuple[int, ...],
) -> Value:
    """One instruction per group of operands that depend on each other."""
    reducer, count = instr.to_apply, len(before)
    results: dict[int, Instr] = {}
    for group in groups_of(reducer, count):
        operands = [*(before[k] for k in group), *between, *(after[k] for k in group)]
        attrs = {**kept_attrs(instr), "to_apply": separated(reducer, count, group)}
        shapes = [ArrayShape(before[k].array.dtype, dims) for k in group]
        shape = shapes[0] if len(group) == 1 else TupleShape(tuple(shapes))
        new = emit(instr, instr.opcode, shape, operands, attrs, instr.name)
        for position, k in enumerate(group):
            results[k] = new if len(group) == 1 else _element(new, position, shapes[position])
    return assembled([results[k] for k in range(count)], instr.shape)


def _element(tuple_: Instr, index: int, shape: ArrayShape) -> Instr:
    return emit(tuple_, "get-tuple-element", shape, (tuple_,), {"index": index})


def _sort(scope: Scope, instr: Instr) -> Value:
    operands = scope.spread(instr.operands)
    shape = lowered(instr.shape)
    new = emit(instr, "sort", shape, operands, kept_attrs(instr), instr.name)
    return unpacked(new, instr.shape)


REDUCTION_RULES: dict[str, Rule] = {
    "reduce": _reduce,
    "reduce-window": _reduce,
    "scatter": _scatter,
    "sort": _sort,
}
