"""Derivatives of loops and branches.

Forward mode carries tangents through the same loop. Reverse mode needs the trip count: the forward loop
stacks what the backward one will read of each iteration's state, and the backward loop runs through
them from the last to the first, computing the body again. What a body hands on unchanged is not
stacked, nor is a counter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compiler.analysis.trip_count import trip_count
from compiler.autodiff.refusal import refused
from compiler.autodiff.rule import DerivativeRule, Pullback, Scope
from compiler.autodiff.values import (
    Contribution,
    Instr,
    Mask,
    Tangent,
    Value,
    array_of,
    arrays_of,
    both,
    either,
    flags_of,
    has_derivative,
    mask_like,
    or_zeros,
    pack,
    shaped_like,
    tangents_of,
    value_like,
)
from compiler.hlo.cloning import clone_instructions
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import Shape, TupleShape, leaves
from compiler.passes.expanders.scan_expander import slice_at, with_slice
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import remove_unneeded


def copied(scope: Scope, computation: HloComputation, args: Sequence[Value]) -> Value:
    """A computation's result, without any derivative."""
    return scope.vjp(computation, args, [False] * len(args))[0]


def unpacked_parameter(e: Emitter, shapes: Sequence[Shape]) -> list[Instr]:
    """The elements of the computation's one parameter."""
    state = e.parameter(TupleShape(tuple(shapes)), "state")
    return [e.get_tuple_element(state, k) for k in range(len(shapes))]


