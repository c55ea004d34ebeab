"""Loops and branches that the chip runs: HLO's while and conditional, of functions that are traced.

    while_loop(trace, lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] * 2), (0, x))

A function of a loop or branch is traced once, as a computation of its own (`nested`). What a loop
carries keeps its shapes and element types; Python scalars take the type that the body gives them.
Every function here is applied by `Trace.run`: the trace comes first, then what is known while
tracing, then what is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.nested import Leaf, Nested, expect_tree, trace_nested
from compiler.frontends.numpy.ops import as_tracer, broadcast_to, convert, reshape
from compiler.frontends.numpy.promotion import OperandType, promote
from compiler.frontends.numpy.pytree import TreeDef, flatten, unflatten
from compiler.frontends.numpy.tracer import Trace, Tracer
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import PRED, S32
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import ArrayShape

_INDEX = Leaf(ArrayShape(S32, ()))


def while_loop(
    trace: Trace, condition: Callable[..., object], body: Callable[..., object], init: Any
) -> Any:
    """The state that `body` has made of `init` when `condition` of it does not hold any more."""
    state, tree = _leaves(trace, init)
    alone = TreeDef(tuple, (), (tree,))
    traced, state = _fixed_types(
        "while_loop: body",
        tree,
        state,
        lambda leaves: trace_nested(trace, "body", body, alone, leaves),
    )
    tested = trace_nested(trace, "condition", condition, alone, [Leaf.of(x) for x in state])
    _expect_truth(tested)
    return unflatten(tree, _loop(trace, tested, traced, state))


def fori_loop(trace: Trace, body: Callable[..., object], lower: Any, upper: Any, init: Any) -> Any:
    """``for i in range(lower, upper): value = body(i, value)``, beginning with `init`."""
    start, end = (_index(trace, "fori_loop", bound) for bound in (lower, upper))
    state, tree = _leaves(trace, init)
    arguments = TreeDef(tuple, (), (TreeDef(None), tree))
    traced, state = _fixed_types(
        "fori_loop: body",
        tree,
        state,
        lambda leaves: trace_nested(trace, "body", body, arguments, [_INDEX, *leaves]),
    )
    return unflatten(tree, _counted(trace, traced, start, end, state))


def scan(
    trace: Trace,
    function: Callable[..., object],
    length: int | None,
    reverse: bool,
    init: Any,
    xs: Any,
) -> tuple[Any, Any]:
    """``carry, y = function(carry, x)`` for each slice of `xs` along its first axis, last first if
    `reverse`: the last carry, and all `y` along a new first axis, each where its `x` was."""
    sliced, xs_tree = _leaves(trace, xs)
    count = _scan_length([x.shape for x in sliced], length)
    state, tree = _leaves(trace, init)
    steps = [Leaf(x.instr.array.with_dims(x.shape[1:])) for x in sliced]
    arguments = TreeDef(tuple, (), (tree, xs_tree))

    def traced_with(leaves: Sequence[Leaf]) -> Nested:
        return trace_nested(trace, "step", function, arguments, [*leaves, *steps])

    step, state = _fixed_types("scan: function", tree, state, traced_with, has_more=True)
    made = step.outputs[len(state) :]
    y_tree = step.tree.children[1]
    if not count:
        empty = [np.zeros((0, *y.shape), y.dtype) for y in made]
        return init, unflatten(y_tree, [as_tracer(trace, array) for array in empty])
    room = [_room(trace, count, y) for y in made]
    called = _Called(step)

    def body(number: Tracer, values: Sequence[Tracer]) -> list[Tracer]:
        inner = number.owner
        at = _scalar_of(inner, count - 1) - number if reverse else number
        mine = [_slice_at(inner.lift(x), at) for x in sliced]
        results = called.results(inner, [*values[: len(state)], *mine])
        kept = zip(values[len(state) :], results[len(state) :], strict=True)
        return [*results[: len(state)], *(_put_at(into, y, at) for into, y in kept)]

    zero, end = (as_tracer(trace, np.int32(n)) for n in (0, count))
    both = TreeDef(tuple, (), (TreeDef(None),) * (1 + len(state) + len(room)))
    leaves = [Leaf.of(x) for x in (*state, *room)]
    traced = trace_nested(
        trace, "body", lambda number, *values: tuple(body(number, values)), both, [_INDEX, *leaves]
    )
    results = _counted(trace, traced, zero, end, [*state, *room])
    ys = unflatten(y_tree, results[len(state) :])
    return unflatten(tree, results[: len(state)]), ys


def switch(
    trace: Trace, branches: Sequence[Callable[..., object]], index: Any, *operands: Any
) -> Any:
    """``branches[index](*operands)``; only that one runs. An index outside is clamped."""
    if not branches:
        raise CompileError("switch: want one branch or more")
    b, number = trace.builder, _index(trace, "switch", index).instr
    inside = b.clamp(b.constant(S32, 0), number, b.constant(S32, len(branches) - 1))
    return _branched(trace, inside, branches, operands)


def cond(
    trace: Trace,
    if_true: Callable[..., object],
    if_false: Callable[..., object],
    predicate: Any,
    *operands: Any,
) -> Any:
    """``if_true(*operands)`` or ``if_false(*operands)``; only one of them runs."""
    chosen = as_tracer(trace, predicate)
    if chosen.shape:
        raise CompileError(f"cond: the predicate is {chosen!r}, want a scalar")
    return _branched(trace, convert(chosen, np.bool_).instr, (if_true, if_false), operands)


# --- Loops ---------------------------------------------------------------------------------------


def _fixed_types(
    what: str,
    tree: TreeDef,
    state: Sequence[Tracer],
    traced_with: Callable[[Sequence[Leaf]], Nested],
    *,
    has_more: bool = False,
) -> tuple[Nested, list[Tracer]]:
    """Trace a body until what it makes of the state has the types of the state.

    Only weak leaves change: a Python scalar becomes what the body makes of it.
    """
    state = list(state)
    while True:
        nested = traced_with([Leaf.of(x) for x in state])
        expect_tree(what, _state_tree(what, nested.tree, has_more), tree)
        outputs = nested.outputs[: len(state)]
        changed = [_retyped(x, y) for x, y in zip(state, outputs, strict=True)]
        if all(new is old for new, old in zip(changed, state, strict=True)):
            _expect_fixed(what, tree, state, outputs)
            return nested, state
        state = changed


def _state_tree(what: str, tree: TreeDef, has_more: bool) -> TreeDef:
    """The part of a body's result that is the next state: of a scan the first of a pair."""
    if not has_more:
        return tree
    if tree.kind is not tuple or len(tree.children) != 2:
        raise CompileError(f"{what} must return a pair: the carry, and what to stack (or None)")
    return tree.children[0]


