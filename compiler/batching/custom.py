"""Calls that carry a derivative rule, batched: the rule of one example, batched when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.autodiff.rule import DerivativeRule, Pullback
from compiler.autodiff.rule import Scope as DerivativeScope
from compiler.autodiff.rule_names import DERIVATIVE
from compiler.autodiff.values import (
    Contribution,
    Instr,
    Mask,
    Tangent,
    Value,
    array_of,
    arrays_of,
    is_any,
    or_zeros,
    shaped_like,
    tangents_of,
    unpack,
    value_like,
)
from compiler.batching.step import Scope, everywhere, force
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import leaves
from compiler.rewrite.emitter import Emitter

MakeScope = Callable[[Emitter], Scope]


class BatchedRule(DerivativeRule):
    """The rule of a call of one example, which `call` is, for many."""

    def __init__(
        self, call: Instr, rule: DerivativeRule, flags: Sequence[bool], scope: MakeScope
    ) -> None:
        self.call, self.rule, self.flags, self.scope = call, rule, flags, scope

    def mask(self, scope: DerivativeScope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """As for one example."""
        return self.rule.mask(scope, self.call, masks)

    def vjp(
        self, scope: DerivativeScope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """The call, and later its pullback for one example, batched."""

        def pullback(cotangent: Tangent) -> Sequence[Contribution]:
            e = scope.emitter(instr)
            pairs = zip(tangents_of(cotangent, instr.shape), leaves(instr.shape), strict=True)
            seeds = [or_zeros(e, g, shape) for g, shape in pairs]
            wanted = [is_any(mask) for mask in masks]
            computation = self._pullback_of_one(scope, masks, wanted)
            given = [*operands, *seeds]
            flags = [*self.flags, *(True for _ in seeds)]
            found, made = self.scope(e).run(computation, given, flags)
            assert isinstance(found, tuple)
            parts = iter(
                zip(found, made if isinstance(made, tuple) else [made] * len(found), strict=True)
            )
            return [
                self._for_operand(e, k, *next(parts)) if w else None for k, w in enumerate(wanted)
            ]

        return scope.emit(instr, operands), pullback

    def _pullback_of_one(
        self, scope: DerivativeScope, masks: Sequence[Mask], wanted: Sequence[bool]
    ) -> HloComputation:
        """Of the operands and the cotangents of one example: the cotangents of wanted operands."""
        inner, b = scope.within(self.call, "pullback_of_one")
        shapes = [array_of(o).array for o in self.call.operands]
        mine = [b.parameter(shape) for shape in shapes]
        seeds: list[Tangent] = [b.parameter(shape) for shape in leaves(self.call.shape)]
        _, pull = self.rule.vjp(inner, self.call, mine, masks)
        result = shaped_like(self.call.shape, iter([array_of(s) for s in seeds]))
        found = [array_of(g) if isinstance(g, Instr) else None for g in pull(result)]
        kept = [
            or_zeros(b, g, shape) for g, shape, w in zip(found, shapes, wanted, strict=True) if w
        ]
        b.computation.root = b.tuple(kept)
        return b.computation

    def _for_operand(self, e: Emitter, number: int, value: Value, flag: Mask) -> Instr:
        """An operand that all examples share has the sum of their cotangents."""
        x = array_of(force(e, value, flag, True, self.scope(e).size))
        return x if self.flags[number] else e.total(x, 0)

    def jvp(
        self, scope: DerivativeScope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:  # fmt: skip
        """The forward rule of one example, batched."""
        e = scope.emitter(instr)
        inner, b = scope.within(self.call, "forward_of_one")
        shapes = [array_of(o).array for o in self.call.operands]
        mine = [b.parameter(shape) for shape in shapes]
        moving = [
            None if t is None else b.parameter(shape)
            for t, shape in zip(tangents, shapes, strict=True)
        ]
        value, moved = self.rule.jvp(inner, self.call, mine, moving)
        outs = arrays_of(value)
        flat = tangents_of(moved, self.call.shape)
        there = [t for t in flat if t is not None]
        b.computation.root = b.tuple([*outs, *there])
        pairs = zip(tangents, self.flags, strict=True)
        given = [(array_of(t), f) for t, f in pairs if t is not None]
        flags = [*self.flags, *(f for _, f in given)]
        found, made = self.scope(e).run(b.computation, [*operands, *(t for t, _ in given)], flags)
        every = arrays_of(force(e, found, made, True, self.scope(e).size))
        rest = iter(every[len(outs) :])
        changes = [None if t is None else next(rest) for t in flat]
        return (
            value_like(self.call.shape, iter(every[: len(outs)])),
            shaped_like(self.call.shape, iter(changes)),
        )


def batched_call(
    scope: Scope,
    instr: Instr,
    operands: Sequence[Value],
    flags: Sequence[Mask],
    rule: DerivativeRule,
) -> tuple[Value, Mask]:
    """The call of a batched callee, which carries the rule for many."""
    e = scope.emitter(instr)
    inner, b = scope.within(instr, "batched_callee")
    parameters: list[Value] = [b.parameter(array_of(o).array) for o in operands]
    result, made = inner.run(instr.to_apply, parameters, flags)
    whole = arrays_of(force(b, result, made, everywhere(instr.shape), scope.size))
    callee = b.build(b.tuple(whole))
    call = e.call(callee, [array_of(o) for o in operands])
    call.attrs[DERIVATIVE] = BatchedRule(instr, rule, [bool(f) for f in flags], scope.at)
    return unpack(e, call), everywhere(instr.shape)