class WhileRule(DerivativeRule):
    """A loop whose state is a tree of arrays."""

    def mask(self, scope: Scope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """What the initial state changes, after any number of iterations."""
        found = both(masks[0], has_derivative(instr.shape))
        while True:
            ahead = either(found, scope.mask(instr.body, [found]))
            if ahead == found:
                return found
            found = ahead

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """A loop of states with tangents."""
        e, shape = scope.emitter(instr), instr.shape
        init = arrays_of(operands[0])
        given = tangents_of(tangents[0], shape)
        active = flags_of(self.mask(scope, instr, [_there(tangents[0], shape)]), shape)
        moving = [k for k, flag in enumerate(active) if flag]
        every = [*init, *(or_zeros(e, given[k], init[k].array) for k in moving)]
        shapes = [x.shape for x in every]
        count = len(init)

        inner, b = scope.within(instr, "forward_body")
        values = unpacked_parameter(b, shapes)
        state = value_like(shape, iter(values[:count]))
        beside = dict(zip(moving, values[count:], strict=True))
        changes = _placed(shape, beside)
        ahead, moved = inner.jvp(instr.body, [state], [changes])
        flat = tangents_of(moved, shape)
        nexts = [or_zeros(b, flat[k], init[k].array) for k in moving]
        body = b.build(b.tuple([*arrays_of(ahead), *nexts]))

        inner, b = scope.within(instr, "forward_condition")
        values = unpacked_parameter(b, shapes)
        truth = copied(inner, instr.condition, [value_like(shape, iter(values[:count]))])
        made = e.while_(b.build(array_of(truth)), body, e.tuple(every))
        results = [e.get_tuple_element(made, k) for k in range(len(every))]
        ends = dict(zip(moving, results[count:], strict=True))
        return (
            value_like(shape, iter(results[:count])),
            _placed(shape, ends),
        )

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """A loop that stacks states, and one that reads them from the last to the first."""
        e = scope.emitter(instr)
        probe = e.while_(instr.condition, instr.body, pack(e, operands[0]))
        count = trip_count(probe)
        if count is None:
            raise refused(
                instr,
                "reverse mode through a loop whose trip count is not known; use scan or fori_loop "
                "with bounds known when it is traced, or jvp",
            )
        if not count:
            return operands[0], lambda g: [g]
        return _Reverse(scope, instr, self.mask(scope, instr, masks), count).run(operands[0])


@dataclass
class _Reverse:
    """Reverse mode through a loop of `count` iterations."""

    scope: Scope
    instr: Instr
    mask: Mask
    count: int

    def run(self, init: Value) -> tuple[Value, Pullback]:
        """The last state, and the pullback to the first."""
        shape = self.instr.shape
        self.shapes = leaves(shape)
        self.active = [k for k, flag in enumerate(flags_of(self.mask, shape)) if flag]
        step, used = self._backward_step()
        first = arrays_of(init)
        constants = [k for k in used if k in self._unchanged()]
        counters = {k: by for k, by in self._counters().items() if k in used}
        stacked = [k for k in used if k not in constants and k not in counters]
        last, stacks = self._forward(first, stacked)

        def pullback(cotangent: Tangent) -> Sequence[Contribution]:
            e = self.scope.emitter(self.instr)
            given = tangents_of(cotangent, shape)
            seeds = [or_zeros(e, given[k], self.shapes[k]) for k in self.active]
            fixed = [first[k] for k in (*constants, *counters)]
            room = len(seeds), len(fixed)

            def body(b: Emitter, turn: Instr, state: list[Instr]) -> list[Instr]:
                g, kept, piles = state[: room[0]], state[room[0] : sum(room)], state[sum(room) :]
                at = b.subtract(b.constant(S32, self.count - 1), turn)
                known = dict(zip((*constants, *counters), kept, strict=True))
                for k, by in counters.items():
                    known[k] = _counted(b, known[k], at, by)
                for k, pile in zip(stacked, piles, strict=True):
                    known[k] = slice_at(b, pile, 0, at)
                arguments = [known.get(k, turn) for k in range(len(self.shapes))]
                copies = clone_instructions(step, b.computation, [*arguments, *g])
                root = step.root_instruction
                return [*(copies[o] for o in root.operands), *kept, *piles]

            results = e.loop(self.count, [*seeds, *fixed, *stacks], body)
            found = dict(zip(self.active, results, strict=False))
            return [_placed(shape, found)]

        return value_like(shape, iter(last)), pullback

    def _backward_step(self) -> tuple[HloComputation, list[int]]:
        """One iteration backwards: of the state before it and the cotangents after it; and which
        parts of that state it reads."""
        inner, b = self.scope.within(self.instr, "backward_step")
        shape = self.instr.shape
        state = [b.parameter(s) for s in self.shapes]
        given = {k: b.parameter(self.shapes[k]) for k in self.active}
        seeds = _placed(shape, given)
        _, pull = inner.vjp(self.instr.body, [value_like(shape, iter(state))], [self.mask])
        (back,) = pull(seeds)
        flat = tangents_of(back, shape)
        b.computation.root = b.tuple([or_zeros(b, flat[k], self.shapes[k]) for k in self.active])
        remove_unneeded(b.computation)
        return b.computation, [k for k, parameter in enumerate(state) if parameter.users]

    def _forward(
        self, first: Sequence[Instr], stacked: Sequence[int]
    ) -> tuple[list[Instr], list[Instr]]:
        """The loop, which also stacks parts of the state as they are before each iteration."""
        e, size = self.scope.emitter(self.instr), len(first)
        room = [
            e.full(self.shapes[k].dtype, (self.count, *self.shapes[k].dims), 0) for k in stacked
        ]

        def body(b: Emitter, turn: Instr, state: list[Instr]) -> list[Instr]:
            before = value_like(self.instr.shape, iter(state[:size]))
            after = arrays_of(copied(self.scope.at(b), self.instr.body, [before]))
            piles = [
                with_slice(b, pile, state[k], 0, turn)
                for k, pile in zip(stacked, state[size:], strict=True)
            ]
            return [*after, *piles]

        results = e.loop(self.count, [*first, *room], body)
        return results[:size], results[size:]

    def _slots(self) -> list[tuple[int, Instr]]:
        """What the body makes of each element, where state and result are flat tuples."""
        root = self.instr.body.root_instruction
        if root.opcode != "tuple" or len(root.operands) != len(self.shapes):
            return []
        return list(enumerate(root.operands))

    def _is_element(self, instr: Instr, number: int) -> bool:
        is_state = instr.opcode == "get-tuple-element" and instr.operands[0].opcode == "parameter"
        return is_state and instr.index == number

    def _unchanged(self) -> set[int]:
        return {k for k, made in self._slots() if self._is_element(made, k)}

    def _counters(self) -> dict[int, Instr]:
        """Integers to which the body adds a constant: that constant."""
        found = {}
        for k, made in self._slots():
            if made.opcode != "add" or not self.shapes[k].dtype.is_integer or self.shapes[k].dims:
                continue
            for mine, other in (made.operands, reversed(made.operands)):
                if self._is_element(mine, k) and other.opcode == "constant":
                    found[k] = other
        return found


def _counted(b: Emitter, first: Instr, turn: Instr, by: Instr) -> Instr:
    """A counter before iteration `turn`."""
    dtype = first.array.dtype
    step = b.constant(dtype, by.literal)
    return b.add(first, b.multiply(b.cast(turn, dtype), step))


class Conditional(DerivativeRule):
    """One of several computations, each of an operand of its own."""

    def mask(self, scope: Scope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """What any branch's operand changes."""
        found: Mask = both(False, has_derivative(instr.shape))
        for branch, mask in zip(instr.branches, masks[1:], strict=True):
            found = either(found, scope.mask(branch, [mask]))
        return found

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """Branches that compute tangents, too."""
        e, shape = scope.emitter(instr), instr.shape
        pairs = list(zip(instr.operands[1:], operands[1:], tangents[1:], strict=True))
        flags = [_there(tangent, old.shape) for old, _, tangent in pairs]
        changed = flags_of(self.mask(scope, instr, [False, *flags]), shape)
        moving = [k for k, flag in enumerate(changed) if flag]
        branches, arguments = [], []
        for branch, (old, value, tangent) in zip(instr.branches, pairs, strict=True):
            mine = arrays_of(value)
            given = tangents_of(tangent, old.shape)
            there = [k for k, t in enumerate(given) if t is not None]
            every = [*mine, *(array_of(given[k]) for k in there)]
            inner, b = scope.within(instr, "forward_branch")
            found = unpacked_parameter(b, [x.shape for x in every])
            beside = dict(zip(there, found[len(mine) :], strict=True))
            changes = _placed(old.shape, beside)
            state = value_like(old.shape, iter(found[: len(mine)]))
            result, moved = inner.jvp(branch, [state], [changes])
            outs = arrays_of(result)
            flat = tangents_of(moved, shape)
            ends = [or_zeros(b, flat[k], outs[k].array) for k in moving]
            branches.append(b.build(b.tuple([*outs, *ends])))
            arguments.append(e.tuple(every))
        made = e.conditional(array_of(operands[0]), branches, arguments)
        size = len(leaves(shape))
        results = [e.get_tuple_element(made, k) for k in range(size + len(moving))]
        after = dict(zip(moving, results[size:], strict=True))
        return (
            value_like(shape, iter(results[:size])),
            _placed(shape, after),
        )

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """The pullback is a conditional of the branches' pullbacks, which compute them again."""
        value = scope.emit(instr, operands)

        def pullback(cotangent: Tangent) -> Sequence[Contribution]:
            return self._backward(scope, instr, operands, masks, cotangent)

        return value, pullback

    def _backward(
        self,
        scope: Scope,
        instr: Instr,
        operands: Sequence[Value],
        masks: Sequence[Mask],
        cotangent: Tangent,
    ) -> list[Contribution]:
        e = scope.emitter(instr)
        given = tangents_of(cotangent, instr.shape)
        there = [k for k, g in enumerate(given) if g is not None]
        wanted = [
            [k for k, flag in enumerate(flags_of(mask, old.shape)) if flag]
            for old, mask in zip(instr.operands, masks, strict=True)
        ][1:]
        branches, arguments = [], []
        for number, branch in enumerate(instr.branches):
            old, value = instr.operands[1 + number], arrays_of(operands[1 + number])
            every = [*value, *(array_of(given[k]) for k in there)]
            inner, b = scope.within(instr, "backward_branch")
            found = unpacked_parameter(b, [x.shape for x in every])
            seeds = dict(zip(there, found[len(value) :], strict=True))
            state = value_like(old.shape, iter(found[: len(value)]))
            _, pull = inner.vjp(branch, [state], [masks[1 + number]])
            (back,) = pull(_placed(instr.shape, seeds))
            flat = tangents_of(back, old.shape)
            results: list[Instr] = []
            for other, kept in enumerate(wanted):
                shapes = leaves(instr.operands[1 + other].shape)
                results += [
                    or_zeros(b, flat[k] if other == number else None, shapes[k]) for k in kept
                ]
            branches.append(b.build(b.tuple(results)))
            arguments.append(e.tuple(every))
        made = e.conditional(array_of(operands[0]), branches, arguments)
        total = sum(len(kept) for kept in wanted)
        back_through = iter([e.get_tuple_element(made, k) for k in range(total)])
        contributions: list[Contribution] = [None]
        for old, kept in zip(instr.operands[1:], wanted, strict=True):
            contributions.append(_placed(old.shape, {k: next(back_through) for k in kept}))
        return contributions


def _there(tangent: Tangent, shape: Shape) -> Mask:
    return mask_like(shape, iter([t is not None for t in tangents_of(tangent, shape)]))


def _placed(shape: Shape, parts: Mapping[int, Instr]) -> Tangent:
    """A tree of a shape with these arrays at these places, and zero elsewhere."""
    return shaped_like(shape, iter([parts.get(k) for k in range(len(leaves(shape)))]))


LOOP_RULES: dict[str, DerivativeRule] = {
    "conditional": Conditional(),
    "while": WhileRule(),
}