def _retyped(carried: Tracer, made: Tracer) -> Tracer:
    """A weak leaf in the type that the body makes of it; else the leaf as it is."""
    common = promote([Leaf.of(carried).type, Leaf.of(made).type])
    if not carried.is_weak or common == Leaf.of(carried).type:
        return carried
    new = convert(carried, common.dtype)
    return Tracer(new.owner, new.instr, is_weak=common.is_weak)


def _expect_fixed(
    what: str, tree: TreeDef, state: Sequence[Tracer], outputs: Sequence[Tracer]
) -> None:
    for path, before, after in zip(tree.paths(), state, outputs, strict=True):
        is_same = promote([Leaf.of(before).type, Leaf.of(after).type]).dtype == before.dtype
        is_same &= after.is_weak or before.dtype == after.dtype
        if before.shape != after.shape or not is_same:
            name = "".join(f"[{key}]" for key in path)
            raise CompileError(
                f"{what} makes {Leaf.of(after)} of the carried state{name}, which is "
                f"{Leaf.of(before)}: shapes and element types of what a loop carries stay the same"
            )


def _loop(trace: Trace, tested: Nested, body: Nested, state: Sequence[Tracer]) -> list[Tracer]:
    """A while instruction of both, and its results leaf by leaf."""
    types = [Leaf.of(x).type for x in state]
    invariant = list(dict.fromkeys([*body.captured, *tested.captured]))
    slots = [*(x.instr for x in state), *invariant]
    nexts = body.converted(types)
    bodied = body.build(
        slots,
        _places(body, invariant, len(state)),
        lambda values: body.builder.tuple([*nexts, *values[len(state) :]]),
    )
    truth = tested.converted([OperandType(np.dtype(np.bool_), is_weak=False)])[0]
    condition = tested.build(slots, _places(tested, invariant, len(state)), lambda _: truth)
    return _while(trace, condition, bodied, slots, state)


