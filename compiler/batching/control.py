"""Batching of tuples, calls and control flow.

A loop whose end depends on the example runs until all examples have ended; those that have keep their
state. A branch that depends on the example is a choice among the results of all branches.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.autodiff.loops import unpacked_parameter
from compiler.autodiff.rule import DerivativeRule
from compiler.autodiff.rule_names import DERIVATIVE
from compiler.autodiff.values import (
    Instr,
    Mask,
    Value,
    array_of,
    arrays_of,
    either,
    flags_of,
    is_any,
    mask_like,
    pack,
    unpack,
    value_like,
)
from compiler.batching.custom import batched_call
from compiler.batching.step import Rule, Scope, everywhere, force
from compiler.hlo.dtypes import PRED
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import Shape
from compiler.rewrite.emitter import Emitter


def _tuple(
    scope: Scope, instr: Instr, operands: Sequence[Value], flags: Sequence[Mask]
) -> tuple[Value, Mask]:
    return tuple(operands), tuple(flags)


def _element(
    scope: Scope, instr: Instr, operands: Sequence[Value], flags: Sequence[Mask]
) -> tuple[Value, Mask]:
    (whole,), (mask,) = operands, flags
    assert isinstance(whole, tuple)
    return whole[instr.index], mask[instr.index] if isinstance(mask, tuple) else mask


def _first(
    scope: Scope, instr: Instr, operands: Sequence[Value], flags: Sequence[Mask]
) -> tuple[Value, Mask]:
    """What hands on its first operand."""
    e = scope.emitter(instr)
    packed = [pack(e, operand) for operand in operands]
    made = e.instruction(instr.opcode, packed, None, packed[0].shape)
    return unpack(e, made), flags[0]


def _call(
    scope: Scope, instr: Instr, operands: Sequence[Value], flags: Sequence[Mask]
) -> tuple[Value, Mask]:
    """What is called stands in the place of the call, unless the call has a derivative of its own."""
    rule = instr.attrs.get(DERIVATIVE)
    if isinstance(rule, DerivativeRule):
        return batched_call(scope, instr, operands, flags, rule)
    callee = instr.attrs["calls" if instr.opcode == "fusion" else "to_apply"]
    assert isinstance(callee, HloComputation)
    return scope.run(callee, operands, flags)


def _inside(b: Emitter, value: Value, shape: Shape) -> Value:
    """The elements of the computation's one parameter, which is like a value, as a tree of `shape`."""
    found = unpacked_parameter(b, [x.shape for x in arrays_of(value)])
    return value_like(shape, iter(found))


def _while(
    scope: Scope, instr: Instr, operands: Sequence[Value], flags: Sequence[Mask]
) -> tuple[Value, Mask]:
    e, shape = scope.emitter(instr), instr.shape
    found, is_single = _loop_flags(scope, instr, flags[0])
    init = force(e, operands[0], flags[0], found, scope.size)

    inner, b = scope.within(instr, "batched_body")
    state = _inside(b, init, shape)
    ahead, made = inner.run(instr.body, [state], [found])
    ahead = force(b, ahead, made, found, scope.size)
    if not is_single:
        goes_on = array_of(inner.run(instr.condition, [state], [found])[0])
        pairs = zip(arrays_of(ahead), arrays_of(state), strict=True)
        ahead = value_like(shape, iter([_where(b, goes_on, new, old) for new, old in pairs]))
    body = b.build(b.tuple(arrays_of(ahead)))

    inner, b = scope.within(instr, "batched_condition")
    truth = array_of(inner.run(instr.condition, [_inside(b, init, shape)], [found])[0])
    condition = b.build(truth if is_single else b.total(truth, 0, kind="or"))
    loop = e.while_(condition, body, e.tuple(arrays_of(init)))
    results = [e.get_tuple_element(loop, k) for k in range(len(arrays_of(init)))]
    return value_like(shape, iter(results)), found