def _counted(
    trace: Trace, body: Nested, start: Tracer, end: Tracer, state: Sequence[Tracer]
) -> list[Tracer]:
    """A loop that counts from `start` to `end`; the body's first input is the counter."""
    builder = trace.builder
    invariant = [x for x in body.captured if x is not end.instr]
    slots = [start.instr, *(x.instr for x in state), *invariant, end.instr]
    first = 1 + len(state)
    places = _places(body, [*invariant, end.instr], first)
    nexts = body.converted([Leaf.of(x).type for x in state])

    def root(values: Sequence[HloInstruction]) -> HloInstruction:
        b = body.builder
        return b.tuple([b.add(values[0], b.constant(S32, 1)), *nexts, *values[first:]])

    bodied = body.build(slots, places, root)
    condition = _counts_to_last(builder, slots)
    return _while(trace, condition, bodied, slots, [start, *state])[1:]


def _counts_to_last(builder: HloBuilder, slots: Sequence[HloInstruction]) -> HloComputation:
    """The condition that the first slot is less than the last one.

    A bound that is a constant stands in the condition, where the trip count is read from.
    """
    b = HloBuilder(builder.module.unique_name("condition"), builder.module)
    state = b.parameter(builder.tuple(slots).shape, "state")
    counter, last = b.get_tuple_element(state, 0), slots[-1]
    if last.opcode == "constant":
        end = b.literal(np.asarray(last.literal))
    else:
        end = b.get_tuple_element(state, len(slots) - 1)
    return b.build(b.compare(counter, end, "LT"))


def _while(
    trace: Trace,
    condition: HloComputation,
    body: HloComputation,
    slots: Sequence[HloInstruction],
    state: Sequence[Tracer],
) -> list[Tracer]:
    loop = trace.builder.while_(condition, body, trace.builder.tuple(slots))
    return [
        Tracer(trace, trace.builder.get_tuple_element(loop, i), is_weak=x.is_weak)
        for i, x in enumerate(state)
    ]


def _places(
    nested: Nested, invariant: Sequence[HloInstruction], first: int
) -> dict[HloInstruction, int]:
    """The slot of each parameter: its own ones come first, invariant arrays from `first`."""
    places = {instr: i for i, instr in enumerate(nested.inputs)}
    for outer, inner in nested.captured.items():
        places[inner] = first + invariant.index(outer)
    return places


class _Called:
    """A traced function as a computation that other traces call, with what it captured."""

    def __init__(self, nested: Nested) -> None:
        self._nested = nested
        b = nested.builder
        self._computation = b.build(b.tuple([output.instr for output in nested.outputs]))

    def results(self, trace: Trace, operands: Sequence[Tracer]) -> list[Tracer]:
        """Call it in a trace inside of the one that it was traced in."""
        parent = self._nested.trace.parent
        assert parent is not None
        captured = [trace.lift(Tracer(parent, outer)) for outer in self._nested.captured]
        inputs = zip(self._nested.inputs, operands, strict=True)
        given = [convert(x, p.array.dtype.numpy) for p, x in inputs]
        b = trace.builder
        call = b.call(self._computation, [x.instr for x in (*given, *captured)])
        return [
            Tracer(trace, b.get_tuple_element(call, i), is_weak=output.is_weak)
            for i, output in enumerate(self._nested.outputs)
        ]


def _scan_length(shapes: Iterable[tuple[int, ...]], length: int | None) -> int:
    counts = [length] if length is not None else []
    for shape in shapes:
        if not shape:
            raise CompileError("scan: xs holds a scalar: want arrays with a first axis to go along")
        counts.append(shape[0])
    if not counts:
        raise CompileError("scan: give xs with an array, or length")
    if len(set(counts)) > 1:
        raise CompileError(f"scan: xs and length give {sorted(set(counts))} steps: want one number")
    return counts[0]


def _room(trace: Trace, count: int, y: Tracer) -> Tracer:
    """Zeros for all that a scan stacks of one result."""
    zero = as_tracer(trace, np.zeros((), y.dtype))
    return broadcast_to(zero, (count, *y.shape))


def _scalar_of(trace: Trace, value: int) -> Tracer:
    return as_tracer(trace, np.int32(value))


def _slice_at(x: Tracer, at: Tracer) -> Tracer:
    """Element `at` of the first axis."""
    b = x.owner.builder
    zeros = [b.constant(S32, 0)] * (x.ndim - 1)
    part = b.dynamic_slice(x.instr, [at.instr, *zeros], (1, *x.shape[1:]))
    return reshape(Tracer(x.owner, part), x.shape[1:])


def _put_at(into: Tracer, y: Tracer, at: Tracer) -> Tracer:
    """`into` with element `at` of its first axis replaced."""
    b = into.owner.builder
    zeros = [b.constant(S32, 0)] * y.ndim
    row = reshape(convert(y, into.dtype), (1, *y.shape))
    return Tracer(into.owner, b.dynamic_update_slice(into.instr, row.instr, [at.instr, *zeros]))


def _expect_truth(tested: Nested) -> None:
    if tested.tree.kind is not None or tested.outputs[0].shape:
        raise CompileError("while_loop: the condition must return one scalar truth value")
    if tested.outputs[0].instr.array.dtype != PRED:
        raise CompileError(
            f"while_loop: the condition returns {tested.outputs[0]!r}, want a truth value: compare "
            "it with something"
        )


# --- Branches ------------------------------------------------------------------------------------


def _branched(
    trace: Trace,
    selector: HloInstruction,
    branches: Sequence[Callable[..., object]],
    operands: Sequence[Any],
) -> Any:
    """A conditional; results take the types that those of all branches promote to."""
    given, tree = _leaves(trace, tuple(operands))
    leaves = [Leaf.of(x) for x in given]
    nested = [trace_nested(trace, "branch", branch, tree, leaves) for branch in branches]
    first = nested[0]
    for number, other in enumerate(nested[1:], 1):
        expect_tree(f"branch {number}", other.tree, first.tree)
    types = [
        _common(number, of)
        for number, of in enumerate(zip(*(n.outputs for n in nested), strict=True))
    ]
    computations, arguments = [], []
    for branch in nested:
        slots = [*(x.instr for x in given), *branch.captured]
        results = branch.converted(types)
        places = _places(branch, list(branch.captured), len(given))
        made = branch.build(slots, places, _tuple_of(branch, results))
        computations.append(made)
        arguments.append(trace.builder.tuple(slots))
    chosen = trace.builder.conditional(selector, computations, arguments)
    results_of = [
        Tracer(trace, trace.builder.get_tuple_element(chosen, i), is_weak=type.is_weak)
        for i, type in enumerate(types)
    ]
    return unflatten(first.tree, results_of)


def _tuple_of(
    branch: Nested, results: Sequence[HloInstruction]
) -> Callable[[Sequence[HloInstruction]], HloInstruction]:
    return lambda _: branch.builder.tuple(results)


def _common(number: int, outputs: Sequence[Tracer]) -> OperandType:
    """The type of one result of all branches, which must have one shape and, unless weak, one type."""
    strong = {x.dtype for x in outputs if not x.is_weak}
    if len({x.shape for x in outputs}) > 1 or len(strong) > 1:
        found = ", ".join(str(Leaf.of(x)) for x in outputs)
        raise CompileError(f"result {number} of the branches is {found}: want one shape and type")
    return promote([Leaf.of(x).type for x in outputs])


# --- Operands ------------------------------------------------------------------------------------


def _leaves(trace: Trace, tree: Any) -> tuple[list[Tracer], TreeDef]:
    leaves, structure = flatten(tree)
    return [as_tracer(trace, leaf) for leaf in leaves], structure


def _index(trace: Trace, name: str, value: Any) -> Tracer:
    number = as_tracer(trace, value)
    if number.shape or number.dtype.kind not in "iu":
        raise CompileError(f"{name}: {number!r} is no integer scalar")
    return convert(number, np.int32)