def _loop_flags(scope: Scope, instr: Instr, flags: Mask) -> tuple[Mask, bool]:
    """Which parts of the state are batched after any number of iterations, and whether all examples
    go on or end together."""
    shape = instr.shape
    found = mask_like(shape, iter(flags_of(flags, shape)))
    while True:
        inner, b = scope.within(instr, "trial")
        trial = _trial_state(b, instr, found, scope.size)
        _, ends = inner.run(instr.condition, [trial], [found])
        if is_any(ends):
            return everywhere(shape), False
        _, made = inner.run(instr.body, [trial], [found])
        ahead = either(found, made)
        if ahead == found:
            return found, True
        found = ahead


def _trial_state(b: Emitter, instr: Instr, flags: Mask, size: int) -> Value:
    """Parameters with batch dimensions where `flags` says."""
    state = unpack(b, b.parameter(instr.shape))
    return force(b, state, False, flags, size)


def _where(e: Emitter, condition: Instr, on_true: Instr, on_false: Instr) -> Instr:
    """A choice for each example."""
    dims = on_true.array.dims
    wide = e.broadcast(condition, dims, (0,)) if len(dims) > 1 else condition
    return e.select(wide, on_true, on_false)


def _conditional(
    scope: Scope, instr: Instr, operands: Sequence[Value], flags: Sequence[Mask]
) -> tuple[Value, Mask]:
    e, shape = scope.emitter(instr), instr.shape
    if flags[0]:
        return _choice(scope, instr, operands, flags)
    wanted: Mask = mask_like(shape, iter(flags_of(False, shape)))
    for branch, operand, flag in zip(instr.branches, operands[1:], flags[1:], strict=True):
        inner, b = scope.within(instr, "trial")
        state = _inside(b, operand, branch.parameters[0].shape)
        wanted = either(wanted, inner.run(branch, [state], [flag])[1])
    branches = []
    for branch, operand, flag in zip(instr.branches, operands[1:], flags[1:], strict=True):
        inner, b = scope.within(instr, "batched_branch")
        state = _inside(b, operand, branch.parameters[0].shape)
        result, made = inner.run(branch, [state], [flag])
        branches.append(b.build(b.tuple(arrays_of(force(b, result, made, wanted, scope.size)))))
    arguments = [e.tuple(arrays_of(operand)) for operand in operands[1:]]
    chosen = e.conditional(array_of(operands[0]), branches, arguments)
    results = [e.get_tuple_element(chosen, k) for k in range(len(flags_of(wanted, shape)))]
    return value_like(shape, iter(results)), wanted


def _choice(
    scope: Scope, instr: Instr, operands: Sequence[Value], flags: Sequence[Mask]
) -> tuple[Value, Mask]:
    """All branches, and for each example the results of its own."""
    e, selector = scope.emitter(instr), array_of(operands[0])
    made = []
    for branch, operand, flag in zip(instr.branches, operands[1:], flags[1:], strict=True):
        result, found = scope.run(branch, [operand], [flag])
        made.append(arrays_of(force(e, result, found, everywhere(instr.shape), scope.size)))
    if selector.array.dtype == PRED:
        return _chosen(e, instr, [(selector, made[0])], made[1])
    # A number outside means the last branch.
    choices = [(e.compare_to(selector, k, "EQ"), results) for k, results in enumerate(made[:-1])]
    return _chosen(e, instr, choices, made[-1])


def _chosen(
    e: Emitter, instr: Instr, choices: Sequence[tuple[Instr, list[Instr]]], last: list[Instr]
) -> tuple[Value, Mask]:
    results = last
    for condition, found in choices:
        pairs = zip(found, results, strict=True)
        results = [_where(e, condition, mine, other) for mine, other in pairs]
    return value_like(instr.shape, iter(results)), everywhere(instr.shape)


CONTROL_RULES: dict[str, Rule] = {
    "add-dependency": _first,
    "call": _call,
    "conditional": _conditional,
    "domain": _first,
    "fusion": _call,
    "get-tuple-element": _element,
    "opt-barrier": _first,
    "tuple": _tuple,
    "while": _while,
}
